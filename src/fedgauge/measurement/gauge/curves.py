"""How far a run has come: f along a run with one local step per round is the ruler for runs with more of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from scipy.optimize import isotonic_regression

from fedgauge.base.types import Floats
from fedgauge.measurement.gauge.runner import Track
from fedgauge.values.answer import StepEfficiency

_NEAR = 9
"""The number of records that tell the noise of f near a step."""


def crossing(steps: Sequence[float], losses: Sequence[float], goal: float) -> float:
    """The steps after which f reaches the goal, on a line between two records; infinite if it does not.

    >>> crossing([0, 10, 20], [3.0, 2.0, 1.0], 1.5), crossing([0, 10], [3.0, 2.0], 1.5)
    (15.0, inf)
    """
    for index, loss in enumerate(losses):
        if loss <= goal:
            if index == 0:
                return float(steps[0])
            before, width = losses[index - 1], steps[index] - steps[index - 1]
            return steps[index] - width * (goal - loss) / (before - loss)
    return math.inf


class BaseCurve:
    """f along the base run, as the decreasing curve that fits its records best.

    >>> curve = BaseCurve([0, 10, 20, 30], [4.0, 3.0, 2.5, 2.25])
    >>> float(curve.steps_at(2.75)), float(curve.loss_at(5))
    (15.0, 3.5)
    """

    def __init__(self, steps: Sequence[float] | Floats, losses: Sequence[float] | Floats) -> None:
        self.steps, self.losses = np.asarray(steps, dtype=float), np.asarray(losses, dtype=float)
        fitted = isotonic_regression(self.losses, increasing=False)
        # Records between which f does not fall become one point in their middle, so that the curve has an inverse.
        first, last = fitted.blocks[:-1], fitted.blocks[1:] - 1
        self._places = (self.steps[first] + self.steps[last]) / 2
        self._levels = fitted.x[first]

    def loss_at(self, steps: float) -> float:
        """f after so many steps of the base run."""
        return float(np.interp(steps, self._places, self._levels))

    def steps_at(self, loss: float) -> float:
        """The steps after which the base run has this f; beyond its ends, as if its first or last slope went on."""
        if len(self._places) < 2:
            return float(self._places[0])
        if loss > self._levels[0]:
            return float(self._places[0] - (loss - self._levels[0]) / self._slope(0))
        if loss < self._levels[-1]:
            return float(self._places[-1] + (self._levels[-1] - loss) / self._slope(-1))
        return float(np.interp(-loss, -self._levels, self._places))

    def noise_at(self, steps: float) -> float:
        """By how many steps a value of f may mislead here: its scatter around a straight line, over that line's slope.

        >>> BaseCurve(range(20), [20.0 - step for step in range(20)]).noise_at(10) < 1e-9
        True
        """
        scatter, slope = self._near(steps)
        if not scatter:
            return 0.0
        return scatter / -slope if slope < 0 else math.inf

    def scatter_at(self, steps: float) -> float:
        """The scatter of f around a straight line here."""
        return self._near(steps)[0]

    def error_at(self, steps: float, records: int = _NEAR) -> float:
        """By how many steps the mean of some values of f may mislead here, where the curve falls as around here.

        Unlike the line of a few records, a quarter of the curve on either side falls however noisy f is.
        """
        width = (self.steps[-1] - self.steps[0]) / 4
        begin, end = max(steps - width, self.steps[0]), min(steps + width, self.steps[-1])
        slope = (self.loss_at(begin) - self.loss_at(end)) / max(end - begin, 1e-12)
        scatter = self.scatter_at(steps)
        if not scatter:
            return 0.0
        return scatter / slope / math.sqrt(records) if slope > 0 else math.inf

    def _near(self, steps: float) -> tuple[float, float]:
        """The scatter of the records near a step around a straight line, and the slope of that line."""
        near = np.sort(np.argsort(np.abs(self.steps - steps), kind="stable")[:_NEAR])
        if len(near) < 4:
            return 0.0, 0.0
        places, losses = self.steps[near], self.losses[near]
        slope, height = np.polyfit(places, losses, 1)
        scatter = math.sqrt(float(((losses - slope * places - height) ** 2).sum()) / (len(near) - 2))
        return scatter, float(slope)

    def _slope(self, end: int) -> float:
        """How fast f falls at one end, over a tenth of the curve there."""
        width = max(len(self._places) // 10, 1)
        one, other = (0, width) if end == 0 else (-1 - width, -1)
        return float((self._levels[one] - self._levels[other]) / (self._places[other] - self._places[one]))


_STALLED = 0.1
"""A part of a run is not taken to be slower than this."""
_SIGMAS = 1.645
"""An interval of 90%."""
_SCATTER, _DRIFTING = 0.10, 0.12
"""The relative error of one run, and how much of log(1/E) is added: found on digits, and checked on other data."""
_OBSERVED = 0.1
"""The part of the base run's progress that a run must have made for the rest to be extrapolated."""
_POWERS = 0.85, 2.0
"""The least and the largest power of the base run's steps with which those of a run are taken to grow."""
_FURTHER = 0.15
"""The relative error that extrapolating to e times the progress adds: found on digits."""
_FEW = 3
"""Records that tell a power; with fewer, the steps grow in proportion to those of the base run."""


def _with_error(local_steps: int, value: float, noise: float) -> StepEfficiency:
    """An efficiency with its interval; ``noise`` is what the base run's own noise adds to its error."""
    error = _SIGMAS * math.hypot(value * (_SCATTER + _DRIFTING * math.log(1 / min(value, 1.0))), noise)
    # An interval that reaches below zero says no more than that little is known.
    return StepEfficiency(local_steps, value, max(value - error, value / 10), value + error)


