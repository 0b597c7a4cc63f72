"""FedAvg with two-sided learning rates."""

from __future__ import annotations

from fedgauge.algorithms.base import Algorithm, SgdStep, move_by
from fedgauge.base.errors import positive


def fedavg(gamma: float, eta: float = 1.0) -> Algorithm:
    r"""Local SGD on the workers, a step along the averaged change on the server.

    .. math::
        x_i^{r,k+1} = x_i^{r,k} - \gamma\, g_i(x_i^{r,k}), \qquad
        \bar x^{r+1} = \bar x^r - \eta\, \tfrac1M \sum_{i\in S_r} (\bar x^r - x_i^{r,I})

    Args:
        gamma: local learning rate of the workers.
        eta: global learning rate of the server; 1 replaces the global model by the average.

    Source: the paper's Algorithm 3; McMahan et al. 2017 for eta = 1.

    >>> fedavg(gamma=0.1).parameters
    {'gamma': 0.1, 'eta': 1.0}
    """
    gamma, eta = positive("gamma", gamma), positive("eta", eta)
    return Algorithm("fedavg", {"gamma": gamma, "eta": eta}, step=SgdStep(gamma), update=move_by(eta))
