"""The answer: what it recommends follows from the curve, and it says so in words that fit the numbers."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from fedgauge import Answer, StepEfficiency
from fedgauge.base.errors import InputError
from fedgauge.values.answer import COSTS, _falling

TRIED = (1, 4, 16, 64, 256)


def entry(local_steps: int, value: float, error: float = 0.1) -> StepEfficiency:
    return StepEfficiency(local_steps, value, value * math.exp(-error), value * math.exp(error), local_steps > 1)


def answer(*values: float, error: float = 0.1, cost: float | None = None, using: int | None = None) -> Answer:
    entries = [entry(steps, value, error) for steps, value in zip(TRIED, (1.0, *values), strict=False)]
    return Answer(tuple(entries), "synchronous training", cost, using)


def time(value: float, steps: int, cost: float) -> float:
    return (1 + cost / steps) / value


@settings(max_examples=50, deadline=None)
@given(st.floats(2, 500), st.sampled_from([1.0, 10.0, 100.0]))
def test_it_is_near_the_closed_form(scale: float, cost: float) -> None:
    """With E = 1/(1 + I/scale) a useful step takes (1 + cost/I)(1 + I/scale), which is least at sqrt(cost scale)."""
    best = math.sqrt(cost * scale)
    assume(TRIED[0] < best < TRIED[-1])
    found = answer(*(1 / (1 + steps / scale) / (1 / (1 + 1 / scale)) for steps in TRIED[1:])).best(cost)

    def needed(steps: float) -> float:
        return (1 + cost / steps) * (1 + steps / scale)

    # Between the numbers that were tried the curve is interpolated, and a rounder number is taken if it is as good.
    assert needed(found.local_steps) <= 1.06 * needed(best)
    assert found.low <= found.local_steps <= found.high


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.05, 1.0), min_size=4, max_size=4), st.sampled_from(COSTS))
def test_nothing_that_was_tried_is_clearly_better(values: list[float], cost: float) -> None:
    falling = sorted(values, reverse=True)
    found = answer(*falling)
    best = found.best(cost)
    fastest = min(time(each.value, each.local_steps, cost) for each in found.efficiency)
    assert best.speedup * fastest >= (1 + cost) / 1.03
    costs = [found.best(each) for each in COSTS]
    # The dearer a round, the more local steps; rounder numbers are taken if they cost at most 2.5% of the time.
    assert all(a.low <= b.high for a, b in pairwise(costs))


@given(st.lists(st.lists(st.floats(-3, 3), min_size=4, max_size=4), min_size=1, max_size=5))
def test_what_rises_is_made_level_as_scipy_does(rows: list[list[float]]) -> None:
    expected = [isotonic_regression(row, increasing=False).x for row in rows]
    assert _falling(np.array(rows)) == pytest.approx(np.array(expected), abs=1e-12)


@given(st.floats(0.01, 0.1), st.floats(0.5, 2.0))
def test_wider_intervals_are_less_sure(narrow: float, wide: float) -> None:
    values = (0.9, 0.6, 0.3, 0.1)
    sure, unsure = (answer(*values, error=error).best(20).sure for error in (narrow, wide))
    assert sure >= unsure


def test_the_words_fit_the_numbers() -> None:
    found = answer(0.98, 0.9, 0.63, 0.2, cost=100, using=4)
    best = found.best()
    assert found.sentence.startswith(f"Use {best.local_steps} local steps if a round costs as much as 100 of them (")
    assert f"{best.sure:.0%} sure that it is within 10% of the best" in found.sentence or best.sure >= 0.995
    assert found.share.startswith(("At 64 local steps, 63%", "Between 16 and 64 local steps, 63% to 90%"))
    assert found.speedup_over(4) == pytest.approx(time(0.98, 4, 100) / time(1.0, 1, 100) * best.speedup, rel=1e-6)
    assert "That is" in str(found)
    assert "in use" in str(found)


def test_the_edge_is_named() -> None:
    assert answer(1.0, 1.0, 0.99, 0.98).best(1000).edge == "largest"
    assert answer(0.5, 0.2, 0.05, 0.01).best(1).edge == ""  # one local step is no edge: there is nothing below
    above = Answer((entry(16, 1.0), entry(64, 0.2)), "16 local steps per round")
    assert above.best(1).edge == "smallest"


def test_what_whole_runs_chose_stands_above_the_curve() -> None:
    found = Answer((entry(1, 1.0), entry(16, 0.7), entry(64, 0.6)), "synchronous training", cost=10.0, chosen=16)
    assert found.best().local_steps == 16
    assert [each.cost for each in found.recommendations] == [10.0]
    assert found.best(1000).local_steps == 64
    with pytest.raises(InputError, match="chooses among the numbers that were tried"):
        Answer((entry(1, 1.0),), "synchronous training", chosen=2)


def test_what_may_never_arrive_is_not_recommended() -> None:
    entries = (entry(1, 1.0), entry(16, 0.6), StepEfficiency.at_most(64, 0.5), StepEfficiency.at_most(256, 0.5))
    found = Answer(entries, "synchronous training", cost=1000.0)
    assert found.best().local_steps == 16
    assert found.best().edge == ""


def test_it_survives_json() -> None:
    found = answer(0.98, 0.9, cost=3.0)
    assert Answer.from_json(found.to_json()) == found


def test_without_a_cost_it_says_how_to_find_one() -> None:
    with pytest.raises(InputError, match="time a round, time a step, divide"):
        answer(0.9).best()
    assert "time a round of communication, time a local step, and divide" in str(answer(0.9, 0.5))