def efficiency_of(local_steps: int, run: Track, curve: BaseCurve, goal: float) -> StepEfficiency | None:
    """The efficiency of a run with so many local steps on the way to the goal; None if nothing is known of it.

    Where the run ended before the goal, its steps are taken to grow as a power of the steps that the base run needs to
    the same f. The power is that of the second half of the run; mostly it is above 1, as drift costs more later.
    """
    way, needed = curve.steps_at(goal), crossing(run.steps, run.losses, goal)
    end = min(curve.error_at(way) / way, 1.0)
    if math.isfinite(needed):
        # The run ends where f first touches the goal, and so does the base run.
        value = min(crossing(curve.steps.tolist(), curve.losses.tolist(), goal), way) / needed
        at = int(np.searchsorted(run.steps, needed))
        if at <= 1:
            # Somewhere within its first record it passed the goal: only the steps up to there are certain.
            low = min(way / run.steps[min(at, len(run.steps) - 1)], 1.0)
            return StepEfficiency(local_steps, math.sqrt(low), low, 1.0)
        # Where f is between two records is known to their distance only.
        between = (run.steps[at] - run.steps[at - 1]) / needed / math.sqrt(12)
        return _with_error(local_steps, value, value * math.hypot(end, between))
    taken = run.steps[-1]
    most = min(way / taken, 1.0)
    # Nothing is known but that the goal was not reached with the steps that were taken.
    nothing = StepEfficiency.at_most(local_steps, most) if most < 1 else None
    steps, come = _late(run, curve)
    if not len(come) or come[-1] < _OBSERVED * way or has_stalled(run, curve):
        return nothing
    power = 1.0
    if len(come) >= _FEW:
        power = float(np.clip(np.polyfit(np.log(come), np.log(steps), 1)[0], *_POWERS))
    # The last quarter of the run tells where it is, so that the noise of the last record alone does not decide.
    last = slice(-max(len(come) // 2, 1), None)
    needed = max(math.exp(float(np.mean(np.log(steps[last]) - power * np.log(come[last])))) * way**power, taken)
    value, reached = way / needed, min(float(come[-1]), way)
    here = min(curve.error_at(reached, len(come[last])) / reached, 1.0)
    found = _with_error(local_steps, value, value * math.hypot(_FURTHER * math.log(way / reached), power * here, end))
    high = min(found.high, max(way / taken, value))
    return StepEfficiency(local_steps, value, min(found.low, value), high)


def _late(run: Track, curve: BaseCurve) -> tuple[Floats, Floats]:
    """The steps of the run's second half, and those of the base run to the same f; empty if f got nowhere."""
    if not math.isfinite(run.losses[-1]):
        return np.zeros(0), np.zeros(0)
    steps, come = np.array(run.steps, dtype=float), np.array([curve.steps_at(loss) for loss in run.losses])
    late = 2 * steps >= steps[-1]
    if not (come[late] > 0).all():
        return np.zeros(0), np.zeros(0)
    return steps[late], come[late]


def has_stalled(run: Track, curve: BaseCurve) -> bool:
    """Whether the second half of the run got on by less than a tenth of its steps, whatever the noise of f hides."""
    steps, come = _late(run, curve)
    if len(steps) < _FEW:
        return False
    return bool(come[-1] - come[0] + 2 * curve.noise_at(float(come[-1])) < _STALLED * (steps[-1] - steps[0]))


def phases_of(local_steps: int, run: Track, curve: BaseCurve, goal: float, number: int) -> list[StepEfficiency]:
    """The efficiency in each of several equal parts of the base run, as many as the run got through."""
    way = curve.steps_at(goal)
    ends = [0.0]
    for k in range(1, number + 1):
        ends.append(crossing(run.steps, run.losses, goal if k == number else curve.loss_at(way * k / number)))
    length = way / number
    noise = math.sqrt(2) * min(curve.error_at(way) / length, 1.0)
    parts = []
    for begin, end in itertools.pairwise(ends):
        if not math.isfinite(end):
            break
        value = length / max(end - begin, length * _STALLED)
        parts.append(_with_error(local_steps, value, value * noise))
    return parts


FIRST, FACTOR, MOST = 16, 4, 1024
"""The number of local steps that is run first, the factor to the next, and the largest."""
ENOUGH = 4
"""How many numbers show the whole curve, because it only falls."""
_NEARLY_ALL, _MANY, _STILL_PAYS = 0.95, 0.8, 0.4
"""Smaller numbers are run below the first efficiency, before larger ones below the second; larger ones above the third.
"""


def next_number(slowdowns: Mapping[int, float], unpaid: Collection[int] = ()) -> int | None:
    """The number of local steps to run next; None if those that were run are enough.

    Args:
        slowdowns: the efficiency of each number that was run; 0 where there is none.
        unpaid: numbers that exceed the budget.

    >>> next_number({}), next_number({16: 0.9}), next_number({16: 0.3}), next_number({16: 0.9}, unpaid={64})
    (16, 64, 4, 4)
    """
    if not slowdowns:
        return None if FIRST in unpaid else FIRST
    if len(slowdowns) >= ENOUGH:
        return None
    least, most = min(slowdowns), max(slowdowns)
    further = []
    if slowdowns[most] >= _STILL_PAYS and most * FACTOR <= MOST:
        further.append(most * FACTOR)
    if slowdowns[least] < _NEARLY_ALL and least > 2:
        # Where even the least loses much, what matters lies below it, and the budget goes there first.
        further.insert(0 if slowdowns[least] < _MANY else len(further), max(least // FACTOR, 2))
    return next((each for each in further if each not in unpaid), None)
