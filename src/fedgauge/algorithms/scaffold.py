"""SCAFFOLD."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedgauge.algorithms.base import Algorithm, Facts, Tensors
from fedgauge.base.errors import positive

if TYPE_CHECKING:
    import torch


def scaffold(gamma: float, eta: float = 1.0) -> Algorithm:
    r"""Local steps corrected by control variates, which start at 0 and are estimated by option II of the source.

    .. math::
        x_i \leftarrow x_i - \gamma\,(g_i(x_i) - c_i + c); \qquad
        c_i^+ = c_i - c + \tfrac{1}{I\gamma}(\bar x^r - x_i), \quad
        c \leftarrow c + \tfrac1N\sum_{i\in S_r}(c_i^+ - c_i)

    Args:
        gamma: local learning rate.
        eta: global learning rate.

    Source: Karimireddy et al. 2020, Algorithm 1. Each worker remembers its control, so memory grows with N.
    """
    gamma, eta = positive("gamma", gamma), positive("eta", eta)

    def controls(model: torch.Tensor) -> Tensors:
        return {"control": model.new_zeros(model.shape)}

    def begin(model: torch.Tensor, server: Tensors, memory: Tensors) -> Tensors:
        return {"x": model, "control": memory["control"], "shift": server["control"] - memory["control"]}

    def step(local: Tensors, gradient: torch.Tensor) -> Tensors:
        return {**local, "x": local["x"] - gamma * (gradient + local["shift"])}

    def finish(model: torch.Tensor, local: Tensors, steps: torch.Tensor) -> tuple[Tensors, Tensors]:
        change = model - local["x"]
        control = change / (steps * gamma) - local["shift"]
        return {"change": change, "control_gain": control - local["control"]}, {"control": control}

    def update(model: torch.Tensor, server: Tensors, mean: Tensors, fraction: float) -> tuple[torch.Tensor, Tensors]:
        # The mean is over the M participants; the control moves by the sum of their gains over all N workers.
        control = server["control"].add(mean["control_gain"], alpha=fraction)
        return model.sub(mean["change"], alpha=eta), {"control": control}

    return Algorithm(
        "scaffold",
        {"gamma": gamma, "eta": eta},
        step=step,
        update=update,
        init=controls,
        worker_init=controls,
        begin=begin,
        finish=finish,
        repeats=False,
        facts=Facts(True, "scaffold estimates its control variates from the changes of plain local SGD; use fedavg"),
    )
