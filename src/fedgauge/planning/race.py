"""A race of candidates: all make a short run, then those with the best forecast run on until no forecast is better.

Search, with one seed. Every candidate runs for the same short time. After that, the two candidates with the best
forecasts run further, and their forecasts are updated. If a candidate reaches a plateau, its forecast gets worse, and
slower candidates get their turn. A candidate drops out only if it diverges, or if another one *dominates* it: is ahead
at the same time by more than noise, with no more local steps, no larger rates and no fewer participants. Every term of
the theory except the first grows with I, gamma and eta and falls with M, so the candidate that is behind now also has
the higher floor.

Finals, with more seeds. The best candidates that reached the goal run to it again, until the intervals of their times
separate one from the others, or show that the difference does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import stats

from fedgauge.planning.candidates import Candidate, Trial
from fedgauge.planning.forecast import Curve
from fedgauge.values import Value

_GROWTH = 1.6  # factor by which a candidate's time grows from one turn to the next
_TOGETHER = 2  # candidates that run on at a time; the same on every machine, so that plans are the same
_LINE = 8  # candidates that make their first run at a time
_SURE = 2.0  # standard deviations by which a dominated candidate must be behind
_HIDDEN = 0.5  # standard deviation of the logarithm of an error that is known from one record alone
_LEVEL = 0.95  # confidence level of the intervals
_SAME = 0.05  # relative difference that does not matter
_NEAR = 1.25  # a finalist's score is at most this many times the best one
_CONTENDERS = 3  # largest number of finalists


class Run(Protocol):
    """Runs each trial for its number of seconds, or to its goal, and returns the curves."""

    def __call__(self, trials: Sequence[Trial], seconds: Sequence[float]) -> list[Curve]:
        """Return one curve per trial."""


@dataclass(frozen=True)
class RaceEntry(Value):
    """A candidate at the end of the race.

    Attributes:
        candidate: the candidate.
        curve: its run with the first seed.
        score: forecast of the seconds to the goal, or of the error at the end of the budget.
        fate: how it ended, in words.
    """

    candidate: Candidate
    curve: Curve
    score: float
    fate: str


@dataclass(frozen=True)
class Standing(Value):
    """The result of a finalist.

    Attributes:
        candidate: the candidate.
        scores: one score per seed: seconds to the goal, or the error at the end of the budget; a forecast if the run
            had not reached the goal when the race ended.
        score: geometric mean of the scores.
        low: lower end of the 95% interval of the mean, with one standard deviation for all finalists.
        high: upper end of that interval.
    """

    candidate: Candidate
    scores: tuple[float, ...]
    score: float
    low: float
    high: float


@dataclass(frozen=True)
class Race(Value):
    """The result of a race.

    Attributes:
        entries: all candidates, best first.
        standings: the finalists, best first; empty if no candidate reached the goal.
        ending: why the race ended, in words.
        clear: whether the winner is clearly better than the others, or the difference does not matter.
        spent: seconds of the cost model that all trials took together.
        trials: number of trials.
    """

    entries: tuple[RaceEntry, ...]
    standings: tuple[Standing, ...]
    ending: str
    clear: bool
    spent: float
    trials: int

    @property
    def winner(self) -> Candidate:
        """The best finalist, or the candidate with the best forecast if there were no finals."""
        return (self.standings or self.entries)[0].candidate


class _Course:
    """The state of a race while it runs."""

    def __init__(self, run: Run, target: float | None, budget: float | None, limit: float) -> None:
        self._run, self.target, self.budget = run, target, budget
        self.limit = limit if budget is None else budget
        self.curves: dict[Trial, Curve] = {}
        self.fates: dict[Candidate, str] = {}

    def run(self, trials: Sequence[Trial], seconds: Sequence[float]) -> None:
        """Run trials up to a number of seconds each."""
        within = [min(wanted, self.limit) for wanted in seconds]
        self.curves.update(zip(trials, self._run(trials, within), strict=True))

    def curve(self, candidate: Candidate) -> Curve:
        """The candidate's curve with the first seed."""
        return self.curves[Trial(candidate, 0)]

    @property
    def field(self) -> list[Candidate]:
        """All candidates that have run with the first seed."""
        return [trial.candidate for trial in self.curves if trial.seed == 0]

    def score(self, candidate: Candidate) -> float:
        """The forecast of a candidate: seconds to the goal, or the error at the end of the budget."""
        curve = self.curve(candidate)
        if self.budget is None:
            return curve.forecast(self.target or 0.0)
        # Near the end of the budget, another round may not fit, so nothing is forecast.
        return curve.at(self.budget) if self.done(candidate) else curve.later(self.budget)

    def done(self, candidate: Candidate) -> bool:
        """Whether the candidate has reached the goal, diverged or used up its time."""
        curve = self.curve(candidate)
        return curve.status != "stopped" or curve.end >= self.limit - curve.each * (1 + 1e-9)

    def arrived(self, candidate: Candidate) -> bool:
        """Whether the candidate has reached the goal, or the end of the budget without diverging."""
        if self.target is not None:
            return self.curve(candidate).when(self.target) is not None
        return self.done(candidate) and not self.curve(candidate).diverged

    def running(self) -> list[Candidate]:
        """The candidates that may run on, best forecast first; notes the fate of those that are dominated."""
        left = []
        for candidate in self.field:
            if candidate in self.fates or self.done(candidate):
                continue
            better = next((other for other in self.field if self._dominates(other, candidate)), None)
            if better is not None:
                self.fates[candidate] = f"behind I = {better.I}, gamma = {better.gamma:.3g}"
            else:
                left.append(candidate)
        return sorted(left, key=lambda c: (self.score(c), self.curve(c).errors[-1]))

    def _dominates(self, other: Candidate, candidate: Candidate) -> bool:
        """Whether another candidate is clearly ahead at the same time, and by every theorem has no higher floor."""
        if other == candidate or not (
            other.I <= candidate.I
            and other.gamma <= candidate.gamma
            and other.eta <= candidate.eta
            and other.M >= candidate.M
        ):
            return False
        mine, theirs = self.curve(candidate), self.curve(other)
        when = min(mine.end, theirs.end)
        ahead = mine.level(when) - theirs.level(when)
        return ahead > _SURE * math.hypot(_doubt(mine), _doubt(theirs)) + 1e-9

    @property
    def spent(self) -> float:
        """Seconds of the cost model that all trials took together."""
        return sum(curve.end for curve in self.curves.values())


