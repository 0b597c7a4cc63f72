"""Intervals of means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LEVEL = 0.95
"""How often an interval covers what it is an interval of."""


def mean_interval(runs: Sequence[Sequence[float]]) -> tuple[float, float, float, str]:
    """Mean of numbers that come in runs, with Student's interval for it.

    Rounds of one run depend on each other, so that with several runs the runs' means count as the observations. Of one
    run its rounds must serve; the interval is then too narrow where they depend on each other, and says so.

    Returns:
        The mean, the interval's ends, and what it was taken over.

    >>> mean_interval([[1.0, 3.0], [2.0, 4.0], [3.0, 5.0]])[0]
    3.0
    >>> mean_interval([[1.0]])
    (1.0, 1.0, 1.0, '1 round')
    """
    total = sum(map(len, runs))
    several = len(runs) > 1
    observed = np.array([np.mean(run) for run in runs] if several else runs[0], dtype=float)
    over = f"{total} rounds of {len(runs)} seeds" if several else f"{total} round{'s' * (total > 1)}"
    mean = float(observed.mean())
    if len(observed) < 2:
        return mean, mean, mean, over
    from scipy.stats import t

    half = float(t.ppf((1 + LEVEL) / 2, len(observed) - 1) * observed.std(ddof=1) / len(observed) ** 0.5)
    return mean, mean - half, mean + half, over
