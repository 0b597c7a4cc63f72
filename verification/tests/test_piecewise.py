"""Objectives that are no quadratics: outcomes against loops, constants at random models, and a false bound found."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedgauge.theory import THEOREMS
from fedgauge.theory.base import Statement
from fedgauge.theory.inputs import Values
from fedgauge.values import Term, Version
from fedgauge_verification.piecewise import PiecewiseProblem, check_piecewise, draw_piecewise, drawn, follow
from fedgauge_verification.strategies import sample_piecewise


def problem(**changes: object) -> PiecewiseProblem:
    made = PiecewiseProblem(
        knots=np.array([-0.3, 0.1]),
        slopes=np.array([[1.0, -0.5, 2.0], [0.2, 1.5, -0.4]]),
        gradients=np.array([1.0, -0.4]),
        deviations=np.array([[0.5, 0.2, 0.7], [0.1, 0.9, 0.3]]),
        odds=np.array([[0.3, 0.6, 0.8], [0.5, 0.1, 0.9]]),
        I=2,
        R=2,
        M=2,
        eta=1.3,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_losses_are_integrals_of_gradients_and_gradients_are_continuous() -> None:
    p = problem()
    x = np.linspace(-2, 2, 4001)
    loss = p.loss_parts(x).sum(axis=0)
    # Midpoint differences of a piecewise quadratic are exact but for the two cells with a knot.
    slopes = p.mean_gradient((x[1:] + x[:-1]) / 2)
    assert np.sort(np.abs(np.diff(loss) / np.diff(x) - slopes))[-3] < 1e-9
    assert p.mean_gradient(np.zeros(1))[0] == pytest.approx(0.3)
    assert p.loss_parts(np.zeros(1)).sum() == pytest.approx(0)


def test_no_digits_are_lost_near_the_start_where_kinks_are_far_away() -> None:
    """Between the kinks f is a parabola, and a step of 1e-7 changes it by 1e-14 or so: to all digits."""
    p, x = problem(knots=np.array([-0.3, 0.1])), np.array([1e-7, -1e-7])
    slope, gradient = 0.5, 0.3  # means over workers of the middle piece and at 0
    assert p.loss_parts(x).sum(axis=0) == pytest.approx(gradient * x + slope * x * x / 2, rel=1e-14)
    assert p.mean_gradient(x) - gradient == pytest.approx(slope * x, rel=1e-8)  # 0.3 + 5e-8 has lost eight of them


def test_noise_has_mean_0_and_the_deviation_of_its_piece() -> None:
    p = problem()
    first, second, q = p.noise(np.array([-1.0, 0.0, 1.0]), 1)
    assert q * first + (1 - q) * second == pytest.approx(np.zeros(3))
    assert q * first**2 + (1 - q) * second**2 == pytest.approx(np.array([0.01, 0.81, 0.09]))


@pytest.mark.parametrize("sampling", ["full", "with-replacement", "with-replacement-shared", "without-replacement"])
def test_outcomes_are_those_of_a_loop_over_all_signs(sampling: str) -> None:
    p, gamma = problem(M=1 if sampling == "without-replacement" else 2, R=1), 0.2
    expected = []
    for workers, shares, chance in drawn(sampling, 2, p.M):  # type: ignore[arg-type]
        for signs in itertools.product((0, 1), repeat=p.I * len(workers)):
            change, weight = 0.0, chance
            for run, (worker, share) in enumerate(zip(workers, shares, strict=True)):
                x = 0.0
                for k in range(p.I):
                    first, second, q = (float(one[0]) for one in p.noise(np.array([x]), worker))
                    up = signs[run * p.I + k] == 0
                    weight *= q if up else 1 - q
                    x -= gamma * (float(p.gradient(np.array([x]), worker)[0]) + (first if up else second))
                change += share * x
            expected.append((weight, p.eta * change))
    weights, models = (np.array(part) for part in zip(*expected, strict=True))
    assert weights.sum() == pytest.approx(1)
    found = follow(p, sampling, gamma)  # type: ignore[arg-type]
    assert found.descent == pytest.approx(-float(weights @ p.loss_parts(models).sum(axis=0)), rel=1e-9)


def test_the_constants_hold_at_random_models() -> None:
    p, draw = problem(), np.random.default_rng(0)
    known = p.constants()
    x = draw.normal(size=(2, 4000))
    mean = x.mean(axis=0)
    error = (p.gradient(x[0], 0) + p.gradient(x[1], 1)) / 2 - p.mean_gradient(mean)
    spread = np.mean((x - mean) ** 2, axis=0)
    assert np.max(error**2 / spread) <= known["L_h"] ** 2 * (1 + 1e-9)
    steepness = np.abs(p.mean_gradient(x[0]) - p.mean_gradient(x[1])) / np.abs(x[0] - x[1])
    assert 0.9 * known["L_g"] < steepness.max() <= known["L_g"] * (1 + 1e-9)


@pytest.mark.parametrize("name", ["nonconvex", "partial", "partial-shared", "partial-without"])
def test_star_holds_and_nine_tenths_of_it_do_not(name: str) -> None:
    theorem = THEOREMS[name]
    found = sample_piecewise(theorem, "star", seed=0, first=0, count=12)
    assert not found.cases
    assert len(found.forms["piecewise"].slacks) == 12

    def less(version: Version, v: Values) -> Statement:
        terms, conditions = theorem.state(version, v)
        return Statement(tuple(Term(t.name, t.formula, 0.9 * t.value, t.symbols) for t in terms), conditions)

    weaker = sample_piecewise(replace(theorem, state=less), "star", seed=0, first=0, count=12)
    assert weaker.cases


def test_a_problem_has_few_enough_outcomes_and_an_admissible_rate() -> None:
    theorem, draw = THEOREMS["partial"], np.random.default_rng(3)
    for _ in range(10):
        p = draw_piecewise(theorem, draw)
        for made in check_piecewise(theorem, "sharp", p):
            values: dict[str, Any] = {**made.values, "F": 1.0}
            assert theorem.evaluate("sharp", **values).admissible
            assert made.slack > 1
