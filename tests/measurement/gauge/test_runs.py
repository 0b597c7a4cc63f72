"""Runs that end before the goal: extrapolated where they get on, and not where they have stalled."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauge import Experiment, GaugeOptions, fedavg, gauge, random_quadratics
from fedgauge.measurement.gauge.curves import BaseCurve, efficiency_of, has_stalled, phases_of
from fedgauge.measurement.gauge.runner import Track
from fedgauge.values.answer import StepEfficiency

WAY = 200
CURVE = BaseCurve(range(WAY + 1), [float(WAY - step) for step in range(WAY + 1)])
"""A base run that comes down by 1 with every step."""


def run_of(come: list[float]) -> Track:
    """A run of four local steps that has come so far on the base run's way after each round."""
    return Track(tuple(4 * number for number in range(len(come) + 1)), (float(WAY), *(WAY - each for each in come)))


def known(run: Track) -> StepEfficiency:
    found = efficiency_of(4, run, CURVE, 0.0)
    assert found is not None
    return found


@given(st.floats(0.9, 1.9), st.floats(0.3, 0.9))
def test_a_power_is_continued_exactly(power: float, part: float) -> None:
    """Steps that grow as a power of those of the base run: needed = c way^b, known in closed form."""
    needed = 1.5 * WAY
    rounds = int(needed * part**power / 4)
    come = [WAY * (4 * number / needed) ** (1 / power) for number in range(1, rounds + 1)]
    found = known(run_of(come))
    assert found.value == pytest.approx(WAY / needed, rel=1e-6)
    assert found.low < WAY / needed < found.high


@given(st.lists(st.floats(0.0, 12.0), min_size=1, max_size=40))
def test_no_answer_says_that_the_goal_was_reached_before(made: list[float]) -> None:
    come = [float(each) for each in np.cumsum(made)]
    run = run_of(come)
    found, taken = efficiency_of(4, run, CURVE, 0.0), run.steps[-1]
    if found is None:
        assert come[-1] < WAY
        assert taken <= WAY
    else:
        assert found.low <= found.value <= found.high
        assert not (found.limit and come[-1] >= WAY)
        if come[-1] < WAY:
            assert found.high <= max(WAY / taken, 1.0) + 1e-9
            assert found.value <= WAY / taken + 1e-9
    assert len(phases_of(4, run, CURVE, 0.0, 3)) == min(int(3 * come[-1] / WAY + 1e-9), 3)


def test_a_run_that_has_stalled_gets_only_a_limit() -> None:
    stalled = run_of([min(8.0 * number, 100.0) for number in range(1, 60)])
    assert has_stalled(stalled, CURVE)
    found = known(stalled)
    assert found.limit
    assert found.high == pytest.approx(WAY / stalled.steps[-1])
    assert not has_stalled(run_of([2.0 * number for number in range(1, 60)]), CURVE)


def test_of_a_run_that_diverged_at_once_nothing_is_known() -> None:
    assert efficiency_of(4, Track((0, 4, 8), (200.0, 150.0, math.inf)), CURVE, 0.0) is None


def test_the_phases_of_a_run_are_those_of_its_steps() -> None:
    """Twice as slow in the middle, and four times as slow late."""
    places = [(0, 0.0), (68, WAY / 3), (202, 2 * WAY / 3), (470, float(WAY))]
    rounds = np.interp(np.arange(4, 476, 4), [step for step, _ in places], [come for _, come in places])
    found = phases_of(4, run_of([float(each) for each in rounds]), CURVE, 0.0, 3)
    values = [each.value for each in found]
    # A record lies up to four steps from where a phase ends.
    assert values == pytest.approx([0.98, 0.5, 0.25], rel=0.05)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_half_a_run_says_what_the_whole_one_does(seed: int) -> None:
    federation = random_quadratics(6, 5, hessian_spread=0.4, sigma2=1e-4, seed=seed)
    # A run of 300 steps is too short to change between 1 and 40 local steps.
    found = {
        budget: gauge(federation, fedavg(gamma=0.02), options=GaugeOptions(steps=300, local_steps=[40], budget=budget))
        for budget in (160, 900)
    }
    half, whole = (each.efficiency[1] for each in found.values())
    assert half.low <= whole.value <= half.high
    assert "of the progress; the rest is extrapolated" in found[160].notes[0]
    assert found[160].spent.gradient_steps <= 300 + 160
    assert [len(each.answer.phases) for each in found.values()] == [1, 3]


def test_a_short_way_is_run_and_says_why_steps_are_lost() -> None:
    experiment = Experiment.of({"source": "digits", "gamma": 0.1, "percent": 75, "processes": 1})
    found = gauge(experiment, options=GaugeOptions(steps=120))
    assert len(found.efficiency) >= 3
    assert found.spent.gradient_steps <= 3 * 120
    assert found.cause is not None
    assert found.cause.local_steps in (4, 16, 64)
    assert "early" in dict(found.answer.phases)
    assert "by comparing a run with one local step per round with runs" in found.answer.method
