"""The star versions: where they are reached, what their constants are at small rates, and how they are searched."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedgauge.algorithms import fedavg
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.theory import evaluate, find
from fedgauge.theory.distance import _kept
from fedgauge.theory.expectation import divergence, expect, states
from fedgauge.theory.growth import TABLE, growth_limit, growths, overshoot_limit
from fedgauge.theory.rates import FreeRate, needed_rounds
from fedgauge.theory.search import best_gamma

PARTIAL = ("partial", "partial-shared", "partial-without")


def plain_growths(I: int, y: float) -> tuple[float, float, float, float]:  # noqa: E741
    """The four sums as they are defined, step by step, each small part accumulated by itself."""
    model = slope = noise = noise_slope = power = 0.0  # power is (1+y)^k - 1
    for k in range(I):
        model, slope = model + power, slope + k * (1 + y) ** (k - 1)
        noise_slope += noise_slope * y + noise + k**0.5
        noise += y * (noise + k**0.5)
        power += y * (1 + power)
    return model, slope, noise, noise_slope


@pytest.mark.parametrize("I", [1, 2, 3, 24, 25, 26, 64, 1000])
@pytest.mark.parametrize("share", [1.0, 0.3, 1e-6, 1e-18, 0.0])
def test_the_series_are_the_sums(I: int, share: float) -> None:  # noqa: E741
    y = share * min(float(growth_limit(np.array(float(I)), np.array(1.0))), 3.0)
    found = [float(one) for one in growths(np.array(float(I)), np.array(y))]
    assert found == pytest.approx(plain_growths(I, y), rel=1e-11)


def test_beyond_the_table_the_sums_are_a_little_too_large() -> None:
    I, y = 2 * TABLE, 1 / (2 * TABLE)  # noqa: E741
    found, plain = growths(np.array(float(I)), np.array(y)), plain_growths(I, y)
    assert [float(one) for one in found[:2]] == pytest.approx(plain[:2], rel=1e-9)
    for one, sum_ in zip(found[2:], plain[2:], strict=True):
        assert sum_ <= float(one) <= sum_ * 1.0002


def test_points_of_different_lengths_are_summed_together() -> None:
    I = np.array([1.0, 2.0, 30.0, 5.0, 400.0, 64.0])  # noqa: E741
    y = 0.7 * np.minimum(growth_limit(I, np.array(1.0)), 2.0)
    together = growths(I, y)
    for index in range(len(I)):
        alone = growths(I[index], y[index])
        assert [float(one[index]) for one in together] == pytest.approx([float(one) for one in alone], rel=1e-13)


@settings(deadline=None, max_examples=50)
@given(I=st.integers(1, 200), eta=st.floats(-3, 3).map(lambda p: 10**p), share=st.floats(0.001, 1.5))
def test_the_two_limits_say_that_p_is_positive(I: int, eta: float, share: float) -> None:  # noqa: E741
    """P = u (1 - L_g u/2) - gamma eta |1 - L_g u| A - h A^2, as the derivation first has it."""
    limit = min(
        float(growth_limit(np.array(float(I)), np.array(1.0))), float(overshoot_limit(np.array(eta), np.array(I)))
    )
    gamma = share * limit
    A = plain_growths(I, gamma)[0]
    u = gamma * eta * I
    P = u * (1 - u / 2) - gamma * eta * abs(1 - u) * A - (gamma * eta * A) ** 2 / 2
    # At the limit itself P is a difference of equal numbers, and rounding decides its sign.
    assume(abs(share - 1) > 1e-6)
    assert (P > 0) == (share < 1)
    values: dict[str, Any] = {"F": 1, "I": I, "R": 10, "N": 4, "sigma2": 1, "zeta2": 1, "L_g": 1, "L_h": 1}
    assert np.isfinite(evaluate("nonconvex", **values, gamma=gamma, eta=eta).total) == (share < 1)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 1.9])
@pytest.mark.parametrize("R", [1, 7, 400])
def test_one_step_on_a_parabola_reaches_it(gamma: float, R: int) -> None:
    """f = L x^2/2 with I = 1: the telescoped bound is an equality, whatever the noise."""
    federation = QuadraticFederation([[[2.0]], [[2.0]]], [[1.0], [3.0]], sigma2=0.7, start=[5.0])
    run = expect(federation, fedavg(gamma / 2), local_steps=1, rounds=R)
    F = run.loss[0] - run.loss[-1]
    values: dict[str, Any] = {"I": 1, "R": R, "N": 2, "sigma2": 0.7, "zeta2": 1, "L_g": 2, "L_h": 0, "gamma": gamma / 2}
    if F < 0:  # noise may lift the run above its start, and F below 0 cannot be asked for
        return
    assert float(np.mean(run.grad2[:-1])) == pytest.approx(float(evaluate("nonconvex", F=F, **values).total), rel=1e-9)


@pytest.mark.parametrize("I", [2, 3, 8])
def test_the_floor_is_reached(I: int) -> None:  # noqa: E741
    """A = 1 +- L_h, b = +-zeta: the fixed point has |grad f|^2 = (gamma L_h (I-1) zeta/2)^2 at small gamma."""
    L_h, zeta, gamma = 0.25, 3.0, 1e-5
    federation = QuadraticFederation([[[1 + L_h]], [[1 - L_h]]], [[zeta], [-zeta]])
    run = expect(federation, fedavg(gamma, 2e4), local_steps=I, rounds=4000)
    found = run.grad2[-1]
    floor = (gamma * L_h * (I - 1) * zeta / 2) ** 2
    assert found == pytest.approx(floor, rel=1e-3)
    values: dict[str, Any] = {
        "I": I,
        "N": 2,
        "sigma2": 0,
        "zeta2": zeta**2,
        "L_g": 1,
        "L_h": L_h,
        "gamma": gamma,
        "eta": 1,
    }
    bound = evaluate("nonconvex", F=1.0, R=10**12, **values)
    assert float(bound.total) - float(bound.terms[0].value) == pytest.approx(floor, rel=1e-3)


SMALL: dict[str, Any] = {
    "F": 0, "I": 1, "R": 1, "N": 1, "M": 1, "sigma2": 0, "zeta2": 0, "L_g": 1, "L_h": 0, "gamma": 1e-9, "eta": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("theorem", "changes", "scale", "constant"),
    [
        ("nonconvex", {"F": 1}, 1e9, 1),
        ("nonconvex", {"sigma2": 4, "N": 2}, 2e-9, 1 / 2),
        ("nonconvex", {"zeta2": 1, "L_h": 1, "I": 1000, "gamma": 1e-12}, 999**2 * 1e-24, 1 / 4),
        ("partial", {"zeta2": 1, "I": 10}, 10e-9, 1 / 2),
        ("partial", {"sigma2": 1, "N": 4, "M": 2}, 0.5e-9, 1 / 2),
        ("partial-shared", {"sigma2": 1, "N": 4, "M": 2}, 0.5e-9, 1 / 2 * (1 + 1 / 4)),
        ("partial-without", {"sigma2": 1, "N": 4, "M": 2}, 0.5e-9, 1 / 2),
        ("partial-without", {"zeta2": 1, "I": 10, "N": 4, "M": 2}, 5e-9, 1 / 2 * 2 / 3),
        ("equal-hessians", {"F": 1}, 1e9, 1),
        ("minibatch", {"sigma2": 1, "N": 4}, 0.25e-9, 1 / 2),
    ],
)
def test_constants_at_small_rates(theorem: str, changes: dict[str, Any], scale: float, constant: float) -> None:
    assert float(evaluate(theorem, **{**SMALL, **changes}).total) / scale == pytest.approx(constant, rel=1e-3)


CONVEX: dict[str, Any] = {
    "d0": 0, "I": 1, "R": 1, "N": 1, "sigma2": 0, "zeta2": 0, "L_g": 1, "L_h": 0, "mu": 0.01, "gamma": 1e-9, "eta": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "scale", "constant"),
    [
        ({"d0": 1, "R": 10**12}, 0.01 / np.expm1(5.0), 1 / 4),  # q^-R = exp(mu gamma R/2)
        ({"sigma2": 4, "N": 2}, 2e-9, 1 / 2),
        ({"zeta2": 1, "L_h": 1, "I": 1000, "gamma": 1e-12}, 999**2 * 1e-24 / 0.01, 1 / 4),
    ],
)
def test_constants_of_a_9_at_small_rates(changes: dict[str, Any], scale: float, constant: float) -> None:
    found = evaluate("strongly-convex", "star", **{**CONVEX, **changes})
    assert float(found.total) / scale == pytest.approx(constant, rel=1e-3)


def test_the_limits_of_a_9_leave_p_above_0() -> None:
    """The least P over mu/L_g and gamma eta I L_g at the largest c, sqrt(mu/L_g)/2, is the page's 0.029."""
    m, v = np.linspace(1e-6, 1, 1001)[:, None], np.linspace(1e-6, 0.75, 1001)[None]
    P = 1 - np.minimum(v * (1 + m / 4), m) - (1 - v * m) ** 2 / 2
    assert P.min() == pytest.approx(0.0296, abs=1e-4)
    largest = evaluate("strongly-convex", "star", **{**CONVEX, "I": 8, "mu": 0.92, "d0": 1.0, "gamma": 1e-6})
    at_limit = {**CONVEX, "I": 8, "mu": 0.92, "d0": 1.0, "gamma": largest.gamma_max, "eta": 1.0}
    at_limit["eta"] = float(largest.gamma_eta_max) / float(largest.gamma_max)
    assert np.isfinite(evaluate("strongly-convex", "star", **at_limit).total)


