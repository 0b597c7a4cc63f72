"""Forecasts against curves whose future is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauge import InputError
from fedgauge.values import Round
from fedgauge_planning.forecast import Curve, Scale
from fedgauge_planning.goal import Goal


def curve(error: object, rounds: int = 60, each: float = 2.0) -> Curve:
    times = np.arange(rounds + 1) * each
    return Curve(tuple(times.tolist()), tuple(float(error(t)) for t in times), each, "stopped")  # type: ignore[operator]


@given(st.floats(0.5, 2.0), st.floats(1e-3, 0.5))
def test_a_power_of_time_is_forecast_within_a_factor_of_three(power: float, target: float) -> None:
    found = curve(lambda t: (1 + t / 2.0) ** -power)
    truth = 2.0 * (target ** (-1 / power) - 1)
    said = found.forecast(target)
    if truth <= found.end:
        assert said == pytest.approx(truth, abs=2.0)  # at the record after it
    elif truth < 4 * found.end:
        assert truth / 3 <= said <= 3 * truth


@given(st.floats(0.01, 0.3), st.floats(1e-12, 1e-6))
def test_a_run_that_falls_at_a_constant_rate_is_given_no_less_than_it_needs(rate: float, target: float) -> None:
    found = curve(lambda t: math.exp(-rate * t))
    truth = -math.log(target) / rate
    if truth > found.end:
        assert found.forecast(target) >= truth * (1 - 1e-6)


@given(st.floats(1e-3, 1.0))
def test_a_plateau_never_arrives(level: float) -> None:
    assert curve(lambda t: level).forecast(level / 2) == math.inf


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30), st.floats(1e-6, 1e6))
def test_whatever_a_run_does_there_is_a_forecast(errors: list[float], target: float) -> None:
    found = Curve(tuple(2.0 * r for r in range(len(errors))), tuple(errors), 2.0, "stopped")
    reached = found.when(target)
    assert found.forecast(target) >= (found.end if reached is None else reached)
    assert found.later(found.end * 3 + 1) > 0


def test_what_is_known_early_is_no_more_than_what_was_seen_by_then() -> None:
    found = curve(lambda t: 1 / (1 + t))
    early = found.until(20.0)
    assert early.end == 20.0
    assert early.errors == found.errors[:11]
    assert found.until(1e9) is found


@given(st.floats(0.1, 10.0))
def test_another_cost_stretches_time_and_nothing_else(each: float) -> None:
    found = curve(lambda t: 1 / (1 + t))
    other = found.costing(each)
    assert other.errors == found.errors
    reached, there = found.when(0.1), other.when(0.1)
    assert reached is not None
    assert there is not None
    assert there / each == pytest.approx(reached / found.each)


@pytest.mark.parametrize(
    ("goal", "record", "error"),
    [
        (Goal("loss", 0.3), Round(0, 0.5, 1.0), 0.4),
        (Goal("accuracy", 0.9), Round(0, 0.5, 1.0, accuracy=0.75), 0.25),
        (Goal("grad2", 0.1), Round(0, 0.5, 0.2), 0.2),
    ],
)
def test_every_quantity_becomes_an_error_and_comes_back(goal: Goal, record: Round, error: float) -> None:
    scale = Scale(goal, floor=0.1)
    assert scale.error(record) == pytest.approx(error)
    assert scale.value(scale.error(record)) == pytest.approx(getattr(record, goal.quantity))
    assert goal.value is not None
    assert scale.target is not None
    assert scale.value(scale.target) == pytest.approx(goal.value)


def test_a_loss_below_the_least_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"goal loss must be above 0\.1"):
        Scale(Goal("loss", 0.1), floor=0.1)
