"""A race of candidates: all make a short run, then those with the best forecast run on until no forecast is better.

Search, with one seed. Every candidate runs for the same short time. After that, the two candidates with the best
forecasts run further, and their forecasts are updated. If a candidate reaches a plateau, its forecast gets worse, and
slower candidates get their turn. A candidate drops out only if it diverges, or if another one *dominates* it: is ahead
at the same time by more than noise, with no more local steps, no larger rates and no fewer participants. Every term of
the theory except the first grows with I, gamma and eta and falls with M, so the candidate that is behind now also has
the higher floor.

Finals, with more seeds, follow (:mod:`fedgauge_planning.pilots`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from fedgauge_planning.candidates import Candidate, Trial
from fedgauge_planning.course import Course
from fedgauge_planning.pilots import NEAR

_GROWTH = 1.6  # factor by which a candidate's time grows from one turn to the next
_TOGETHER = 2  # candidates that run on at a time; the same on every machine, so that plans are the same
_LINE = 8  # candidates that make their first run at a time


def search(
    course: Course,
    candidates: Sequence[Candidate],
    *,
    first: float,
    more: Callable[[Candidate], Sequence[Candidate]] = lambda leader: (),
) -> str:
    """Run candidates with one seed until one has reached the goal and no forecast is better; returns why it ended.

    Args:
        course: the state of the search.
        candidates: the candidates, the most promising first.
        first: seconds of every candidate's first run.
        more: returns the neighbours of a candidate; those of the best candidate that reached the goal are always tried.
    """
    _enter(course, candidates, first)
    while True:
        ready = course.ready
        best = min(ready, key=course.score) if ready else None
        # A little longer than the best takes with this seed, because it may be the best only by chance.
        bar = NEAR * course.score(best) if best else math.inf
        beside: Sequence[Candidate] = more(best) if best else ()
        new = [c for c in beside if c not in course.field]
        if new and not course.time_is_up():
            _enter(course, new, first)
            continue
        running = [
            c for c in course.running() if best is None or course.score(c) < bar / NEAR or _due(course, c, beside, bar)
        ]
        if not running or course.time_is_up():
            return "the time for planning is up" if running else "no candidate reached the goal"
        # Candidates without a finite forecast run on only if there are no others.
        hopeful = [c for c in running if math.isfinite(course.score(c))]
        leaders = (hopeful or running)[:_TOGETHER]
        course.progress(leaders[0].name)
        course.run([Trial(c, 0) for c in leaders], [_further(course, c, bar) for c in leaders])


def _due(course: Course, candidate: Candidate, beside: Sequence[Candidate], bar: float) -> bool:
    """Whether a neighbour of the best has not yet run long enough to show that it is no better."""
    return candidate in beside and course.budget is None and course.curve(candidate).end < bar * (1 - 1e-9)


def _enter(course: Course, candidates: Iterable[Candidate], seconds: float) -> None:
    """Let candidates make their first run, some at a time, so that the first ones have run if time is up."""
    new = [Trial(c, 0) for c in dict.fromkeys(candidates)]
    for at in range(0, len(new), _LINE):
        if at and course.time_is_up():
            return
        some = new[at : at + _LINE]
        course.run(some, [seconds] * len(some))


def _further(course: Course, candidate: Candidate, bar: float) -> float:
    """The seconds up to which a candidate runs next: not much longer than it needs, or than the best so far needed."""
    curve = course.curve(candidate)
    longer = max(curve.end * _GROWTH, curve.end + curve.each)
    if course.budget is not None:
        return longer
    score = course.score(candidate)
    if curve.end < score < longer:
        longer = max(score * 1.02, curve.end + curve.each)
    return min(longer, max(bar, curve.end + curve.each))