@pytest.mark.parametrize("zeta", [0.0, 2.0])
def test_a_9_stays_above_runs_of_quadratics_at_its_own_limits(zeta: float) -> None:
    """A = 1 +- L_h and a flat direction, from far away and from x*, with eta that makes both limits meet."""
    mu, L_h, I, R = 0.05, 0.4, 6, 40  # noqa: E741
    A = [np.diag([1 + side * L_h, mu]) for side in (1.0, -1.0)]
    b = [[side * zeta, 0.0] for side in (1.0, -1.0)]
    for start in ([3.0, 3.0], [0.0, 0.0]):
        federation = QuadraticFederation(A, b, sigma2=0.3, start=start)
        values: dict[str, Any] = {"I": I, "R": R, "N": 2, "sigma2": 0.3, "L_g": 1.0, "L_h": L_h, "mu": mu}
        limits = evaluate("strongly-convex", "star", **values, zeta2=1.0, d0=1.0, gamma=1e-3)
        gamma = 0.999 * min(float(c.limit) for c in limits.conditions if c.name == "gamma")
        eta = 0.999 * float(limits.gamma_eta_max) / gamma
        run = states(federation, fedavg(gamma, eta), local_steps=I, rounds=R)
        zeta2 = float(divergence(federation, run).max())
        excess = np.array(expect(federation, fedavg(gamma, eta), local_steps=I, rounds=R).loss[:-1])
        q = 1 - mu * gamma * eta * I / 2
        weights = q ** -np.arange(1.0, R + 1)
        d0 = float(np.sum(np.square(start)))
        bound = evaluate("strongly-convex", "star", **values, zeta2=zeta2, d0=d0, gamma=gamma, eta=eta)
        assert bound.certified
        assert 0 < float(weights @ excess / weights.sum()) <= float(bound.total)


