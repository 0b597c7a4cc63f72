"""The error of a run against time, and a forecast of when the run reaches its goal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fedgauge.base.errors import InputError
from fedgauge.base.types import Floats
from fedgauge.values import Round, Status, Value
from fedgauge_planning.goal import HELD, Goal

_NEVER = 30.0  # logarithm of the largest factor by which a forecast may exceed the time so far
_FLAT = 0.02  # an error that falls by less than this power of the time counts as constant
_FITTED = 64  # number of records that a law is fitted to
_TELLING = 5  # number of records that are needed to tell a plateau from a slow fall
_LEAST = 1e-300  # replaces an error of 0, which has no logarithm


class Law(NamedTuple):
    """A straight line for the logarithm of the error, as a function of a clock.

    Attributes:
        clock: function that turns seconds into the time of the clock.
        slope: how far the line falls per unit of the clock.
        end: the clock at the last record.
        height: the height of the line at the last record.
        residual: standard deviation of the records about the line.
    """

    clock: Callable[[Any], Any]
    slope: float
    end: float
    height: float
    residual: float


@dataclass(frozen=True)
class Curve(Value):
    """The error of a run against the seconds that it has cost.

    Attributes:
        seconds: the seconds at each record.
        errors: the error at each record, above 0; smaller is better.
        each: seconds that one round takes.
        status: the status of the run.

    >>> curve = Curve((0.0, 1.0, 2.0, 3.0), (1.0, 0.5, 0.25, 0.125), 1.0, "stopped")
    >>> curve.when(0.5), curve.when(0.1), curve.at(2.5)
    (1.0, None, 0.25)
    """

    seconds: tuple[float, ...]
    errors: tuple[float, ...]
    each: float
    status: Status

    @property
    def end(self) -> float:
        """The seconds that the run has cost."""
        return self.seconds[-1]

    @property
    def diverged(self) -> bool:
        """Whether the run diverged."""
        return self.status == "diverged"

    @cached_property
    def least(self) -> float:
        """The smallest error of all records."""
        return min(self.errors)

    def when(self, target: float) -> float | None:
        """The seconds at the first of two records in a row with an error of at most the target; None if there are none.

        >>> Curve((0.0, 1.0, 2.0, 3.0, 4.0), (1.0, 0.4, 0.6, 0.4, 0.3), 1.0, "stopped").when(0.5)
        3.0
        """
        if self.least > target:
            return None
        held = 0
        for at, error in enumerate(self.errors):
            held = held + 1 if error <= target else 0
            if held == HELD:
                return self.seconds[at + 1 - HELD]
        return None

    def at(self, seconds: float) -> float:
        """The error at the last record within a time; infinite if the run had diverged by then."""
        if self.diverged and self.end < seconds:
            return math.inf
        return self.errors[max(0, int(np.searchsorted(self.seconds, seconds * (1 + 1e-12), side="right")) - 1)]

    def level(self, seconds: float) -> float:
        """The logarithm of the error at a time, interpolated between records.

        >>> round(math.exp(Curve((0.0, 2.0), (1.0, 0.25), 1.0, "stopped").level(1.0)), 3)
        0.5
        """
        return float(np.interp(seconds, *self._points))

    def until(self, seconds: float) -> Curve:
        """The curve up to the first record at or after a time."""
        number = int(np.searchsorted(self.seconds, seconds * (1 - 1e-9))) + 1
        if number >= len(self.seconds):
            return self
        return Curve(self.seconds[:number], self.errors[:number], self.each, "stopped")

    def costing(self, each: float) -> Curve:
        """The same run with another number of seconds per round."""
        seconds = tuple(t / self.each * each for t in self.seconds)
        return Curve(seconds, self.errors, each, self.status)

    @cached_property
    def _points(self) -> tuple[Floats, Floats]:
        """Times and logarithms of errors."""
        return np.array(self.seconds), np.log(self.errors)

    @cached_property
    def _late(self) -> tuple[Floats, Floats]:
        """The points in the later half of the run, thinned; all points if that half has only one."""
        t, y = self._points
        late = np.flatnonzero(t >= self.end / 2)
        late = late[np.linspace(0, len(late) - 1, _FITTED).astype(int)] if len(late) > _FITTED else late
        return (t[late], y[late]) if len(late) > 1 else (t, y)

    @cached_property
    def laws(self) -> tuple[Law, ...]:
        """Two fits to the later half of the run: the error as a power of time, and as an exponential of time.

        Losses fall more and more slowly, so the exponential, with its constant rate, is too optimistic. The power of
        time follows the slowing down, but is too pessimistic about runs that have just begun.
        """
        t, y = self._late
        if len(t) < 2:
            return ()
        laws = []
        for clock in (lambda s: np.log(s + self.each), lambda s: np.asarray(s, dtype=float)):
            x = clock(t)
            slope, height = np.polyfit(x, y, 1)
            residual = float(np.std(y - slope * x - height))
            laws.append(Law(clock, float(-slope), float(x[-1]), float(height + slope * x[-1]), residual))
        return tuple(laws)

    @cached_property
    def scatter(self) -> float:
        """Standard deviation of the logarithm of the error about the better of its two laws."""
        return min((law.residual for law in self.laws), default=0.0)

    @cached_property
    def floor(self) -> tuple[float, float]:
        """The a and b of a fit a + b/sqrt(t) to the later half of the run, with a at the low end of its interval.

        In every bound of the theory, one term falls with time, as 1/t, and the others are constant. Losses of networks
        fall more slowly, and an error that falls as slowly as 1/sqrt(t) must not be mistaken for a plateau. If there
        are too few records, or a constant rate fits them better, the floor a is 0.
        """
        t, y = self._late
        if len(t) < _TELLING:
            return 0.0, math.nan
        x, errors = (t + self.each) ** -0.5, np.exp(y)
        slope, height = np.polyfit(x, errors, 1)
        residual = errors - slope * x - height
        spread = float(((x - x.mean()) ** 2).sum())
        if float(np.std(residual / errors)) > self.laws[1].residual + 1e-9:
            return 0.0, math.nan
        variance = float(residual @ residual) / (len(x) - 2)
        doubt = math.sqrt(variance * (1 / len(x) + float(x.mean()) ** 2 / spread))
        return float(height) - 2 * doubt, float(slope)

    def forecast(self, target: float) -> float:
        """Seconds until the error is at most the target: as observed, or else the geometric mean of two forecasts.

        One forecast is the power of time, which is pessimistic. The other is optimistic: the constant rate, and with
        enough records at least the time by a + b/sqrt(t). It is infinite if the error does not fall to the target.

        >>> curve = Curve(tuple(range(100)), tuple(0.5**t for t in range(100)), 1.0, "stopped")
        >>> curve.forecast(0.5**10), 100 < curve.until(20).forecast(0.5**100)
        (10, True)
        """
        reached = self.when(target)
        if reached is not None:
            return reached
        laws = self.laws
        if self.diverged or not laws:
            return math.inf
        power, exponential = laws
        fall = max(power.height - math.log(target), 0.0)
        rest, slope = self.floor
        # A run with few records may be slow, but it is too early to call it constant.
        still = len(self._late[0]) >= _TELLING and power.slope < _FLAT and rest > 0
        if still or exponential.slope <= 0 or rest >= target:
            return math.inf
        slow = (self.end + self.each) * math.exp(min(fall / max(power.slope, 1e-9), _NEVER)) - self.each
        fast = self.end + fall / exponential.slope
        if slope > 0 and rest > 0:
            fast = max(fast, (slope / (target - rest)) ** 2 - self.each)
        return max(self.end, math.sqrt(slow * fast))

    def later(self, seconds: float) -> float:
        """The error after some seconds: as observed, or else the geometric mean of what the two laws forecast."""
        if self.diverged or seconds <= self.end:
            return self.at(seconds)
        logs = [law.height - max(law.slope, 0.0) * (float(law.clock(seconds)) - law.end) for law in self.laws]
        return math.exp(float(np.mean(logs))) if logs else self.errors[-1]


@dataclass(frozen=True)
class Scale(Value):
    """Turns the quantity of a goal into an error above 0.

    Attributes:
        goal: the goal.
        floor: the smallest possible loss.

    >>> Scale(Goal("accuracy", 0.75)).target
    0.25
    """

    goal: Goal
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.goal.quantity == "loss" and self.goal.value is not None and not self.goal.value > self.floor:
            raise InputError(
                f"The goal loss must be above {self.floor:g}, the smallest value of f, not {self.goal.value:g};"
                " choose a larger loss."
            )

    def error(self, record: Round) -> float:
        """The error of a record; a tiny positive number if it is 0."""
        value = self.goal.of(record)
        return max(value + 1.0 if self.goal.rising else value - self._floor, _LEAST)

    @property
    def _floor(self) -> float:
        return self.floor if self.goal.quantity == "loss" else 0.0

    @property
    def target(self) -> float | None:
        """The error to reach; None if the goal has a budget."""
        if self.goal.value is None:
            return None
        return max(1.0 - self.goal.value if self.goal.rising else self.goal.value - self._floor, _LEAST)

    def value(self, error: float) -> float:
        """Turn an error back into the quantity, as users read it."""
        return 1.0 - error if self.goal.rising else error + self._floor

    def curve(self, records: Sequence[Round], each: float, status: Status) -> Curve:
        """The curve of a run, with ``each`` seconds per round."""
        return Curve(tuple(record.round * each for record in records), tuple(map(self.error, records)), each, status)
