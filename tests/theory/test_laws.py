"""Laws that every theorem obeys in every version, on values drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgauge.base.types import Floats
from fedgauge.theory import THEOREMS, evaluate
from fedgauge.values import Bound, Version

pytestmark = pytest.mark.filterwarnings("error")

ETA_IS_ONE = ("equal-hessians", "quadratic", "momentum")
BOUNDS_LOSS = ("strongly-convex", "strongly-convex-last")
CASES = 60
"""Cases that are evaluated at once, because drawing numbers one by one takes many times as long as evaluating them."""


class Cases:
    """Values whose constants can belong to one federation: mu <= L_g <= L_tilde, L_h <= L_tilde, M <= N."""

    def __init__(self, seed: int) -> None:
        self._draws = np.random.default_rng(seed)
        L_tilde, N = self.sizes(), self.whole(1, 64)
        L_g = L_tilde * self.between(0.01, 1)
        self.values: dict[str, Any] = {
            "F": self.sizes(), "I": self.whole(1, 40), "R": self.whole(1, 2000), "N": N, "M": self.whole(1, N),
            "sigma2": self.sizes(), "zeta2": self.sizes(), "L_tilde": L_tilde, "L_g": L_g,
            "L_h": L_tilde * self.between(0.01, 1), "mu": L_g * self.between(0.01, 1), "d0": self.sizes(),
            "gamma": self.sizes() / L_tilde, "eta": self.sizes(), "beta": self.between(0, 0.99),
            "kappa": self.between(0, 2), "tau": self.sizes(), "G": self.sizes(), "beta2": self.between(0, 0.999),
        }  # fmt: skip

    def between(self, low: float, high: float) -> Floats:
        """Numbers from an interval, one in ten of them on each of its borders."""
        inside, place = self._draws.uniform(low, high, CASES), self._draws.uniform(size=CASES)
        return np.where(place < 0.1, low, np.where(place > 0.9, high, inside))

    def sizes(self) -> Floats:
        """Numbers from 0.001 to 1,000, one in ten of them 1."""
        return np.where(self._draws.uniform(size=CASES) < 0.1, 1.0, 10 ** self.between(-3, 3))

    def whole(self, low: int, high: int | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Integers from an interval, one in ten of them the smallest."""
        return np.where(
            self._draws.uniform(size=CASES) < 0.1, low, self._draws.integers(low, high, CASES, endpoint=True)
        )

    def __repr__(self) -> str:
        return f"{CASES} cases"

    def all(self, holds: Any) -> bool:
        """Whether something holds in every case; otherwise the first case where it does not is named."""
        holds = np.broadcast_to(holds, CASES)
        if not holds.all():
            first = int(np.argmin(holds))
            pytest.fail(f"not at { {symbol: value[first].item() for symbol, value in self.values.items()} }")
        return True


def law(test: Callable[..., None]) -> Callable[..., None]:
    """A law is tried on a few hundred cases."""
    cases = st.integers(0, 2**32 - 1).map(Cases)
    decorated: Callable[..., None] = settings(deadline=None, max_examples=4)(given(cases=cases)(test))
    return decorated


def near(one: Any, other: Any, rel: float) -> Any:
    """Where two numbers are the same to a relative tolerance, or both infinite."""
    return np.isclose(one, other, rtol=rel, atol=0)


def at(name: str, version: Version, values: dict[str, Any], **changes: Any) -> Bound:
    values = {**values, **changes}
    if name == "equal-hessians" and "L_h" not in changes:
        values["L_h"] = 0.0
    if name in ETA_IS_ONE and "eta" not in changes:
        values["eta"] = 1.0
    return evaluate(name, version, **values)


def admissible(name: str, version: Version, values: dict[str, Any], **changes: Any) -> Bound:
    """Evaluate at the largest gamma, where there is one; A.9's rates are only meaningful there."""
    largest = np.asarray(at(name, version, values, **changes).gamma_max)
    return at(name, version, values, **changes, gamma=np.where(largest > 0, largest, values["gamma"]))


