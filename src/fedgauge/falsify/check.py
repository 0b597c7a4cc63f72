"""One theorem against one problem: the bound on one side, what really happens on the other.

A theorem is tried in one or more forms:

    stated       the quantity of the theorem, with F = f(x0) - f*; only where f has a least value
    telescoped   the average in place of the least, and f(x0) - E f(end) in place of F, which is what the proof shows:
                 stronger, and it holds for f without a least value too
    shared       ``partial`` where a worker drawn twice runs once, telescoped, with 8 (M-1)/N more of gradient noise
    weighted     ``strongly-convex`` as printed, which speaks of the last model, for the weighted average

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

from fedgauge.falsify.exact import Measured, measure, measure_adam
from fedgauge.falsify.problem import Problem, Setting
from fedgauge.theory import Theorem
from fedgauge.values import Bound, Version

FORMS = ("stated", "weighted", "telescoped", "shared")
ROUNDING = 1e-12
_PASSES = 12
"""How often gamma and G are fitted to each other before a problem is given up."""

Values = dict[str, Any]


@dataclass(frozen=True)
class Check:
    """Both sides of a theorem at one problem.

    Attributes:
        form: which form of the theorem.
        exact: what is bounded.
        low: the lower end of its interval; the same where it is exact.
        bound: the right-hand side.
        allowance: how far rounding can reach.
        values: what the bound was evaluated with.

    >>> Check("stated", exact=2.0, low=2.0, bound=1.0, allowance=1e-11, values={}).violated
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
        return not self.low - self.bound <= self.allowance  # a run that is no longer a number is no excuse

    @property
    def slack(self) -> float:
        """bound/exact: below 1 where the bound is violated; infinite where there is nothing to bound."""
        if not np.isfinite(self.exact):
            return 0.0
        return self.bound / self.exact if self.exact > 0 else np.inf


def constants(problem: Problem, theorem: str, version: Version) -> Values:
    """The values that do not depend on the run, each the smallest that the theorem admits (for mu: the largest)."""
    federation = problem.federation
    known = {symbol: estimate.value for symbol, estimate in federation.constants().items()}
    values = {name: known[name] for name in ("L_g", "L_h", "L_tilde", "kappa")}
    values |= {"I": problem.I, "R": problem.R, "N": federation.num_workers, "M": problem.M, "eta": problem.eta}
    values |= {"sigma2": federation.sigma2, "beta": problem.beta, "tau": problem.tau, "beta2": problem.beta2}
    if theorem == "quadratic":
        off = np.linalg.eigvalsh(federation.hessians - federation.mean_hessian)
        values["L_h_rms"] = float(np.sqrt(np.mean(np.abs(off).max(axis=1) ** 2)))
        if version == "printed":
            values["L_h"] = known["L_h_paper"]
    x_star, f_star = federation.minimiser()
    if x_star is not None and known["mu"] > 0:
        values |= {"mu": known["mu"], "d0": float(x_star @ x_star), "F": max(-f_star, 0.0)}  # x0 = 0 and f(x0) = 0
    return values


def _largest_gamma(theorem: Theorem, version: Version, values: Values, G: float = 0.0) -> float:
    trial = {"F": 1.0, "zeta2": 0.0, "G": G, **values}
    return float(theorem.evaluate(version, gamma=1.0, **trial).gamma_max)


def _run(
    theorem: Theorem, version: Version, problem: Problem, setting: Setting, values: Values
) -> tuple[float, Measured] | None:
    """Choose gamma and run; ``None`` where no gamma is admissible."""
    if setting.algorithm != "fedadam":
        gamma = problem.share * _largest_gamma(theorem, version, values)
        steps = theorem.name in ("equal-hessians", "quadratic", "momentum")
        return (gamma, measure(problem, setting, gamma, steps=steps)) if 0 < gamma < np.inf else None
    # The largest gamma depends on the gradients met, and they on gamma.
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


def _weighted(excess: Any, q: float) -> float:
    weights = q ** -np.arange(len(excess) - 1.0)
    return float(weights @ excess[:-1] / weights.sum())


def _strongly_convex(theorem: Theorem, version: Version, values: Values, found: Measured) -> dict[str, float]:
    last = float(found.excess[-1])
    if theorem.name == "strongly-convex-last":
        return {"stated": last}
    part = 2 if version == "sharp" else 4
    weighted = _weighted(found.excess, 1 - values["mu"] * values["gamma"] * values["eta"] * values["I"] / part)
    return {"stated": last, "weighted": weighted} if version == "printed" else {"stated": weighted}


def _made(form: str, bound: Bound, exact: float, low: float, values: Values, F: float | None, size: float) -> Check:
    """Put a check together; the bound was evaluated at F = 1, where its first term is the factor of F."""
    total, added = float(bound.total), float(bound.total)
    if F is not None:
        factor = float(bound.terms[0].value)
        rest = float(sum(term.value for term in bound.terms[1:]))
        total, added, values = factor * F + rest, factor * size + rest, {**values, "F": F}
    return Check(form, exact, low, total, ROUNDING * (abs(exact) + added), values)


def check(theorem: Theorem, version: Version, problem: Problem, setting: Setting) -> tuple[Check, ...]:
    """Hold a theorem against a problem, in every form that applies; none where it admits no gamma or no such f."""
    known = constants(problem, theorem.name, version)
    if "mu" in theorem.needs and "mu" not in known:
        return ()
    run = _run(theorem, version, problem, setting, known)
    if run is None:
        return ()
    gamma, found = run
    values = {**known, "gamma": gamma, "zeta2": found.zeta2}
    if setting.algorithm == "fedadam":
        values["G"] = found.G
    names = (*theorem.needed(version), *theorem.optional)
    values = {name: float(value) for name, value in values.items() if name in names}
    if "F" not in names:
        bound = theorem.evaluate(version, **values)
        sides = _strongly_convex(theorem, version, values, found)
        return tuple(_made(form, bound, side, side, values, None, 0.0) for form, side in sides.items())
    bound = theorem.evaluate(version, **{**values, "F": 1.0})
    checks = []
    average = float(found.step_grad2.mean())
    if "F" in known:
        exact, low = float(found.step_grad2.min()), float(found.low_grad2.min())
        if theorem.name == "momentum":
            exact = average
        if setting.algorithm != "fedadam":
            low = exact
        checks.append(_made("stated", bound, exact, low, values, known["F"], known["F"]))
    if setting.algorithm != "fedadam":
        checks.append(_made("telescoped", bound, average, average, values, found.descent, found.descent_size))
    if theorem.name == "partial" and version in ("corrected", "sharp"):
        checks.append(_shared(theorem, version, problem, setting, values))
    return tuple(checks)


def _shared(theorem: Theorem, version: Version, problem: Problem, setting: Setting, values: Values) -> Check:
    found = measure(problem, setting, values["gamma"], steps=False, sampling="with-replacement-shared")
    values = {**values, "zeta2": found.zeta2}
    bound = theorem.evaluate(version, **{**values, "F": 1.0})
    v = values
    more = 8 * (v["M"] - 1) / v["N"] * v["gamma"] * v["eta"] * v["L_g"] * v["sigma2"] / v["M"]
    average = float(found.round_grad2.mean())
    made = _made("shared", bound, average, average, values, found.descent, found.descent_size)
    return Check("shared", average, average, made.bound + more, made.allowance, made.values)
