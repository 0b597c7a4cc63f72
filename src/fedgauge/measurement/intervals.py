"""Intervals for means of independent numbers, by Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedgauge.base.types import Floats

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """An estimate and the two ends of its interval; each is a number or an array."""

    value: Any
    low: Any
    high: Any

    def root(self) -> Interval:
        """The square root of a squared quantity; a negative estimate or end counts as 0.

        >>> [float(part) for part in Interval(4.0, -1.0, 9.0).root()]
        [2.0, 0.0, 3.0]
        """
        return Interval(*(np.sqrt(np.maximum(part, 0.0)) for part in self))


def from_moments(mean: Any, variance: Any, number: int, *, population: int | None = None, of: int = 1) -> Interval:
    """The interval of a mean of ``number`` values with this sample variance (divisor ``number`` - 1).

    Args:
        mean: the mean of the values.
        variance: the sample variance of the values.
        number: the number of values; the interval of a single value is infinite.
        population: the number of values from which these were drawn without replacement; the mean of all of them has no
            error.
        of: the number of intervals that are to hold at the same time; each then gets a higher confidence (Bonferroni).
    """
    from scipy.special import stdtrit

    if population == number:
        return Interval(mean, mean, mean)
    if number < 2:
        return Interval(mean, mean - math.inf, mean + math.inf)
    left = 1.0 if population is None else 1.0 - number / population
    reach = float(stdtrit(number - 1, 1 - (1 - CONFIDENCE) / (2 * of))) * np.sqrt(variance * left / number)
    return Interval(mean, mean - reach, mean + reach)


def of_mean(values: Sequence[float] | Floats, *, population: int | None = None) -> Interval:
    """The interval of the mean of these values, by :func:`from_moments`.

    >>> [round(part, 2) for part in of_mean([1.0, 2.0, 3.0])]
    [2.0, -0.48, 4.48]
    """
    array = np.asarray(values, dtype=np.float64)
    # In a run that is about to diverge, the squares may overflow; the interval is then infinite.
    with np.errstate(over="ignore"):
        variance = float(array.var(ddof=1)) if len(array) > 1 else math.inf
    return Interval(*map(float, from_moments(array.mean(), variance, len(array), population=population)))


def of_runs(runs: Sequence[Sequence[float]]) -> tuple[Interval, str]:
    """The interval of a mean of numbers that come from several runs, and a description of what it was taken over.

    The rounds of one run depend on each other, so if there are several runs, the values are their means. If there is
    only one run, the values are its rounds, and the interval is too narrow if they depend on each other.

    >>> of_runs([[1.0, 3.0], [2.0, 4.0], [3.0, 5.0]])[0].value
    3.0
    >>> of_runs([[1.0]])[1]
    '1 round'
    """
    total = sum(map(len, runs))
    if len(runs) > 1:
        return of_mean([float(np.mean(run)) for run in runs]), f"{total} rounds of {len(runs)} seeds"
    return of_mean(runs[0]), f"{total} round{'s' * (total > 1)}"
