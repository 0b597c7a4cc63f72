"""Why local steps are lost, in numbers that were measured in a round of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedgauge.base.codec import Value
from fedgauge.simulation.setup import Setup
from fedgauge.values.answer import StepEfficiency
from fedgauge.values.display import short

_MUCH, _SOME = 0.8, 0.9
"""The cause is that of the fewest local steps below the first efficiency, or else below the second."""


@dataclass(frozen=True)
class Sight(Value):
    """What a watched round shows.

    Attributes:
        local_steps: I.
        spread: mean squared distance of the local models from their mean after I local steps.
        deviation2: squared distance of the averaged local gradients from the gradient at the mean model.
        zeta2: mean squared distance of the workers' gradients from their mean, at the mean model.
        grad2: squared norm of the gradient of f before the round.
    """

    local_steps: int
    spread: float
    deviation2: float
    zeta2: float
    grad2: float


@dataclass(frozen=True)
class Cause(Value):
    """Why local steps are lost, in numbers that were measured in a round of I local steps.

    Attributes:
        local_steps: I.
        spread: root mean square distance of the local models from their mean.
        noise: the fraction of the squared spread that gradient noise explains, gamma^2 I sigma^2 (1 - 1/N).
        zeta: root mean square divergence of the workers' gradients.
        sigma: root mean square noise of a stochastic gradient.
        L_h: the distance of the averaged gradient from the gradient at the mean model, over the spread.
        deviation: that distance, over the norm of the gradient of f.
    """

    local_steps: int
    spread: float
    noise: float
    zeta: float
    sigma: float
    L_h: float
    deviation: float

    @property
    def sentence(self) -> str:
        """The cause in one sentence.

        >>> Cause(64, 0.5, 0.1, 1.2, 3.0, 0.4, 0.8).sentence
        'Why: after 64 local steps the models are 0.5 apart, of which (squared) gradient noise explains at most 10%
        (sigma 3), and disagreement the rest (zeta 1.2); with the observed L_h of 0.4, this shifts the averaged gradient
        by 80% of the gradient of f.'
        """
        spread, zeta, sigma, L_h = (short(each) for each in (self.spread, self.zeta, self.sigma, self.L_h))
        parts = f"gradient noise explains at most {self.noise:.0%} (sigma {sigma}), and disagreement the rest"
        if self.noise >= 0.995:
            parts = f"gradient noise alone may explain all (sigma {sigma}), whatever the workers' disagreement"
        return (
            f"Why: after {self.local_steps} local steps the models are {spread} apart, of which (squared) {parts}"
            f" (zeta {zeta}); with the observed L_h of {L_h}, this shifts the averaged gradient by"
            f" {self.deviation:.0%} of the gradient of f."
        )


def explained(
    setup: Setup, efficiencies: Iterable[StepEfficiency], sights: Sequence[Sight], sigma2: float
) -> Cause | None:
    """The cause of the loss, for the fewest local steps that lose much; None where the numbers do not explain it.

    A shift of the averaged gradient by a fraction q of the gradient costs at most about q of the progress. So a smaller
    q than the fraction that is lost does not explain it, and nothing is said.

    Args:
        setup: the federation and the algorithm.
        efficiencies: of the numbers of local steps.
        sights: what was observed with some of them.
        sigma2: variance of a stochastic gradient, averaged over workers.
    """
    # Where local steps are plain gradient steps, their noise adds gamma^2 I sigma^2 to the spread.
    gamma = setup.algorithm.sgd_rate
    if gamma is None:
        return None
    value = {each.local_steps: each.value for each in efficiencies}
    lost = [each for each in sights if value.get(each.local_steps, 1.0) < _SOME]
    for sight in sorted(lost, key=lambda each: (value[each.local_steps] >= _MUCH, each.local_steps)):
        steps, N = sight.local_steps, setup.num_workers
        if not (sight.spread > 0 and sight.grad2 > 0):
            continue
        deviation = math.sqrt(sight.deviation2 / sight.grad2)
        if deviation < 1 - value[steps]:
            continue
        noise = min(gamma**2 * steps * sigma2 * (1 - 1 / N) / sight.spread, 1.0)
        L_h = math.sqrt(sight.deviation2 / sight.spread)
        return Cause(steps, math.sqrt(sight.spread), noise, math.sqrt(sight.zeta2), math.sqrt(sigma2), L_h, deviation)
    return None