@law
def test_terms_are_finite_and_add_up(name: str, version: Version, cases: Cases) -> None:
    bound = at(name, version, cases.values)
    parts = [np.broadcast_to(term.value, CASES) for term in bound.terms]
    assert cases.all(np.min(parts, axis=0) >= 0)
    # Beyond its limit a star bound says nothing; the other formulas are shown, with the condition that fails.
    limits = [np.broadcast_to(condition.holds, CASES) for condition in bound.conditions if "gamma" in condition.name]
    held = np.all(limits, axis=0) if limits and version == "star" else True
    assert cases.all(np.isfinite(bound.total) == held)
    assert cases.all(near(bound.total, np.sum(parts, axis=0), 1e-13))


def test_a_bound_is_the_same_after_json(name: str, version: Version, table: dict[str, Any]) -> None:
    bound = at(name, version, table)
    assert Bound.from_json(bound.to_json()) == bound


@law
def test_grows_with_divergence_noise_and_heterogeneity(name: str, version: Version, cases: Cases) -> None:
    # This bound is the smaller of two, one of which may fall where the noise grows: by 6% at most in 400,000 random
    # cases. It holds all the same, because a bound for more noise is one for less.
    slack = 0.1 if (name, version) == ("strongly-convex-last", "star") else 1e-12
    before, factor = at(name, version, cases.values), cases.between(1, 100)
    for symbol in ("zeta2", "sigma2") if name == "equal-hessians" else ("zeta2", "sigma2", "L_h"):
        more = at(name, version, cases.values, **{symbol: cases.values[symbol] * factor})
        assert cases.all(more.total >= before.total * (1 - slack))
        assert cases.all(more.gamma_max <= before.gamma_max)


@law
def test_shrinks_with_rounds(name: str, version: Version, cases: Cases) -> None:
    if name == "strongly-convex-last" and version != "printed":
        return  # its noise builds up with the rounds: (1 - q^R) grows
    longer = at(name, version, cases.values, R=cases.values["R"] + cases.whole(1, 1000))
    assert cases.all(longer.total <= at(name, version, cases.values).total * (1 + 1e-12))


@law
def test_scaling_f_scales_the_bound(name: str, version: Version, cases: Cases) -> None:
    if (name, version) == ("fedadam", "printed"):
        return  # print has L_h where units ask for L_h^2
    values, c = cases.values, cases.sizes()
    up = {symbol: values[symbol] * c for symbol in ("F", "L_g", "L_h", "L_tilde", "mu", "G")}
    if name == "equal-hessians":
        up["L_h"] = 0.0
    up |= {symbol: values[symbol] * c**2 for symbol in ("sigma2", "zeta2")}
    before, after = at(name, version, values), at(name, version, values, **up, gamma=values["gamma"] / c)
    power = 1 if name in BOUNDS_LOSS else 2
    assert cases.all(near(after.total, before.total * c**power, 1e-6))
    assert cases.all(near(after.gamma_max, before.gamma_max / c, 1e-9))
    assert cases.all(near(after.gamma_eta_max, before.gamma_eta_max / c, 1e-9))


@law
def test_one_local_step_has_no_local_terms(name: str, version: Version, cases: Cases) -> None:
    evaluated = admissible if version == "star" else at
    bound = evaluated(name, version, cases.values, I=1)
    local = [term for term in bound.terms if "local" in term.name]
    without = [term for term in bound.terms if ("local" in term.name if version == "star" else "(I-1)" in term.formula)]
    for term in without:
        assert cases.all(np.equal(term.value, 0))
    if version not in ("printed", "star") and name in ("nonconvex", "partial", "fedadam", *BOUNDS_LOSS):
        assert len(without) == len(local) > 0


@law
def test_without_heterogeneity_divergence_does_not_matter(name: str, version: Version, cases: Cases) -> None:
    if version == "prior":
        return  # it has no L_h
    one = at(name, version, cases.values, L_h=0.0)
    other = at(name, version, cases.values, L_h=0.0, zeta2=cases.values["zeta2"] * cases.between(1.5, 100))
    if not name.startswith("partial"):
        assert cases.all(one.total == other.total)
        return
    differ = {
        before.name: np.not_equal(before.value, after.value)
        for before, after in zip(one.terms, other.terms, strict=True)
    }
    sensible = np.logical_and(one.total > 0, np.isfinite(one.total)) if version == "star" else True
    # In norms, divergence and noise meet: products of the two are shared between their terms.
    assert cases.all(differ["sampling divergence"] | (one.total == other.total) | np.logical_not(sensible))
    others = ["local divergence"] if version == "star" else [term for term in differ if term != "sampling divergence"]
    for term in others:
        assert cases.all(np.logical_not(differ[term] & sensible))


