"""What the gauge measured, and how it is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedgauge.algorithms.cost import Cost
from fedgauge.base.codec import Value
from fedgauge.base.errors import count
from fedgauge.measurement.gauge.cause import Cause
from fedgauge.values.answer import Answer, StepEfficiency
from fedgauge.values.display import Displayed
from fedgauge.values.results import Origin, Result

AROUND = 512
"""Steps of the run around one model, or more for many local steps."""


@dataclass(frozen=True)
class GaugeOptions:
    """How the gauge is taken.

    Attributes:
        local_steps: the numbers of local steps to try; by default, as many as the run is long enough for.
        steps: the number of steps of the run; by default, the rounds times the local steps of the run.
        budget: the number of steps of each worker that may be spent beyond one run, for a more exact answer. By
            default, none; where the run is too short to try several numbers within it, twice its steps.
        around: gauge around the first model only: the run then has 512 steps by default.
        sample: how many examples of each worker f is evaluated on, always the same ones; by default, all, or fewer
            where evaluating all of them would take most of the time.
    """

    local_steps: Sequence[int] | None = None
    steps: int | None = None
    budget: int | None = None
    around: bool = False
    sample: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("budget", 1), ("sample", 2)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, count(name, getattr(self, name), least=least))
        if self.local_steps is not None:
            object.__setattr__(self, "local_steps", tuple(count("local_steps", each) for each in self.local_steps))


@dataclass(frozen=True)
class Spent(Value):
    """What a gauge cost.

    Attributes:
        gradient_steps: the steps of each worker, in all runs together.
        rounds: their rounds.
        passes: evaluations of f.
    """

    gradient_steps: int
    rounds: int
    passes: int


@dataclass(frozen=True)
class RateSearch(Value):
    """How a rate was chosen.

    Attributes:
        gamma: the rate at which synchronous training was fastest.
        tried: every rate, and how far f was above its least value at the end of its trial; infinite where it rose.
        steps: the local steps of a trial.
        gradient_steps: those of all trials together, of each worker.
        rounds: their rounds.
        passes: evaluations of f.
    """

    gamma: float
    tried: tuple[tuple[float, float], ...]
    steps: int
    gradient_steps: int
    rounds: int
    passes: int

    @property
    def sentence(self) -> str:
        """What was chosen, from what."""
        rates = [gamma for gamma, _ in self.tried]
        ends = {max(rates): " A larger one may be faster still.", min(rates): " A smaller one may be faster still."}
        edge = ends.get(self.gamma, "")
        return (
            f"gamma {self.gamma:.3g} was chosen: of {len(rates)} rates from {min(rates):.3g} to {max(rates):.3g},"
            f" synchronous training was fastest with it in {self.steps} steps, which took {self.gradient_steps:,} steps"
            f" in all.{edge}"
        )


@dataclass(frozen=True)
class GaugeResult(Result, Displayed):
    """How many local steps count on a federation, and how many to take.

    Attributes:
        answer: the answer: efficiencies with their intervals, and what to use for the cost of a round.
        settings: the experiment or the federation, the algorithm and the options.
        goal: the value of f at which the comparison ends.
        steps: the steps of the first run at which f was recorded.
        losses: f there.
        spent: what it cost.
        cost: the cost of a round, with nothing left open; None if none was given.
        participants: the number M of workers in a round.
        cause: why local steps are lost; None if the measured numbers do not explain it.
        base: name and parameters of the algorithm that is compared with; None if it is the one that is gauged.
        rate: how the rate was chosen; None if it was given.
    """

    kind, written_by, file, lies_beside, is_sealed = "gauge", "gauge --out", "gauge", True, True
    derived_names = ("sentence", "recommended")

    answer: Answer
    settings: Mapping[str, Any]
    goal: float
    steps: Sequence[int]
    losses: Sequence[float]
    spent: Spent
    cost: Cost | None = None
    participants: int = 1
    cause: Cause | None = None
    base: Mapping[str, Any] | None = None
    rate: RateSearch | None = None

    @property
    def origin(self) -> Origin:
        """The federation and the algorithm that were gauged."""
        algorithm = (self.settings.get("algorithm") or {}).get("name")
        return Origin(self.settings.get("federation"), algorithm, self.settings.get("experiment"))

    @property
    def efficiency(self) -> tuple[StepEfficiency, ...]:
        """The efficiency of each number of local steps, growing, the reference first."""
        return self.answer.efficiency

    @property
    def complete(self) -> bool:
        """Whether there is an answer."""
        return self.answer.complete

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, one sentence each."""
        return self.answer.notes

    @property
    def sentence(self) -> str:
        """The answer, in one sentence."""
        return self.answer.sentence

    @property
    def compared_with(self) -> str:
        """What the efficiencies are compared with, in one sentence."""
        return describe(self.base, (self.settings.get("algorithm") or {}).get("gamma"))

    def derived(self) -> tuple[Any, ...]:
        """The sentence, and the recommendations, which the file holds too."""
        return self.sentence, [each.to_json() for each in self.answer.recommendations]


def describe(reference: Mapping[str, Any] | None, gamma: object) -> str:
    """What the efficiencies are compared with, in one sentence.

    Args:
        reference: name and parameters of the base run's algorithm; None if it is the algorithm itself.
        gamma: the rate of the algorithm itself.

    >>> describe(None, 0.1)
    'Compared with the same algorithm at one local step per round.'
    >>> describe({"name": "fedavg", "gamma": 0.1, "eta": 1.0}, 0.1)
    'Compared with synchronous training: one local step per round and plain averaging, at the same gamma.'
    """
    if reference is None:
        return "Compared with the same algorithm at one local step per round."
    rate = "the same gamma" if reference.get("gamma") == gamma else f"gamma {reference.get('gamma')}"
    optimiser = reference.get("optimiser")
    who = {None: "", "adamw": ", AdamW", "sgd": ", SGD with momentum"}.get(optimiser, f", {optimiser}")
    if who and reference.get("optimiser_state") == "averaged":
        who += " with averaged state"
    if reference.get("name") in ("fedavg", "fedprox") and reference.get("eta") == 1.0:
        return f"Compared with synchronous training: one local step per round and plain averaging{who}, at {rate}."
    return f"Compared with {reference.get('name')} at one local step per round{who}, at {rate}."
