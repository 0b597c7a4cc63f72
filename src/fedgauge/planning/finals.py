"""The finals: the best candidates that reached the goal run to it again with more seeds.

Only those run again whose time could be the shortest, as far as the leader's own seeds differ. They end as soon as the
intervals of the candidates' times separate one from the others, when one is a tenth ahead with two seeds or more, or
when the difference does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from fedgauge.planning.candidates import Candidate, Trial
from fedgauge.planning.course import Course, Race, Standing

NEAR = 1.25
"""A finalist's score is at most this many times the best one."""
_LEVEL = 0.95  # confidence level of the intervals
_SAME = 0.05  # relative difference that does not matter
_CLOSE = 1.1  # finalists are at least within this factor of the best, however little its own seeds differ
_CONTENDERS = 2  # largest number of finalists


def finals(course: Course, seeds: int, time_is_up: Callable[[], bool]) -> Race:
    """Run the best candidates to the goal with one more seed after another."""
    order = sorted(course.ready, key=course.score)
    best = course.score(order[0])
    left = [c for c in order if course.score(c) <= _near(course.scores(order[0])) * best][:_CONTENDERS]
    scores = {c: course.scores(c) for c in left}
    standings = _standings(scores)
    if len(left) == 1 and seeds == 1:
        return course.result(standings, "no other candidate came close", True)
    for seed in range(1, seeds):
        if time_is_up():
            return course.result(standings, "the time for planning is up", False)
        # A run that takes longer than this cannot win.
        most = math.inf if course.budget is not None else 2 * NEAR * standings[0].score
        trials = [Trial(c, seed) for c in left if Trial(c, seed) not in course.curves]
        course.run(trials, [most] * len(trials))
        scores |= {c: course.scores(c) for c in left}
        standings = _standings(scores)
        left = [s.candidate for s in standings if s.candidate in left and s.low <= standings[0].high]
        if len(left) == 1 and len(scores) > 1:
            return course.result(standings, "the winner is clear", True)
        # With two seeds or more each, one that is a tenth behind may still be faster, but hardly by enough to pay for
        # more runs of both.
        left = [s.candidate for s in standings if s.candidate in left and s.score <= _CLOSE * standings[0].score]
        if len(left) == 1 and len(scores) > 1:
            return course.result(standings, "the other finalist is more than a tenth behind", False)
        if _alike(standings, left) and standings[0].high <= NEAR * standings[0].score:
            break
    if len(scores) == 1:
        return course.result(standings, "no other candidate came close", True)
    near = _alike(standings, left)
    ending = "the difference between the best does not matter" if near else "the best cannot be told apart"
    return course.result(standings, ending, near)


def _near(scores: Sequence[float]) -> float:
    """The factor within which others may be faster than the best, whose scores with different seeds these are.

    >>> _near([10.0]), _near([10.0, 10.2]), round(_near([10.0, 12.0]), 2), _near([10.0, 20.0])
    (1.25, 1.1, 1.2, 1.25)
    """
    return NEAR if len(scores) < 2 else min(max(max(scores) / min(scores), _CLOSE), NEAR)


def _alike(standings: Sequence[Standing], left: Sequence[Candidate]) -> bool:
    """Whether the differences between the remaining candidates do not matter."""
    return all(s.score <= (1 + _SAME) * standings[0].score for s in standings if s.candidate in left)


def _standings(scores: dict[Candidate, list[float]]) -> tuple[Standing, ...]:
    """The finalists' means and intervals, computed with logarithms and one standard deviation for all; best first."""
    logs = {c: np.log(np.maximum(s, 1e-300)) for c, s in scores.items()}
    sound = [group for group in logs.values() if len(group) > 1 and np.isfinite(group).all()]
    freedom = sum(len(group) - 1 for group in sound)
    width = math.inf
    if freedom:
        variance = sum(float(((group - group.mean()) ** 2).sum()) for group in sound) / freedom
        width = float(stats.t.ppf((1 + _LEVEL) / 2, freedom)) * math.sqrt(variance)
    found = []
    for candidate, group in logs.items():
        middle, half = float(group.mean()), width / math.sqrt(len(group))
        high = math.exp(middle + half) if middle + half < 700 else math.inf
        low = math.exp(middle - half) if math.isfinite(middle) else float(min(scores[candidate]))
        score = math.exp(middle) if math.isfinite(middle) else math.inf
        found.append(Standing(candidate, tuple(scores[candidate]), score, low, high))
    return tuple(sorted(found, key=lambda standing: standing.score))
