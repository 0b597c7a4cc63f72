"""Sums and maxima over the ranks of a job, with nothing but a function that adds tensors up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fedgauge.base.errors import InputError

Reduce = Callable[[torch.Tensor], torch.Tensor]
"""The sum of a tensor over all ranks, the same on each of them."""
_DIGITS = (24, 16, 8, 0)


def usual_reduce(tensor: torch.Tensor) -> torch.Tensor:
    """The sum over the ranks of torch.distributed, if it is initialised; otherwise the tensor itself."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.all_reduce(tensor)
    return tensor


def checked(reduce: Reduce) -> Reduce:
    """The function, with a sentence for what is not the sum of a tensor."""

    def call(tensor: torch.Tensor) -> torch.Tensor:
        found: Any = reduce(tensor.clone())
        if not isinstance(found, torch.Tensor) or found.shape != tensor.shape:
            what = tuple(found.shape) if isinstance(found, torch.Tensor) else f"{found!r:.40}"
            raise InputError(
                f"reduce(tensor) must return the sum over all ranks as a tensor of shape {tuple(tensor.shape)}, not"
                f" {what}."
            )
        return found.to(tensor)

    return call


def largest(values: torch.Tensor, reduce: Reduce) -> torch.Tensor:
    """The largest of each number over all ranks, rounded down to float32; the numbers must be at least 0.

    A maximum follows from sums: the bits of such numbers are in the order of the numbers. So every rank counts its
    number under its highest eight bits, the highest place with a count is that of the largest number, and those who
    have these bits go on with the next eight.

    >>> largest(torch.tensor([0.5, 3.0]), lambda tensor: tensor)
    tensor([0.5000, 3.0000], dtype=torch.float64)
    """
    single = values.detach().cpu().double().nan_to_num(nan=torch.inf).to(torch.float32)
    above = single.double() > values.detach().cpu().double()
    single = torch.where(above, single.nextafter(torch.zeros(())), single)
    bits = single.view(torch.int32)
    found, rows = torch.zeros_like(bits), torch.arange(len(bits))
    for place in _DIGITS:
        digit = (bits >> place) & 255
        leads = (bits >> place >> 8) == (found >> place >> 8)
        counts = torch.zeros(len(bits), 256, dtype=torch.float64)
        counts[rows, digit] = leads.double()
        counts = reduce(counts.to(values.device)).cpu()
        highest = 255 - (counts.flip(1) > 0.5).int().argmax(dim=1)
        found |= (highest << place).to(torch.int32)
    return found.view(torch.float32).double()
