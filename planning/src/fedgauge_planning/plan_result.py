"""A plan as a value: what to run, how long it will take, why, and how it was found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedgauge.algorithms.cost import Cost
from fedgauge.base.errors import InputError
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.values import Constants, Origin, Result, Value
from fedgauge.values.answer import Answer, StepEfficiency
from fedgauge.values.display import Displayed, counted, lasting, rounds, short
from fedgauge_planning.candidates import Candidate, Space
from fedgauge_planning.course import Race, RaceEntry
from fedgauge_planning.forecast import Scale
from fedgauge_planning.goal import Goal
from fedgauge_planning.theory_result import TheoryPlan

_RUN_ERROR, _FORECAST_ERROR = 0.10, 0.25
"""The errors of the logarithm of an efficiency from runs to the goal, and from a run that was stopped before it."""
_SIGMAS = 1.645
_FAR = 30.0
"""A forecast that is more times as long than this is only a guess."""


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
    file: ClassVar[str] = "plan"
    lies_beside: ClassVar[bool] = True
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

    def __post_init__(self) -> None:
        if self.choice.I not in [terms.I for terms in self.terms]:
            raise InputError("Plan.terms must have an entry for the choice.")
        if self.choice not in [entry.candidate for entry in self.race.entries]:
            raise InputError("Plan.race.entries must have an entry for the choice.")
        _ = self.toml

    @property
    def origin(self) -> Origin:
        """The experiment that was planned."""
        return Origin(experiment=self.experiment)

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
    def answer(self) -> Answer | None:
        """How many local steps to take, by the pilots, each number at the best rates that were tried with it.

        None for a budget, where pilots show errors and not how many steps are needed; where the goal was not reached;
        and where only one number of local steps was tried.
        """
        if not self.reached or self.goal.value is None or not self.cost.step:
            return None
        chosen = self.choice
        best: dict[int, RaceEntry] = {}
        for each in self.race.entries:
            if each.candidate.M == chosen.M and math.isfinite(each.score):
                best.setdefault(each.candidate.I, each)
        best[chosen.I] = next(each for each in self.race.entries if each.candidate == chosen)
        if len(best) < 2:
            return None
        needed = {steps: each.score / each.candidate.seconds(self.cost) * steps for steps, each in best.items()}
        fewest, *others = sorted(needed)
        efficiencies = [StepEfficiency(fewest, 1.0, 1.0, 1.0, measured=False)]
        for steps in others:
            value = needed[fewest] / needed[steps]
            error = _SIGMAS * (_RUN_ERROR if best[steps].curve.status == "target" else _FORECAST_ERROR)
            efficiencies.append(StepEfficiency(steps, value, value * math.exp(-error), value * math.exp(error)))
        return Answer(
            tuple(efficiencies),
            "synchronous training" if fewest == 1 else f"{fewest} local steps per round",
            cost=self.cost.communication(chosen.M) / self.cost.step,
            using=self.space.own.I,
            method="Measured by pilot runs to the goal, each number of local steps at the best rates tried with it.",
            chosen=chosen.I,
        )

    @property
    def other_rate(self) -> str:
        """Why local steps may differ from those at the user's own rate, in one sentence; empty at that rate."""
        own, chosen, fewest = self.space.own.gamma, self.choice.gamma, min(self.space.local_steps)
        scores: dict[float, float] = {}
        for each in self.race.entries:
            if fewest == each.candidate.I:
                scores.setdefault(each.candidate.gamma, each.score)
        if own == chosen or self.goal.value is None or not {own, chosen} <= scores.keys():
            return ""
        times = scores[own] / scores[chosen]
        faster = f"{times:.2g} times as fast as" if times < _FAR else "far faster than"
        return (
            f"At gamma {short(chosen)}, which converges {faster} your {short(own)} with"
            f" {counted(fewest, 'local step')} per round, {counted(self.choice.I, 'local step')}"
            f" {'is' if self.choice.I == 1 else 'are'} best; at your own rate another number may be."
        )

    @property
    def toml(self) -> str:
        """The experiment as a file that ``fedgauge simulate`` runs.

        It is empty if the federation comes from Python, or if the goal was not reached and there is nothing to run.
        """
        return Experiment.from_json(self.experiment).to_toml() if self.experiment and self.reached else ""

    @property
    def why(self) -> str:
        """What the error and the time consist of, in one sentence."""
        return in_words(self.choice, self.cost, next(t for t in self.terms if t.I == self.choice.I))

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
            does = f"reach {name} of {short(self.value)} in the {rounds(self.rounds)} within the budget"
        else:
            does = f"reach {self.goal.words} in about {lasting(self.seconds)}{spread}, {rounds(self.rounds)}"
        return f"{rates} {does}; {self.race.ending}."

    def derived(self) -> tuple[Any, ...]:
        """Return the goal, the choice, the verdict and the TOML text, which the file holds too."""
        return self.goal.words, self.choice.to_json(), self.reached, self.verdict, self.toml


_STABLE = 2.0  # gradient descent overshoots if the rate times the smoothness is above this
_ALIKE = 1e-9  # divergence that rounding may leave between equal workers, as a fraction of the squared gradient


