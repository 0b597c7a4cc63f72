"""A plan as a value: what to run, how long it will take, why, and how it was found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedgauge.experiment.config import Experiment
from fedgauge.pace.cost import Cost
from fedgauge.planning.candidates import Candidate, Space
from fedgauge.planning.course import Race
from fedgauge.planning.explain import Seen, Terms, say
from fedgauge.planning.forecast import Scale
from fedgauge.planning.goal import Goal
from fedgauge.planning.theory_plan import TheoryPlan
from fedgauge.values import Constants, Result
from fedgauge.values.display import Displayed
from fedgauge.values.text import lasting, rounds, short


@dataclass(frozen=True, eq=False)
class Plan(Result, Displayed):
    """A plan by trial, and the theory's plan for comparison.

    Attributes:
        experiment: the experiment to run, as a JSON object of sections; :attr:`toml` is the same as text.
        scale: the goal, and how its quantity is turned into an error.
        cost: the cost of a round.
        space: the values that could be chosen.
        race: the race by which the choice was made.
        rounds: number of rounds that the choice takes to the goal, or makes within the budget; if the goal was not
            reached, the number of rounds that were run.
        seconds: seconds that these rounds take by the cost model; the geometric mean over seeds.
        low: lower end of the 95% interval of the seconds.
        high: upper end of the 95% interval of the seconds.
        value: the best value of the goal's quantity that the choice reached with the first seed.
        terms: the terms of the error for some numbers of local steps, at the choice's rates and time.
        seen: measurements at the end of the choice's run.
        constants: constants at the first model, measured before any run.
        theory: the plan that a theorem certifies; None if there is none.
        notes: remarks for the reader.
        wall: seconds that planning took on this machine.
    """

    kind: ClassVar[str] = "plan"
    written_by: ClassVar[str] = "plan"
    is_sealed: ClassVar[bool] = True
    derived_names: ClassVar[tuple[str, ...]] = ("goal_words", "choice", "reached", "verdict", "toml")

    experiment: Mapping[str, Any]
    scale: Scale
    cost: Cost
    space: Space
    race: Race
    rounds: int
    seconds: float
    low: float
    high: float
    value: float
    terms: tuple[Terms, ...]
    seen: Seen
    constants: Constants
    theory: TheoryPlan | None
    notes: tuple[str, ...]
    wall: float

    @property
    def goal(self) -> Goal:
        """The goal of the plan."""
        return self.scale.goal

    @property
    def choice(self) -> Candidate:
        """The chosen I, gamma, eta and M."""
        return self.race.winner

    @property
    def reached(self) -> bool:
        """Whether the goal was reached; always true for a budget."""
        return bool(self.race.standings)

    @property
    def toml(self) -> str:
        """The experiment as a file that ``fedgauge simulate`` runs.

        It is empty if the federation comes from Python, or if the goal was not reached and there is nothing to run.
        """
        return Experiment.from_json(self.experiment).to_toml() if self.experiment and self.reached else ""

    @property
    def why(self) -> str:
        """What the error and the time consist of, in one sentence."""
        return say(self.choice, self.cost, next(t for t in self.terms if t.I == self.choice.I))

    @property
    def verdict(self) -> str:
        """One sentence: the choice, its time, and how certain that is; or how close to the goal it got."""
        chosen = self.choice
        rates = f"I = {chosen.I}, gamma = {short(chosen.gamma)}, eta = {short(chosen.eta)} and M = {chosen.M}"
        if not self.reached:
            name = {"accuracy": "an accuracy", "loss": "a loss", "grad2": "a squared gradient norm"}[self.goal.quantity]
            when = self.race.entries[0].score
            later = (
                f"; at its pace it would take {lasting(when)}" if math.isfinite(when) else "; it makes no more progress"
            )
            return (
                f"Not reached: none of {len(self.race.entries)} candidates reached {self.goal.words}"
                f" ({self.race.ending}); the nearest, {rates}, reached {name} of {short(self.value)} in"
                f" {lasting(self.seconds)}{later}."
            )
        known = math.isfinite(self.high) and self.high > self.low
        spread = f" ({lasting(self.low)} to {lasting(self.high)})" if known else ""
        if self.goal.value is None:
            name = {"accuracy": "an accuracy", "loss": "a loss", "grad2": "a |grad f|^2"}[self.goal.quantity]
            does = f"reach {name} of {short(self.value)} in the {rounds(self.rounds)} that the budget pays for"
        else:
            does = f"reach {self.goal.words} in about {lasting(self.seconds)}{spread}, {rounds(self.rounds)}"
        return f"{rates} {does}; {self.race.ending}."

    def derived(self) -> tuple[Any, ...]:
        """Return the goal, the choice, the verdict and the TOML text, which the file holds too."""
        return self.goal.words, self.choice.to_json(), self.reached, self.verdict, self.toml
