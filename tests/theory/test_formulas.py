"""Particular numbers: sums with closed forms, limits where a constant is 0, overflow, and the counterexamples."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fedgauge.algorithms import minibatch
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.theory import THEOREMS, evaluate
from fedgauge.theory.expectation import expect
from fedgauge.theory.quadratic import drift_sum_root, geometric_sum
from fedgauge.theory.search import best_gamma
from fedgauge.values import Version


def test_no_theorem_imports_torch() -> None:
    code = "import fedgauge.theory.search, fedgauge.theory.corollaries, fedgauge_verification.propositions, sys; "
    subprocess.run([sys.executable, "-c", code + "assert 'torch' not in sys.modules"], check=True)


@pytest.mark.parametrize("varphi", [1, Fraction(21, 20), Fraction(3, 2), 2])
def test_sums_of_theorem_a_2(varphi: Fraction) -> None:
    I = np.arange(1, 30)  # noqa: E741
    K = [sum(k * sum(m**2 * varphi ** (2 * m - 2) for m in range(1, k)) for k in range(1, i)) for i in I.tolist()]
    phi = [sum(varphi ** (2 * m) for m in range(i)) for i in I.tolist()]
    size = np.asarray(float(varphi))
    np.testing.assert_allclose(drift_sum_root(size, I.astype(float)) ** 4, [float(k) for k in K], rtol=1e-13)
    np.testing.assert_allclose(geometric_sum(size, I.astype(float)), [float(p) for p in phi], rtol=1e-13)


@pytest.mark.parametrize("zero", ["sigma2", "zeta2", "L_h", "L_g", "F", "d0", "G", "kappa", "beta", "beta2"])
def test_a_constant_may_be_zero(name: str, version: Version, table: dict[str, Any], zero: str) -> None:
    values = {**table, zero: 0, "L_h": 0 if zero == "L_h" or name == "equal-hessians" else table["L_h"]}
    for local_steps in (1, 2, 3, 50):
        bound = evaluate(name, version, **{**values, "I": local_steps})
        limits = [condition.limit for condition in bound.conditions]
        assert not np.isnan([bound.total, bound.gamma_max, bound.gamma_eta_max, *limits]).any()
        assert np.isfinite(bound.total)


def test_everything_zero_sets_no_limit(table: dict[str, Any]) -> None:
    bound = evaluate("nonconvex", **{**table, "L_g": 0, "L_h": 0})
    assert (bound.gamma_max, bound.gamma_eta_max, bool(bound.admissible)) == (np.inf, np.inf, True)


def test_drift_is_free_up_to_two_local_steps(table: dict[str, Any]) -> None:
    for local_steps in (1, 2):
        assert evaluate("quadratic", **{**table, "I": local_steps}).gamma_max == 1 / table["L_tilde"]


@pytest.mark.parametrize(
    ("theorem", "changes"),
    [
        ("quadratic", {"kappa": 2, "I": 5000}),
        ("quadratic", {"kappa": 2, "I": 5000, "zeta2": 0, "L_h": 0}),
        ("strongly-convex", {"R": 10**12}),
        ("strongly-convex", {"gamma": 1e6}),
        ("strongly-convex", {"gamma": 1e-30, "R": 1}),
        ("strongly-convex-last", {"R": 10**12}),
        ("strongly-convex-last", {"gamma": 1e6}),
        ("nonconvex", {"F": np.inf}),
        ("nonconvex", {"zeta2": np.inf, "L_h": 0}),
    ],
)
def test_extreme_values_give_no_nan(theorem: str, changes: dict[str, Any], table: dict[str, Any]) -> None:
    for version in THEOREMS[theorem].versions:
        bound = evaluate(theorem, version, **{**table, **changes})
        assert not np.isnan([bound.total, bound.gamma_max]).any()


def test_few_rounds_of_the_strongly_convex_bound_match_the_plain_formula(table: dict[str, Any]) -> None:
    bound = evaluate("strongly-convex", "corrected", **table)
    q = 1 - table["mu"] * table["gamma"] * table["I"] / 4
    assert bound.terms[0].value == pytest.approx(table["mu"] * table["d0"] / (q ** -table["R"] - 1), rel=1e-12)


def test_an_inadmissible_rate_is_a_failed_condition(name: str, version: Version, table: dict[str, Any]) -> None:
    bound = evaluate(name, version, **{**table, "gamma": 1e3})
    assert not bound.certified
    assert np.isfinite(bound.total) == (version != "star"), "beyond its limit a star bound says nothing"


@pytest.mark.parametrize("theorem", ["equal-hessians", "quadratic", "momentum"])
def test_these_need_eta_one(theorem: str, table: dict[str, Any]) -> None:
    bound = evaluate(theorem, **{**table, "L_h": 0, "eta": 2})
    assert [condition.name for condition in bound.conditions if not condition.holds] == ["|eta - 1|"]
    assert bound.gamma_max == 0


def test_constants_that_contradict_each_other_certify_nothing(table: dict[str, Any]) -> None:
    assert not evaluate("strongly-convex", **{**table, "mu": 2 * table["L_g"]}).certified
    assert not evaluate("equal-hessians", **table).certified  # L_h is not 0
    assert not evaluate("fedadam", **{**table, "gamma": 1e-6, "beta1": 0.9}).certified
    rounded = {**table, "gamma": 1e-6, "mu": table["L_g"] * (1 + 1e-15)}
    assert evaluate("strongly-convex", **rounded).certified


def test_only_safe_kinds_of_used_constants_certify(table: dict[str, Any]) -> None:
    values = {**table, "gamma": 1e-6}
    assert evaluate("nonconvex", kinds={"L_g": "upper", "L_h": "exact", "L_tilde": "sample"}, **values).certified
    assert not evaluate("nonconvex", kinds={"L_h": "lower"}, **values).certified
    assert not evaluate("nonconvex", "prior", kinds={"L_tilde": "sample"}, **values).certified
    assert evaluate("strongly-convex", kinds={"mu": "lower"}, **values).certified
    assert not evaluate("strongly-convex", kinds={"mu": "upper"}, **values).certified


def test_the_tight_heterogeneity_needs_the_mean_square_beside_it(table: dict[str, Any]) -> None:
    values = {**table, "kappa": 1, "I": 40}
    alone = evaluate("quadratic", **{**values, "L_h": 0.4})
    both = evaluate("quadratic", **{**values, "L_h": 0.2, "L_h_rms": 0.4})
    assert both.gamma_max == pytest.approx(alone.gamma_max * 2**0.5)
    assert both.total < alone.total


# The counterexamples: exact runs of small problems that break what is printed and not what is corrected.


@pytest.mark.parametrize("M", [31, 32, 48])
def test_partial_participation_as_printed_is_false(M: int) -> None:
    gamma, eta, R = 1e-3, M / 16 * 1e3, 300
    values: dict[str, Any] = {"F": 0.5, "I": 1, "R": R, "N": M, "M": M, "sigma2": 0, "zeta2": 0, "L_g": 1, "L_h": 0}
    shrink = 1 - gamma * eta  # N equal workers with f = x^2/2 from x = 1
    least = min(shrink ** (2 * r) for r in range(R))
    mean = sum(shrink ** (2 * r) for r in range(R)) / R
    printed = evaluate("partial", "printed", **values, gamma=gamma, eta=eta)
    assert printed.admissible
    assert not printed.certified
    assert mean > printed.total
    assert least > printed.total or M == 31  # |1 - 31/16| < 1: there it still converges, slowly
    assert not evaluate("partial", "corrected", **values, gamma=gamma, eta=eta).certified
    assert evaluate("partial", **values, gamma=gamma, eta=eta).certified == (M == 31)  # and its bound is true there
    # Gradient descent on a parabola is where the bound is reached, to the rounding of a sum of 300 squares.
    assert mean <= evaluate("partial", **values, gamma=gamma, eta=eta).total * (1 + 1e-14)
    assert not evaluate("partial", "sharp", **values, gamma=gamma, eta=eta).certified


def test_mini_batch_sgd_steps_by_the_product_of_its_rates(table: dict[str, Any]) -> None:
    values: dict[str, Any] = {"F": 0.5, "I": 1, "R": 5, "N": 1, "sigma2": 0, "L_g": 1, "gamma": 1}
    # f = x^2/2 from x = 1: x <- -2 x at gamma eta = 3, so that the least |grad f|^2 is the first, which is 1.
    too_far = evaluate("minibatch", "corrected", **values, eta=3)
    assert not too_far.admissible
    assert too_far.gamma_max == pytest.approx(1 / 3)
    assert too_far.total == pytest.approx(1 / 15)
    run = expect(QuadraticFederation([[[1.0]]], [[0.0]], start=[1.0]), minibatch(1.0, 3.0), local_steps=1, rounds=5)
    assert min(run.grad2[:-1]) == 1 > too_far.total
    one, other = (evaluate("minibatch", **{**table, "gamma": g, "eta": e}) for g, e in ((0.03, 1.0), (0.1, 0.3)))
    assert other.total == pytest.approx(one.total)
    tuned = best_gamma("minibatch", eta=None, **{k: v for k, v in table.items() if k not in ("gamma", "eta")})
    assert tuned.eta == 1.0


def run_fedadam(x: float, gamma: float, eta: float, I: int, R: int, tau: float, beta2: float) -> list[float]:  # noqa: E741
    squares, second = [], 0.0
    for _ in range(R):
        squares.append(x * x)
        delta = x - x * (1 - gamma) ** I
        second = beta2 * second + (1 - beta2) * delta**2
        x -= eta * delta / (second**0.5 + tau)
    return squares


@pytest.mark.parametrize(("version", "G", "broken"), [("printed", 0.0077, True), ("corrected", 1e-4, False)])
def test_fedadam_as_printed_is_false_for_long_rounds(version: Version, G: float, broken: bool) -> None:
    x = 1e-4
    values: dict[str, Any] = {"eta": 192, "I": 24, "R": 5, "tau": 1, "beta2": 0.99}
    constants: dict[str, Any] = {"F": x * x / 2, "N": 1, "sigma2": 0, "zeta2": 0, "L_g": 1, "L_h": 0, "G": G}
    gamma = float(evaluate("fedadam", version, **values, **constants, gamma=1).gamma_max)
    bound = evaluate("fedadam", version, **values, **constants, gamma=gamma)
    squares = run_fedadam(x, gamma, **values)
    assert bound.admissible
    assert bool(bound.certified) == (not broken)
    assert max(squares) ** 0.5 <= G  # G covers the run
    assert (min(squares) > bound.total) == broken


@pytest.mark.parametrize("condition_number", [10, 100, 1000])
def test_strong_convexity_as_printed_is_false_for_one_round(condition_number: int) -> None:
    mu = 1 / condition_number
    values: dict[str, Any] = {"I": 1, "R": 1, "N": 1, "sigma2": 0, "zeta2": 0, "L_g": 1, "L_h": 0, "mu": mu, "d0": 1}
    gamma = mu**0.5 / 24
    values |= {"gamma": gamma, "eta": 1 / 16 / gamma * (1 - 1e-12)}
    start, end = 0.5, (15 / 16) ** 2 / 2  # f = (x1^2 + mu x2^2)/2 from (1, 0)
    printed = evaluate("strongly-convex", "printed", **values)
    assert printed.admissible
    assert not printed.certified
    assert end > printed.total
    versions: tuple[Version, ...] = ("corrected", "sharp")
    for version in versions:
        average, last = (evaluate(name, version, **values) for name in ("strongly-convex", "strongly-convex-last"))
        assert average.certified
        assert start <= average.total
        assert end <= last.total
