"""FedAvg with momentum on the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedgauge.algorithms.base import Algorithm, Facts, SgdStep, Tensors
from fedgauge.algorithms.fedavg import fedavg
from fedgauge.base.errors import InputError, fraction, positive

if TYPE_CHECKING:
    import torch


def fedavgm(gamma: float, eta: float = 1.0, beta: float = 0.9, nesterov: bool = False) -> Algorithm:
    r"""Local SGD on the workers, and SGD with momentum or Nesterov's momentum on the server.

    .. math::
        u \leftarrow \beta u + \Delta, \quad
        \bar x^{r+1} = \bar x^r - \eta\, u \ \text{ or, with Nesterov, } \
        \bar x^{r+1} = \bar x^r - \eta\,(\Delta + \beta u), \qquad
        \Delta = \tfrac1M\sum_{i\in S_r} (\bar x^r - x_i^{r,I})

    Args:
        gamma: local learning rate.
        eta: global learning rate.
        beta: momentum of the server; 0 is FedAvg.
        nesterov: whether the momentum is Nesterov's.

    The server's step is that of ``torch.optim.SGD(lr=eta, momentum=beta, nesterov=nesterov)`` with the mean change as
    the gradient.

    Source: Hsu, Qi and Brown 2019 (FedAvgM); SlowMo is the same without Nesterov while gamma stays the same.
    """
    gamma, eta, beta = positive("gamma", gamma), positive("eta", eta), fraction("beta", beta)
    if not isinstance(nesterov, bool):
        raise InputError(f"nesterov must be true or false, not {nesterov!r}.")

    def init(model: torch.Tensor) -> Tensors:
        return {"u": model.new_zeros(model.shape)}

    def update(model: torch.Tensor, server: Tensors, mean: Tensors, fraction: float) -> tuple[torch.Tensor, Tensors]:
        u = mean["change"].add(server["u"], alpha=beta)
        move = mean["change"].add(u, alpha=beta) if nesterov else u
        return model.sub(move, alpha=eta), {"u": u}

    parameters = {"gamma": gamma, "eta": eta, "beta": beta, "nesterov": nesterov}
    of_buffer, of_change = (eta * beta**2, eta * (1 + beta)) if nesterov else (eta * beta, eta)
    return Algorithm(
        "fedavgm",
        parameters,
        step=SgdStep(gamma),
        update=update,
        init=init,
        synchronous=fedavg(gamma),
        facts=Facts(server_momentum=(of_buffer, of_change, beta, 1.0)),
    )
