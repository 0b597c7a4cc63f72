"""Federations of equal zeta_rms that differ in kind: the strength at which each kind of shift has it, by bisection.

zeta_rms is a root mean square over several models, which are either **common** to all federations (the first model,
and models along the pooled run of the experiment as it is, without the kinds) or each federation's **own** (along the
pooled run on its own data). A pooled run has one local step per round, so that all workers stay together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from fedgauge.base.errors import InputError, count, nearest
from fedgauge.data.shifts import SHIFTS, parse_shifts, spell_shifts
from fedgauge.measurement.gauge.runner import Runner
from fedgauge.measurement.passes import Meter
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.setup import Setup

Along = Literal["common", "own"]

LABEL = "label"
"""The kind that is no shift but a partition: the paper's, with a percentage of one label."""
KINDS: tuple[str, ...] = (LABEL, *SHIFTS)
PARTS = (1 / 6, 1 / 2, 5 / 6)
"""The places along a pooled run, as parts of its steps, at which zeta is measured."""


def with_kind(experiment: Experiment, kind: str, strength: float) -> Experiment:
    """The experiment with one more kind of heterogeneity.

    ``label`` divides the data by the paper's scheme with 100 · strength percent of one label, filled up from other
    labels where one runs out; every other kind is a shift beside those that the experiment has.

    >>> plain = Experiment.of({"source": "digits", "gamma": 0.1, "scheme": "iid", "shift": "swap=0.1"})
    >>> with_kind(plain, "gain", 0.5).data.shift, with_kind(plain, "label", 0.5).data.percent
    (('gain=0.5', 'swap=0.1'), 50.0)
    """
    if kind not in KINDS:
        raise InputError(f"There is no kind {kind!r}; {nearest(kind, KINDS)}")
    if kind == LABEL:
        cleared = {name: None for name in ("alpha", "least", "shards") if getattr(experiment.data, name) is not None}
        return experiment.changed({**cleared, "scheme": "paper", "percent": 100.0 * strength, "fill": True})
    before = parse_shifts(experiment.data.shift or ())
    if kind in before:
        raise InputError(f"The experiment already has the shift {kind}; leave it out there, or choose another kind.")
    return experiment.changed({"shift": spell_shifts({**before, kind: strength})})


def pooled_models(setup: Setup, steps: int, parts: Sequence[float] = PARTS) -> list[torch.Tensor]:
    """The models after some parts of a pooled run: one local step per round.

    >>> from fedgauge import fedavg, random_quadratics, Setup
    >>> setup = Setup(random_quadratics(4, 3), fedavg(gamma=0.05))
    >>> first, last = pooled_models(setup, 20, (0.0, 1.0))
    >>> bool(torch.equal(first, setup.first_model)), bool(torch.equal(first, last))
    (True, False)
    """
    places = [round(part * count("steps", steps)) for part in parts]
    with Runner(setup) as runner:
        state, models = runner.first_state(), {}
        for place in sorted(set(places)):
            state = runner.advance(state, 1, place - state.round)
            if not torch.isfinite(state.model).all():
                raise InputError("The pooled run diverges at this rate; choose a smaller gamma or eta.")
            models[place] = state.model
    return [models[place] for place in places]


def zeta_over(setup: Setup, models: Sequence[torch.Tensor]) -> float:
    """The root mean square over models of zeta_rms."""
    weights = setup.participation.weights
    with Meter(setup.federation, weights=weights, seed=setup.seed, compute=setup.compute) as meter:
        squares = []
        for model in models:
            _, gradient = meter.evaluate(model)
            squares.append(float(meter.shares @ meter.distances(model, gradient)[0]))
    return math.sqrt(sum(squares) / len(squares))


class Match(NamedTuple):
    """The strength at which a quantity has a wanted value.

    Attributes:
        strength: the strength that comes nearest, of those that were tried.
        value: the quantity there.
        reached: whether it is the wanted value, up to the tolerance.
        tried: every strength that was tried, with its value.
    """

    strength: float
    value: float
    reached: bool
    tried: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Bisection:
    """How a strength is searched.

    Attributes:
        tolerance: the relative difference from the wanted value that is allowed.
        most: the largest number of strengths that are tried.
    """

    tolerance: float = 0.01
    most: int = 12

    def __post_init__(self) -> None:
        count("most", self.most, 2)
        if not 0 < self.tolerance < 1:
            raise InputError(f"tolerance must be between 0 and 1, as in 0.01, not {self.tolerance!r}.")

    def find(self, evaluate: Callable[[float], float], wanted: float) -> Match:
        """Search strengths from 0 to 1 for the one at which ``evaluate`` is ``wanted``, as if it grew with strength.

        A quantity that does not grow everywhere still crosses the wanted value where the search ends. If even strength
        1 has less, the search ends there.

        >>> bisected = Bisection().find(lambda strength: 2 * strength, 0.5)
        >>> bisected.strength, bisected.reached, len(bisected.tried)
        (0.25, True, 3)
        >>> Bisection().find(lambda strength: strength / 10, 0.5)[:3]
        (1.0, 0.1, False)
        """
        tried: list[tuple[float, float]] = []

        def near(strength: float) -> bool:
            tried.append((strength, evaluate(strength)))
            return abs(tried[-1][1] - wanted) <= self.tolerance * abs(wanted)

        low, high = 0.0, 1.0
        done = near(high)
        if not done and tried[-1][1] > wanted:
            while not done and len(tried) < self.most:
                done = near((low + high) / 2)
                low, high = (tried[-1][0], high) if tried[-1][1] < wanted else (low, tried[-1][0])
        best = min(tried, key=lambda each: abs(each[1] - wanted))
        return Match(*best, done, tuple(tried))
