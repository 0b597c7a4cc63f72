"""How a run comes nearer to its goal with time, and when it will be there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauge.errors import InputError
from fedgauge.planning.goal import Goal
from fedgauge.values import Round, Status, Value

Floats = npt.NDArray[np.float64]
_NEVER = 30.0  # factors of e in time, beyond which one is as long as another
_FLAT = 0.02  # an error that falls by less than this power of the time is taken to stand still
_FITTED = 64  # records that a law is fitted to
_TELLING = 5  # records from which a floor can be told from a slope
_LEAST = 1e-300  # stands for an error of 0, which has no logarithm


class Law(NamedTuple):
    """A straight line of the logarithm of the error against some clock.

    Attributes:
        clock: of seconds.
        slope: by how much it falls for each unit of the clock.
        end: the clock at the last record.
        height: of the line there.
        residual: standard deviation about the line.
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
        seconds: at each record.
        errors: above 0, less is better.
        each: seconds of one round.
        status: how the run stands.

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
        """The seconds that it has cost."""
        return self.seconds[-1]

    @property
    def diverged(self) -> bool:
        """Whether it is lost."""
        return self.status == "diverged"

    def when(self, target: float) -> float | None:
        """The seconds at the first record with an error of at most the target; None where there is none yet."""
        return next((t for t, error in zip(self.seconds, self.errors, strict=True) if error <= target), None)

    def at(self, seconds: float) -> float:
        """The error at the last record that was made within so many seconds; infinite where it diverged by then."""
        if self.diverged and self.end < seconds:
            return math.inf
        return self.errors[max(0, int(np.searchsorted(self.seconds, seconds * (1 + 1e-12), side="right")) - 1)]

    def level(self, seconds: float) -> float:
        """The logarithm of the error at a time, on a straight line between records.

        >>> round(math.exp(Curve((0.0, 2.0), (1.0, 0.25), 1.0, "stopped").level(1.0)), 3)
        0.5
        """
        return float(np.interp(seconds, *self._points))

    def until(self, seconds: float) -> Curve:
        """What was known at the first record after so many seconds."""
        kept = int(np.searchsorted(self.seconds, seconds * (1 - 1e-9))) + 1
        if kept >= len(self.seconds):
            return self
        return Curve(self.seconds[:kept], self.errors[:kept], self.each, "stopped")

    def costing(self, each: float) -> Curve:
        """The same run where a round takes so many seconds."""
        seconds = tuple(t / self.each * each for t in self.seconds)
        return Curve(seconds, self.errors, each, self.status)

    @cached_property
    def _points(self) -> tuple[Floats, Floats]:
        """Times and logarithms of errors."""
        return np.array(self.seconds), np.log(self.errors)

    @cached_property
    def _late(self) -> tuple[Floats, Floats]:
        """The points of the later half of the run, thinned, or all of them where that is one."""
        t, y = self._points
        late = np.flatnonzero(t >= self.end / 2)
        late = late[np.linspace(0, len(late) - 1, _FITTED).astype(int)] if len(late) > _FITTED else late
        return (t[late], y[late]) if len(late) > 1 else (t, y)

    @cached_property
    def laws(self) -> tuple[Law, ...]:
        """How the error falls lately, as a power of time and as an exponential of it: too slowly, and too fast.

        Losses fall ever more slowly, in ever longer stretches of time, so that a constant speed promises too much.
        A power of time follows that, but gives those that have just begun too little credit.
        """
        t, y = self._late
        if len(t) < 2:
            return ()
        found = []
        for clock in (lambda s: np.log(s + self.each), lambda s: np.asarray(s, dtype=float)):
            x = clock(t)
            slope, height = np.polyfit(x, y, 1)
            residual = float(np.std(y - slope * x - height))
            found.append(Law(clock, float(-slope), float(x[-1]), float(height + slope * x[-1]), residual))
        return tuple(found)

    @cached_property
    def scatter(self) -> float:
        """Standard deviation of the logarithm of the error about the better of its two laws."""
        return min((law.residual for law in self.laws), default=0.0)

    @cached_property
    def floor(self) -> tuple[float, float]:
        """a and b of the error a + b/sqrt(t) of late, with a at the low end of what the fit allows.

        Every bound of the theory is one term that time takes away, as 1/t, and others that it does not touch. Losses of
        networks fall more slowly than that, and what falls as slowly as 1/sqrt(t) is not to be taken for a plateau.
        Where there are too few records to tell, or a constant rate fits them better, nothing is known to stay.
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
        """Seconds until the error is the target: those that it took, or the mean of what two laws say.

        One is a power of time, which promises too little, the other a constant rate where there are few records, and
        a + b/sqrt(t) where there are more; an error that stays above the target by either is never there.

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
        # Who has just begun may be slow, but cannot be said to stand still.
        still = len(self._late[0]) >= _TELLING and power.slope < _FLAT and rest > 0
        if still or exponential.slope <= 0 or rest >= target:
            return math.inf
        slow = (self.end + self.each) * math.exp(min(fall / max(power.slope, 1e-9), _NEVER)) - self.each
        fast = self.end + fall / exponential.slope
        if slope > 0 and rest > 0:
            fast = max(fast, (slope / (target - rest)) ** 2 - self.each)
        return max(self.end, math.sqrt(slow * fast))

    def later(self, seconds: float) -> float:
        """The error after so many seconds: the one seen, or the mean of what the two laws say."""
        if self.diverged or seconds <= self.end:
            return self.at(seconds)
        logs = [law.height - max(law.slope, 0.0) * (float(law.clock(seconds)) - law.end) for law in self.laws]
        return math.exp(float(np.mean(logs))) if logs else self.errors[-1]


@dataclass(frozen=True)
class Scale(Value):
    """How a goal's quantity becomes an error above 0.

    Attributes:
        goal: what is to be reached.
        floor: the least that the loss can be.

    >>> Scale(Goal("accuracy", 0.75)).target
    0.25
    """

    goal: Goal
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.goal.quantity == "loss" and self.goal.value is not None and not self.goal.value > self.floor:
            raise InputError(f"The goal loss must be above {self.floor:g}, the least that f can be; ask for more.")

    def error(self, record: Round) -> float:
        """Of a record; a little above 0 where nothing is left."""
        value = self.goal.of(record)
        return max(value + 1.0 if self.goal.rising else value - self._floor, _LEAST)

    @property
    def _floor(self) -> float:
        return self.floor if self.goal.quantity == "loss" else 0.0

    @property
    def target(self) -> float | None:
        """The error to reach; None within a budget."""
        if self.goal.value is None:
            return None
        return max(1.0 - self.goal.value if self.goal.rising else self.goal.value - self._floor, _LEAST)

    def value(self, error: float) -> float:
        """The quantity, as the user reads it."""
        return 1.0 - error if self.goal.rising else error + self._floor

    def curve(self, records: Sequence[Round], each: float, status: Status) -> Curve:
        """A run's curve, at so many seconds a round."""
        return Curve(tuple(record.round * each for record in records), tuple(map(self.error, records)), each, status)
