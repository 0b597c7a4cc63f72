"""Tuned bounds agree with fine grids and closed forms, and stay admissible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgauge.theory import THEOREMS, evaluate
from fedgauge.theory.search import best_gamma, best_local_steps

sizes = st.floats(-2, 2).map(lambda power: 10**power)


@pytest.mark.parametrize("theorem", list(THEOREMS))
@settings(deadline=None, max_examples=6)
@given(noise=sizes, gap=sizes, rounds=st.integers(1, 5000), eta=sizes)
def test_best_gamma_agrees_with_a_fine_grid(theorem: str, noise: float, gap: float, rounds: int, eta: float) -> None:
    table: dict[str, Any] = {
        "F": gap, "d0": gap, "I": 6, "R": rounds, "N": 8, "M": 4, "sigma2": noise, "zeta2": 1.9, "L_g": 1.1,
        "L_h": 0.0 if theorem == "equal-hessians" else 0.4, "L_tilde": 1.6, "beta": 0.5, "kappa": 1.3, "tau": 0.2,
        "G": 0.9, "beta2": 0.9, "mu": 0.3,
    }  # fmt: skip
    eta = 1.0 if theorem in ("equal-hessians", "quadratic", "momentum") else eta
    tuned = best_gamma(theorem, eta=eta, **table)
    largest = tuned.bound.gamma_max
    grid = np.append(np.geomspace(largest * 1e-6, largest, 4001)[:-1], largest)
    near = grid[evaluate(theorem, **table, eta=eta, gamma=grid).total.argmin()]
    # Bounds have kinks, near which the grid must be as fine as the tolerance.
    finer = np.append(grid, np.clip(near * np.geomspace(0.99, 1.01, 4001), None, largest))
    best = evaluate(theorem, **table, eta=eta, gamma=finer).total.min()
    assert tuned.bound.admissible
    assert best * (1 - 1e-4) <= tuned.bound.total <= best * (1 + 1e-12)


@settings(deadline=None, max_examples=20)
@given(noise=sizes, L_h=sizes, rounds=st.integers(1, 10**6))
def test_best_gamma_solves_the_cubic(noise: float, L_h: float, rounds: int) -> None:
    values: dict[str, Any] = {
        "F": 1.0,
        "I": 5,
        "R": rounds,
        "N": 4,
        "sigma2": noise,
        "zeta2": 2.0,
        "L_g": 1.0,
        "L_h": L_h,
    }
    tuned = best_gamma("nonconvex", "corrected", **values)
    start, linear, *square = (
        float(term.value) for term in evaluate("nonconvex", "corrected", **values, gamma=1.0).terms
    )
    roots = np.roots([2 * sum(square), linear, 0, -start])
    root = float(roots[np.argmin(np.abs(roots.imag) + (roots.real < 0) * 1e9)].real)
    assert tuned.gamma == pytest.approx(min(root, float(tuned.bound.gamma_max)), rel=1e-6)


def test_points_are_tuned_each_by_itself(table: dict[str, Any]) -> None:
    del table["gamma"]
    many = best_gamma("nonconvex", **{**table, "R": np.array([10, 10**4, 10**7])})
    for index, rounds in enumerate((10, 10**4, 10**7)):
        one = best_gamma("nonconvex", **{**table, "R": rounds})
        assert np.asarray(many.gamma)[index] == pytest.approx(one.gamma, rel=1e-7)


def test_a_floor_under_gamma_is_kept(table: dict[str, Any]) -> None:
    del table["gamma"]
    free = best_gamma("nonconvex", **{**table, "R": 10**7})
    floor = 2 * float(free.gamma)
    assert best_gamma("nonconvex", gamma_min=floor, **{**table, "R": 10**7}).gamma == pytest.approx(floor)


@pytest.mark.parametrize("theorem", ["nonconvex", "partial", "fedadam", "strongly-convex", "strongly-convex-last"])
def test_with_a_floor_both_rates_may_be_free(theorem: str, table: dict[str, Any]) -> None:
    del table["gamma"]
    floor = 1e-4
    tuned = best_gamma(theorem, eta=None, gamma_min=floor, **table)
    assert tuned.gamma == floor
    assert tuned.bound.admissible
    gamma, eta = np.geomspace(floor, 1, 60)[:, None], np.geomspace(1e-6, 1e6, 1201)
    grid = evaluate(theorem, **table, gamma=gamma, eta=eta)
    assert tuned.bound.total <= np.where(grid.admissible, grid.total, np.inf).min() * (1 + 1e-9)


def test_the_trap_with_both_rates_free(table: dict[str, Any]) -> None:
    """As the floor falls, heterogeneity drops out of the tuned bound: it then describes mini-batch SGD."""
    del table["gamma"]
    shares = []
    for floor in (1e-3, 1e-12):
        totals = [
            best_gamma("nonconvex", eta=None, gamma_min=floor, **{**table, "L_h": L_h}).bound.total
            for L_h in (0.0, 5.0)
        ]
        shares.append(totals[1] / totals[0] - 1)
    assert shares[0] > 1e-3
    assert shares[1] < 1e-9


@pytest.mark.parametrize(("communication", "worthwhile"), [(0.0, False), (7.5, True)])
def test_best_local_steps_agree_with_trying_all(communication: float, worthwhile: bool, table: dict[str, Any]) -> None:
    values = {name: value for name, value in table.items() if name not in ("gamma", "I", "R")}
    values |= {"sigma2": 300.0, "L_h": 0.1}
    tuned = best_local_steps("nonconvex", budget=500, communication=communication, step=0.5, **values)
    steps = np.arange(1, int((500 - communication) / 0.5) + 1)[:, None]
    rounds = np.floor(500 / (communication + 0.5 * steps))
    largest = evaluate("nonconvex", **values, I=steps, R=rounds, gamma=1.0).gamma_max
    shares = np.append(np.geomspace(1e-4, 1, 801)[:-1], 1.0)
    best = evaluate("nonconvex", **values, I=steps, R=rounds, gamma=shares * largest).total.min()
    assert best * (1 - 1e-3) <= tuned.bound.total <= best * (1 + 1e-12)
    assert tuned.I is not None
    assert tuned.R is not None
    assert tuned.R * (communication + 0.5 * tuned.I) <= 500
    assert (tuned.I > 1) == worthwhile  # without a cost of communication, local steps only add error


def test_local_steps_from_a_list_of_candidates(table: dict[str, Any]) -> None:
    values = {name: value for name, value in table.items() if name not in ("gamma", "I", "R")}
    tuned = best_local_steps("nonconvex", budget=100, candidates=[1, 4, 1000], **values)
    assert tuned.I in (1, 4)
