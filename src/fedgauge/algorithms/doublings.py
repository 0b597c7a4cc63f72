"""What recorded rounds say about more local steps: the worth of each doubling, and how fast f falls.

A round that is recorded has the loss at some of its steps (``looked`` and ``path`` of a
:class:`~fedgauge.values.Round`). With a the fall of f over the first half of the steps and b over the second, e = b / a
is what a step without communication is still worth: :mod:`fedgauge.algorithms.adaptive_pace` decides by it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgauge.values import Round

_MEMORY = 0.8
"""Weight of a measurement at the next one: about five count, as e changes while the loss falls."""
_DOUBT = 0.05
"""Assumed variance of (b - share a) / (|a| + |b|), which lies in [-1, 1], before the scatter is known."""


@dataclass(frozen=True)
class Tally:
    """What the rounds say about one doubling: decayed sums over (b, a), each pair divided by |a| + |b|."""

    number: float = 0.0
    b: float = 0.0
    a: float = 0.0
    bb: float = 0.0
    ab: float = 0.0
    aa: float = 0.0

    def with_pair(self, b: float, a: float, scale: float) -> Tally:
        """The tally with one more round in it."""
        if not scale > 0:
            return self
        b, a = b / scale, a / scale
        new = (1.0, b, a, b * b, a * b, a * a)
        return Tally(*(_MEMORY * old + each for old, each in zip(vars(self).values(), new, strict=True)))

    def excess(self, share: float) -> tuple[float, float]:
        """The mean of b - share a, and its standard error."""
        if not self.number:
            return 0.0, math.inf
        mean = (self.b - share * self.a) / self.number
        square = self.bb - 2 * share * self.ab + share**2 * self.aa
        scatter = max(square - self.number * mean**2, 0.0)
        return mean, math.sqrt((scatter + _DOUBT) / (self.number + 1) / self.number)

    @property
    def worth(self) -> float:
        """The estimate of e."""
        return self.b / self.a if self.a > 0 else -math.inf


@dataclass(frozen=True)
class Descent:
    """How f has fallen: its value after each number of rounds."""

    points: tuple[tuple[int, float], ...] = ()

    @property
    def rounds(self) -> int:
        """The number of rounds between the first and the last point."""
        return self.points[-1][0] - self.points[0][0]

    def late(self, rounds: int) -> Descent:
        """The part within the last ``rounds``, but at least the last two points."""
        first = self.points[-1][0] - rounds
        return Descent(self.points[min(sum(place < first for place, _ in self.points), len(self.points) - 2) :])

    @property
    def slope(self) -> float:
        """The fall of f in a round, by least squares."""
        places, losses = self._centred
        return -float(places @ losses / (places @ places))

    @property
    def error(self) -> float:
        """The standard error of the slope, from the scatter about the line; infinite for two points."""
        if len(self.points) <= 2:
            return math.inf
        places, losses = self._centred
        rest = losses + places * self.slope
        return math.sqrt(float(rest @ rest) / (len(losses) - 2) / float(places @ places))

    @property
    def _centred(self) -> npt.NDArray[np.float64]:
        both: npt.NDArray[np.float64] = np.array(self.points, float).T
        both -= both.mean(axis=1, keepdims=True)
        return both


def gap(record: Round) -> float:
    """What half the steps would gain at once: (a - b) / 2, as the halves differ only by what drift adds."""
    points = points_of(record)
    assert record.looked is not None
    I = record.looked[-1]  # noqa: E741
    if not (I > 1 and I // 2 in points and math.isfinite(points[I])):
        return 0.0
    return (points[0] + points[I]) / 2 - points[I // 2]


def with_last(tally: Tally, record: Round) -> Tally:
    """The tally including the last round, although the next round's first half is not known yet."""
    points = points_of(record)
    assert record.looked is not None
    I = record.looked[-1]  # noqa: E741
    half = I // 2
    if half in points and half and math.isfinite(points[half] + points[I]):
        a, b = points[0] - points[half], points[half] - points[I]
        return tally.with_pair(b, a, abs(a) + abs(b))
    return tally


def in_words(tally: Tally, local_steps: int) -> str:
    """What a tally says about the last doubling of the local steps.

    >>> in_words(Tally(b=0.3, a=0.4), 8)
    'the second 4 of 8 local steps lowered f by 75% of what the first 4 did'
    >>> in_words(Tally(b=-0.1, a=-0.4), 8)
    'the second 4 of 8 local steps raised f by less than the first 4 did'
    """
    half = local_steps // 2
    if tally.b > 0 and tally.a > 0:
        did = f"lowered f by {tally.worth:.0%} of what the first {half} did"
    elif tally.b > 0:
        did = f"lowered f, and the first {half} did not"
    elif tally.a < tally.b:
        did = f"raised f by less than the first {half} did"
    else:
        did = "did not lower f"
    return f"the second {half} of {local_steps} local steps {did}"


def pairs(record: Round, following: Round) -> Iterator[tuple[int, float, float, float]]:
    """For each doubling in a round: its end, the fall b over its second half, a to compare with, and a scale."""
    points, later = points_of(record), points_of(following)
    weight = 0.5 / (following.round - record.round)
    for end, loss in points.items():
        half = end // 2
        if half not in points or not half or not math.isfinite(loss):
            continue
        a, b = points[0] - points[half], points[half] - loss
        known = max(steps for steps in later if steps <= half)
        after = (later[0] - later[known]) * half / known if known else a
        if math.isfinite(a + b + after):
            yield end, b, (1 - weight) * a + weight * after, abs(a) + abs(b)


def points_of(record: Round) -> dict[int, float]:
    """The losses of a round by number of steps, including its beginning."""
    assert record.looked is not None
    assert record.path is not None
    return {0: record.loss, **dict(zip(record.looked, record.path, strict=True))}
