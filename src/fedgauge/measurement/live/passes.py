"""Gradients of a user's own model on fixed batches, by which nothing of the model or of the training changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.stateless import _reparametrize_module

from fedgauge.base.errors import InputError
from fedgauge.base.threads import seed_generators, separate_generator
from fedgauge.federation.flat import trainable

BatchLoss = Callable[[nn.Module, Any], torch.Tensor]
"""The mean loss of a model on a batch."""
Tensors = Mapping[str, torch.Tensor]


def examples_in(batch: Any) -> int:
    """How many examples a batch has: the first length of the first tensor in it; 1 if there is none.

    >>> examples_in({"inputs": torch.zeros(4, 2), "targets": torch.zeros(4)}), examples_in("text")
    (4, 1)
    """
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else (batch,)
    return next((len(part) for part in parts if isinstance(part, torch.Tensor) and part.ndim), 1)


def bare(model: Any) -> nn.Module:
    """The user's own module, without what ``DistributedDataParallel`` and ``torch.compile`` put around it."""
    if not isinstance(model, nn.Module):
        raise InputError(
            f"model must be a torch module, or a list of modules, one for each worker of this process, not of type"
            f" {type(model).__name__}."
        )
    wrapped = isinstance(model, nn.parallel.DistributedDataParallel)
    inner = getattr(model, "module" if wrapped else "_orig_mod", None)
    if isinstance(inner, nn.Module):
        return bare(inner)
    parameters = trainable(model)
    if not parameters:
        raise InputError("The model has no parameter with requires_grad=True, so there is nothing to probe.")
    sharded = [name for name, each in parameters.items() if hasattr(each, "device_mesh")]
    if sharded:
        raise InputError(
            f"The parameter {sharded[0]} is spread over several devices (DTensor); give the probe a whole model."
        )
    return model


def parameters_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copies of the trained parameters by name."""
    return {name: each.detach().clone() for name, each in trainable(model).items()}


def buffers_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copies of the buffers by name, such as BatchNorm's running statistics."""
    return {name: each.detach().clone() for name, each in model.named_buffers()}


@dataclass
class Slope:
    """The gradient of the mean loss of some batches.

    Attributes:
        loss: the mean loss.
        gradient: the mean gradient by parameter, in float64.
        squares: for each parameter, the sum of squared distances of the batches' gradients from their mean.
    """

    loss: float
    gradient: dict[str, torch.Tensor]
    squares: dict[str, float]


def slope(model: nn.Module, loss: BatchLoss, batches: Sequence[Any], parameters: Tensors, buffers: Tensors) -> Slope:
    """Differentiate the mean loss of batches at given parameters and buffers, in eval mode.

    Nothing is left behind: neither in the module (its parameters, gradients, buffers and modes) nor in the random
    generators of torch, numpy and Python.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> at = {"weight": torch.tensor([[3.0]])}
    >>> found = slope(model, lambda model, x: model(x).square().mean() / 2, [torch.ones(1, 1)], at, {})
    >>> found.loss, found.gradient["weight"].item(), model.weight.grad is None
    (4.5, 3.0, True)
    """
    means = {name: torch.zeros_like(each, dtype=torch.float64) for name, each in parameters.items()}
    squares, total = dict.fromkeys(parameters, 0.0), 0.0
    device = next(iter(parameters.values())).device
    with _apart(model, device):
        for number, batch in enumerate(batches):
            leaves = {name: each.detach().clone().requires_grad_() for name, each in parameters.items()}
            held = {**leaves, **{name: each.clone() for name, each in buffers.items()}}
            # What the loss draws by torch, it draws the same at every model.
            seed_generators(number, device)
            with _reparametrize_module(model, held, tie_weights=True):
                value = _checked(loss(model, batch))
                gradients = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
            if all(each is None for each in gradients):
                raise InputError(
                    "loss(model, batch) does not depend on the model that it is given; call that model in it, not"
                    " another one."
                )
            total += float(value.detach())
            for (name, mean), each in zip(means.items(), gradients, strict=True):
                if each is None:
                    each = torch.zeros_like(mean)
                apart = each.double() - mean
                mean += apart / (number + 1)
                squares[name] += float((apart * (each.double() - mean)).sum())
    return Slope(total / len(batches), means, squares)


def _checked(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.is_floating_point():
        what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"{value!r:.60}"
        raise InputError(
            f"loss(model, batch) must return one number as a tensor, the mean loss of the batch, not {what}."
        )
    if not value.requires_grad:
        raise InputError(
            "loss(model, batch) must return a tensor that can be differentiated; leave out detach(), item() and"
            " torch.no_grad() there, and call the model that it is given."
        )
    return value.reshape(())


@contextmanager
def _apart(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Compute in eval mode and beside the training: modes and random generators are restored afterwards."""
    modes = [(part, part.training) for part in model.modules()]
    numbers, python = np.random.get_state(), random.getstate()  # noqa: NPY002 - the user's generator, left as it is
    try:
        # Not by eval(), which a module may have made to do more than this.
        for part, _ in modes:
            part.training = False
        with separate_generator(device):
            yield
    finally:
        for part, mode in modes:
            part.training = mode
        np.random.set_state(numbers)  # noqa: NPY002
        random.setstate(python)
