"""FedNova."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedgauge.algorithms.base import Algorithm, Facts, SgdStep, Tensors
from fedgauge.base.errors import positive

if TYPE_CHECKING:
    import torch


def fednova(gamma: float, eta: float = 1.0) -> Algorithm:
    r"""FedAvg that counts every worker's change per step, so that unequal local steps keep the right objective.

    .. math::
        \bar x^{r+1} = \bar x^r - \eta\, \Bigl(\tfrac1M\sum_i I_i\Bigr)\,
        \tfrac1M\sum_{i\in S_r} \frac{\bar x^r - x_i^{r,I_i}}{I_i}

    Args:
        gamma: local learning rate.
        eta: global learning rate.

    Source: Wang et al. 2020, for plain local SGD. With equal steps it is FedAvg.
    """
    gamma, eta = positive("gamma", gamma), positive("eta", eta)

    def finish(model: torch.Tensor, local: Tensors, steps: torch.Tensor) -> tuple[Tensors, Tensors]:
        return {"per_step": (model - local["x"]) / steps, "steps": steps}, {}

    def update(model: torch.Tensor, server: Tensors, mean: Tensors, fraction: float) -> tuple[torch.Tensor, Tensors]:
        return model - eta * mean["steps"] * mean["per_step"], {}

    facts = Facts(True, "fednova counts the steps of plain local SGD; use fedavg")
    parameters = {"gamma": gamma, "eta": eta}
    return Algorithm("fednova", parameters, step=SgdStep(gamma), update=update, finish=finish, facts=facts)