@pytest.mark.parametrize("I", [1, 5])
def test_drawing_everyone_without_replacement_is_full_participation(I: int, table: dict[str, Any]) -> None:  # noqa: E741
    values = {**table, "I": I, "M": table["N"]}
    assert float(evaluate("partial-without", **values).total) == pytest.approx(
        float(evaluate("nonconvex", **values).total)
    )
    shared, without = evaluate("partial-shared", **values), evaluate("partial-without", **values)
    assert shared.total > without.total


@settings(deadline=None, max_examples=30)
@given(
    gap=st.floats(-2, 2), noise=st.floats(-3, 3), rate=st.floats(-4, 0.2), rounds=st.integers(1, 10**6),
    workers=st.integers(1, 50), batch=st.integers(1, 64),
)  # fmt: skip
def test_one_algorithm_has_one_number(
    gap: float, noise: float, rate: float, rounds: int, workers: int, batch: int
) -> None:
    """FedAvg with I = 1 is mini-batch SGD, and so it is with equal Hessians; with I gradients the batch is larger."""
    values: dict[str, Any] = {
        "F": 10**gap,
        "R": rounds,
        "N": workers,
        "sigma2": 10**noise,
        "L_g": 1.0,
        "gamma": 10**rate,
    }
    others: dict[str, Any] = {"zeta2": 3.0, "L_h": 0.5}
    expected = float(evaluate("minibatch", I=1, **values).total)
    assert float(evaluate("nonconvex", I=1, **values, **others).total) == pytest.approx(expected, rel=1e-12)
    assert float(evaluate("equal-hessians", I=1, **values).total) == pytest.approx(expected, rel=1e-12)
    assert float(evaluate("partial-without", I=1, M=workers, **values, **others).total) == pytest.approx(expected)
    larger = float(evaluate("minibatch", I=batch, **values).total)
    same = evaluate("nonconvex", I=1, **{**values, "N": workers * batch}, **others)
    assert float(same.total) == pytest.approx(larger, rel=1e-12)


