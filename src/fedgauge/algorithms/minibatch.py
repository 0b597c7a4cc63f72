"""Mini-batch SGD, the yardstick that local steps must beat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedgauge.algorithms.base import Algorithm, Facts, Tensors, move_by
from fedgauge.base.errors import positive

if TYPE_CHECKING:
    import torch


def minibatch(gamma: float, eta: float = 1.0) -> Algorithm:
    r"""One step per round along the average of I N stochastic gradients, all at the global model.

    .. math::
        \bar x^{r+1} = \bar x^r - \eta\gamma\, \tfrac1M\sum_{i\in S_r} \tfrac1I\sum_{k<I} g_i(\bar x^r;\xi_{i,k})

    Args:
        gamma: learning rate.
        eta: global learning rate; only the product with gamma matters.

    Source: the paper's Theorem 5.5.
    """
    gamma, eta = positive("gamma", gamma), positive("eta", eta)

    def begin(model: torch.Tensor, server: Tensors, memory: Tensors) -> Tensors:
        return {"x": model, "sum": model.new_zeros(model.shape)}

    def step(local: Tensors, gradient: torch.Tensor) -> Tensors:
        return {"x": local["x"], "sum": local["sum"] + gradient}

    def finish(model: torch.Tensor, local: Tensors, steps: torch.Tensor) -> tuple[Tensors, Tensors]:
        return {"change": gamma * local["sum"] / steps}, {}

    facts = Facts(True, "minibatch takes no local steps; use fedavg")
    parameters = {"gamma": gamma, "eta": eta}
    return Algorithm("minibatch", parameters, step=step, update=move_by(eta), begin=begin, finish=finish, facts=facts)
