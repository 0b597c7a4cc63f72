"""One theorem against one problem: the bound on one side, what really happens on the other.

A theorem is tried in one or more forms:

    stated       the quantity of the theorem, with F = f(x0) - f*; only where f has a least value
    telescoped   the average in place of the least, and f(x0) - E f(end) in place of F, which is what the proof shows:
                 stronger, and it holds for f without a least value too
    weighted     the weighted average, where only the printed version speaks of the last model
    piecewise    telescoped, on objectives that are no quadratics; see :mod:`fedgauge_verification.piecewise`

A violation is counted where the exact side exceeds the bound by more than rounding can explain. The bound itself is
never loosened: what is allowed is 1e-12 of the sum of the absolute values of all that is added or subtracted on both
sides. Each of those numbers comes from at most a few thousand operations with a relative error of 1e-16 each, and the
largest excess measured is 2e-16 of that sum, or 2e-16 eta where the global rate eta is large: then every round
subtracts models that differ by little and multiplies the difference, rounding included, by eta. Without an allowance a
last bit would refute Theorem 5.5, which is an equality at gamma = 1/L_g.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauge.base.errors import InputError
from fedgauge.theory import Theorem
from fedgauge.values import Bound, Version
from fedgauge_verification.exact import Measured, measure, measure_adam
from fedgauge_verification.problem import QuadraticProblem, is_simulated

FORMS = ("stated", "weighted", "telescoped", "piecewise")
ROUNDING = 1e-12
_PASSES = 12
"""How many times gamma and G are fitted to each other before a problem is skipped."""

_BELOW_INFINITY = 0.99
"""At its largest gamma a star bound is infinite, and just below it the rounding of a descent is divided by almost 0."""

Values = dict[str, Any]


@dataclass(frozen=True)
class BoundCheck:
    """Both sides of a theorem at one problem.

    Attributes:
        form: which form of the theorem.
        exact: what is bounded.
        low: the lower end of its interval; the same where it is exact.
        bound: the right-hand side.
        allowance: how far rounding can reach.
        values: what the bound was evaluated with.
        floor: what rounding can make of an exact side of 0.

    >>> BoundCheck("stated", exact=2.0, low=2.0, bound=1.0, allowance=1e-11, values={}).violated
    True
    """

    form: str
    exact: float
    low: float
    bound: float
    allowance: float
    values: Mapping[str, float]
    floor: float = 0.0

    @property
    def violated(self) -> bool:
        """Whether the exact side is above the bound by more than rounding and chance explain."""
        if self.bound == np.inf:
            return False  # nothing is above it: f falls so far in the run that F overflows
        return not self.low - self.bound <= self.allowance  # a run that ended in NaN counts as a violation

    @property
    def slack(self) -> float:
        """bound/exact: below 1 where the bound is violated; infinite where there is nothing to bound."""
        if self.bound == np.inf:
            return np.inf
        if not np.isfinite(self.exact):
            return 0.0
        return self.bound / self.exact if self.exact > self.floor else np.inf


def constants(problem: QuadraticProblem, theorem: Theorem, version: Version) -> Values:
    """The values that do not depend on the run, each the smallest that the theorem admits (for mu: the largest)."""
    federation = problem.federation
    known = {symbol: estimate.value for symbol, estimate in federation.constants().items()}
    values = {name: known[name] for name in ("L_g", "L_h", "L_tilde", "kappa")}
    values |= {"I": problem.I, "R": problem.R, "N": federation.num_workers, "M": problem.M, "eta": problem.eta}
    values |= {"sigma2": federation.sigma2, "beta": problem.beta, "tau": problem.tau, "beta2": problem.beta2}
    if "L_h_rms" in theorem.optional:
        off = np.linalg.eigvalsh(federation.hessians - federation.mean_hessian)
        values["L_h_rms"] = float(np.sqrt(np.mean(np.abs(off).max(axis=1) ** 2)))
    values |= {symbol: known[other] for symbol, other in theorem.constants_from.get(version, {}).items()}
    x_star, f_star = federation.minimiser()
    if x_star is not None and known["mu"] > 0:
        values |= {"mu": known["mu"], "d0": float(x_star @ x_star), "F": max(-f_star, 0.0)}  # x0 = 0 and f(x0) = 0
    return values


def largest_admissible(theorem: Theorem, version: Version, values: Values, G: float = 0.0) -> float:
    """Return the largest gamma that a version admits, or for star a little less."""
    trial = {"F": 1.0, "zeta2": 0.0, "G": G, **values}
    largest = float(theorem.evaluate(version, gamma=1.0, **trial).gamma_max)
    return _BELOW_INFINITY * largest if version == "star" else largest


def _run(
    theorem: Theorem, version: Version, problem: QuadraticProblem, values: Values
) -> tuple[float, Measured] | None:
    """Choose gamma and run; ``None`` where no gamma is admissible."""
    if not is_simulated(theorem):
        gamma = problem.share * largest_admissible(theorem, version, values)
        return (gamma, measure(problem, theorem, gamma)) if 0 < gamma < np.inf else None
    # The largest gamma depends on the gradients met, and they depend on gamma.
    G = float(np.abs(problem.federation.linear).max())
    for _ in range(_PASSES):
        gamma = problem.share * largest_admissible(theorem, version, values, G)
        if not 0 < gamma < np.inf:
            return None
        found = measure_adam(problem, gamma)
        if found.G <= G:
            return gamma, found
        G = 1.001 * found.G
    return None


def contraction_factor(theorem: Theorem, version: Version, values: Mapping[str, Any]) -> float:
    """The q by which a round shrinks what is left, as the theorem's own file gives it."""
    assert theorem.contraction is not None, f"{theorem.name} declares no contraction"
    return 1 - float(theorem.contraction(version, dict(values)))


