"""The answer to "how many local steps?": their efficiency, and what follows from it for the cost of a round."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.interpolate import PchipInterpolator

from fedgauge.base.codec import Value
from fedgauge.base.errors import InputError, non_negative
from fedgauge.base.types import Floats
from fedgauge.values.display import Displayed, share_of

COSTS = (1.0, 10.0, 100.0, 1000.0)
"""The costs of a round, in local steps, for which there is a recommendation where the user's own is not known."""
CLOSE, GOOD = 0.05, 0.10
"""Local steps are in the range of the best, and good, if they take at most this much longer."""
_SIGMAS = 1.645  # an interval of 90%
_DRAWS = 400
_RANGE = 8.0
"""Where only an upper limit is known, the efficiency may be this many times smaller."""
_ABOVE = 1.02
"""Efficiencies whose whole interval lies above this are said to be above 1."""


@dataclass(frozen=True)
class StepEfficiency(Value):
    """The efficiency of one number of local steps: the share of them that counts, compared with the reference.

    Attributes:
        local_steps: the number H of local steps in a round.
        value: the efficiency; above 1 where these steps bring f down faster than those of the reference.
        low: the lower end of its interval of 90%.
        high: the upper end.
        measured: whether this number was tried; False for the reference itself.
        limit: whether only the upper end is known, because these steps stalled or diverged; the value is then a guess.
    """

    local_steps: int
    value: float
    low: float
    high: float
    measured: bool = True
    limit: bool = False

    @classmethod
    def at_most(cls, local_steps: int, high: float) -> Self:
        """The efficiency of local steps of which only an upper limit is known.

        >>> StepEfficiency.at_most(64, 0.1).share
        'at most 10%'
        """
        return cls(local_steps, high / math.sqrt(_RANGE), high / _RANGE, high, limit=True)

    @property
    def slowdown(self) -> float | None:
        """How many times as many steps are needed as with the reference; None if only an upper limit is known."""
        return None if self.limit else 1 / self.value

    @property
    def share(self) -> str:
        """The efficiency for a reader: a percentage of at most 100, or what it is at most; 1.3× if it is above 1.

        >>> [StepEfficiency(4, 1.3, low, 1.4).share for low in (0.9, 1.2)], StepEfficiency(4, 0.84, 0.8, 0.9).share
        (['100%', '1.3×'], '84%')
        """
        if self.limit:
            return f"at most {_percent(self.high)}"
        return f"{times(self.value)}×" if self.is_above_one else _percent(self.value)

    @property
    def interval(self) -> str:
        """The interval for a reader, of shares up to 100%; empty where there is none.

        >>> StepEfficiency(4, 0.9, 0.8, 1.1).interval, StepEfficiency(4, 1.5, 1.3, 1.7).interval
        ('80% to 100%', '1.3× to 1.7×')
        """
        if self.limit or not self.measured:
            return ""
        if self.is_above_one:
            return f"{times(self.low)}× to {times(self.high)}×"
        return f"{_percent(self.low)} to {_percent(self.high)}"

    @property
    def is_above_one(self) -> bool:
        """Whether it is certainly above 1: a step then gets further than one of the reference."""
        return self.low > _ABOVE


@dataclass(frozen=True)
class Recommendation(Value):
    """How many local steps to take for one cost of a round.

    Attributes:
        cost: the cost of a round, in local steps.
        local_steps: the number that is fastest.
        low: the smallest number that takes at most 5% longer.
        high: the largest.
        sure: how likely it is that the number takes at most 10% longer than the best of all.
        speedup: how many times as fast it is as the reference.
        ideal: its speed over that of the reference where communication is free.
        edge: ``smallest`` or ``largest`` if the number is at that end of what was tried, else empty.
    """

    cost: float
    local_steps: int
    low: int
    high: int
    sure: float
    speedup: float
    ideal: float
    edge: str = ""


