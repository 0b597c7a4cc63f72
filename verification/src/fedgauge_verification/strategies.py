"""The two ways to look for a violation: at random, and uphill from where the bound is tightest.

A piece of work is small, knows its own address in the random stream and returns what it found, so that the answer is
the same in one process and in many.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from fedgauge.base.randomness import Purpose, Streams
from fedgauge.theory import THEOREMS, Theorem, find
from fedgauge.values import Version
from fedgauge_verification.check import BoundCheck, check
from fedgauge_verification.piecewise import PiecewiseProblem, change_piecewise, check_piecewise, draw_piecewise
from fedgauge_verification.problem import QuadraticProblem, change, draw, is_simulated, named

STEPS = 300
"""Changes that a directed search tries."""

CHANGES = 6
"""Changes that each problem without quadratics gets."""

_SMALL = 3
"""Dimension and workers of the problems from which it starts, at most."""


@dataclass(frozen=True)
class Case:
    """A violation: the problem, both sides, and how it was found."""

    theorem: str
    version: Version
    origin: str
    problem: QuadraticProblem | PiecewiseProblem
    check: BoundCheck

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """The order in which cases are kept: the named one, which can be read, then those that break the statement."""
        return self.origin == "named", self.check.form == "stated", -self.check.slack


def simulated(theorem: str, problem: QuadraticProblem | PiecewiseProblem) -> bool:
    """Whether the left-hand side is a mean over simulated runs."""
    if isinstance(problem, PiecewiseProblem):
        return False
    return is_simulated(find(theorem)) and problem.federation.sigma2 > 0


@dataclass
class Form:
    """What was found about one form of a theorem: bound/exact of every check, and how many were violated or sampled."""

    slacks: list[float] = field(default_factory=list)
    violations: int = 0
    monte_carlo: int = 0


@dataclass
class SearchFindings:
    """What a piece of work found about one version of a theorem."""

    theorem: str
    version: Version
    vacuous: int = 0
    forms: dict[str, Form] = field(default_factory=dict)
    cases: list[Case] = field(default_factory=list)

    def add(self, problem: QuadraticProblem | PiecewiseProblem, checks: Iterable[BoundCheck], origin: str) -> None:
        """Count the checks of one problem."""
        checks = tuple(checks)
        self.vacuous += not checks
        for made in checks:
            form = self.forms.setdefault(made.form, Form())
            form.slacks.append(made.slack)
            form.violations += made.violated
            form.monte_carlo += simulated(self.theorem, problem)
            if made.violated:
                self.cases.append(Case(self.theorem, self.version, origin, problem, made))

    def merge(self, other: SearchFindings, keep: int) -> None:
        """Add what another piece found, with the worst cases of both."""
        self.vacuous += other.vacuous
        for name, form in other.forms.items():
            mine = self.forms.setdefault(name, Form())
            mine.slacks += form.slacks
            mine.violations += form.violations
            mine.monte_carlo += form.monte_carlo
        self.cases = worst([*self.cases, *other.cases], keep)


def replayable(case: Case) -> bool:
    """Whether the commands show it: on quadratics; ``bound`` takes no F below 0, ``simulate`` gives no mean."""
    if isinstance(case.problem, PiecewiseProblem):
        return False
    return (
        case.check.values.get("F", 0.0) >= 0
        and bool(np.isfinite(case.check.exact))
        and not simulated(case.theorem, case.problem)
    )


def worst(cases: Iterable[Case], keep: int) -> list[Case]:
    """The first cases by rank, those that can be replayed before those that cannot."""
    return heapq.nlargest(keep, cases, key=lambda case: (replayable(case), case.rank))


def _address(theorem: str) -> int:
    return list(THEOREMS).index(theorem)


def sample(theorem: Theorem, version: Version, seed: int, first: int, count: int, keep: int = 5) -> SearchFindings:
    """Try a theorem on random problems number ``first`` and following; all versions see the same federations."""
    found = SearchFindings(theorem.name, version)
    streams = Streams(seed, Purpose.FALSIFY)
    for index in range(first, first + count):
        problem = draw(theorem, streams.at(index, _address(theorem.name)))
        found.add(problem, check(theorem, version, problem), f"sample {index}")
    found.cases = worst(found.cases, keep)
    return found


def sample_piecewise(
    theorem: Theorem, version: Version, seed: int, first: int, count: int, keep: int = 5
) -> SearchFindings:
    """Try a theorem on objectives that are no quadratics: each problem is changed a few times to bring it closer."""
    found = SearchFindings(theorem.name, version)
    streams = Streams(seed, Purpose.FALSIFY)
    for index in range(first, first + count):
        generator = streams.at(index, _address(theorem.name), copy=2)
        problem = draw_piecewise(theorem, generator)
        checks = check_piecewise(theorem, version, problem)
        for _ in range(CHANGES):
            other = change_piecewise(problem, theorem, generator)
            seen = check_piecewise(theorem, version, other)
            if _height(seen, "piecewise") > _height(checks, "piecewise"):
                problem, checks = other, seen
        found.add(problem, checks, f"piecewise {index}")
    found.cases = worst(found.cases, keep)
    return found


def _height(checks: Iterable[BoundCheck], form: str) -> float:
    """log(exact/bound) of a form: above 0 where it is violated, infinite where the bound is below 0."""
    for made in checks:
        if made.form == form and made.exact > 0:
            return np.inf if made.slack <= 0 else -float(np.log(made.slack))
    return -np.inf


def climb(theorem: Theorem, version: Version, seed: int, start: int, steps: int = STEPS) -> SearchFindings:
    """Change a problem little by little, keeping each change that brings the exact side closer to the bound.

    Start 0 is the theorem's named family, where it has one; the others are small random problems. The starts take the
    forms of the theorem in turn. The findings are of the top only, and of the named problem itself.
    """
    found = SearchFindings(theorem.name, version)
    generator = Streams(seed, Purpose.FALSIFY).at(start, _address(theorem.name), copy=1)
    example = named(theorem) if start == 0 else None
    problem = example or draw(theorem, generator, _SMALL)
    checks = check(theorem, version, problem)
    if not checks:
        found.add(problem, checks, f"directed {start}")
        return found
    form = checks[start % len(checks)].form
    height = _height(checks, form)
    if example:
        found.add(problem, checks, "named")
    for _ in range(steps):
        if height == np.inf:
            break
        other = change(problem, theorem, generator)
        seen = check(theorem, version, other)
        if (reached := _height(seen, form)) > height:
            problem, checks, height = other, seen, reached
    found.add(problem, checks, f"directed {start}")
    return found