@dataclass(frozen=True)
class Seen(Value):
    """Measurements at the end of a run, with which a plan is explained.

    Attributes:
        fall: how far f fell during the run.
        grad2: squared norm of the gradient of f at the end of the run.
        sigma2: variance of a stochastic gradient, averaged over workers.
        zeta2: divergence of the gradients, averaged over workers.
        L_g: smoothness of f, as observed.
        L_h: the constant L_h, as observed.
        deviation2: squared distance between the averaged local gradients and the gradient at the averaged model, after
            ``local_steps`` local steps with rate ``gamma``.
        local_steps: the local steps of ``deviation2``.
        gamma: the rate of ``deviation2``.
    """

    fall: float
    grad2: float
    sigma2: float
    zeta2: float
    L_g: float
    L_h: float
    deviation2: float
    local_steps: int
    gamma: float

    @property
    def identical(self) -> bool:
        """Whether the workers' gradients are the same up to rounding."""
        return self.zeta2 <= _ALIKE * max(self.grad2, self.sigma2)

    def drift(self, local_steps: int, gamma: float) -> float:
        """The error that local steps add: gamma^2 ((I-1) sigma^2 + (I-1)^2 zeta^2) times a factor.

        The shape is that of Theorem 4.3. Its factor is a worst case, so the measured deviation replaces it; if there is
        none, the factor is L_h^2.
        """

        def shape(steps: int, rate: float) -> float:
            # A product becomes infinite where a power raises an error.
            return rate * rate * ((steps - 1) * self.sigma2 + (steps - 1) ** 2 * self.zeta2)

        measured = shape(self.local_steps, self.gamma)
        scale = self.deviation2 / measured if measured > 0 else self.L_h**2
        return scale * shape(local_steps, gamma)


@dataclass(frozen=True)
class Terms(Value):
    """The terms of the error after some time, each a squared gradient norm, as the theory adds them up.

    Attributes:
        I: number of local steps.
        progress: 2 F/(gamma eta I R), which falls with more time.
        noise: gamma eta L_g sigma^2/M, which does not.
        drift: the drift of the local models, which does not fall with time either.
    """

    I: int  # noqa: E741
    progress: float
    noise: float
    drift: float

    @property
    def total(self) -> float:
        """The sum of the terms."""
        return self.progress + self.noise + self.drift

    def share(self, name: str) -> float:
        """The fraction of the total that is in one term.

        >>> Terms(8, 3.0, 0.0, 1.0).share("drift")
        0.25
        """
        return float(getattr(self, name)) / self.total if self.total > 0 else 0.0


def terms(observed: Seen, candidate: Candidate, cost: Cost, seconds: float) -> Terms:
    """The terms of a candidate's error after some seconds."""
    rate, rounds = candidate.gamma * candidate.eta, seconds / candidate.seconds(cost)
    return Terms(
        candidate.I,
        progress=2 * max(observed.fall, 0.0) / (rate * candidate.I * rounds),
        noise=rate * observed.L_g * observed.sigma2 / candidate.M,
        drift=observed.drift(candidate.I, candidate.gamma),
    )


def known_before(constants: Constants, fall: float, grad2: float) -> Seen:
    """What is known before any run: constants at the first model, none of which says how much error drift adds."""

    def value(*names: str) -> float:
        return next((float(constants[name].value) for name in names if name in constants), 0.0)

    sigma, zeta, L_g, L_h = (
        value(*names) for names in (("sigma_rms", "sigma"), ("zeta_rms", "zeta"), ("L_g",), ("L_h",))
    )
    return Seen(fall, grad2, sigma**2, zeta**2, L_g, L_h, deviation2=0.0, local_steps=1, gamma=1.0)


def order(candidates: Sequence[Candidate], observed: Seen, cost: Cost, seconds: float) -> list[Candidate]:
    """Sort candidates by the error that the constants predict after some seconds; those that overshoot come last."""

    def predicted(candidate: Candidate) -> tuple[bool, float]:
        overshoots = candidate.gamma * max(candidate.eta, 1.0) * observed.L_g > _STABLE
        return overshoots, terms(observed, candidate, cost, seconds).total

    return sorted(candidates, key=predicted)


def in_words(candidate: Candidate, cost: Cost, terms: Terms) -> str:
    """Say in one sentence what the error and the time consist of.

    >>> cost = Cost("mine", fixed=8.0, step=0.05)
    >>> in_words(Candidate(40, 0.1, 1.0, 10), cost, Terms(40, 88.0, 6.0, 6.0))
    'At I = 40, client drift is 6% of the error and gradient noise 6%; communication is 80% of the time.'
    """
    waiting = cost.communication(candidate.M) / candidate.seconds(cost)
    parts = f"client drift is {terms.share('drift'):.0%} of the error and gradient noise {terms.share('noise'):.0%}"
    if not math.isfinite(terms.total) or terms.total <= 0:
        parts = "nothing is left of the error"
    return f"At I = {candidate.I}, {parts}; communication is {waiting:.0%} of the time."