def race(
    candidates: Sequence[Candidate],
    run: Run,
    *,
    target: float | None = None,
    budget: float | None = None,
    first: float,
    limit: float = math.inf,
    seeds: int = 3,
    more: Callable[[Candidate], Sequence[Candidate]] = lambda leader: (),
    time_is_up: Callable[[], bool] = lambda: False,
    progress: Callable[[str, float], None] = lambda who, spent: None,
) -> Race:
    """Find the candidate that reaches the target soonest, or has the least error when the budget is spent.

    Args:
        candidates: the candidates, the most promising first.
        run: function that runs trials.
        target: the error to reach; None if there is a budget.
        budget: seconds after which errors are compared; None if there is a target.
        first: seconds of every candidate's first run.
        limit: seconds after which a candidate has failed to reach the target.
        seeds: number of seeds in the finals.
        more: returns the neighbours of a candidate; those of the best candidate that reached the goal are always tried.
        time_is_up: whether the time for planning is used up.
        progress: called at every turn with the name of the leader and the seconds spent.
    """
    course = _Course(run, target, budget, limit)
    _enter(course, candidates, first, time_is_up)
    while True:
        ready = [c for c in course.field if course.arrived(c)]
        best = min(ready, key=course.score) if ready else None
        # A little longer than the best takes with this seed, because it may be the best only by chance.
        bar = _NEAR * course.score(best) if best else math.inf
        beside: Sequence[Candidate] = more(best) if best else ()
        new = [c for c in beside if c not in course.field]
        if new and not time_is_up():
            _enter(course, new, first, time_is_up)
            continue
        running = [
            c for c in course.running() if best is None or course.score(c) < bar / _NEAR or _due(course, c, beside, bar)
        ]
        if not running or time_is_up():
            break
        # Candidates without a finite forecast run on only if there are no others.
        hopeful = [c for c in running if math.isfinite(course.score(c))]
        leaders = (hopeful or running)[:_TOGETHER]
        progress(leaders[0].name, course.spent)
        course.run([Trial(c, 0) for c in leaders], [_further(course, c, bar) for c in leaders])
    if not ready:
        if all(course.curve(c).diverged for c in course.field):
            ending = "every candidate diverged"
        else:
            ending = "the time for planning is up" if running else "no candidate reached the goal"
        return _race(course, (), ending, False)
    standings, clear, ending = _finals(course, ready, seeds, time_is_up)
    return _race(course, standings, ending, clear)


