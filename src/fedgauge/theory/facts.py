"""What a theorem says about itself, so that no other module needs to know its name.

Each theorem's file declares these facts once. The explorer asks for the colours of its terms, the falsifier for the
runs that it is about, the planner for what it can plan, and the report for the runs that it covers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Measure = Literal["grad2", "loss"]
Objectives = Literal["smooth", "strongly convex", "quadratic", "equal Hessians"]
GlobalRate = Literal["free", "one", "product"]
RateShape = Literal["powers", "geometric", "inverse", "root"]
Cause = Literal["start", "noise", "divergence"]
COLOURS = 8
"""How many colours the pages have for terms."""


@dataclass(frozen=True)
class Quantity:
    """What a theorem bounds.

    Attributes:
        text: the formula, as it is shown.
        measure: ``grad2`` for E|grad f|^2, ``loss`` for E[f] - f*.
        taken: how the models enter: the least of them, their average, a weighted average, or the last one alone.
        models: the models after each round, or the mean of the local models after every local step.
    """

    text: str
    measure: Measure
    taken: Literal["least", "average", "weighted average", "last"]
    models: Literal["rounds", "local steps"] = "rounds"


@dataclass(frozen=True)
class TermFacts:
    """What a term is, wherever it is drawn.

    Attributes:
        name: how it is called, in the bound and in legends.
        meaning: the same in a sentence.
        cause: what makes it: the start, the noise of the gradients, or the divergence of the workers.
        colour: the index of its colour on the pages, below ``COLOURS``.
    """

    name: str
    meaning: str
    cause: Cause
    colour: int


INITIAL_GAP = TermFacts("initial gap", "what is left of f(x0) - f* after R rounds", "start", 0)
INITIAL_DISTANCE = TermFacts("initial distance", "what is left of |x0 - x*|^2 after R rounds", "start", 0)
GRADIENT_NOISE = TermFacts("gradient noise", "the noise of the averaged stochastic gradients", "noise", 1)
NOISE_OF_MEAN = TermFacts("local noise of the mean", "the noise that moves the mean of the local models", "noise", 2)
NOISE_OF_WORKERS = TermFacts("local noise of workers", "the noise that drives the local models apart", "noise", 3)
LOCAL_DIVERGENCE = TermFacts(
    "local divergence", "the different gradients that drive the local models apart", "divergence", 4
)


@dataclass(frozen=True)
class Counterexample:
    """A federation of quadratics on which the printed theorem fails; the directed search starts from it.

    Attributes:
        hessians: of the workers; F_i = x'A_i x/2.
        start: the first model.
        settings: I, R, M, eta and the like, as ``fedgauge.falsify.problem.QuadraticProblem`` names them.
    """

    hessians: tuple[Any, ...]
    start: tuple[float, ...]
    settings: Mapping[str, float]
