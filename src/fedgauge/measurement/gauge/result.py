"""What the gauge found: the efficiency of local steps, and what follows from it; and how it is taken."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedgauge.algorithms.cost import Cost
from fedgauge.base.codec import Value
from fedgauge.base.errors import InputError, count, positive
from fedgauge.simulation.setup import Setup
from fedgauge.values.display import Displayed, counted, short
from fedgauge.values.results import Result

LONG = 5000
"""A base run with more steps than this is long: probes then need a smaller share of it."""
AROUND = 512
"""Steps of the base run around one model."""


@dataclass(frozen=True)
class GaugeOptions:
    """How the gauge is taken.

    Attributes:
        local_steps: the numbers of local steps to measure; by default, about four that are chosen by what is seen.
        threshold: the efficiency that affordable local steps have at least.
        steps: the number of steps of the base run; by default, the rounds times the local steps of the run.
        budget: the number of steps of each worker that may be spent beyond the base run; by default, twice the base
            run's steps, or half of them if it has more than 5,000.
        around: gauge around the first model only: the base run then has 512 steps by default, and every probe starts
            from that model.
        sample: how many examples of each worker f is looked at with, always the same ones; by default, all, or fewer
            where looking at all of them would take most of the time.
    """

    local_steps: Sequence[int] | None = None
    threshold: float = 0.8
    steps: int | None = None
    budget: int | None = None
    around: bool = False
    sample: int | None = None

    def __post_init__(self) -> None:
        if not 0 < positive("threshold", self.threshold) <= 1:
            raise InputError(f"threshold must be above 0 and at most 1, as in 0.8, not {self.threshold!r}.")
        for name, least in (("steps", 1), ("budget", 1), ("sample", 2)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, count(name, getattr(self, name), least=least))
        if self.local_steps is not None:
            object.__setattr__(self, "local_steps", tuple(count("local_steps", each) for each in self.local_steps))

    def budget_of(self, steps: int) -> int:
        """The steps that may be spent beyond a base run of so many steps.

        >>> GaugeOptions().budget_of(100), GaugeOptions().budget_of(6000), GaugeOptions(budget=50).budget_of(100)
        (200, 3000, 50)
        """
        return self.budget or (2 * steps if steps <= LONG else steps // 2)


How = Literal["reference", "probes", "run", "part", "between"]


@dataclass(frozen=True)
class Efficiency(Value):
    """The efficiency of I local steps: the steps that the base run needs for a way down in f, over those that I take.

    Attributes:
        local_steps: I.
        value: the efficiency; None if nothing can be told.
        low: the lower end of its interval.
        high: the upper end; without a value, efficiencies above it are excluded.
        how: ``probes`` from places along the base run, or a whole ``run``; ``part`` for a run whose steps ended before
            the goal, extrapolated; ``between`` if noise hid the number, and it is put between those of fewer and more
            local steps; ``reference`` for the base run itself.
    """

    local_steps: int
    value: float | None
    low: float
    high: float
    how: How = "probes"

    @property
    def slowdown(self) -> float | None:
        """How many times as many steps are needed; None if nothing can be told."""
        return None if not self.value else 1 / self.value

    @property
    def share(self) -> str:
        """The efficiency for a reader: a percentage of at most 100, or what it is at most; 1.3× if it is above 1.

        >>> [each.share for each in (Efficiency(4, 0.84, 0.8, 0.9), Efficiency(64, None, 0.0, 0.1))]
        ['84%', 'at most 10%']
        >>> Efficiency(4, 0.84, 0.6, 1.0, "between").share
        'about 84%'
        >>> [Efficiency(4, 1.3, low, 1.4).share for low in (0.9, 1.2)]
        ['100%', '1.3×']
        """
        if self.value is None:
            if self.high < 1:
                return f"at most {self.high:.0%}"
            return f"at least {min(self.low, 1.0):.0%}" if self.low > 0 else "unknown"
        if self.is_above_one:
            return f"{self.value:.2g}×"
        return f"{'about ' if self.is_inferred else ''}{min(self.value, 1.0):.0%}"

    @property
    def interval(self) -> str:
        """The interval for a reader, of shares up to 100%.

        >>> Efficiency(4, 0.9, 0.8, 1.1).interval, Efficiency(4, 1.5, 1.3, 1.7).interval
        ('80% to 100%', '1.3× to 1.7×')
        """
        if self.value is None or self.how == "reference":
            return "–"
        if self.is_above_one:
            return f"{self.low:.2g}× to {self.high:.2g}×"
        return f"{min(self.low, 1.0):.0%} to {min(self.high, 1.0):.0%}"

    @property
    def counted_as(self) -> str:
        """The share as the end of a sentence on these local steps."""
        if self.is_above_one:
            return f"each gets as far as {self.value:.2g} steps of the base run"
        return f"{self.share} do"

    @property
    def is_above_one(self) -> bool:
        """Whether it is certainly above 1: a step then gets further than one of the base run."""
        return self.value is not None and self.low > 1.02

    @property
    def is_inferred(self) -> bool:
        """Whether the number was not measured on the whole way, but extrapolated or put between others."""
        return self.how in ("between", "part")


@dataclass(frozen=True)
class Phase(Value):
    """A part of the base run, and the efficiencies there.

    Attributes:
        name: ``early``, ``middle`` or ``late``.
        begin: the first step of the part.
        end: its last step.
        efficiency: the efficiency of each number of local steps that was probed there.
    """

    name: str
    begin: int
    end: int
    efficiency: tuple[Efficiency, ...]


@dataclass(frozen=True)
class Spent(Value):
    """What a gauge cost, in steps of each worker.

    Attributes:
        gradient_steps: steps beyond the base run.
        rounds: rounds beyond the base run.
        base_gradient_steps: steps of the base run.
        passes: evaluations of f.
    """

    gradient_steps: int
    rounds: int
    base_gradient_steps: int
    passes: int


@dataclass(frozen=True)
class Cause(Value):
    """Why local steps are lost, in numbers that were measured in a round of I local steps.

    Attributes:
        local_steps: I.
        spread: root mean square distance of the local models from their mean.
        noise: the fraction of the squared spread that gradient noise explains, gamma^2 I sigma^2 (1 - 1/N).
        zeta: root mean square divergence of the workers' gradients.
        sigma: root mean square noise of a stochastic gradient.
        L_h: the distance of the averaged gradient from the gradient at the mean model, over the spread.
        deviation: that distance, over the norm of the gradient of f.
    """

    local_steps: int
    spread: float
    noise: float
    zeta: float
    sigma: float
    L_h: float
    deviation: float

    @property
    def sentence(self) -> str:
        """The cause in one sentence.

        >>> Cause(64, 0.5, 0.1, 1.2, 3.0, 0.4, 0.8).sentence
        'Why: after 64 local steps the models are 0.5 apart, 10% of it (squared) through gradient noise (sigma 3) and
        90% through disagreement (zeta 1.2); with the L_h of 0.4 that was seen, this shifts the averaged gradient by 80%
        of the gradient of f.'
        """
        spread, zeta, sigma, L_h = (short(each) for each in (self.spread, self.zeta, self.sigma, self.L_h))
        return (
            f"Why: after {self.local_steps} local steps the models are {spread} apart, {self.noise:.0%} of it (squared)"
            f" through gradient noise (sigma {sigma}) and {1 - self.noise:.0%} through disagreement (zeta {zeta}); with"
            f" the L_h of {L_h} that was seen, this shifts the averaged gradient by {self.deviation:.0%} of the"
            " gradient of f."
        )


@dataclass(frozen=True)
class GaugeResult(Result, Displayed):
    """How many local steps a federation affords.

    Attributes:
        settings: the experiment or the federation, the algorithm and the options.
        threshold: the efficiency that affordable local steps have at least.
        reference: the number of local steps of the base run.
        goal: the value of f at the end of the way.
        efficiency: the efficiency of each number of local steps that was measured, growing in I.
        affordable: the largest number of local steps with at least the efficiency that is its key.
        recommended: the number of local steps that is fastest under the cost; None without a cost.
        phases: the same, early, in the middle and late in training.
        spent: what it cost.
        steps: the steps of the base run at which f was recorded.
        losses: f there.
        cost: the cost of a round; None if none was given.
        notes: what a reader should know, one sentence each.
        complete: false if the gauge was interrupted or ran out of its budget.
        cause: why local steps are lost; None if the measured numbers do not explain it.
        base: name and parameters of the algorithm of the base run; None if it is the one that is gauged.
    """

    kind, written_by, is_sealed = "gauge", "gauge --out", True

    settings: Mapping[str, Any]
    threshold: float
    reference: int
    goal: float
    efficiency: tuple[Efficiency, ...]
    affordable: Mapping[str, int]
    recommended: int | None
    phases: tuple[Phase, ...]
    spent: Spent
    steps: Sequence[int] = ()
    losses: Sequence[float] = ()
    cost: Cost | None = None
    notes: tuple[str, ...] = ()
    complete: bool = True
    cause: Cause | None = None
    base: Mapping[str, Any] | None = None

    def at(self, local_steps: float) -> float:
        """The efficiency of any number of local steps up to the largest that was measured.

        Between two measured numbers it is a straight line in log I.
        """
        known = self.curve
        if not known or not known[0].local_steps <= local_steps <= known[-1].local_steps:
            raise InputError(f"The efficiency of {local_steps} local steps was not measured; gauge up to that number.")
        return float(interpolated(known, local_steps))

    @property
    def curve(self) -> list[Efficiency]:
        """The efficiencies that are known, growing in I; the base run is among them if it has the same algorithm."""
        known = [each for each in self.efficiency if each.value is not None]
        return known if self.base is None else [each for each in known if each.how != "reference"] or known

    @property
    def sentence(self) -> str:
        """The answer, in one or two sentences."""
        if not self.complete and len(self.efficiency) == 1:
            return "The gauge was interrupted before anything could be compared with its base run."
        algorithm = self.settings.get("algorithm") or {}
        rate = f"At gamma {algorithm['gamma']:g} this" if "gamma" in algorithm else "This"
        afforded = self.affordable[f"{self.threshold:g}"]
        measured = [each for each in self.efficiency if each.value is not None]
        if afforded <= self.reference:
            lead = f"{rate} federation affords no more than {counted(self.reference, 'local step')} per round"
            told = [each for each in self.efficiency if each.value is not None or each.high < 1]
            worse = next((each for each in told if each.local_steps > self.reference), None)
            if worse is None:
                return f"{lead}."
            return f"{lead}: with {worse.local_steps}, only {worse.counted_as}."
        beyond = "at least " if afforded >= self.efficiency[-1].local_steps else ""
        nearest = min(measured, key=lambda each: abs(math.log(each.local_steps / afforded)))
        exact = nearest.local_steps == afforded
        about = "about " if not exact or nearest.is_inferred else ""
        if exact and nearest.is_above_one:
            share = nearest.counted_as
        else:
            share = f"{about}{min(self.at(afforded), 1.0):.0%} of them count"
            if exact:
                share += f" ({100 * nearest.low:.0f} to {100 * min(nearest.high, 1.0):.0f})"
        first = f"{rate} federation affords {beyond}{counted(afforded, 'local step')}: {share}."
        further = [each for each in self.efficiency if each.local_steps > afforded and each.share != "unknown"]
        return first if not further else f"{first} At {further[-1].local_steps}, {further[-1].counted_as}."

    @property
    def compared_with(self) -> str:
        """What the efficiencies are compared with, in one sentence."""
        return describe(self.base, (self.settings.get("algorithm") or {}).get("gamma"))

    def __str__(self) -> str:
        return self.sentence


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


def interpolated(known: Sequence[Efficiency], local_steps: Any) -> Any:
    """Efficiencies between measured ones, as straight lines in log I."""
    places = np.log([each.local_steps for each in known])
    return np.interp(np.log(local_steps), places, [each.value or 0.0 for each in known])


def affordable(efficiency: Sequence[Efficiency], threshold: float) -> int:
    """The largest number of local steps that has at least this efficiency, as do all smaller ones.

    >>> affordable([Efficiency(1, 1.0, 1.0, 1.0), Efficiency(4, 0.9, 0.8, 1.0), Efficiency(16, 0.7, 0.6, 0.8)], 0.8)
    8
    """
    known = [each for each in efficiency if each.value is not None]
    # Without the base run among them, even the first may be too few.
    found = known[0].local_steps if known and (known[0].value or 0.0) >= threshold else 1
    for one, other in itertools.pairwise(known):
        assert one.value is not None
        assert other.value is not None
        if other.value >= threshold:
            found = other.local_steps
            continue
        if one.value < threshold:
            continue
        share = (one.value - threshold) / (one.value - other.value)
        return max(found, int(one.local_steps * (other.local_steps / one.local_steps) ** share * (1 + 1e-9)))
    return found


def recommended(efficiency: Sequence[Efficiency], round_seconds: float, step_seconds: float) -> int:
    """The number of local steps for which a way down takes the least time, (c + s I) / (I E(I)).

    >>> free = [Efficiency(1, 1.0, 1.0, 1.0), Efficiency(64, 1.0, 1.0, 1.0)]
    >>> recommended(free, round_seconds=1.0, step_seconds=0.1)
    64
    """
    known = [each for each in efficiency if each.value]
    steps = np.arange(known[0].local_steps, known[-1].local_steps + 1)
    times = (round_seconds + step_seconds * steps) / (steps * interpolated(known, steps))
    return int(steps[int(np.argmin(times))])


@dataclass(frozen=True)
class Sight(Value):
    """What a watched round of a probe shows.

    Attributes:
        spread: mean squared distance of the local models from their mean after I local steps.
        deviation2: squared distance of the averaged local gradients from the gradient at the mean model.
        zeta2: mean squared distance of the workers' gradients from their mean, at the mean model.
        grad2: squared norm of the gradient of f before the round.
    """

    spread: float
    deviation2: float
    zeta2: float
    grad2: float


def explained(
    setup: Setup, found: Mapping[int, Efficiency], seen: Mapping[int, Sight], sigma2: float, threshold: float = 0.8
) -> Cause | None:
    """The cause of the loss, for the smallest I that is not affordable; None where the numbers do not explain it.

    Where every I is affordable, or the numbers explain none that is not, it is the smallest I that loses a tenth.

    A shift of the averaged gradient by a fraction q of the gradient costs at most about q of the progress. So a smaller
    q than the fraction that is lost does not explain it, and nothing is said.

    Args:
        setup: the federation and the algorithm.
        found: the efficiencies.
        seen: what was seen for each number of local steps.
        sigma2: variance of a stochastic gradient, averaged over workers.
        threshold: the efficiency that affordable local steps have at least.
    """
    # Where local steps are plain gradient steps, their noise adds gamma^2 I sigma^2 to the spread.
    gamma = setup.algorithm.sgd_rate
    if gamma is None:
        return None
    value = {steps: each.value or 0.0 for steps, each in found.items()}
    lost = [steps for steps in value if value[steps] < 0.9 and steps in seen]
    for steps in sorted(lost, key=lambda steps: (value[steps] >= threshold, steps)):
        sight, N = seen[steps], setup.num_workers
        if not (sight.spread > 0 and sight.grad2 > 0):
            continue
        deviation = math.sqrt(sight.deviation2 / sight.grad2)
        if deviation < 1 - value[steps]:
            continue
        noise = min(gamma**2 * steps * sigma2 * (1 - 1 / N) / sight.spread, 1.0)
        L_h = math.sqrt(sight.deviation2 / sight.spread)
        return Cause(steps, math.sqrt(sight.spread), noise, math.sqrt(sight.zeta2), math.sqrt(sigma2), L_h, deviation)
    return None
