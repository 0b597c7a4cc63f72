"""The baseline of Wang et al.: its formulas against their definitions, and its loop where the answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauge import InputError, fedavg, random_quadratics, simulate
from fedgauge_planning.goal import Goal
from plans.adaptive_tau import adaptive_tau, best_tau, divergence_bound, gap

POSITIVE = st.floats(1e-3, 10.0)
NUMBERS = st.fixed_dictionaries(
    {
        "gamma": st.floats(1e-3, 1.0),
        "rho": POSITIVE,
        "beta": POSITIVE,
        "delta": POSITIVE,
        "step": POSITIVE,
        "fixed": POSITIVE,
        "left": st.floats(1.0, 1e4),
        "phi": st.floats(1e-4, 0.1),
    }
)


@given(gamma=st.floats(1e-3, 1.0), beta=st.floats(1e-2, 5.0), delta=POSITIVE, tau=st.integers(1, 12))
def test_the_bound_on_the_distance_follows_its_recursion(gamma: float, beta: float, delta: float, tau: int) -> None:
    """Lemma 3 of the paper: the local distance g grows by (gamma beta + 1) g + gamma delta, h by gamma beta g."""
    local = total = 0.0
    for _ in range(tau):
        total += gamma * beta * local
        local = (gamma * beta + 1) * local + gamma * delta
    # The closed form takes the difference of numbers that are larger than it by up to 1 / (gamma beta).
    assert divergence_bound(tau, gamma, beta, delta) == pytest.approx(total, rel=1e-6, abs=1e-9 * delta)


@given(numbers=NUMBERS, last=st.integers(1, 20), cap=st.integers(1, 150))
def test_no_tau_in_reach_has_a_smaller_gap(numbers: dict[str, float], last: int, cap: int) -> None:
    found = best_tau(last, cap, **numbers)
    reach = range(1, min(10 * last, cap) + 1)
    assert found in reach
    assert all(gap(found, **numbers) <= gap(tau, **numbers) for tau in reach)


@given(numbers=NUMBERS, last=st.integers(1, 20), cap=st.integers(1, 150))
def test_identical_workers_send_tau_to_its_bound(numbers: dict[str, float], last: int, cap: int) -> None:
    assert best_tau(last, cap, **{**numbers, "delta": 0.0}) == min(10 * last, cap)


def test_on_identical_workers_the_loop_is_fedavg_with_tau_growing_tenfold() -> None:
    federation = random_quadratics(4, 3, hessian_spread=0.0, linear_spread=0.0)
    records = adaptive_tau(federation, 0.1, budget=60.0, step=0.1, fixed=1.0, cap=50)
    assert [record.tau for record in records[:4]] == [1, 10, 50, 50]
    # Equal workers walk as one: the losses are those of gradient descent after so many steps (up to rounding).
    descent = simulate(federation, fedavg(gamma=0.1), local_steps=1, rounds=61)
    assert [r.loss for r in records[:4]] == pytest.approx([descent.losses[k] for k in (0, 1, 11, 61)], rel=1e-12)
    assert np.diff([record.seconds for record in records[:4]]) == pytest.approx([1.1, 2.0, 6.0])


def test_heterogeneous_workers_get_fewer_steps_and_a_goal_ends_the_run() -> None:
    apart = random_quadratics(4, 3, linear_spread=30.0, hessian_spread=1.0)
    records = adaptive_tau(apart, 0.1, budget=200.0, step=0.1, fixed=1.0)
    assert max(record.tau for record in records) < 128
    assert records[-1].seconds <= 200.0
    goal = records[5].loss
    assert len(adaptive_tau(apart, 0.1, budget=200.0, step=0.1, fixed=1.0, goal=Goal("loss", goal))) <= 6


def test_divergence_ends_the_run_with_what_was_recorded() -> None:
    records = adaptive_tau(random_quadratics(4, 3), 1e3, budget=1e5, step=0.1, fixed=1.0)
    assert all(math.isfinite(record.loss) for record in records)


def test_bad_input_gets_a_sentence() -> None:
    federation = random_quadratics(2, 2)
    with pytest.raises(InputError, match="budget"):
        adaptive_tau(federation, 0.1, budget=0.0, step=0.1, fixed=1.0)
    with pytest.raises(InputError, match="cost something"):
        adaptive_tau(federation, 0.1, budget=1.0, step=0.0, fixed=0.0)
