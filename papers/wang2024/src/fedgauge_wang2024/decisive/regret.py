"""What trusting a lens costs: a rule from a lens to local steps, calibrated on some federations and used on others.

A run with I local steps takes slowdown(I) · (1 + cost / I), in units of the pooled run's steps, where a round costs as
much as ``cost`` gradient steps. A rule has three thresholds: the larger the lens, the fewer local steps, or the other
way round if that fits better. Regret is how much longer the chosen I takes than the best one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.types import Floats
from fedgauge_wang2024.decisive.answers import Grid, MeasureName, MeasureScore
from fedgauge_wang2024.lens_orders import RESAMPLES

COSTS = (1, 10, 100)
HALVES = 100


class Rule(NamedTuple):
    """A rule from a lens to one of several choices.

    Attributes:
        thresholds: increasing; how many of them are below the value, times the sign, is how far the choice goes down.
        sign: 1 if larger values mean fewer local steps, -1 if smaller ones do.
        loss: the mean logarithm of the time on the federations of the calibration.
    """

    thresholds: Floats
    sign: int
    loss: float

    def choose(self, values: Floats) -> Any:
        """The number of the choice for each value; 0 is the fewest local steps."""
        return len(self.thresholds) - np.searchsorted(self.thresholds, self.sign * values, side="left")


def calibrate(values: Floats, times: Floats) -> Rule:
    """The rule with the least mean logarithm of the time.

    Args:
        values: of the lens, one per federation.
        times: of every choice, one row per federation; choices go from the fewest to the most local steps.

    >>> rule = calibrate(np.array([1.0, 2.0, 9.0]), np.array([[2.0, 1.0], [2.0, 1.0], [1.0, 2.0]]))
    >>> rule.choose(np.array([1.5, 20.0]))
    array([1, 0])
    """
    found = [_one_way(sign * values, np.log(times), sign) for sign in (1, -1)]
    return min(found, key=lambda rule: rule.loss)


def _one_way(values: Floats, logs: Floats, sign: int) -> Rule:
    """The best rule under which larger values mean fewer local steps, by dynamic programming over sorted values."""
    order = np.argsort(values, kind="stable")
    ranked, number, choices = values[order], len(values), logs.shape[1]
    # below[k, c] is what the k smallest values cost with choice c.
    below = np.concatenate([np.zeros((1, choices)), np.cumsum(logs[order], axis=0)])
    # Equal values get the same choice, so that a cut between them is not allowed.
    allowed = np.array([k in (0, number) or ranked[k - 1] < ranked[k] for k in range(number + 1)])
    best, cuts = below[:, -1], []
    for choice in reversed(range(choices - 1)):
        start = np.where(allowed, best - below[:, choice], np.inf)
        # Where the smallest of the first k + 1 entries is; the first entry is never infinite.
        new = np.concatenate([[True], start[1:] < np.minimum.accumulate(start)[:-1]])
        first = np.maximum.accumulate(np.where(new, np.arange(number + 1), 0))
        cuts.append(first)
        best = start[first] + below[:, choice]
    places, end = [], number
    for first in reversed(cuts):
        end = int(first[end])
        places.append(end)
    thresholds = [_between(ranked, place) for place in reversed(places)]
    return Rule(np.array(thresholds), sign, float(best[number]) / number)


def _between(ranked: Floats, place: int) -> float:
    if place == 0:
        return -np.inf
    if place == len(ranked):
        return np.inf
    return float((ranked[place - 1] + ranked[place]) / 2)


def times_of(grid: Grid, cost: float, cap: float) -> Floats:
    """The time of every choice, I = 1 first: one entry per federation, seed and choice."""
    each = [np.ones_like(next(iter(grid.slowdowns.values()))) * (1 + cost)]
    each += [np.minimum(slow, cap) * (1 + cost / int(local)) for local, slow in grid.slowdowns.items()]
    return np.stack(each, axis=-1)


def halves(grid: Grid, by_kind: bool, seed: int = 0) -> Iterator[tuple[Any, Any]]:
    """Federations to calibrate on and federations to use the rule on: random halves, or halves of the kinds.

    The plain federation belongs to no kind, and is calibrated on.
    """
    main = grid.main
    if not by_kind:
        for number in range(HALVES):
            order = Streams(seed, Purpose.SAMPLING).at(round=number + 1).permutation(main)
            yield order[: len(main) // 2], order[len(main) // 2 :]
        return
    kinds = list(dict.fromkeys(grid.kinds[number] for number in main if grid.kinds[number] is not None))
    for known in itertools.combinations(kinds, (len(kinds) + 1) // 2):
        mine = np.array([number for number in main if grid.kinds[number] is None or grid.kinds[number] in known])
        yield mine, np.setdiff1d(main, mine)


def regrets(grid: Grid, cap: float, seed: int = 0) -> list[dict[str, Any]]:
    """The regret of every lens, of the best single choice and of the gauge, for every cost and both ways to halve."""
    found = []
    for cost, by_kind in itertools.product(COSTS, (False, True)):
        times = times_of(grid, cost, cap)
        excess = times / times.min(axis=-1, keepdims=True) - 1
        splits = [split for split in halves(grid, by_kind, seed) if min(map(len, split))]
        if not splits:
            continue  # one kind alone leaves none to use a rule on
        named = {"cost": cost, "new kinds": by_kind}
        for lens in grid.known:
            if lens.name != "gauge":
                each = [_used(grid.lenses[lens], times, excess, *split) for split in splits]
                found.append({"lens": lens.name, "place": lens.place, **named, "regret": _summed(each, seed)})
        fixed = [_fixed(times, excess, *split) for split in splits]
        found.append({"lens": "best single I", "place": "", **named, "regret": _summed(fixed, seed)})
        predicted = np.stack(
            [np.ones(times.shape[:2]) * (1 + cost)]
            + [grid.lenses[MeasureName(f"gauge {local}")] * (1 + cost / int(local)) for local in grid.slowdowns],
            axis=-1,
        )
        chosen = np.take_along_axis(excess, predicted.argmin(axis=-1)[..., None], axis=-1)[..., 0]
        gauged = [chosen[test].mean(axis=0) for _, test in splits]
        found.append({"lens": "gauge", "place": "", **named, "regret": _summed(gauged, seed)})
    return found


def _used(values: Floats, times: Floats, excess: Floats, known: Any, test: Any) -> Floats:
    """The mean regret of each seed on the federations that the rule was not calibrated on."""
    rule = calibrate(values[known].ravel(), times[known].reshape(-1, times.shape[-1]))
    chosen = rule.choose(values[test])
    found: Floats = np.take_along_axis(excess[test], chosen[..., None], axis=-1)[..., 0].mean(axis=0)
    return found


def _fixed(times: Floats, excess: Floats, known: Any, test: Any) -> Floats:
    best = int(np.log(times[known]).mean(axis=(0, 1)).argmin())
    found: Floats = excess[test][..., best].mean(axis=0)
    return found


def _summed(each: Sequence[Floats], seed: int) -> MeasureScore:
    """The mean over halves and seeds, with an interval from drawing seeds again."""
    by_seed = np.mean(each, axis=0)
    if len(by_seed) == 1:
        return MeasureScore(float(by_seed[0]), None, None)
    drawn = Streams(seed, Purpose.SAMPLING).at(copy=1).integers(len(by_seed), size=(RESAMPLES, len(by_seed)))
    low, high = np.percentile(by_seed[drawn].mean(axis=1), [2.5, 97.5])
    return MeasureScore(float(by_seed.mean()), float(low), float(high))
