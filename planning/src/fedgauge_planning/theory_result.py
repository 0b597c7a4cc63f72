"""The plan that a theorem certifies, as a value: the choice, what limits it, and the alternatives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedgauge.algorithms.cost import Cost
from fedgauge.theory.answer import TheoremAnswer, bound
from fedgauge.theory.search import Choice
from fedgauge.values import Condition, Kind, Result, Value
from fedgauge.values.display import Displayed, compare, lasting, rounds, short, whole
from fedgauge_planning.curve import Point
from fedgauge_planning.goal import Goal


@dataclass(frozen=True)
class End(Value):
    """The choice if all constants are at one end of their intervals.

    Attributes:
        choice: the choice; None if there is none.
        why: the reason if there is no choice.
    """

    choice: Choice | None
    why: str = ""


@dataclass(frozen=True)
class Practice(Value):
    """What the theorem says about the rates in use.

    Attributes:
        I: local steps per round.
        gamma: local rate.
        eta: global rate.
        gamma_max: the largest gamma that the theorem admits with these I and eta.
        conditions: the theorem's conditions, each with its limit and its value.
        R: number of rounds after which the goal is certified at these rates; infinite if it never is.
        locator: where the paper states the theorem.
    """

    I: int  # noqa: E741
    gamma: float
    eta: float
    gamma_max: float
    conditions: tuple[Condition, ...]
    R: float
    locator: str

    @property
    def times(self) -> float:
        """The ratio of gamma to the largest that is admitted; above 1, the theorem does not cover the run."""
        return self.gamma / self.gamma_max if self.gamma_max > 0 else math.inf

    @property
    def words(self) -> str:
        """The judgement in one sentence."""
        start = f"I = {self.I}, gamma = {short(self.gamma)} and eta = {short(self.eta)} in practice"
        failed = [c for c in self.conditions if not c.holds and "gamma" not in c.name]
        if failed:
            return f"{start}: {self.locator} needs {' and '.join(f'{c.name} <= {c.formula}' for c in failed)}."
        if self.times > 1:
            return (
                f"{start}: gamma is {whole(self.times)} times the largest that {self.locator} admits "
                f"({short(self.gamma_max)}), so no certificate covers these rates; only a trial can judge them."
            )
        after = f"certified after {rounds(self.R)}" if math.isfinite(self.R) else "never certified to meet the goal"
        return f"{start}: within the conditions of {self.locator} by a factor of {short(1 / self.times)}, {after}."


@dataclass(frozen=True)
class TheoryPlan(Result, Displayed):
    """The plan that a theorem certifies, and its reasons.

    Attributes:
        goal: the goal of the plan.
        cost: the cost of a round.
        choice: theorem, I, gamma, eta, R, seconds and bound.
        M: number of participants in a round.
        cap: the largest number of local steps that was considered.
        values: every number that entered the bound.
        kinds: the kinds of the constants, and of f* if the goal is measured from it.
        target: the bound to reach; None if the goal has a budget.
        sensitivity: for each constant c, d log(seconds)/d log(c); with a budget, the bound replaces the seconds.
        best: the choice with every constant at the better end of its interval.
        worst: the choice with every constant at the worse end of its interval. Bounds are monotone, so the seconds (or
            the bound) lie between ``best`` and ``worst``.
        prior: the choice by the bound with L_tilde in place of L_g and L_h; None if L_tilde is missing.
        minibatch: the best plan of mini-batch SGD, with all workers in a round; None if the theorem bounds f.
        practice: what the theorem says about the rates in use.
        notes: remarks for the reader.
        curve: the best result for some values of I.
        prior_curve: the same for the prior bound.
    """

    kind: ClassVar[str] = "theory-plan"
    written_by: ClassVar[str] = "plan --mode theory"
    file: ClassVar[str] = "theory"
    lies_beside: ClassVar[bool] = True
    is_sealed: ClassVar[bool] = True
    derived_names: ClassVar[tuple[str, ...]] = ("bound", "certified", "dominant", "binding", "winner", "verdict")

    goal: Goal
    cost: Cost
    choice: Choice
    M: int
    cap: int
    values: Mapping[str, float]
    kinds: Mapping[str, Kind]
    target: float | None
    sensitivity: Mapping[str, float]
    best: End
    worst: End
    prior: Choice | None = None
    minibatch: Choice | None = None
    practice: Practice | None = None
    notes: tuple[str, ...] = ()
    curve: tuple[Point, ...] = ()
    prior_curve: tuple[Point, ...] = ()

    @property
    def I(self) -> int:  # noqa: E743, N802
        """Local steps per round."""
        return self.choice.I

    @property
    def gamma(self) -> float:
        """The local rate."""
        return self.choice.gamma

    @property
    def eta(self) -> float:
        """The global rate."""
        return self.choice.eta

    @property
    def R(self) -> int:  # noqa: N802
        """The number of rounds."""
        return self.choice.R

    @property
    def seconds(self) -> float:
        """The time that the rounds take, by the cost model."""
        return self.choice.seconds

    @property
    def answer(self) -> TheoremAnswer:
        """The theorem evaluated at the choice: terms, conditions, versions."""
        rates = {"I": self.I, "R": float(self.R), "gamma": self.gamma, "eta": self.eta}
        kinds = {name: kind for name, kind in self.kinds.items() if name in self.values}
        values, chosen = {**self.values, **rates}, ("I", "R", "gamma")
        answer = bound(self.choice.theorem, self.choice.version, kinds, chosen, (), **values)
        # The certificate says that the goal is met, which depends on f* as well as on what enters the bound.
        return replace(answer, bound=replace(answer.bound, kinds={**answer.bound.kinds, **self.kinds}))

    @property
    def certified(self) -> bool:
        """Whether the bound certainly holds: its version is sound, its conditions hold and its constants are safe."""
        return self.answer.standing == "certified"

    @property
    def winner(self) -> str:
        """Which is better by the bounds, local SGD or mini-batch SGD; empty if they cannot be compared."""
        if self.minibatch is None:
            return ""
        ratio = self.height(self.minibatch) / self.height(self.choice)
        return "neither" if abs(ratio - 1) < 0.01 else "local SGD" if ratio > 1 else "mini-batch SGD"

    def height(self, choice: Choice) -> float:
        """The quantity that the plan minimises: the seconds to the goal, or the bound within the budget."""
        return choice.seconds if self.goal.value is not None else choice.bound

    @property
    def verdict(self) -> str:
        """One sentence: whether the plan is certified, what it chooses, what limits it, and the alternatives."""
        answer = self.answer
        starts = {"certified": "Certified", "plug-in": f"Plug-in, as {answer.doubts}"}
        start = starts.get(answer.standing, "As printed only, which had to be corrected and certifies nothing")
        rates = f"I = {self.I}, gamma = {short(self.gamma)} and eta = {short(self.eta)}"
        if self.target is not None:
            does = f"to {short(self.target)} in {rounds(self.R)}, {lasting(self.seconds)}"
        else:
            does = f"to {short(self.choice.bound)} in the budget's {rounds(self.R)}"
        parts = [
            f"{start}: {rates} bring {answer.bound.quantity.split(', ')[0]} {does}",
            f"{max(answer.shares):.0%} of the bound is the {answer.dominant.name}",
            answer.room,
        ]
        how = "the time" if self.goal.value is not None else "the bound"
        if self.prior:
            ratio = self.height(self.prior) / self.height(self.choice)
            parts.append(f"the prior bound would choose I = {self.prior.I}, with {compare(ratio)} {how}")
        if self.minibatch:
            ratio = self.height(self.minibatch) / self.height(self.choice)
            parts.append(f"mini-batch SGD (I = {self.minibatch.I}) has {compare(ratio)} {how} by the bounds")
        return "; ".join(parts) + "."

    def derived(self) -> tuple[Any, ...]:
        """Return the bound and the verdict, which the file holds too."""
        bound, dominant = self.answer.to_json(), self.answer.dominant.name
        return bound, self.certified, dominant, bound["binding"], self.winner, self.verdict
