"""Axes: round numbers for ticks, scales from numbers to positions, and fewer points where a screen shows no more."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np

from fedgauge.show.web.writing import shown

_STEPS = (1, 2, 5, 10)
_LEAST_SPAN = 1e-9  # the least relative span of an axis: with less, all its numbers look the same to a reader
_LEAST, _MOST = sys.float_info.min, sys.float_info.max


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return at most ``most`` round numbers between two numbers: multiples of 1, 2 or 5 times a power of ten.

    >>> ticks(0, 1), ticks(-3, 107, most=4)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 50.0, 100.0])
    """
    span = high / 2 - low / 2  # half of it, because the whole may be beyond the largest number
    if not span > 0:
        return [low]
    exponent = math.floor(math.log10(span) + math.log10(2 / most))
    for factor in (*_STEPS, 20, 50):
        # Count whole steps and compute with decimals, so that 0.3 is exactly 0.3.
        step = Decimal(factor).scaleb(exponent)
        first, last = math.ceil(Decimal(low) / step), math.floor(Decimal(high) / step)
        if last - first + 1 <= most:
            numbers = [float(step * count) for count in range(first, last + 1)]
            return [number for number in dict.fromkeys(numbers) if low <= number <= high] or [low]
    raise AssertionError("fifty times a power of ten below the span leaves few ticks")


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return at most ``most`` round numbers between two positive numbers, evenly spread over their logarithms.

    >>> log_ticks(0.5, 2000), log_ticks(1, 30)
    ([1.0, 10.0, 100.0, 1000.0], [1.0, 2.0, 5.0, 10.0, 20.0])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    powers = range(first, last + 1)
    fine = [_decimal(digit, power) for power in powers for digit in (1, 2, 5)]
    decades = [_decimal(1, power) for power in powers]
    for candidates in (fine, *(_every(decades, powers, stride) for stride in range(1, len(decades) + 1))):
        chosen = [number for number in candidates if low <= number <= high]
        if len(chosen) <= most:
            return chosen if len(chosen) > 1 else ticks(low, high, most)
    return [low]


def _every(decades: Sequence[float], powers: Sequence[int], stride: int) -> list[float]:
    return [number for number, power in zip(decades, powers, strict=True) if power % stride == 0]


def _decimal(digit: int, power: int) -> float:
    return float(Decimal(digit).scaleb(power))


def labels(marks: Sequence[float]) -> list[str]:
    """Write ticks with enough digits to tell them apart.

    >>> labels([0.0, 0.5, 1.0]), labels([10000.1, 10000.2])
    (['0', '0.5', '1'], ['10000.1', '10000.2'])
    """
    short = [shown(mark) for mark in marks]
    return short if len(set(short)) == len(marks) else [f"{mark:.12g}" for mark in marks]


@dataclass(frozen=True)
class AxisScale:
    """A map from numbers to positions on a screen.

    Attributes:
        low: the number at ``start``.
        high: the number at ``end``.
        start: the position where the axis begins.
        end: the position where the axis ends.
        log: whether the axis is logarithmic.

    >>> scale = AxisScale(1, 100, 0, 200, log=True)
    >>> scale(1), scale(10), scale(100)
    (0.0, 100.0, 200.0)
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, number: float) -> float:
        """The position of a number."""
        # Halves, because a difference of two numbers may be beyond the largest number.
        low, high, at = (math.log(x) if self.log else x / 2 for x in (self.low, self.high, number))
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def nearest(self, number: float) -> float:
        """The position of a number, or the end of the axis that is nearest to it; NaN is at the beginning."""
        return self(min(max(self.low, number), self.high))

    def widened(self, share: float) -> AxisScale:
        """The same with more room at both ends, as a share of the axis."""
        if self.log:
            # The logarithms, because a quotient may be beyond the largest number.
            room = math.exp(share * (math.log(self.high) - math.log(self.low)))
            high = self.high * room if self.high < _MOST / room else _MOST
            return replace(self, low=max(self.low / room, _LEAST), high=high)
        room = (self.high / 2 - self.low / 2) * 2 * share
        return replace(self, low=max(self.low - room, -_MOST), high=min(self.high + room, _MOST))

    def ticks(self, most: int = 6) -> list[float]:
        """The ticks of the axis."""
        return log_ticks(self.low, self.high, most) if self.log else ticks(self.low, self.high, most)

    def to_json(self) -> dict[str, Any]:
        """Return the scale as the script reads it."""
        return {"low": self.low, "high": self.high, "start": self.start, "end": self.end, "log": self.log}


def fit(numbers: Iterable[float], start: float, end: float, *, log: bool = False, zero: bool = False) -> AxisScale:
    """Return a scale that contains all finite numbers (with ``log``, all positive ones).

    Args:
        numbers: the numbers to show.
        start: the position where the axis begins.
        end: the position where the axis ends.
        log: whether the axis is logarithmic.
        zero: whether the axis must contain 0.

    >>> fit([3, 7, float("inf")], 0, 100).low, fit([0.002, 3], 0, 100, log=True).low
    (3.0, 0.002)
    """
    drawn = np.asarray([number for number in numbers if number is not None], dtype=float)
    # Numbers below the smallest normal one have hardly any digits, and their logarithms no room below them.
    drawn = drawn[np.isfinite(drawn) & ((drawn >= _LEAST) | (not log))]
    low, high = (float(drawn.min()), float(drawn.max())) if drawn.size else (1.0, 1.0)
    if zero and not log:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= max(_LEAST_SPAN * max(abs(low), abs(high)), _LEAST):
        # There is only one number: put it in the middle.
        room = max(abs(low), abs(high)) / 2
        room = room if room >= _LEAST else 0.5
        low, high = (low / 2, high * 2) if log else (low - room, high + room)
        low, high = max(low, _LEAST if log else -_MOST), min(high, _MOST)
    return AxisScale(low, high, start, end, log)


def thin(x: Sequence[float], y: Sequence[float], columns: int = 240) -> list[int]:
    """Return the points to draw: the first, the smallest, the largest and the last in every column of the screen.

    >>> thin(range(5), [1, 2, 1, 2, 1])
    [0, 1, 2, 3, 4]
    >>> kept = thin(range(10_000), [0.0] * 5000 + [9.0] + [0.0] * 4999, columns=10)
    >>> 5000 in kept, len(kept) <= 40
    (True, True)
    """
    if len(x) <= 4 * columns:
        return list(range(len(x)))
    places, heights = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    span = float(places[-1] - places[0])
    column = np.minimum(((places - places[0]) / (span or 1.0) * columns).astype(int), columns - 1)
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    kept: set[int] = set()
    for first, last in zip(starts, [*starts[1:], len(column)], strict=True):
        piece = heights[first:last]
        kept |= {int(first), int(last) - 1, int(first + piece.argmin()), int(first + piece.argmax())}
    return sorted(kept)
