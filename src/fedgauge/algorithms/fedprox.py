"""FedProx."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedgauge.algorithms.base import Algorithm, CorrectedStep, Tensors, move_by
from fedgauge.base.errors import non_negative, positive

if TYPE_CHECKING:
    import torch


def fedprox(gamma: float, proximal: float = 0.1, eta: float = 1.0) -> Algorithm:
    r"""FedAvg whose local steps are pulled back towards the global model.

    .. math::
        x_i \leftarrow x_i - \gamma\,\bigl(g_i(x_i) + \mu\,(x_i - \bar x^r)\bigr)

    Args:
        gamma: local learning rate.
        proximal: strength of the pull towards the global model; the source's mu (here mu is the strong convexity);
            0 is FedAvg.
        eta: global learning rate.

    Source: Li et al. 2020, whose proximal problem is solved approximately here, by I steps of SGD.
    """
    gamma, proximal, eta = positive("gamma", gamma), non_negative("proximal", proximal), positive("eta", eta)

    def begin(model: torch.Tensor, server: Tensors, memory: Tensors) -> Tensors:
        return {"x": model, "anchor": model}

    def pull(local: Tensors) -> torch.Tensor:
        return proximal * (local["x"] - local["anchor"])

    parameters = {"gamma": gamma, "proximal": proximal, "eta": eta}
    return Algorithm("fedprox", parameters, step=CorrectedStep(gamma, pull), update=move_by(eta), begin=begin)