def _due(course: _Course, candidate: Candidate, beside: Sequence[Candidate], bar: float) -> bool:
    """Whether a neighbour of the best has not yet run long enough to show that it is no better."""
    return candidate in beside and course.budget is None and course.curve(candidate).end < bar * (1 - 1e-9)


def _enter(course: _Course, candidates: Iterable[Candidate], seconds: float, time_is_up: Callable[[], bool]) -> None:
    """Let candidates make their first run, some at a time, so that the first ones have run if time is up."""
    new = [Trial(c, 0) for c in dict.fromkeys(candidates)]
    for at in range(0, len(new), _LINE):
        if at and time_is_up():
            return
        some = new[at : at + _LINE]
        course.run(some, [seconds] * len(some))


def _further(course: _Course, candidate: Candidate, bar: float) -> float:
    """The seconds up to which a candidate runs next: not much longer than it needs, or than the best so far needed."""
    curve = course.curve(candidate)
    longer = max(curve.end * _GROWTH, curve.end + curve.each)
    if course.budget is not None:
        return longer
    score = course.score(candidate)
    if curve.end < score < longer:
        longer = max(score * 1.02, curve.end + curve.each)
    return min(longer, max(bar, curve.end + curve.each))


def _race(course: _Course, standings: Sequence[Standing], ending: str, clear: bool) -> Race:
    finalists = {standing.candidate: standing for standing in standings}

    def fate(candidate: Candidate) -> str:
        if course.curve(candidate).diverged:
            return "diverged"
        if candidate in finalists:
            return "won" if standings[0].candidate == candidate else "in the finals"
        arrived = "reached the goal" if course.arrived(candidate) else "worse forecast"
        return course.fates.get(candidate, arrived)

    def place(candidate: Candidate) -> tuple[float, ...]:
        standing = finalists.get(candidate)
        score = standing.score if standing else course.score(candidate)
        lost = course.curve(candidate).diverged
        return (0.0 if standing else 2.0 if lost else 1.0, score, course.curve(candidate).errors[-1])

    entries = tuple(
        RaceEntry(c, course.curve(c), course.score(c), fate(c)) for c in sorted(course.field, key=lambda c: place(c))
    )
    return Race(entries, tuple(standings), ending, clear, course.spent, len(course.curves))


# -- the finals --------------------------------------------------------------------------------------------------


def _finals(
    course: _Course, ready: Sequence[Candidate], seeds: int, time_is_up: Callable[[], bool]
) -> tuple[tuple[Standing, ...], bool, str]:
    """Run the best candidates to the goal with one more seed after another."""
    order = sorted(ready, key=course.score)
    best = course.score(order[0])
    left = [c for c in order if course.score(c) <= _NEAR * best][:_CONTENDERS]
    scores = {c: [course.score(c)] for c in left}
    standings = _standings(scores)
    if len(left) == 1 and seeds == 1:
        return standings, True, "no other candidate came close"
    for seed in range(1, seeds):
        if time_is_up():
            return standings, False, "the time for planning is up"
        # A run that takes longer than this cannot win.
        most = math.inf if course.budget is not None else 2 * _NEAR * standings[0].score
        trials = [Trial(c, seed) for c in left]
        course.run(trials, [most] * len(trials))
        for trial in trials:
            scores[trial.candidate].append(_final(course, trial))
        standings = _standings(scores)
        left = [s.candidate for s in standings if s.candidate in left and s.low <= standings[0].high]
        if len(left) == 1 and len(scores) > 1:
            return standings, True, "the winner is clear"
    if len(scores) == 1:
        return standings, True, "no other candidate came close"
    near = _alike(standings, left)
    ending = "the difference between the best does not matter" if near else "the best cannot be told apart"
    return standings, near, ending


def _doubt(curve: Curve) -> float:
    """Standard deviation of the logarithm of the error; it is larger if there are few records."""
    return math.hypot(curve.scatter, _HIDDEN / len(curve.seconds))


def _alike(standings: Sequence[Standing], left: Sequence[Candidate]) -> bool:
    """Whether the differences between the remaining candidates do not matter."""
    return all(s.score <= (1 + _SAME) * standings[0].score for s in standings if s.candidate in left)


def _final(course: _Course, trial: Trial) -> float:
    curve = course.curves[trial]
    if course.budget is not None:
        return curve.at(course.budget)
    # A run that has not reached the goal gets its forecast, but at most the time limit.
    return min(curve.forecast(course.target or 0.0), max(course.limit, curve.end))


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
