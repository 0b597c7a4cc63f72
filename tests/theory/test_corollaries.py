"""The corollaries' rates are admissible from R_min on and not before, and their bounds obey the closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgauge.theory import evaluate
from fedgauge.theory.corollaries import COROLLARIES, corollary_rates, local_beats_minibatch

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
    if corollary in ("5.6", "B.1"):  # one Hessian
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


@law
@given(values=constants(), R=st.integers(1, 10**6))
def test_the_rate_of_b_1_gives_one_over_the_root_of_all_steps(values: dict[str, Any], R: int) -> None:
    F, I, N, s2, L_g = (values[name] for name in ("F", "I", "N", "sigma2", "L_g"))  # noqa: E741
    choice = corollary_rates("B.1", R=R, **{**values, "L_h": 0.0})
    assert choice.gamma == pytest.approx((R * I) ** -0.5)
    assert choice.eta == 1.0
    assert choice.bound.total == pytest.approx((2 * F + L_g * s2 / N) / (R * I) ** 0.5)
    assert choice.R_min <= np.ceil(L_g**2 / I) + 1
    assert choice.locator == "Theorem 5.5 at the rate of Appendix B.1"


@law
@given(values=constants(), R=st.integers(1, 10**6))
def test_the_closed_region_is_what_the_bounds_say_once_it_has_their_constants(values: dict[str, Any], R: int) -> None:
    """Without noise, A.2 at the cube root against mini-batch SGD at 1/L_g: 2 F and 8 L_h^2 I phi zeta2 for F and 1."""
    values |= {"sigma2": 0.0}
    choice = corollary_rates("A.3", R=R, **values)
    assert choice.rival is not None
    used = {name: value for name, value in values.items() if name not in ("M", "mu", "d0", "L_tilde")}
    plain = local_beats_minibatch(R=R, **used)
    with_constants = local_beats_minibatch(R=R, **{**used, "F": 2 * used["F"], "zeta2": 8 * used["zeta2"]})
    assert plain.applies
    ratio = float(choice.bound.total / choice.rival.total)
    # The right side divides by F + L_h^2 I phi zeta2, so that F L_g of it stands for half of the 2 F that was given.
    assert float(with_constants.left / with_constants.right) * 2 == pytest.approx(ratio, rel=1e-9)


def test_the_closed_region_by_hand() -> None:
    """kappa = 2, I = 2: phi = 1 + 4; R = 32: (32/4)^(1/3) = 2 against 6/(2 + 1 * 2 * 5 * 0.4) = 1."""
    values: dict[str, Any] = {"F": 2, "L_g": 3, "L_h": 1, "I": 2, "R": 32, "zeta2": 0.4, "kappa": 2, "N": 5}
    sides = local_beats_minibatch(sigma2=0.0, **values)
    assert [float(sides.left), float(sides.right)] == pytest.approx([2, 1])
    assert not sides.holds
    limit = 5 * 2 / (64 ** (-2 / 3) * 3 * 64)  # N F/(gamma^2 L_g R I)
    assert local_beats_minibatch(sigma2=limit * 0.999, **values).applies
    assert not local_beats_minibatch(sigma2=limit * 1.001, **values).applies


def test_local_sgd_may_beat_mini_batch_sgd_by_a_2_only_where_its_rate_is_admissible(table: dict[str, Any]) -> None:
    """What the closed form leaves out: here it claims a win at a rate that Theorem A.2 does not admit."""
    values = {name: table[name] for name in ("F", "L_h", "zeta2", "N")} | {"sigma2": 0.0, "kappa": 0.5, "I": 4, "R": 4}
    values |= {"L_g": 40.0}
    assert local_beats_minibatch(**values).holds
    rate = (4 * 4) ** (-1 / 3)
    assert not evaluate("quadratic", "corrected", **values, L_tilde=40.0, gamma=rate).admissible
