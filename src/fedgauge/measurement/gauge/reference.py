"""What local steps are compared with: synchronous training with the workers' own optimiser and rates.

For an algorithm whose server averages, that is the algorithm itself with one local step per round. Where the server
does more (momentum, Adam, DiLoCo), one local step per round is no yardstick: such a server hardly trains when it is
called after every step. The reference is then plain averaging after every step, with the same local optimiser and rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from fedgauge.algorithms import ALGORITHMS
from fedgauge.algorithms.base import Algorithm, no_state
from fedgauge.algorithms.schedules import refuse_round_schedules
from fedgauge.base.errors import InputError
from fedgauge.measurement.gauge.curves import BaseCurve
from fedgauge.values.answer import StepEfficiency
from fedgauge.values.display import counted

FAR = 3.0
"""The base run is no yardstick for local steps that are certainly more than so many times as efficient."""
_SIGMAS = 2.0
"""The fall of f over the last quarter of a base run, in standard errors, below which it has stalled; on digits it is in
the hundreds."""
_ALIKE = 0.9
"""The correlation of neighbouring records is not taken to be more than this."""
_FEW, _EARLY = 6, 0.2
"""Records in a quarter of a base run that tell whether it has stalled, and the part of it before which it must not."""
_RISEN = 0.1
"""The part of the fall of f that the end of a base run may give back; noise is allowed for beside it."""


def reference_for(algorithm: Algorithm, given: Algorithm | None) -> tuple[Algorithm, list[str]]:
    """The algorithm of the base run, and what a reader should know about it.

    Args:
        algorithm: the one that is gauged.
        given: the reference that the user wants, if any.
    """
    refuse_round_schedules(algorithm.parameters, "The gauge")
    if given is not None:
        refuse_round_schedules(given.parameters, "The gauge")
        return given, []
    reference = algorithm.synchronous or algorithm
    notes = []
    if reference is algorithm and algorithm.name not in ALGORITHMS and algorithm.init is not no_state:
        notes.append(
            f"{algorithm.name} is compared with itself at one local step per round; if its server does more than"
            " average, name another reference (reference=)."
        )
    return reference, notes


def check_base(curve: BaseCurve, goal: float | None) -> float:
    """The value of f at which the comparison ends; a base run that rises or never gets there is refused.

    Args:
        curve: of the base run.
        goal: the value that the user wants, if any.
    """
    steps, losses = curve.steps, curve.losses
    last, end = int(steps[-1]), curve.loss_at(steps[-1])
    if goal is not None and end > goal:
        raise InputError(
            f"With one local step per round, f reaches {end:.4g} in {last} steps, not {goal:.4g}; give it more rounds,"
            " or choose a larger loss as the goal."
        )
    if not end < losses[0]:
        raise InputError(
            f"f does not fall within {last} steps with one local step per round, so there is nothing to gauge; give it"
            " more rounds, or choose another gamma."
        )
    if goal is not None:
        return goal
    few = max(len(losses) // 8, 1)
    means = np.convolve(losses, np.full(few, 1 / few), "valid")
    lowest, closing = int(np.argmin(means)), float(means[-1])
    risen, noise = closing - float(means[lowest]), 3 * curve.scatter_at(last) * math.sqrt(2 / few)
    if risen > _RISEN * (losses[0] - means[lowest]) + noise:
        raise InputError(
            f"f rises again with one local step per round: from {means[lowest]:.4g} around step"
            f" {steps[lowest + few // 2]:.0f} to {closing:.4g} at its end, so it is no yardstick; choose a smaller"
            " gamma, or end it earlier with fewer steps or a goal."
        )
    return end


def stalled_at(curve: BaseCurve) -> int | None:
    """The step after which f only goes up and down; None if it falls to the end, or if too few records tell.

    A base run that has stalled early is refused.

    >>> stalled_at(BaseCurve(range(60), 0.9 ** np.arange(60.0))) is None
    True
    """
    steps, losses = curve.steps, curve.losses
    quarter, last = len(losses) // 4, int(steps[-1])
    if quarter < _FEW:
        return None
    late, half = losses[-2 * quarter :], steps[-2 * quarter :]
    residuals = late - np.polyval(np.polyfit(half, late, 1), half)
    scatter = float(residuals.std(ddof=2))
    # f goes up and down slowly, so that neighbouring records tell less than as many independent ones.
    alike = float(residuals[1:] @ residuals[:-1] / max(residuals @ residuals, 1e-300))
    error = scatter * math.sqrt(2 / quarter * (1 + max(alike, 0.0)) / (1 - min(alike, _ALIKE)))
    if late[:quarter].mean() - late[quarter:].mean() >= _SIGMAS * error:
        return None
    level = float(late.mean()) + 2 * scatter
    flat = int(next(step for step, loss in zip(steps, losses, strict=True) if loss <= level))
    if flat < _EARLY * last:
        raise InputError(
            f"Training with one local step per round has stalled: after {flat} of {last} steps f falls by less than its"
            " noise, so that nothing later can be compared with it; end it there with fewer steps, choose another"
            " gamma, or evaluate f with more examples."
        )
    return flat


def check_efficiencies(found: Iterable[StepEfficiency], algorithm: Algorithm, reference: Algorithm) -> list[str]:
    """Refuse a base run that is far slower than what it is compared with, and explain efficiencies above 1.

    Returns:
        The explanations.
    """
    notes = []
    for each in sorted(found, key=lambda each: each.local_steps):
        if not each.is_above_one:
            continue
        steps, times = counted(each.local_steps, "local step"), f"{each.value:.2g} times"
        if each.low > FAR or (reference is algorithm and each.low > FAR / 2):
            raise InputError(
                f"With {steps} per round, f falls {times} as far per step as in the base run"
                f" ({reference.name}, one local step per round, gamma {reference.parameters.get('gamma')}), which is"
                " too slow to compare with; " + _remedy(algorithm, reference) + "."
            )
        why = (
            "averaging less often does not hold this federation back"
            if reference is algorithm
            else f"the server of {algorithm.name} takes the model further than averaging does"
        )
        notes.append(f"With {steps} per round, a step brings f down {times} as far as in the base run: {why}.")
    return notes


def _remedy(algorithm: Algorithm, reference: Algorithm) -> str:
    if reference is algorithm:
        return "give it more steps, or choose another gamma"
    return (
        f"the server of {algorithm.name} moves the model much further than averaging does, so gauge it with a reference"
        " of a larger rate (reference=fg.fedavg(gamma=…), or 'fedgauge gauge --reference-gamma')"
    )
