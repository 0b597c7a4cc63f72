"""Federations of which every run is known in closed form, for tests of the search for a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import Phase
from hypothesis import strategies as st

from fedgauge.algorithms.cost import Cost
from fedgauge_planning.candidates import Candidate, Trial
from fedgauge_planning.course import Course, Pilot, Race
from fedgauge_planning.forecast import Curve
from fedgauge_planning.goal import HELD
from fedgauge_planning.pilots import finals
from fedgauge_planning.race import search

STEPS = (1, 2, 4, 8, 16, 32, 64, 128)
GAMMAS = (0.01, 0.03, 0.09, 0.27, 0.81)
# A failure is shown as it is found: making it smaller takes many races.
SEARCH = (Phase.explicit, Phase.reuse, Phase.generate)
GRID = [Candidate(steps, gamma, 1.0, 10) for steps in STEPS for gamma in GAMMAS]


@dataclass(frozen=True)
class World:
    """A federation whose squared gradient norm is way to go, noise and drift, as in Theorem 4.3.

    Attributes:
        noise: sigma^2/N.
        drift: L_h^2 zeta^2.
        power: the power of gamma with which drift grows; 2 in the theorem.
        wobble: of the logarithm, from record to record.
        largest: rate times steps beyond which runs diverge.
    """

    noise: float = 0.0
    drift: float = 0.0
    wobble: float = 0.0
    largest: float = math.inf
    power: int = 2

    def errors(self, trial: Trial, rounds: int) -> list[float]:
        c = trial.candidate
        r = np.arange(rounds + 1)
        drift = c.gamma**self.power * (c.I - 1) ** 2 * self.drift
        clean = 1 / (1 + c.gamma * c.eta * c.I * r) + c.gamma * c.eta * self.noise + drift
        if self.wobble:
            generator = np.random.default_rng([trial.seed, c.I, int(c.gamma * 1e6)])
            clean = clean * np.exp(self.wobble * generator.standard_normal(rounds + 1))
        errors: list[float] = clean.tolist()
        return errors

    def curve(self, trial: Trial, each: float, seconds: float, target: float | None) -> Curve:
        rounds = max(1, math.ceil(seconds / each - 1e-9))
        if trial.candidate.gamma > self.largest:
            return Curve((0.0,), (1.0,), each, "diverged")
        errors = self.errors(trial, rounds)
        whole = Curve(_multiples(1.0, len(errors)), tuple(errors), 1.0, "stopped")
        reached = None if target is None else whole.when(target)
        if reached is not None:
            errors = errors[: int(reached) + HELD]
        status = "stopped" if reached is None else "target"
        return Curve(_multiples(each, len(errors)), tuple(errors), each, status)  # type: ignore[arg-type]

    def runs(self, cost: Cost, target: float | None) -> Pilot:
        def run(trials: Sequence[Trial], seconds: Sequence[float]) -> list[Curve]:
            return [
                self.curve(trial, trial.candidate.seconds(cost), wanted, target)
                for trial, wanted in zip(trials, seconds, strict=True)
            ]

        return run

    def run(self, cost: Cost, target: float | None = None, budget: float | None = None, limit: float = 3e3) -> Race:
        def beside(leader: Candidate) -> list[Candidate]:
            return [c for c in GRID if _apart(c, leader) == 1]

        first = cost.round(11, 10)
        course = Course(self.runs(cost, target), target, budget, limit)
        return race(course, GRID, first=first, more=beside)

    def times(self, cost: Cost, target: float, limit: float = 3e3) -> dict[Candidate, float]:
        """What an exhaustive search would find, with the first seed."""
        found = {}
        for c in GRID:
            when = self.curve(Trial(c, 0), c.seconds(cost), limit, target).when(target)
            found[c] = math.inf if when is None else when
        return found


def race(course: Course, candidates: Sequence[Candidate], **how: Any) -> Race:
    """A search among candidates, and its finals, as a plan makes them."""
    ended = search(course, candidates, **how)
    return finals(course, 3) if course.ready else course.unreached(ended)


def _multiples(each: float, number: int) -> tuple[float, ...]:
    """The first multiples of a number, from 0 on."""
    return tuple((each * np.arange(number)).tolist())


def _apart(one: Candidate, other: Candidate) -> int:
    return max(abs(STEPS.index(one.I) - STEPS.index(other.I)), abs(GAMMAS.index(one.gamma) - GAMMAS.index(other.gamma)))


costs = st.builds(lambda fixed: Cost("given", fixed=fixed, step=0.01), st.floats(0.05, 10.0))
worlds = st.builds(World, noise=st.floats(0.0, 0.3), drift=st.floats(0.0, 1.0))
