"""The state of a search among candidates: who has run how far, who is out, and who is ahead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedgauge.values import Value
from fedgauge_planning.candidates import Candidate, Trial
from fedgauge_planning.forecast import Curve

_SURE = 2.0  # standard deviations by which a dominated candidate must be behind
_HIDDEN = 0.5  # standard deviation of the logarithm of an error that is known from one record alone


class Pilot(Protocol):
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
        outcome: how it ended, in words.
    """

    candidate: Candidate
    curve: Curve
    score: float
    outcome: str


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
        gradient_steps: local steps that all workers took together in all trials, and in the gauge if one was taken; 0
            in plans of versions that did not count them.
    """

    entries: tuple[RaceEntry, ...]
    standings: tuple[Standing, ...]
    ending: str
    clear: bool
    spent: float
    trials: int
    gradient_steps: int = 0

    @property
    def winner(self) -> Candidate:
        """The best finalist; without finals, the candidate that got closest to the goal and was not eliminated."""
        return (self.standings or self.entries)[0].candidate


class Course:
    """The state of a search while it runs.

    Args:
        run: function that runs trials.
        target: the error to reach; None if there is a budget.
        budget: seconds after which errors are compared; None if there is a target.
        limit: seconds after which a candidate has failed to reach the target.
        time_is_up: whether the time for planning is used up.
        progress: called at every turn with the name of the leader.
    """

    def __init__(
        self,
        run: Pilot,
        target: float | None,
        budget: float | None,
        limit: float,
        *,
        time_is_up: Callable[[], bool] = lambda: False,
        progress: Callable[[str], None] = lambda who: None,
    ) -> None:
        self._run, self.target, self.budget = run, target, budget
        self.time_is_up, self.progress = time_is_up, progress
        self.limit = limit if budget is None else budget
        self.curves: dict[Trial, Curve] = {}
        self._trials: dict[Candidate, list[Trial]] = {}
        self.fates: dict[Candidate, str] = {}
        self.forecasts: dict[Candidate, float] = {}
        self.gauge_steps = 0

    def run(self, trials: Sequence[Trial], seconds: Sequence[float]) -> None:
        """Run trials up to a number of seconds each."""
        within = [min(wanted, self.limit) for wanted in seconds]
        for trial, curve in zip(trials, self._run(trials, within), strict=True):
            if trial not in self.curves:
                self._trials.setdefault(trial.candidate, []).append(trial)
            self.curves[trial] = curve

    def curve(self, candidate: Candidate) -> Curve:
        """The candidate's curve with the first seed."""
        return self.curves[Trial(candidate, 0)]

    @property
    def field(self) -> list[Candidate]:
        """All candidates that have run with the first seed."""
        return [trial.candidate for trial in self.curves if trial.seed == 0]

    @property
    def ready(self) -> list[Candidate]:
        """The candidates that have arrived."""
        return [candidate for candidate in self.field if self.arrived(candidate)]

    def score(self, candidate: Candidate) -> float:
        """The seconds to the goal, or the error at the end of the budget; the geometric mean over seeds."""
        return mean(self.scores(candidate))

    def scores(self, candidate: Candidate) -> list[float]:
        """The scores of a candidate, one per seed; those of runs that have not ended are forecasts."""
        return [self._score(trial) for trial in self._trials[candidate]]

    def _score(self, trial: Trial) -> float:
        curve = self.curves[trial]
        if self.budget is not None:
            # Near the end of the budget, another round may not fit, so nothing is forecast.
            return curve.at(self.budget) if trial.seed or self.done(trial.candidate) else curve.later(self.budget)
        reached = curve.when(self.target or 0.0)
        if reached is not None or curve.diverged:
            return math.inf if reached is None else reached
        forecast = curve.forecast(self.target or 0.0)
        if trial.seed:
            # A run that has not reached the goal gets its forecast, but at most the time limit.
            return min(forecast, max(self.limit, curve.end))
        return self.forecasts.get(trial.candidate, forecast)

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
        """The candidates that may run on, best forecast first; notes the outcome of those that are dominated."""
        left, field = [], {candidate: self.curve(candidate) for candidate in self.field}
        for candidate, curve in field.items():
            if candidate in self.fates or self.done(candidate):
                continue
            better = next((other for other in field if _below(other, candidate) and _ahead(field[other], curve)), None)
            if better is not None:
                self.fates[candidate] = f"behind I = {better.I}, gamma = {better.gamma:.3g}"
            else:
                left.append(candidate)
        return sorted(left, key=lambda c: (self.score(c), field[c].errors[-1]))

    @property
    def spent(self) -> float:
        """Seconds of the cost model that all trials took together."""
        return sum(curve.end for curve in self.curves.values())

    @property
    def gradient_steps(self) -> int:
        """Local steps that all workers took together."""
        return self.gauge_steps + sum(
            round(curve.end / curve.each) * trial.candidate.I * trial.candidate.M
            for trial, curve in self.curves.items()
        )

    def result(self, standings: Sequence[Standing], ending: str, clear: bool) -> Race:
        """The result: all candidates, the best first.

        Without finals, those that came closest to the goal are the best, as long as they were not eliminated.
        """
        finalists = {standing.candidate: standing for standing in standings}

        def outcome(candidate: Candidate) -> str:
            if self.curve(candidate).diverged:
                return "diverged"
            if candidate in finalists:
                return "won" if standings[0].candidate == candidate else "in the finals"
            arrived = "reached the goal" if self.arrived(candidate) else "worse forecast"
            return self.fates.get(candidate, arrived)

        def place(candidate: Candidate) -> tuple[float, ...]:
            standing, curve = finalists.get(candidate), self.curve(candidate)
            score = standing.score if standing else self.score(candidate)
            if not standings:
                return (float(curve.diverged), curve.least, float(candidate in self.fates), score)
            return (0.0 if standing else 2.0 if curve.diverged else 1.0, score, curve.errors[-1])

        entries = tuple(
            RaceEntry(c, self.curve(c), self.score(c), outcome(c)) for c in sorted(self.field, key=lambda c: place(c))
        )
        return Race(entries, tuple(standings), ending, clear, self.spent, len(self.curves), self.gradient_steps)

    def unreached(self, ending: str) -> Race:
        """The result if no candidate has reached the goal."""
        if all(self.curve(c).diverged for c in self.field):
            ending = "every candidate diverged"
        return self.result((), ending, False)


def mean(scores: Sequence[float]) -> float:
    """The geometric mean; infinite if one of the scores is."""
    return math.exp(sum(math.log(max(score, 1e-300)) for score in scores) / len(scores))


def _below(other: Candidate, candidate: Candidate) -> bool:
    """Whether another candidate by every theorem has no higher floor."""
    return (
        other.I <= candidate.I
        and other.gamma <= candidate.gamma
        and other.eta <= candidate.eta
        and other.M >= candidate.M
        and other != candidate
    )


def _ahead(theirs: Curve, mine: Curve) -> bool:
    """Whether another candidate's curve is clearly ahead at the same time."""
    # Nobody is eliminated by one that diverged, or that has not come as far.
    if theirs.diverged or theirs.least > mine.least:
        return False
    when = min(mine.end, theirs.end)
    ahead = mine.level(when) - theirs.level(when)
    return ahead > _SURE * math.hypot(_doubt(mine), _doubt(theirs)) + 1e-9


def _doubt(curve: Curve) -> float:
    """Standard deviation of the logarithm of the error; it is larger if there are few records."""
    return math.hypot(curve.scatter, _HIDDEN / len(curve.seconds))
