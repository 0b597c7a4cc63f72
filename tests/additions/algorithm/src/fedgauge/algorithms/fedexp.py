"""FedExP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedgauge.algorithms.base import Algorithm, SgdStep, Tensors
from fedgauge.algorithms.fedavg import fedavg
from fedgauge.base.errors import positive

if TYPE_CHECKING:
    import torch


def fedexp(gamma: float) -> Algorithm:
    r"""Local SGD on the workers, and a global rate that follows from how much their changes differ.

    .. math::
        \bar x^{r+1} = \bar x^r - \eta^r \bar\Delta^r, \qquad
        \eta^r = \max\Bigl\{1, \frac{\tfrac1M\sum_{i\in S_r}\|\Delta_i^r\|^2}{2\|\bar\Delta^r\|^2}\Bigr\}

    Args:
        gamma: local learning rate of the workers.

    Source: Jhunjhunwala, Wang and Joshi 2023, with epsilon = 0: where the changes cancel, the model stays.
    """
    gamma = positive("gamma", gamma)

    def finish(model: torch.Tensor, local: Tensors, steps: torch.Tensor) -> tuple[Tensors, Tensors]:
        change = model - local["x"]
        return {"change": change, "square": change.square().sum(dim=-1, keepdim=True)}, {}

    def update(model: torch.Tensor, server: Tensors, mean: Tensors, fraction: float) -> tuple[torch.Tensor, Tensors]:
        change, square = mean["change"], mean["square"]
        length = change.square().sum()
        eta = (square / (2 * length)).clamp(min=1.0) if length > 0 else 1.0
        return model - eta * change, {}

    return Algorithm(
        "fedexp", {"gamma": gamma}, step=SgdStep(gamma), update=update, finish=finish, synchronous=fedavg(gamma)
    )
