"""One theorem against one problem: the bound on one side, what really happens on the other.

A theorem is tried in one or more forms:

    stated       the quantity of the theorem, with F = f(x0) - f*; only where f has a least value
    telescoped   the average in place of the least, and f(x0) - E f(end) in place of F, which is what the proof shows:
                 stronger, and it holds for f without a least value too
    shared       telescoped, where a worker that is drawn twice runs once, with what the theorem adds for that
    weighted     the weighted average, where only the printed version speaks of the last model

A violation is counted where the exact side exceeds the bound by more than rounding can explain. The bound itself is
never loosened: what is allowed is 1e-12 of the sum of the absolute values of all that is added or subtracted on both
sides. Each of those numbers comes from at most a few thousand operations with a relative error of 1e-16 each, and the
largest excess measured is 2e-16 of that sum. Without an allowance a last bit would refute Theorem 5.5, which is an
equality at gamma = 1/L_g.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauge.errors import InputError
from fedgauge.falsify.exact import Measured, measure, measure_adam
from fedgauge.falsify.problem import QuadraticProblem, is_simulated
from fedgauge.theory import Theorem
from fedgauge.theory.facts import Coverage
from fedgauge.values import Bound, Version

FORMS = ("stated", "weighted", "telescoped", "shared")
ROUNDING = 1e-12
_PASSES = 12
"""How many times gamma and G are fitted to each other before a problem is skipped."""

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

    >>> BoundCheck("stated", exact=2.0, low=2.0, bound=1.0, allowance=1e-11, values={}).violated
    True
    """

    form: str
    exact: float
    low: float
    bound: float
    allowance: float
    values: Mapping[str, float]

    @property
    def violated(self) -> bool:
        """Whether the exact side is above the bound by more than rounding and chance explain."""
        return not self.low - self.bound <= self.allowance  # a run that ended in NaN counts as a violation

    @property
    def slack(self) -> float:
        """bound/exact: below 1 where the bound is violated; infinite where there is nothing to bound."""
        if not np.isfinite(self.exact):
            return 0.0
        return self.bound / self.exact if self.exact > 0 else np.inf


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


def _largest_gamma(theorem: Theorem, version: Version, values: Values, G: float = 0.0) -> float:
    trial = {"F": 1.0, "zeta2": 0.0, "G": G, **values}
    return float(theorem.evaluate(version, gamma=1.0, **trial).gamma_max)


def _run(
    theorem: Theorem, version: Version, problem: QuadraticProblem, values: Values
) -> tuple[float, Measured] | None:
    """Choose gamma and run; ``None`` where no gamma is admissible."""
    if not is_simulated(theorem):
        gamma = problem.share * _largest_gamma(theorem, version, values)
        return (gamma, measure(problem, theorem, gamma)) if 0 < gamma < np.inf else None
    # The largest gamma depends on the gradients met, and they depend on gamma.
    G = float(np.abs(problem.federation.linear).max())
    for _ in range(_PASSES):
        gamma = problem.share * _largest_gamma(theorem, version, values, G)
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


def _made(
    form: str, bound: Bound, exact: float, low: float, values: Values, F: float | None, size: float
) -> BoundCheck:
    """Put a check together; with an F, the bound was evaluated at F = 1, where the terms with F are its factor."""
    total, added = float(bound.total), float(bound.total)
    if F is not None:
        factor = float(sum(term.value for term in bound.terms if "F" in term.symbols))
        rest = float(sum(term.value for term in bound.terms if "F" not in term.symbols))
        total, added, values = factor * F + rest, factor * size + rest, {**values, "F": F}
    return BoundCheck(form, exact, low, total, ROUNDING * (abs(exact) + added), values)


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
        return tuple(_made(form, bound, side, side, values, None, 0.0) for form, side in sides.items())
    exact, low = _gradients(theorem, version, found)
    if "F" not in names:
        return (_made("stated", theorem.evaluate(version, **values), exact, low, values, None, 0.0),)
    bound = theorem.evaluate(version, **{**values, "F": 1.0})
    checks = []
    if "F" in known:
        checks.append(_made("stated", bound, exact, low, values, known["F"], known["F"]))
    if not is_simulated(theorem):
        average = float(found.step_grad2.mean())
        checks.append(_made("telescoped", bound, average, average, values, found.descent, found.descent_size))
    shared = theorem.coverage("with-replacement-shared")
    if shared is not None and version in shared.versions:
        checks.append(_shared(theorem, version, problem, values, shared))
    return tuple(checks)


def _shared(
    theorem: Theorem, version: Version, problem: QuadraticProblem, values: Values, covered: Coverage
) -> BoundCheck:
    found = measure(problem, theorem, values["gamma"], sampling=covered.sampling)
    values = {**values, "zeta2": found.zeta2}
    bound = theorem.evaluate(version, **{**values, "F": 1.0})
    more = covered.extra(values) if covered.extra else 0.0
    average = float(found.step_grad2.mean())
    made = _made("shared", bound, average, average, values, found.descent, found.descent_size)
    return BoundCheck("shared", average, average, made.bound + more, made.allowance, made.values)
