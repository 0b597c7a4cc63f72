"""Why local steps are lost: how far the workers' models drift apart, by what, and what that does to the gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedgauge.algorithms import is_plain
from fedgauge.codec import Value
from fedgauge.measurement.gauge.result import Cause, Efficiency
from fedgauge.simulation.setup import Setup

PLAIN = ("fedavg", "fedadam", "fedadagrad", "fedyogi", "slowmo", "fedavgm")
"""Algorithms whose local steps are plain gradient steps, so that noise adds gamma^2 I sigma^2 to the spread."""


@dataclass(frozen=True)
class Sight(Value):
    """What a watched round of a probe shows.

    Attributes:
        spread: mean squared distance of the local models from their mean after I local steps.
        deviation2: squared distance of the averaged local gradients from the gradient at the mean model.
        zeta2: mean squared distance of the workers' gradients from their mean, at the mean model.
        grad2: squared norm of the gradient of f before the round.
    """

    spread: float
    deviation2: float
    zeta2: float
    grad2: float


def explained(
    setup: Setup, found: Mapping[int, Efficiency], seen: Mapping[int, Sight], sigma2: float, threshold: float = 0.8
) -> Cause | None:
    """The cause of the loss, for the smallest I that is not affordable; None where the numbers do not explain it.

    Where every I is affordable, or the numbers explain none that is not, it is the smallest I that loses a tenth.

    A shift of the averaged gradient by a fraction q of the gradient costs at most about q of the progress. So a smaller
    q than the fraction that is lost does not explain it, and nothing is said.

    Args:
        setup: the federation and the algorithm.
        found: the efficiencies.
        seen: what was seen for each number of local steps.
        sigma2: variance of a stochastic gradient, averaged over workers.
        threshold: the efficiency that affordable local steps have at least.
    """
    gamma = setup.algorithm.parameters.get("gamma")
    if setup.algorithm.name not in PLAIN or not is_plain(setup.algorithm.parameters) or not gamma:
        return None
    value = {steps: each.value or 0.0 for steps, each in found.items()}
    lost = [steps for steps in value if value[steps] < 0.9 and steps in seen]
    for steps in sorted(lost, key=lambda steps: (value[steps] >= threshold, steps)):
        sight, N = seen[steps], setup.num_workers
        if not (sight.spread > 0 and sight.grad2 > 0):
            continue
        deviation = math.sqrt(sight.deviation2 / sight.grad2)
        if deviation < 1 - value[steps]:
            continue
        noise = min(gamma**2 * steps * sigma2 * (1 - 1 / N) / sight.spread, 1.0)
        L_h = math.sqrt(sight.deviation2 / sight.spread)
        return Cause(steps, math.sqrt(sight.spread), noise, math.sqrt(sight.zeta2), math.sqrt(sigma2), L_h, deviation)
    return None
