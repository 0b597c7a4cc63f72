"""FedAvg with local momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedgauge.algorithms.base import Algorithm, Facts, Tensors
from fedgauge.base.errors import fraction, positive

if TYPE_CHECKING:
    import torch


def momentum(gamma: float, beta: float = 0.9, eta: float = 1.0) -> Algorithm:
    r"""Local SGD with momentum whose buffers are averaged at the end of a round too; this is not FedAvgM.

    .. math::
        u_i \leftarrow \beta u_i + g_i(x_i), \quad x_i \leftarrow x_i - \gamma u_i; \qquad
        \bar u^{r+1} = \tfrac1M\sum_i u_i, \quad \bar x^{r+1} = \bar x^r - \eta\,\tfrac1M\sum_i(\bar x^r - x_i)

    Args:
        gamma: local learning rate.
        beta: momentum of the local steps.
        eta: global learning rate of the model (the buffers are averaged as they are); the source has 1.

    Source: the paper's Algorithm 1; Yu, Jin and Yang 2019, Algorithm 1.
    """
    gamma, beta, eta = positive("gamma", gamma), fraction("beta", beta), positive("eta", eta)

    def init(model: torch.Tensor) -> Tensors:
        return {"u": model.new_zeros(model.shape)}

    def begin(model: torch.Tensor, server: Tensors, memory: Tensors) -> Tensors:
        return {"x": model, "u": server["u"], "first_u": server["u"]}

    def step(local: Tensors, gradient: torch.Tensor) -> Tensors:
        u = gradient.add(local["u"], alpha=beta)
        return {"x": local["x"].sub(u, alpha=gamma), "u": u, "first_u": local["first_u"]}

    def finish(model: torch.Tensor, local: Tensors, steps: torch.Tensor) -> tuple[Tensors, Tensors]:
        return {"change": model - local["x"], "change_u": local["first_u"] - local["u"]}, {}

    def update(model: torch.Tensor, server: Tensors, mean: Tensors, fraction: float) -> tuple[torch.Tensor, Tensors]:
        return model.sub(mean["change"], alpha=eta), {"u": server["u"] - mean["change_u"]}

    parameters = {"gamma": gamma, "beta": beta, "eta": eta}
    facts = Facts(no_optimiser_because="momentum has a local momentum of its own, whose buffer is averaged; use fedavg")
    return Algorithm("momentum", parameters, step, update, init=init, begin=begin, finish=finish, facts=facts)
