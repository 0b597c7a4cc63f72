"""The corollaries' rates are admissible from R_min on and not before, and their bounds obey the closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgauge.theory.corollaries import COROLLARIES, corollary_rates

law = settings(deadline=None, max_examples=20)
sizes = st.floats(-2, 2).map(lambda power: 10**power)


@st.composite
def constants(draw: st.DrawFn) -> dict[str, Any]:
    L_g, N = draw(sizes), draw(st.integers(1, 40))
    return {
        "F": draw(sizes), "I": draw(st.integers(1, 20)), "N": N, "M": draw(st.integers(1, N)), "sigma2": draw(sizes),
        "zeta2": draw(sizes), "L_g": L_g, "L_h": draw(sizes), "L_tilde": L_g * draw(st.floats(1, 3)),
        "kappa": draw(st.floats(0, 2)), "mu": L_g * draw(st.floats(0.01, 1)), "d0": draw(sizes),
    }  # fmt: skip


@pytest.mark.parametrize("corollary", list(COROLLARIES))
@law
@given(values=constants())
def test_smallest_number_of_rounds(corollary: str, values: dict[str, Any]) -> None:
    if corollary == "5.6":
        values["L_h"] = 0.0
    fewest = corollary_rates(corollary, R=1, **values).R_min
    choice = corollary_rates(corollary, R=fewest, **values)
    assert choice.bound.admissible
    assert corollary_rates(corollary, R=7 * fewest, **values).bound.admissible
    if fewest > 1:
        assert not corollary_rates(corollary, R=fewest - 1, **values).bound.admissible


@law
@given(values=constants(), R=st.integers(1, 10**6))
def test_4_4_stays_below_its_closed_form(values: dict[str, Any], R: int) -> None:
    F, I, N, s2, z2, L_g, L_h = (values[name] for name in ("F", "I", "N", "sigma2", "zeta2", "L_g", "L_h"))  # noqa: E741
    local = ((20 * L_g**2 / N + 24 * L_h**2) * (I - 1) * s2 + 72 * L_h**2 * (I - 1) ** 2 * z2) / (R * I**2)
    closed = 8 * np.sqrt(F * L_g * s2 / (R * I * N)) + 8 * F * L_g / R + local
    assert corollary_rates("4.4", R=R, **values).bound.total <= closed * (1 + 1e-9)


@law
@given(values=constants(), R=st.integers(1, 10**4), share=st.floats(0, 1))
def test_5_6_compares_local_with_mini_batch(values: dict[str, Any], R: int, share: float) -> None:
    F, I, N, L_g = (values[name] for name in ("F", "I", "N", "L_g"))  # noqa: E741
    values |= {"L_h": 0.0, "sigma2": share * F * N * L_g / (R * I)}
    choice = corollary_rates("5.6", R=R, **values)
    assert choice.conditions[0].holds
    assert choice.rival is not None
    assert choice.bound.total <= 3 * F * L_g / (R * I) * (1 + 1e-12)
    assert choice.rival.total <= (2 * F * L_g / R + F * L_g / (R * I**2)) * (1 + 1e-12)


def test_the_printed_cap_of_4_6_fails_for_one_participant(table: dict[str, Any]) -> None:
    del table["gamma"]
    choice = corollary_rates("4.6", **{**table, "M": 1, "R": 10**6, "F": 1e9})
    assert choice.bound.admissible
    cap = 1 / (15 * table["I"] * table["L_g"])
    assert choice.gamma * choice.eta < cap
    assert choice.bound.gamma_eta_max < cap


def test_a_10_needs_more_than_24_rounds_where_heterogeneity_dwarfs_smoothness(table: dict[str, Any]) -> None:
    del table["gamma"]
    assert corollary_rates("A.10", **table).R_min == 24
    assert corollary_rates("A.10", **{**table, "L_h": 1000.0}).R_min > 1000


def test_arrays_of_rounds(table: dict[str, Any]) -> None:
    del table["gamma"]
    rounds = np.array([10, 1000])
    many = corollary_rates("4.4", **{**table, "R": rounds})
    assert many.bound.admissible.tolist() == [False, True]
    assert np.asarray(many.gamma)[1] == corollary_rates("4.4", **{**table, "R": 1000}).gamma