@pytest.mark.parametrize("theorem", ["nonconvex", *PARTIAL])
def test_the_rounds_to_a_target_are_those_after_which_the_bound_is_it(theorem: str, table: dict[str, Any]) -> None:
    del table["R"]
    gamma = table.pop("gamma")
    free = FreeRate(find(theorem), "star", {k: v for k, v in table.items() if k != "I"}, 1.0)
    floor = float(sum(t.value for t in free.bound(6, gamma, 1e18).terms[1:]))
    target = 1.5 * floor
    rounds = float(needed_rounds(free, np.array([6]), np.array([gamma]), target)[0])
    after, before = (float(free.bound(6, gamma, R).total) for R in (np.ceil(rounds), np.floor(rounds)))
    assert after <= target < before
    assert np.isinf(needed_rounds(free, np.array([6]), np.array([gamma]), 0.99 * floor)[0])


def test_an_endless_divergence_counts_where_it_is_felt(table: dict[str, Any]) -> None:
    values = {**table, "zeta2": np.inf}
    assert np.isinf(evaluate("nonconvex", **values).total)
    assert np.isfinite(evaluate("nonconvex", **{**values, "I": 1}).total)
    assert np.isfinite(evaluate("nonconvex", **{**values, "L_h": 0}).total)
    assert np.isinf(evaluate("partial", **{**values, "I": 1}).total)
    assert np.isfinite(evaluate("partial-without", **{**values, "I": 1, "M": values["N"]}).total)


def test_the_best_rate_is_strictly_inside(table: dict[str, Any]) -> None:
    del table["gamma"]
    tuned = best_gamma("nonconvex", **table)
    assert float(tuned.gamma) < 0.9 * float(tuned.bound.gamma_max)
    assert tuned.bound.source.version == "star"


@given(
    a=st.floats(-4, -0.05).map(lambda power: 1 - 10**power),
    size=st.floats(-6, 1).map(lambda power: 10**power),
    share=st.sampled_from([0.0, 1.0]) | st.floats(0, 1),
    R=st.integers(1, 300),
)
def test_the_last_models_bound_is_near_what_the_map_gives(a: float, size: float, share: float, R: int) -> None:
    """The map D^2 -> a^2 D^2 + 2 q D + t applied R times from D = 1 is all that the derivation knows."""
    q, t, left, D = share * a * size, size**2, (1 - a) * (1 + a), 1.0
    Z = (q + math.sqrt(q * q + left * t)) / left
    for _ in range(R):
        D = math.sqrt(a * a * D * D + 2 * q * D + t)
    kept, lost = (float(part) for part in _kept(*map(np.array, (R, 1.0, a, 1 - a, q, t, Z))))
    assert kept + lost == pytest.approx(1, rel=1e-12)
    bound = kept + lost * Z**2
    assert bound >= D**2 * (1 - 1e-9)
    assert bound <= 2 * D**2 or Z > 1
    assert bound <= (a ** (2 * R) + (1 - a ** (2 * R)) * Z**2) * (1 + 1e-9) or Z < 1  # if 2 q D is 2 q Z on the way
    if share in (0, 1) or R == 1:  # only noise, none, or one round
        assert bound == pytest.approx(D**2, rel=1e-9)
