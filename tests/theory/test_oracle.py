"""The formulas against the second evaluation in 350 digits, and the constants against docs/theory/table.md."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.theory.oracle import ORACLE, Real, mpf

from fedgauge.theory import THEOREMS, evaluate
from fedgauge.values import Bound, Version

GAP, NOISE, MEAN = "initial gap", "gradient noise", "local noise of the mean"
WORKERS, DIVERGENCE = "local noise of workers", "local divergence"

# What each term of the oracle, in its order, is called by the package.
NAMES: dict[str, tuple[str, ...]] = {
    "nonconvex": (GAP, NOISE, MEAN, WORKERS, DIVERGENCE),
    "partial": (GAP, NOISE, "sampling divergence", MEAN, DIVERGENCE, WORKERS),
    "partial-shared": (GAP, NOISE, "sampling divergence", MEAN, DIVERGENCE, WORKERS),
    "partial-without": (GAP, NOISE, "sampling divergence", MEAN, DIVERGENCE, WORKERS),
    "equal-hessians": (GAP, NOISE),
    "minibatch": (GAP, NOISE),
    "quadratic": (GAP, NOISE, DIVERGENCE, WORKERS),
    "momentum": (GAP, NOISE, WORKERS, DIVERGENCE),
    "fedadam": (
        *(GAP, MEAN, DIVERGENCE, WORKERS),
        *(f"second moment, {name}" for name in (NOISE, DIVERGENCE, WORKERS)),
    ),
    "strongly-convex": ("initial distance", NOISE, MEAN, DIVERGENCE, WORKERS),
    "strongly-convex-last": ("initial distance", NOISE, MEAN, DIVERGENCE, WORKERS),
}

# Conditions that only the package has: what the algorithm or a definition implies, checked on the numbers given.
IMPLIED: dict[str, set[str]] = {
    "equal-hessians": {"L_h"},  # one Hessian
    "quadratic": {"|eta - 1|", "L_g"},  # local SGD; L_g <= L_tilde
    "momentum": {"|eta - 1|"},  # Algorithm 1 has no global rate
    "strongly-convex": {"mu"},  # mu <= L_g
    "strongly-convex-last": {"mu"},
}
BOUNDS_LOSS = ("strongly-convex", "strongly-convex-last")
EQUALITIES = {"eta = 1": "|eta - 1|", "beta1 = 0": "beta1"}

sizes = st.floats(-5, 5).map(lambda power: 10.0**power)
sizes_or_none = st.just(0.0) | sizes
fractions = st.sampled_from([0.0, 0.5, 0.9, 0.99]) | st.floats(0, 0.999)
about_one = st.floats(-16, 0).map(lambda power: 10.0**power)
kappas = st.one_of(
    st.sampled_from([0.0, 1.0, 2.0]),
    st.floats(0, 2),
    about_one.map(lambda distance: 1 + distance),
    about_one.map(lambda distance: 1 - distance),
)


@st.composite
def points(draw: st.DrawFn) -> dict[str, Any]:
    """A value for every symbol: mu <= L_g <= L_tilde, M <= N and a rate for which q is above 0; the rest is free."""
    L_g, I, N = draw(sizes), draw(st.integers(1, 40)), draw(st.integers(1, 1000))  # noqa: E741
    eta = draw(st.just(1.0) | sizes)
    values = {
        "L_g": L_g, "I": I, "N": N, "eta": eta,
        "M": draw(st.integers(1, N)),
        "R": draw(st.integers(1, 100) | st.integers(1, 10**12)),
        "L_tilde": L_g * 10 ** draw(st.floats(0, 2)),
        "mu": L_g * 10 ** draw(st.floats(-6, 0)),
        "gamma": 10 ** draw(st.floats(-8, 0)) / (I * L_g * max(eta, 1.0)),
        "kappa": draw(kappas),
    }  # fmt: skip
    values |= {name: draw(sizes_or_none) for name in ("L_h", "sigma2", "zeta2", "F", "G", "d0")}
    values |= {name: draw(fractions) for name in ("beta", "beta2")}
    values["tau"] = draw(sizes)
    if draw(st.booleans()):
        values["L_h_rms"] = draw(sizes_or_none)
    return values


def same(value: Any, exact: Real) -> bool:
    """Whether a float is the exact number to 1e-12 of it; both may be infinite, or below what a float can hold."""
    if mpf(exact) == mpf("inf"):
        return bool(math.isinf(value))
    return bool(abs(mpf(float(value)) - exact) <= mpf("1e-12") * abs(exact) + mpf("1e-280"))


def gamma_limits(limits: dict[str, Real]) -> dict[str, list[Real]]:
    """The limits on gamma and on gamma eta, each in order of size."""
    found: dict[str, list[Real]] = {"gamma": [], "gamma eta": []}
    for name, limit in limits.items():
        if name not in EQUALITIES:
            found[name.split(" <= ")[0].replace("*", " ")].append(limit)
    return {name: sorted(values) for name, values in found.items()}


def check_conditions(theorem: str, bound: Bound, limits: dict[str, Real]) -> None:
    expected = gamma_limits(limits)
    for name, exact in expected.items():
        own = sorted(float(c.limit) for c in bound.conditions if c.name == name)
        assert len(own) == len(exact), name
        for limit, one in zip(own, exact, strict=True):
            assert same(limit, one), (name, limit, one)
    equal = {EQUALITIES[name] for name in limits if name in EQUALITIES}
    others = {c.name for c in bound.conditions} - set(expected)
    assert equal <= others <= equal | IMPLIED.get(theorem, set())
    assert all(c.limit == 0 for c in bound.conditions if c.name in equal)


def test_both_know_the_same_theorems_and_versions() -> None:
    assert set(ORACLE) == {(name, version) for name, theorem in THEOREMS.items() for version in theorem.versions}


NEAR_ONE: dict[str, Any] = {
    "F": 3.0, "d0": 2.0, "sigma2": 0.0, "zeta2": 5.0, "L_g": 0.7, "L_h": 0.3, "L_tilde": 1.1, "I": 40, "R": 10**12,
    "N": 7, "M": 3, "gamma": 0.01, "eta": 1.0, "beta": 0.9, "kappa": 1 + 1e-7, "tau": 0.1, "G": 2.0, "beta2": 0.99,
    "mu": 0.01,
}  # fmt: skip


@settings(max_examples=40)
@given(values=points())
@example(values=NEAR_ONE)
@example(values={**NEAR_ONE, "kappa": 2.0, "L_h_rms": 0.4, "R": 1})
@example(values={**NEAR_ONE, "L_h": 0.0, "sigma2": 1.0, "I": 1, "N": 1, "M": 1})
@example(values={**NEAR_ONE, "gamma": 0.02, "eta": 2.5, "sigma2": 1.0})  # gamma eta I L_g > 1
@example(values={**NEAR_ONE, "gamma": 1e-12, "eta": 1e9, "sigma2": 1.0})  # where differences would lose every digit
def test_terms_and_limits_are_those_of_the_oracle(name: str, version: Version, values: dict[str, Any]) -> None:
    if name in BOUNDS_LOSS and version == "star":  # beyond its limit, where there is no bound, try below it
        largest = float(evaluate(name, version, **values).gamma_max)
        values = {**values, "gamma": min(values["gamma"], 0.9 * largest)}
    if (name, version) == ("momentum", "star"):
        values = {
            **values,
            "gamma": min(values["gamma"], float(evaluate(name, version, **{**values, "eta": 1.0}).gamma_max)),
        }
    bound = evaluate(name, version, **values)
    exact, limits = ORACLE[name, version](values)
    own = {term.name: float(term.value) for term in bound.terms}
    assert len(own) == len(bound.terms)
    for term, one in zip(NAMES[name], exact, strict=True):
        assert same(own[term], one), (term, own[term], one)
    assert set(own) == set(NAMES[name])
    assert same(bound.total, sum(exact))
    check_conditions(name, bound, limits)
    for condition in bound.conditions:
        if condition.name == "gamma":
            assert condition.value == values["gamma"]
        elif condition.name == "gamma eta":
            assert condition.value == values["gamma"] * values["eta"]


# The constants, each from the one term that is left, against the table in docs/theory/table.md.

# Here every power of every symbol is 1 and every term 0. TINY and HUGE put a term below rounding where no 0 can.
UNIT: dict[str, Any] = {
    "F": 0, "d0": 0, "sigma2": 0, "zeta2": 0, "L_g": 0, "L_h": 0, "L_tilde": 0, "I": 1, "R": 1, "N": 1, "M": 1,
    "gamma": 1, "eta": 1, "beta": 0, "kappa": 1, "tau": 1, "G": 0, "beta2": 0, "mu": 1,
}  # fmt: skip
TINY, HUGE = 1e-30, 1e30

Changes = dict[str, dict[str, Any]]
SMOOTH: Changes = {
    GAP: {"F": 1},
    NOISE: {"sigma2": 1, "L_g": 1},
    MEAN: {"sigma2": 1, "L_g": 1, "I": 2, "eta": TINY},
    WORKERS: {"sigma2": 1, "L_h": 1, "I": 2},
    DIVERGENCE: {"zeta2": 1, "L_h": 1, "I": 2},
}
LOCAL_SGD: Changes = {GAP: SMOOTH[GAP], NOISE: SMOOTH[NOISE]}
WITH_I: Changes = {**LOCAL_SGD, WORKERS: {"sigma2": 1, "L_h": 1}, DIVERGENCE: {"zeta2": 1, "L_h": 1}}  # I, not I-1
LONG: dict[str, Any] = {"L_g": 1, "R": HUGE**2}  # 1 - q^R is 1
ALONE: dict[str, Changes] = {
    "nonconvex": SMOOTH,
    "partial": {**SMOOTH, "sampling divergence": {"zeta2": 1, "L_g": 1}},
    "equal-hessians": LOCAL_SGD,
    "minibatch": LOCAL_SGD,
    "quadratic": WITH_I,
    "momentum": WITH_I,
    "fedadam": {
        **{name: SMOOTH[name] for name in (GAP, MEAN, WORKERS, DIVERGENCE)},
        f"second moment, {NOISE}": {"sigma2": 1, "G": 1},
        f"second moment, {WORKERS}": {"sigma2": 1 / HUGE, "L_h": 1, "I": 2, "G": HUGE, "N": HUGE},
        f"second moment, {DIVERGENCE}": {"zeta2": 1 / HUGE, "L_h": 1, "I": 2, "G": HUGE},
    },
    "strongly-convex": {
        "initial distance": {"d0": 1},
        NOISE: {"sigma2": 1},
        MEAN: SMOOTH[MEAN],
        WORKERS: {**SMOOTH[WORKERS], "eta": TINY},
        DIVERGENCE: SMOOTH[DIVERGENCE],
    },
    "strongly-convex-last": {
        "initial distance": {"d0": 1, "L_g": 1, "eta": TINY},  # q^R is 1
        NOISE: {"sigma2": 1, **LONG},
        MEAN: {**SMOOTH[MEAN], **LONG},
        WORKERS: {**SMOOTH[WORKERS], **LONG, "eta": TINY, "N": HUGE},
        DIVERGENCE: {**SMOOTH[DIVERGENCE], **LONG},
    },
}
PRINTED_WITH_I = ("fedadam", "strongly-convex", "strongly-convex-last")
# mu d0/(q^-R - 1) is mu d0 where q is 1/2, and mu d0 exp(-mu gamma eta I R) where the rate is tiny.
START: dict[Version, dict[str, Any]] = {"printed": {"eta": TINY}, "corrected": {"gamma": 2}, "sharp": {"gamma": 1}}


def read_constants() -> dict[tuple[str, Version, str], Fraction]:
    """Read the constant of each theorem, version and term from the table of docs/theory/table.md."""
    text = (Path(__file__).parents[2] / "docs" / "theory" / "table.md").read_text(encoding="utf-8")
    versions: tuple[Version, ...] = ("printed", "corrected", "sharp")
    found: dict[tuple[str, Version, str], Fraction] = {}
    for row in (line for line in text.splitlines() if line.startswith("| `")):
        theorem, term, *constants = (cell.strip() for cell in row.strip("|").split("|"))
        for version, constant in zip(versions, constants, strict=True):
            if constant != "–":
                found[theorem.strip("`"), version, term] = Fraction(constant)
    return found


# star has functions of the rates for constants; the other ways to draw have the constants of partial.
WITH_CONSTANTS = [
    (name, version) for name, version in ORACLE if version not in ("prior", "star") and not name.startswith("partial-")
]


def test_the_table_of_the_theory_page_has_every_constant() -> None:
    every = {(name, version, term) for name, version in WITH_CONSTANTS for term in NAMES[name]}
    assert set(read_constants()) == every


# prior has the constants of corrected, and L_g and L_h cannot be told apart in it.
@pytest.mark.parametrize(("theorem", "of"), WITH_CONSTANTS)
def test_each_constant_is_the_one_of_the_theory_page(theorem: str, of: Version) -> None:
    average = theorem == "strongly-convex" or (theorem, of) == ("strongly-convex-last", "printed")  # printed as one
    for term in NAMES[theorem]:
        constant = read_constants()[theorem, of, term]
        values = {**UNIT, **ALONE["strongly-convex" if average else theorem][term]}
        if average and term == "initial distance":
            values |= START[of]
        if of == "printed" and theorem in PRINTED_WITH_I:
            values["I"] = 1
        total = float(evaluate(theorem, of, **values).total)
        assert total == pytest.approx(float(constant), rel=1e-12), term
