"""FedAdam, FedAdagrad and FedYogi: one server step, three second moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedgauge.algorithms.base import Algorithm, SgdStep, Tensors
from fedgauge.algorithms.fedavg import fedavg
from fedgauge.base.errors import fraction, positive

if TYPE_CHECKING:
    import torch

    SecondMoment = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _adaptive(
    name: str,
    gamma: float,
    eta: float,
    tau: float,
    beta1: float,
    second_moment: SecondMoment,
    parameters: dict[str, float],
) -> Algorithm:
    """m <- beta1 m + (1 - beta1) Delta; v <- second_moment(v, Delta^2); x <- x - eta m / (sqrt(v) + tau)."""
    positive("gamma", gamma)
    positive("eta", eta)
    positive("tau", tau)
    fraction("beta1", beta1)

    def init(model: torch.Tensor) -> Tensors:
        return {"m": model.new_zeros(model.shape), "v": model.new_zeros(model.shape)}

    def update(model: torch.Tensor, server: Tensors, mean: Tensors, fraction: float) -> tuple[torch.Tensor, Tensors]:
        change = mean["change"]
        m = beta1 * server["m"] + (1 - beta1) * change
        v = second_moment(server["v"], change.square())
        return model - eta * m / (v.sqrt() + tau), {"m": m, "v": v}

    parameters = {"gamma": gamma, "eta": eta, "tau": tau, "beta1": beta1, **parameters}
    return Algorithm(name, parameters, step=SgdStep(gamma), update=update, init=init, synchronous=fedavg(gamma))


def fedadam(gamma: float, eta: float = 0.1, tau: float = 1e-3, beta1: float = 0.9, beta2: float = 0.99) -> Algorithm:
    r"""Local SGD, and Adam on the server without bias correction; m and v start at 0.

    .. math::
        m \leftarrow \beta_1 m + (1-\beta_1)\Delta, \quad v \leftarrow \beta_2 v + (1-\beta_2)\Delta^2, \quad
        x \leftarrow x - \eta\, m / (\sqrt v + \tau), \qquad \Delta = \tfrac1M\sum_i(\bar x^r - x_i^{r,I})

    Args:
        gamma: local learning rate.
        eta: global learning rate.
        tau: floor under the second moment's root.
        beta1: decay of the first moment; the paper's theorem covers 0 only.
        beta2: decay of the second moment.

    Source: the paper's Algorithm 2; Reddi et al. 2021, whose v starts at tau^2 or above.
    """
    beta2 = fraction("beta2", beta2)

    def second_moment(v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        return beta2 * v + (1 - beta2) * square

    return _adaptive("fedadam", gamma, eta, tau, beta1, second_moment, {"beta2": beta2})


def fedadagrad(gamma: float, eta: float = 0.1, tau: float = 1e-3, beta1: float = 0.0) -> Algorithm:
    r"""As FedAdam, with a second moment that only grows.

    .. math:: v \leftarrow v + \Delta^2

    Args:
        gamma: local learning rate.
        eta: global learning rate.
        tau: floor under the second moment's root.
        beta1: decay of the first moment.

    Source: Reddi et al. 2021, Algorithm 2.
    """

    def second_moment(v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        return v + square

    return _adaptive("fedadagrad", gamma, eta, tau, beta1, second_moment, {})


def fedyogi(gamma: float, eta: float = 0.1, tau: float = 1e-3, beta1: float = 0.9, beta2: float = 0.99) -> Algorithm:
    r"""As FedAdam, with a second moment that moves by a step that does not depend on its distance.

    .. math:: v \leftarrow v - (1-\beta_2)\Delta^2\,\mathrm{sign}(v-\Delta^2)

    Args:
        gamma: local learning rate.
        eta: global learning rate.
        tau: floor under the second moment's root.
        beta1: decay of the first moment.
        beta2: how slowly the second moment moves.

    Source: Reddi et al. 2021, Algorithm 2.
    """
    beta2 = fraction("beta2", beta2)

    def second_moment(v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        return v - (1 - beta2) * square * (v - square).sign()

    return _adaptive("fedyogi", gamma, eta, tau, beta1, second_moment, {"beta2": beta2})
