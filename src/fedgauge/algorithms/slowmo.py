"""SlowMo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedgauge.algorithms.base import Algorithm, Facts, SgdStep, Tensors
from fedgauge.algorithms.fedavg import fedavg
from fedgauge.base.errors import fraction, positive

if TYPE_CHECKING:
    import torch


def slowmo(gamma: float, beta: float = 0.5, eta: float = 1.0) -> Algorithm:
    r"""Local SGD on the workers and a slow momentum on the server.

    .. math::
        u \leftarrow \beta u + \tfrac1\gamma\,\tfrac1M\sum_i(\bar x^r - x_i^{r,I}), \qquad
        \bar x^{r+1} = \bar x^r - \eta\gamma\, u

    Args:
        gamma: local learning rate.
        beta: the slow momentum; 0 is FedAvg.
        eta: the slow learning rate (the source's alpha).

    Source: Wang et al. 2020 (SlowMo), with SGD as the inner optimiser.
    """
    gamma, beta, eta = positive("gamma", gamma), fraction("beta", beta), positive("eta", eta)

    def init(model: torch.Tensor) -> Tensors:
        return {"u": model.new_zeros(model.shape)}

    def update(model: torch.Tensor, server: Tensors, mean: Tensors, fraction: float) -> tuple[torch.Tensor, Tensors]:
        u = beta * server["u"] + mean["change"] / gamma
        return model - eta * gamma * u, {"u": u}

    return Algorithm(
        "slowmo",
        {"gamma": gamma, "beta": beta, "eta": eta},
        step=SgdStep(gamma),
        update=update,
        init=init,
        synchronous=fedavg(gamma),
        facts=Facts(same_gamma_in_a_round=True, server_momentum=(eta * gamma * beta, eta, beta, 1 / gamma)),
    )