@law
def test_prior_is_the_corrected_bound_with_local_smoothness_and_never_below_it(
    name: str, version: Version, cases: Cases
) -> None:
    if version != "prior":
        return
    values = cases.values
    prior, L_tilde = at(name, "prior", values), values["L_tilde"]
    in_place = {"L_g": L_tilde, "L_h": 0.0 if name == "equal-hessians" else L_tilde, "L_h_rms": 2 * L_tilde}
    replaced = at(name, "corrected", values, **in_place)
    tight = at(name, "corrected", values, L_h_rms=values["L_h"])
    assert cases.all((prior.total == replaced.total) & (prior.gamma_max == replaced.gamma_max))
    assert cases.all(prior.total >= tight.total)
    assert cases.all(prior.gamma_max <= tight.gamma_max)


@law
def test_largest_gamma_is_admissible_and_a_larger_one_is_not(name: str, version: Version, cases: Cases) -> None:
    values, bound = cases.values, at(name, version, cases.values)
    largest = np.broadcast_to(bound.gamma_max, CASES)
    exists = largest > 0
    if (name, version) == ("quadratic", "printed"):
        assert cases.all(exists | (values["kappa"] <= 1))
    else:
        assert cases.all(exists)
    gamma = np.where(exists, largest, values["gamma"])
    assert cases.all(at(name, version, values, gamma=gamma).admissible | ~exists)
    assert cases.all(~np.asarray(at(name, version, values, gamma=1.0001 * gamma).admissible) | ~exists)
    assert name in ETA_IS_ONE or cases.all(largest * values["eta"] <= bound.gamma_eta_max)


@law
def test_arrays_give_what_a_loop_gives(name: str, version: Version, cases: Cases) -> None:
    whole = at(name, version, cases.values)
    for index in range(5):
        one = at(name, version, {symbol: value[index].item() for symbol, value in cases.values.items()})
        assert np.broadcast_to(whole.admissible, CASES)[index] == one.admissible
        for attribute in ("total", "gamma_max", "gamma_eta_max"):
            many = np.broadcast_to(getattr(whole, attribute), CASES)
            assert many[index] == pytest.approx(getattr(one, attribute), rel=1e-14)


@law
def test_star_is_never_worse(name: str, version: Version, cases: Cases) -> None:
    if version != "star" or not THEOREMS[name].star_is_default:
        return
    for older in ("corrected", "sharp"):
        if older not in THEOREMS[name].versions:
            continue
        plain = admissible(name, older, cases.values)
        assert cases.all(at(name, "star", cases.values).gamma_max >= plain.gamma_max)
        at_same = at(name, "star", cases.values, gamma=plain.gamma_max)
        assert cases.all(at_same.total <= plain.total * (1 + 1e-12))


@law
def test_sharp_is_never_worse(name: str, version: Version, cases: Cases) -> None:
    if version != "sharp":
        return
    plain, sharp = admissible(name, "corrected", cases.values), admissible(name, "sharp", cases.values)
    assert cases.all(sharp.gamma_max >= plain.gamma_max)
    at_same = at(name, "sharp", cases.values, gamma=plain.gamma_max)
    assert cases.all(at_same.total <= plain.total * (1 + 1e-12))


def test_every_theorem_needs_what_it_uses(name: str, version: Version, table: dict[str, Any]) -> None:
    theorem = THEOREMS[name]
    bound = at(name, version, table)
    used = {symbol for term in bound.terms for symbol in term.symbols} - {"phi", "varphi"}
    assert used <= set(theorem.needed(version)) | set(theorem.optional)
    assert (bound.source.locator, bound.source.version) == (theorem.locator, version)
    assert bound.source.deviations or version == "printed"