def _weighted(theorem: Theorem, version: Version, values: Values, found: Measured) -> float:
    """The average of the excess over the rounds with weights q^-(r+1)."""
    q = contraction_factor(theorem, version, values)
    weights = q ** -np.arange(len(found.excess) - 1.0)
    return float(weights @ found.excess[:-1] / weights.sum())


def _losses(theorem: Theorem, version: Version, values: Values, found: Measured) -> dict[str, float]:
    """What a theorem about f - f* bounds, by form."""
    taken, corrected = (theorem.quantity_of(one).taken for one in (version, "corrected"))
    excess = found.excess
    if taken == "weighted average":
        return {"stated": _weighted(theorem, version, values, found)}
    sides = {"last": excess[-1], "least": excess[:-1].min(), "average": excess[:-1].mean()}
    stated = {"stated": float(sides[taken])}
    if corrected == "weighted average":
        stated["weighted"] = _weighted(theorem, version, values, found)
    return stated


def _gradients(theorem: Theorem, version: Version, found: Measured) -> tuple[float, float]:
    """What a theorem about |grad f|^2 bounds, and the lower end of its interval."""
    taken = theorem.quantity_of(version).taken
    if taken == "average":
        exact, low = float(found.step_grad2.mean()), float(found.low_grad2.mean())
    elif taken == "least":
        exact, low = float(found.step_grad2.min()), float(found.low_grad2.min())
    else:
        raise InputError(f"{theorem.name} bounds the {taken} of |grad f|^2, which falsify does not compute.")
    return exact, low if is_simulated(theorem) else exact


def _rounding(values: Mapping[str, float]) -> float:
    """How far rounding can reach, relatively: a global step enlarges the rounding of the models' difference by eta."""
    return ROUNDING + 64 * 2.0**-53 * values.get("eta", 1.0)


def _loss_rounding(values: Mapping[str, float], exact: float) -> float:
    """How far rounding can reach in f - f* near x*: a model is known to a few units of its size, |x*|, times eta.

    f - f* is at most L_g/2 times the square of the distance from x*, so that this matters where a run has come so near
    that the distance itself is rounding.
    """
    off = 64 * 2.0**-53 * (1 + values.get("eta", 1.0)) * np.sqrt(values.get("L_g", 0.0) * values.get("d0", 0.0) / 2)
    return float(off * (2 * np.sqrt(max(exact, 0.0)) + off))


def _made(form: str, bound: Bound, exact: float, low: float, values: Values) -> BoundCheck:
    """Put a check of f - f* together."""
    total = float(bound.total)
    allowance = _rounding(values) * (abs(exact) + total) + _loss_rounding(values, exact)
    return BoundCheck(form, exact, low, total, allowance, values, _loss_rounding(values, 0.0))


def total_with_gap(theorem: Theorem, version: Version, values: Values) -> Callable[[float], float]:
    """Return the bound as a function of F, which may be below 0 where a run ends higher than it started.

    >>> from fedgauge.theory import find
    >>> values = dict(I=1, R=2, N=1, sigma2=0, L_g=0, gamma=1)
    >>> total_with_gap(find("minibatch"), "corrected", values)(-3.0)
    -3.0
    """
    v = theorem.prepare(version, {**values, "F": 1.0})

    def total(F: float) -> float:
        with np.errstate(invalid="ignore"):  # a root of a negative number is a violation, and counted as one
            return float(sum(term.value for term in theorem.statement(version, {**v, "F": np.asarray(F)}).terms))

    return total


def _with_gap(
    theorem: Theorem, version: Version, values: Values, form: str, sides: tuple[float, float], gap: tuple[float, float]
) -> BoundCheck:
    """Put a check together with a gap that may be negative, which no user may give: so the checks are passed by.

    Args:
        theorem: what is tried.
        version: of the theorem.
        values: every other value.
        form: which form of the theorem.
        sides: what is bounded, and the lower end of its interval.
        gap: F, and the sum of the absolute values that it adds up, by which its rounding is measured.
    """
    total = total_with_gap(theorem, version, values)
    allowance = _rounding(values) * (abs(sides[0]) + total(gap[1]))
    return BoundCheck(form, *sides, total(gap[0]), allowance, {**values, "F": gap[0]})


def check(theorem: Theorem, version: Version, problem: QuadraticProblem) -> tuple[BoundCheck, ...]:
    """Compare a theorem with a problem in every form that applies; none applies where no gamma is admissible."""
    known = constants(problem, theorem, version)
    if any(symbol in theorem.needs and symbol not in known for symbol in ("mu", "d0")):
        return ()
    run = _run(theorem, version, problem, known)
    if run is None:
        return ()
    gamma, found = run
    values = {**known, "gamma": gamma, "zeta2": found.zeta2, "G": found.G}
    names = (*theorem.needed(version), *theorem.optional)
    values = {name: float(value) for name, value in values.items() if name in names}
    if theorem.quantity_of(version).measure == "loss":
        if not found.excess.size or ("F" in names and "F" not in known):
            return ()
        bound = theorem.evaluate(version, **values)
        sides = _losses(theorem, version, values, found)
        return tuple(_made(form, bound, side, side, values) for form, side in sides.items())
    exact, low = _gradients(theorem, version, found)
    if "F" not in names:
        return (_made("stated", theorem.evaluate(version, **values), exact, low, values),)
    checks = []
    if "F" in known:
        checks.append(_with_gap(theorem, version, values, "stated", (exact, low), (known["F"], known["F"])))
    if not is_simulated(theorem):
        average, gap = float(found.step_grad2.mean()), (found.descent, found.descent_size)
        checks.append(_with_gap(theorem, version, values, "telescoped", (average, average), gap))
    return tuple(checks)
