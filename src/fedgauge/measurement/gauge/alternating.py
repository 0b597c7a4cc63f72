"""One run in which the number of local steps changes, in balanced blocks: every step of it trains.

How far each number brings f down is fitted afterwards (:mod:`~fedgauge.algorithms.live.fit`). Further runs, with other
mini-batches, make the answer more exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from fedgauge.algorithms.live.blocks import ROUNDS, balanced, least_steps
from fedgauge.algorithms.live.fit import Observations, fit, model_error
from fedgauge.algorithms.live.gauge import GROWTH
from fedgauge.measurement.gauge.curves import BaseCurve
from fedgauge.measurement.gauge.runner import Track
from fedgauge.values.answer import StepEfficiency

USUAL = (1, 16, 64, 256, 1024)
"""The numbers of local steps that are tried where the user names none, as many as the run is long enough for."""
_FEWEST = 3
"""With fewer numbers than this, a run from the first model for each says more."""
_SHARED = 1 / 3
"""The part of the model's squared error that further runs do not average out."""
_SIGMAS = 1.645
_TINY = 1e-10
"""Where f is nearer to its minimum than this part of the first distance, rounding decides."""


def candidates_for(steps: int, wanted: Sequence[int] | None) -> tuple[int, ...]:
    """The numbers of local steps that a run of so many steps can try, 1 first; none if it is too short.

    >>> candidates_for(1000, None), candidates_for(5000, None), candidates_for(500, None), candidates_for(500, [8])
    ((1, 16, 64), (1, 16, 64, 256), (), (1, 8))
    """
    if wanted is not None:
        tried = tuple(sorted({1, *wanted}))
        return tried if len(tried) > 1 and least_steps(tried, 1.0) <= steps else ()
    fitting = [USUAL[:k] for k in range(_FEWEST, len(USUAL) + 1) if least_steps(USUAL[:k], 1.0) <= steps]
    return fitting[-1] if fitting else ()


def schedule(candidates: Sequence[int], steps: int, turn: int = 0) -> Iterator[int]:
    """The local steps of every round, in blocks that grow with the run, for at most so many steps.

    The shortest block has the steps of two rounds of the largest number.

    Args:
        candidates: the numbers of local steps.
        steps: of each worker, in all.
        turn: the rotation with which the blocks begin.

    >>> list(schedule((1, 4), 24))
    [1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4, 4]
    """
    done, shortest = 0, ROUNDS * candidates[-1]
    for each in balanced(candidates, turn):
        for _ in range(max(int(max(shortest, GROWTH * done)) // each, 1)):
            if done + each > steps:
                return
            yield each
            done += each


def first_of_late_blocks(rounds: Sequence[int]) -> set[int]:
    """The numbers of the rounds with which the blocks of more than one local step begin after half of the run.

    Each number of local steps has one at most.

    >>> sorted(first_of_late_blocks([1, 1, 4, 4, 4, 1, 1, 4]))
    [7]
    """
    done, first = 0, dict[int, int]()
    for number, steps in enumerate(rounds):
        if 2 * done >= sum(rounds) and steps > 1 and steps not in first and rounds[number - 1] != steps:
            first[steps] = number
        done += steps
    return set(first.values())


def observed(track: Track, rounds: Sequence[int], candidates: Sequence[int], floor: float) -> Observations:
    """What a run shows, above the least value that f can have."""
    each = np.array(rounds[: track.rounds])
    under = np.searchsorted(candidates, each)
    taken = np.cumsum(each[:, None] * (under[:, None] == np.arange(len(candidates))), axis=0).astype(float)
    steps, above = np.array(track.steps[1:]), np.array(track.losses[1:]) - floor
    at = np.searchsorted(np.cumsum(each), steps)
    used = above > _TINY * (track.losses[0] - floor)
    return Observations(taken[at[used]], under[at[used]], above[used])


def reference_records(track: Track, rounds: Sequence[int]) -> tuple[list[int], list[float]]:
    """The records at which the round before had one local step, and the first of all."""
    ends = np.cumsum(rounds[: track.rounds])
    under = [1, *(rounds[k] for k in np.searchsorted(ends, track.steps[1:]))]
    kept = [k for k, each in enumerate(under) if each == 1]
    return [track.steps[k] for k in kept], [track.losses[k] for k in kept]


def until(seen: Observations, step: float) -> Observations:
    """What the run shows up to a step."""
    kept = seen.times <= step
    return Observations(seen.taken[kept], seen.under[kept], seen.losses[kept])


def efficiencies(seen: Sequence[tuple[Sequence[int], Observations]]) -> list[StepEfficiency]:
    """The efficiencies of all numbers of local steps but 1, from one run or from several.

    Args:
        seen: for each run, the numbers that it tried, and what it showed.
    """
    logs: dict[int, list[float]] = {}
    squares: dict[int, list[float]] = {}
    for candidates, records in seen:
        with np.errstate(all="ignore"):
            fitted = fit(records)
        for k, steps in enumerate(candidates[1:]):
            logs.setdefault(steps, []).append(-float(fitted.log_slowdowns[0, k]))
            squares.setdefault(steps, []).append(float(fitted.log_slowdowns[1:, k].var()))
    entries = []
    for steps, values in sorted(logs.items()):
        n, best = len(values), float(np.mean(values))
        model = model_error(1.0) ** 2 * (_SHARED + (1 - _SHARED) / n)
        error = _SIGMAS * math.sqrt(sum(squares[steps]) / n**2 + model)
        entries.append(StepEfficiency(steps, math.exp(best), math.exp(best - error), math.exp(best + error)))
    return entries


def reference_curve(seen: Observations, floor: float) -> BaseCurve:
    """f along a run with one local step, as a run that alternates shows it."""
    with np.errstate(all="ignore"):
        steps, logs = fit(seen).curve
    return BaseCurve(steps, floor + np.exp(logs))
