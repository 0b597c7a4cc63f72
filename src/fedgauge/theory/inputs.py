"""Checks of the values for a theorem: each mistake gets one sentence that says what to do.

The names are those of :mod:`fedgauge.base.symbols`; a value is a number or an array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from fedgauge.base.errors import InputError, nearest
from fedgauge.base.types import Floats
from fedgauge.values import Constants, Estimate, Kind

Values = dict[str, Floats]

COUNTS = ("I", "R", "N", "M")
POSITIVE = ("gamma", "eta", "tau", "mu")
NOT_NEGATIVE = ("F", "sigma2", "zeta2", "L_g", "L_h", "L_tilde", "L_h_rms", "G", "d0")
FRACTIONS = ("beta", "beta1", "beta2")
ACCEPTED = (*COUNTS, *POSITIVE, *NOT_NEGATIVE, *FRACTIONS, "kappa")
# f may be unbounded below and the divergence unbounded above: the bound is then infinite, which is true.
MAY_BE_INFINITE = ("F", "zeta2")


def _shown(value: Any) -> str:
    bad = np.asarray(value)
    return repr(value) if bad.ndim == 0 else f"an array with {bad.ravel()[0].item()!r}"


def rule(name: str, value: Floats) -> tuple[str, npt.NDArray[np.bool_]]:
    """Return in words what a symbol's value must be, and where the values meet that."""
    finite = np.isfinite(value) | (np.isposinf(value) & (name in MAY_BE_INFINITE))
    if name == "N":  # which need not be whole where workers have weights
        return "a finite number of at least 1", finite & (value >= 1)
    if name in COUNTS:
        return "a whole number of at least 1", finite & (value >= 1) & (value == np.floor(value))
    if name in POSITIVE:
        return "a finite number above 0", finite & (value > 0)
    if name in FRACTIONS:
        return "at least 0 and below 1", (value >= 0) & (value < 1)
    if name == "kappa":  # eigenvalues carry rounding
        return "between 0 and 2, as 1 - eigenvalue/norm always is", (value >= -1e-9) & (value <= 2 + 1e-9)
    return "a finite number of at least 0", finite & (value >= 0)


def _check(name: str, value: Any) -> Floats:
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise InputError(f"{name} must be a number or an array of numbers, not {value!r}.")
    array = array.astype(float)
    allowed, ok = rule(name, array)
    if not np.all(ok):
        raise InputError(f"{name} must be {allowed}, not {_shown(array[~ok] if array.ndim else value)}.")
    return array


def check_values(values: Mapping[str, Any]) -> Values:
    """Return the values as arrays, or say in one sentence what is wrong with one.

    >>> check_values({"L_hh": 1.0})
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: The theorems have no symbol L_hh; did you mean L_h?
    """
    for name in values:
        if name not in ACCEPTED:
            raise InputError(f"The theorems have no symbol {name}; {nearest(name, ACCEPTED)}")
    checked = {name: _check(name, value) for name, value in values.items()}
    try:
        np.broadcast_shapes(*(array.shape for array in checked.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in checked.items() if array.ndim)
        raise InputError(f"The arrays must broadcast to one shape, not {shapes}; reshape them.") from None
    # An N that is not whole comes from weights, for which no theorem draws workers: M is then ignored.
    if {"M", "N"} <= {*checked} and np.any((checked["M"] > checked["N"]) & (checked["N"] == np.floor(checked["N"]))):
        raise InputError(
            f"M must be at most N, not M = {_shown(values['M'])} of N = {_shown(values['N'])}; sample fewer workers."
        )
    return checked


def check_kinds(kinds: Mapping[str, Kind], used: Values) -> dict[str, Kind]:
    """Return the kinds of the constants in use, or say which name or kind is wrong."""
    for name, kind in kinds.items():
        if name not in ACCEPTED:
            raise InputError(f"kinds has the unknown symbol {name}; {nearest(name, ACCEPTED)}")
        if kind not in get_args(Kind):
            raise InputError(f"The kind of {name} must be one of {', '.join(get_args(Kind))}, not {kind!r}.")
    # A constant that this theorem does not use does not affect its bound.
    return {name: kind for name, kind in kinds.items() if name in used}


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
        settings: I, R, M, eta and the like, as ``fedgauge_verification.problem.QuadraticProblem`` names them.
    """

    hessians: tuple[Any, ...]
    start: tuple[float, ...]
    settings: Mapping[str, float]


# -- from measured constants -------------------------------------------------------------------------------------------


End = Literal["value", "best", "worst"]
# For each symbol, the constants that can supply it, and the power to which each is raised. The proofs use the mean of
# zeta over workers.
_STANDS: dict[str, tuple[tuple[str, int], ...]] = {
    "sigma2": (("sigma2", 1), ("sigma", 2)),
    "zeta2": (("zeta2", 1), ("zeta", 2), ("zeta_rms", 2)),
    "L_h_rms": (("L_h_rms", 1), ("L_h_paper", 1)),
}


class SymbolValue(NamedTuple):
    """The value of a theorem's symbol: an estimate, and the power to which it is raised."""

    estimate: Estimate
    power: int

    def at(self, end: End) -> float:
        """The value, or the end of its interval at which a bound is smaller (best) or larger (worst)."""
        if end == "value":
            return float(self.estimate.value) ** self.power
        # A bound grows with every constant except mu.
        low = (end == "best") != (self.estimate.symbol == "mu")
        return float(self.estimate.low if low else self.estimate.high) ** self.power


def look_up(constants: Constants, symbol: str) -> SymbolValue | None:
    """Find the constant that supplies a theorem's symbol; None if there is none.

    >>> look_up(Constants((Estimate("sigma", 2.0, 1.0, 3.0, "sample", "batches"),)), "sigma2").at("worst")
    9.0
    """
    for name, power in _STANDS.get(symbol, ((symbol, 1),)):
        estimate = constants.get(name)
        if estimate is not None:
            return SymbolValue(estimate, power)
    return None
