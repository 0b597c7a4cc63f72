"""From losses to the efficiency of local steps: the base run's curve, the error of one probe, and several put together.

On a short way probes would be so short that their progress drowns in noise. A run has nothing to settle, and all of its
steps count.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import isotonic_regression

from fedgauge.base.codec import Value
from fedgauge.base.types import Floats
from fedgauge.measurement.gauge.result import Efficiency, How, Sight, interpolated

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

    def __init__(self, steps: Sequence[float], losses: Sequence[float]) -> None:
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


STALLED = 0.1
"""An efficiency that is below this with certainty is not given as a number."""
SIGMAS = 1.645
"""An interval of 90%."""
_SCATTER, _DRIFTING = 0.10, 0.12
"""The relative error of one probe, and how much of log(1/E) is added: found on digits, and checked on other data."""
_ALIKE = 0.3
"""Errors of parts up to this hardly change how much each of them counts."""


def measured(local_steps: int, value: float, noise: float = 0.0, how: How = "probes") -> Efficiency:
    """An efficiency with its interval; ``noise`` is what the base run's own noise adds to its error."""
    error = SIGMAS * math.hypot(error_of(value), noise)
    return Efficiency(local_steps, value, value - error, value + error, how)


def error_of(value: float) -> float:
    """The error of one probe: it grows as the efficiency falls."""
    value = max(value, STALLED)
    return value * (_SCATTER + _DRIFTING * math.log(1 / min(value, 1.0)))


def part(places: Sequence[Efficiency]) -> Efficiency:
    """The efficiency in one part of the base run, as it is reported."""
    if all(each.high < STALLED for each in places):
        return Efficiency(places[0].local_steps, None, 0.0, STALLED)
    value = float(np.mean([each.value for each in places]))
    error = math.sqrt(sum(((each.high - each.low) / 2) ** 2 for each in places)) / len(places)
    if value <= 0:
        return Efficiency(places[0].local_steps, None, 0.0, max(value + error, STALLED))
    return Efficiency(places[0].local_steps, value, max(value - error, 0.0), value + error)


def combined(parts: Sequence[Efficiency]) -> Efficiency:
    """The efficiency of the whole way: what all parts achieved, over the steps that they took.

    The mean of the parts' slowdowns would be the slowdown of the whole if the parts were known exactly; but one part
    whose progress drowns in noise would make it infinite.
    """
    values = np.array([each.value for each in parts], dtype=float)
    errors = np.array([(each.high - each.low) / 2 / SIGMAS for each in parts])
    stalled = np.array([each.high < STALLED for each in parts])
    # Parts count alike, unless the progress of one drowns in noise.
    weights = 1 / (_ALIKE**2 + errors**2)
    weights /= weights.sum()
    value, steps = float(weights @ values), parts[0].local_steps
    # The errors of the parts, and what they share: the seed of the base run.
    error = math.hypot(float(np.sqrt(weights**2 @ errors**2)), 0.5 * error_of(value))
    if stalled.any() or value - SIGMAS * error <= 0:
        most = float(weights @ np.where(stalled, STALLED, np.maximum(values, 0.0))) + SIGMAS * error
        return Efficiency(steps, None, 0.0, min(most, 1.0))
    return Efficiency(steps, value, value - SIGMAS * error, value + SIGMAS * error)


def between(found: Sequence[Efficiency]) -> list[Efficiency]:
    """The efficiencies with those that noise hid put between fewer and more local steps, as efficiency only falls.

    >>> hidden = Efficiency(4, None, 0.0, 1.0)
    >>> between([Efficiency(1, 1.0, 1.0, 1.0), hidden, Efficiency(16, 0.6, 0.5, 0.7)])[1]
    Efficiency(local_steps=4, value=0.8, low=0.5, high=1.0, how='between')
    """
    known = [each for each in found if each.value is not None]
    result = []
    for each in found:
        more = next((other for other in known if other.local_steps > each.local_steps), None)
        fewer = next((other for other in reversed(known) if other.local_steps < each.local_steps), None)
        # A number that is clearly lower than with more local steps is no noise: drift stalled there.
        if each.value is None and more is not None and fewer is not None and each.high >= (more.value or 0.0):
            most = min(each.high, fewer.high)
            value = min(float(interpolated([fewer, more], each.local_steps)), most)
            each = Efficiency(each.local_steps, round(value, 12), more.low, max(most, more.low), "between")
        result.append(each)
    return result


def falling(found: Sequence[Efficiency]) -> list[Efficiency]:
    """The efficiencies with their noise smoothed: more local steps are never more efficient."""
    known = [index for index, each in enumerate(found) if each.value is not None]
    if not known:
        return list(found)
    smooth = isotonic_regression([found[index].value or 0.0 for index in known], increasing=False).x
    result = list(found)
    for index, value in zip(known, smooth, strict=True):
        each = found[index]
        assert each.value is not None
        shift = float(value) - each.value
        # What was pooled may be noise or not, so that the interval holds both the value as measured and as pooled.
        low, high = min(each.low, each.low + shift), max(each.high, each.high + shift)
        result[index] = replace(each, value=float(value), low=max(low, 0.0), high=high)
    return result


_SEEN = 0.1
"""The part of the way that a run must have come for the rest to be extrapolated."""
_POWERS = 0.85, 2.0
"""The least and the largest power of the way with which the steps of a run are taken to grow."""
_FURTHER = 0.15
"""The relative error that a way e times as long as the one that was run adds: found on digits."""
_FEW = 3
"""Records that tell a power; with fewer, the steps grow in proportion to the way."""


