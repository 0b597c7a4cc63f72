"""Runs that end before the goal: extrapolated where they get on, and not where they have stalled."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauge import Experiment, GaugeOptions, fedavg, gauge, random_quadratics
from fedgauge.measurement.gauge.efficiency import BaseCurve, GaugeRun, efficiency_of, has_stalled, phases_of

WAY = 200
CURVE = BaseCurve(range(WAY + 1), [float(WAY - step) for step in range(WAY + 1)])
"""A base run that comes down by 1 with every step."""


def run_of(come: list[float], local_steps: int = 4) -> GaugeRun:
    """A run that has come so far on the base run's way after each round."""
    steps = tuple(local_steps * number for number in range(len(come) + 1))
    return GaugeRun(local_steps, steps, (float(WAY), *(WAY - each for each in come)))


@given(st.floats(0.9, 1.9), st.floats(0.3, 0.9))
def test_a_power_is_continued_exactly(power: float, part: float) -> None:
    """Steps that grow as a power of the way: needed = c way^b, known in closed form."""
    needed = 1.5 * WAY
    rounds = int(needed * part**power / 4)
    come = [WAY * (4 * number / needed) ** (1 / power) for number in range(1, rounds + 1)]
    found = efficiency_of(run_of(come), CURVE, 0.0)
    assert found.how == "part"
    assert found.value == pytest.approx(WAY / needed, rel=1e-6)
    assert found.low < WAY / needed < found.high


@given(st.lists(st.floats(0.0, 12.0), min_size=1, max_size=40))
def test_no_answer_says_that_the_goal_was_reached_before(made: list[float]) -> None:
    come = [float(each) for each in np.cumsum(made)]
    run = run_of(come)
    found, taken = efficiency_of(run, CURVE, 0.0), run.steps[-1]
    assert found.low <= found.high
    if come[-1] < WAY:
        assert found.how in ("run", "part")
        assert found.high <= max(WAY / taken, 1.0) + 1e-9
        assert found.value is None or found.low <= found.value <= WAY / taken + 1e-9
    else:
        assert found.how == "run"
        assert found.value is not None
    assert len(phases_of(run, CURVE, 0.0, 3)) == min(int(3 * come[-1] / WAY + 1e-9), 3)


def test_a_run_that_has_stalled_gets_no_number() -> None:
    stalled = run_of([min(8.0 * number, 100.0) for number in range(1, 60)])
    assert has_stalled(stalled, CURVE)
    found = efficiency_of(stalled, CURVE, 0.0)
    assert found.value is None
    assert found.high == pytest.approx(WAY / stalled.steps[-1])
    assert not has_stalled(run_of([2.0 * number for number in range(1, 60)]), CURVE)


def test_a_run_that_diverged_gets_no_number() -> None:
    run = GaugeRun(4, (0, 4, 8), (200.0, 150.0, math.inf))
    assert efficiency_of(run, CURVE, 0.0).value is None


def test_the_phases_of_a_run_are_those_of_its_steps() -> None:
    """Twice as slow in the middle, and four times as slow late."""
    places = [(0, 0.0), (68, WAY / 3), (202, 2 * WAY / 3), (470, float(WAY))]
    rounds = np.interp(np.arange(4, 476, 4), [step for step, _ in places], [come for _, come in places])
    found = phases_of(run_of([float(each) for each in rounds]), CURVE, 0.0, 3)
    values = [each.value for each in found]
    # A record lies up to four steps from where a phase ends.
    assert values == pytest.approx([0.98, 0.5, 0.25], rel=0.05)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_half_a_run_says_what_the_whole_one_does(seed: int) -> None:
    federation = random_quadratics(6, 5, hessian_spread=0.4, sigma2=1e-4, seed=seed)
    found = {
        budget: gauge(federation, fedavg(gamma=0.02), options=GaugeOptions(steps=300, local_steps=[8], budget=budget))
        for budget in (150, 600)
    }
    half, whole = (each.efficiency[1] for each in found.values())
    assert (half.how, whole.how) == ("part", "run")
    assert whole.value is not None
    assert half.low <= whole.value <= half.high
    assert half.share.startswith("about")
    assert "of the way; the rest is extrapolated" in found[150].notes[0]
    assert found[150].spent.gradient_steps <= 150
    assert [len(each.phases) for each in found.values()] == [3, 3]


def test_a_short_way_is_run_and_says_why_steps_are_lost() -> None:
    experiment = Experiment.of({"source": "digits", "gamma": 0.1, "percent": 75, "processes": 1})
    found = gauge(experiment, options=GaugeOptions(steps=120))
    assert {each.how for each in found.efficiency[1:]} <= {"run", "part"}
    assert len(found.efficiency) >= 3
    assert found.spent.gradient_steps <= 240
    assert found.cause is not None
    assert found.cause.local_steps in (4, 16, 64)
    assert "early" in [phase.name for phase in found.phases]