@dataclass(frozen=True)
class Answer(Value, Displayed):
    """How many local steps count, and how many to take.

    Attributes:
        efficiency: of the numbers of local steps that were tried, growing, the reference first.
        reference: what they are compared with, as the end of a sentence.
        cost: the cost of a round in local steps; None if it is not known.
        using: the local steps that the user has; None if that is not known.
        method: how the efficiency was measured, and what that cost, in one sentence.
        phases: the efficiency early, in the middle and late in training, where these were measured separately.
        notes: what a reader should know, one sentence each.
        complete: whether there is an answer: False where too little was observed for one.
        chosen: the number that whole runs have shown to be the fastest for the user's own cost, where there were some;
            it stands above what the curve says.
        overlap: communication runs beside this share of a round's local steps.

    >>> answer = Answer((StepEfficiency(1, 1, 1, 1, False), StepEfficiency(64, 0.5, 0.45, 0.55)), "I = 1", cost=100)
    >>> answer.best().local_steps, round(answer.best().speedup, 1)
    (64, 19.7)
    """

    efficiency: tuple[StepEfficiency, ...]
    reference: str
    cost: float | None = None
    using: int | None = None
    method: str = ""
    phases: tuple[tuple[str, tuple[StepEfficiency, ...]], ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool = True
    chosen: int | None = None
    overlap: float = 0.0

    def __post_init__(self) -> None:
        steps = [each.local_steps for each in self.efficiency]
        if not steps or steps != sorted(set(steps)):
            raise InputError(f"An answer needs growing numbers of local steps, not {steps}.")
        if self.chosen is not None and self.chosen not in steps:
            raise InputError(f"An answer chooses among the numbers that were tried, {steps}, not {self.chosen}.")

    def best(self, cost: float | None = None) -> Recommendation:
        """The recommendation for a cost of a round, by default the user's own.

        A useful step of H local steps takes (1 + cost/H)/E(H), less the communication that runs beside the steps.
        Between the numbers that were tried, log E is a smooth curve in log H that does not rise where the numbers do
        not.

        Args:
            cost: how many local steps a round of communication takes as long as.
        """
        price = self._price(cost)
        steps, curves = _curves(self.efficiency)
        # With numbers of which only a limit is known, f may never get there, so that they are not recommended.
        certain = steps <= max(each.local_steps for each in self.efficiency if not each.limit)
        steps, curves = steps[certain], curves[:, certain]
        times = self._seconds(steps, price) / np.exp(curves)
        middle = times[0]
        at = int(np.argmin(middle))
        rounded = _tidy(int(steps[at]), steps[middle <= middle[at] * (1 + CLOSE / 2)])
        if self.chosen is not None and price == self.cost:
            rounded = self.chosen
        at = int(np.flatnonzero(steps == rounded)[0])
        near = steps[middle <= middle.min() * (1 + CLOSE)]
        least, most = self.efficiency[0].local_steps, self.efficiency[-1].local_steps
        edge = "" if least < rounded < most else "smallest" if rounded == least else "largest"
        edge = "" if least == most or (edge == "smallest" and least == 1) else edge
        edge = "" if edge == "largest" and self.efficiency[-1].limit else edge
        return Recommendation(
            float(price),
            rounded,
            min(int(near[0]), rounded),
            max(int(near[-1]), rounded),
            float(np.mean(times[1:, at] <= times[1:].min(axis=1) * (1 + GOOD))),
            float(middle[0] / middle[at]),
            float(1 / middle[at]),
            edge,
        )

    def speedup_over(self, local_steps: int, cost: float | None = None) -> float | None:
        """How many times as fast the recommended number is as another one; None where that lies beyond what was tried.

        Args:
            local_steps: the other number.
            cost: of a round, by default the user's own.
        """
        price = self._price(cost)
        steps, curves = _curves(self.efficiency)
        if not steps[0] <= local_steps <= steps[-1]:
            return None
        best = self.best(price).local_steps
        theirs, ours = (
            float(self._seconds(each, price)) / math.exp(np.interp(math.log(each), np.log(steps), curves[0]))
            for each in (local_steps, best)
        )
        return float(theirs / ours)

    def _seconds(self, steps: Floats | int, price: float) -> Floats:
        """What a local step takes with its part of the communication, in local steps."""
        return 1 + np.maximum(price / np.asarray(steps) - self.overlap, 0.0)

    def _price(self, cost: float | None) -> float:
        price = self.cost if cost is None else non_negative("cost", cost)
        if price is None:
            raise InputError(
                "Give the cost of a round in local steps, as in best(100): time a round, time a step, divide."
            )
        return price

    @property
    def recommendations(self) -> tuple[Recommendation, ...]:
        """What to use for four costs of a round and for the user's own; none where there is no answer.

        Where whole runs were made for the user's own cost, they say little about others, which are then left out.
        """
        own = [] if self.cost is None else [self.cost]
        costs = own if self.chosen is not None else sorted({*COSTS, *own})
        return tuple(self.best(cost) for cost in costs) if self.complete else ()

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        if not self.complete:
            return "There is no answer yet: too little was observed to compare local steps."
        if self.cost is not None:
            best = self.best()
            price = "one local step" if best.cost == 1 else f"{number_of_steps(best.cost)} of them"
            sure = "almost certainly" if best.sure >= 0.995 else f"{best.sure:.0%} sure that it is"
            steps = _steps(best.local_steps)
            return f"Use {steps} if a round costs as much as {price} ({sure} within 10% of the best)."
        most, least = self.best(COSTS[-1]), self.best(COSTS[0])
        if most.local_steps == least.local_steps:
            return f"Use {_steps(most.local_steps)}, whether a round costs as much as one of them or 1,000."
        return (
            f"Use {_steps(least.local_steps)} if a round costs as much as one of them, and"
            f" {most.local_steps:,} if it costs as much as 1,000."
        )

    @property
    def share(self) -> str:
        """How many of the recommended steps count, in one sentence; empty where nothing was compared."""
        others = [each for each in self.efficiency if each.measured]
        if not others or not self.complete:
            return ""
        wanted = self.best().local_steps if self.cost is not None else others[-1].local_steps
        exact = next((each for each in self.efficiency if each.local_steps == wanted), None)
        if exact is not None and not exact.measured:
            exact = others[0]
        if exact is not None:
            interval = f" ({exact.interval.replace('%', '', 1)})" if exact.interval.endswith("%") else ""
            share = f"At {_steps(exact.local_steps)}, {_counting(exact)}{interval}"
            if exact.is_above_one:
                return f"{share}, compared with {self.reference}."
            return f"{share} of the work counts, compared with {self.reference}."
        below = [each for each in self.efficiency if each.local_steps < wanted][-1]
        above = next(each for each in self.efficiency if each.local_steps > wanted)
        least, most = above.share.removeprefix("at most "), below.share
        return (
            f"Between {below.local_steps:,} and {above.local_steps:,} local steps, {least} to {most} of the work"
            f" counts, compared with {self.reference}."
        )


def _counting(entry: StepEfficiency) -> str:
    return f"a step gets {times(entry.value)} times as far" if entry.is_above_one else entry.share


def times(ratio: float) -> str:
    """How many times as much, with two digits, or as many as a whole number has.

    >>> times(1.26), times(18.2), times(141.3), times(12345.6)
    ('1.3', '18', '141', '12,346')
    """
    return f"{ratio:.2g}" if ratio < 99.5 else f"{ratio:,.0f}"


def number_of_steps(cost: float) -> str:
    """A cost of a round in local steps.

    >>> number_of_steps(0.5), number_of_steps(12.5), number_of_steps(1e6)
    ('0.5', '12.5', '1,000,000')
    """
    return f"{cost:,.0f}" if cost >= 1000 else f"{cost:.4g}"


def _steps(number: int) -> str:
    return f"{number:,} local step{'' if number == 1 else 's'}"


def _percent(share: float) -> str:
    return f"{min(share, 1.0):.0%}" if share >= 0.005 else share_of(share)


@functools.lru_cache(maxsize=64)
def _curves(efficiency: tuple[StepEfficiency, ...]) -> tuple[Floats, Floats]:
    """Numbers of local steps, and the logarithms of their efficiencies: the best in the first row, then draws.

    Between the numbers that were tried, log E is a smooth curve in log H. What noise lets rise is taken to be level,
    unless it is the reference that is slow.
    """
    tried = np.array([each.local_steps for each in efficiency], dtype=float)
    steps = np.unique(np.concatenate([np.geomspace(tried[0], tried[-1], 400).round(), tried]))
    values = np.array([math.log(each.value) for each in efficiency])
    errors = np.array([math.log(max(each.high, 1e-9) / max(each.low, 1e-9)) / 2 / _SIGMAS for each in efficiency])
    draws = values + errors * np.random.default_rng(0).normal(size=(_DRAWS, len(values)))
    logs = np.vstack([values, draws])
    if len(tried) == 1:
        return steps, np.repeat(logs, len(steps), axis=1)
    falling = np.hstack([logs[:, :1], _falling(logs[:, 1:])])
    return steps, PchipInterpolator(np.log(tried), falling, axis=1)(np.log(steps))


def _falling(rows: Floats) -> Floats:
    """The nearest rows that do not rise, by least squares: each entry is a least of largest means.

    >>> _falling(np.array([[3.0, 1.0, 2.0, 0.5]]))
    array([[3. , 1.5, 1.5, 0.5]])
    """
    number = rows.shape[1]
    sums = np.hstack([np.zeros((len(rows), 1)), np.cumsum(rows, axis=1)])
    ends: list[list[Floats]] = [
        [(sums[:, b + 1] - sums[:, a]) / (b + 1 - a) if b >= a else np.empty(0) for b in range(number)]
        for a in range(number)
    ]
    columns = [
        np.min([np.max([ends[a][b] for b in range(k, number)], axis=0) for a in range(k + 1)], axis=0)
        for k in range(number)
    ]
    return np.stack(columns, axis=1)


def _tidy(best: int, alike: Sequence[float] | Floats) -> int:
    """A power of two among numbers that are as good as the best, or the best itself."""
    powers = [int(each) for each in alike if int(each) & (int(each) - 1) == 0]
    return min(powers, key=lambda each: abs(math.log(each / best)), default=best)