@dataclass(frozen=True)
class GaugeRun(Value):
    """A run with I local steps from the first model: f after some of its steps, and the drift seen in one round."""

    local_steps: int
    steps: tuple[int, ...]
    losses: tuple[float, ...]
    sight: Sight | None = None


def efficiency_of(run: GaugeRun, curve: BaseCurve, goal: float) -> Efficiency:
    """The efficiency on the way to the goal.

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
            return Efficiency(run.local_steps, None, min(way / run.steps[min(at, len(run.steps) - 1)], 1.0), 1.0, "run")
        # Where f is between two records is known to their distance only.
        between = (run.steps[at] - run.steps[at - 1]) / needed / math.sqrt(12)
        return measured(run.local_steps, value, value * math.hypot(end, between), how="run")
    taken = run.steps[-1]
    nothing = Efficiency(run.local_steps, None, 0.0, min(way / taken, 1.0), "run")
    steps, come = _late(run, curve)
    if not len(come) or come[-1] < _SEEN * way or has_stalled(run, curve):
        return nothing
    power = 1.0
    if len(come) >= _FEW:
        power = float(np.clip(np.polyfit(np.log(come), np.log(steps), 1)[0], *_POWERS))
    # The last quarter of the run tells where it is, so that the noise of the last record alone does not decide.
    last = slice(-max(len(come) // 2, 1), None)
    needed = max(math.exp(float(np.mean(np.log(steps[last]) - power * np.log(come[last])))) * way**power, taken)
    value, seen = way / needed, min(float(come[-1]), way)
    here = min(curve.error_at(seen, len(come[last])) / seen, 1.0)
    error = math.hypot(_FURTHER * math.log(way / seen), power * here, end)
    found = measured(run.local_steps, value, value * error, "part")
    # It has not got there with the steps that it took, which is certain.
    found = replace(found, high=min(found.high, max(way / taken, value)))
    return found if found.low > 0 else replace(nothing, high=min(nothing.high, found.high))


def _late(run: GaugeRun, curve: BaseCurve) -> tuple[Floats, Floats]:
    """The steps of the run's second half, and those of the base run to the same f; empty if f got nowhere."""
    if not math.isfinite(run.losses[-1]):
        return np.zeros(0), np.zeros(0)
    steps, come = np.array(run.steps, dtype=float), np.array([curve.steps_at(loss) for loss in run.losses])
    late = 2 * steps >= steps[-1]
    if not (come[late] > 0).all():
        return np.zeros(0), np.zeros(0)
    return steps[late], come[late]


def has_stalled(run: GaugeRun, curve: BaseCurve) -> bool:
    """Whether the second half of the run got on by less than a tenth of its steps, whatever the noise of f hides."""
    steps, come = _late(run, curve)
    if len(steps) < _FEW:
        return False
    return bool(come[-1] - come[0] + 2 * curve.noise_at(float(come[-1])) < STALLED * (steps[-1] - steps[0]))


def phases_of(run: GaugeRun, curve: BaseCurve, goal: float, number: int) -> list[Efficiency]:
    """The efficiency in each of several equal parts of the way, as many as the run got through."""
    way = curve.steps_at(goal)
    ends = [0.0]
    for k in range(1, number + 1):
        ends.append(crossing(run.steps, run.losses, goal if k == number else curve.loss_at(way * k / number)))
    length = way / number
    noise = math.sqrt(2) * min(curve.error_at(way) / length, 1.0)
    found = []
    for begin, end in itertools.pairwise(ends):
        if not math.isfinite(end):
            break
        value = length / max(end - begin, length * STALLED)
        found.append(part([measured(run.local_steps, value, value * noise, "run")]))
    return found


FIRST, FACTOR, MOST = 16, 4, 1024
"""The number of local steps that is measured first, the factor to the next, and the largest."""
ENOUGH = 4
"""How many numbers show the whole curve, because it only falls."""
_NEARLY_ALL, _STILL_PAYS = 0.95, 0.4
"""Smaller numbers of local steps are measured below the first efficiency, and larger ones above the second."""


def next_number(found: Mapping[int, float], unpaid: Collection[int] = (), threshold: float = 0.8) -> int | None:
    """The number of local steps to measure next; None if those that were measured are enough.

    Larger numbers are measured while local steps still pay, and smaller ones if the threshold lies below.

    Args:
        found: the efficiency of each number that was measured; 0 where there is none.
        unpaid: numbers for which the budget does not pay.
        threshold: the efficiency that affordable local steps have at least.

    >>> next_number({}), next_number({16: 0.9}), next_number({16: 0.3}), next_number({16: 0.9}, unpaid={64})
    (16, 64, 4, 4)
    """
    if not found:
        return None if FIRST in unpaid else FIRST
    if len(found) >= ENOUGH:
        return None
    least, most = min(found), max(found)
    further = []
    if found[most] >= _STILL_PAYS and most * FACTOR <= MOST:
        further.append(most * FACTOR)
    if found[least] < max(threshold, _NEARLY_ALL) and least > 2:
        # Where even the least loses too much, the answer lies below it, and the budget goes there first.
        further.insert(0 if found[least] < threshold else len(further), max(least // FACTOR, 2))
    return next((each for each in further if each not in unpaid), None)
