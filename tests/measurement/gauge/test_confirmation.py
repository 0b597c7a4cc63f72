"""Runs of their own for numbers on which a recommendation rests, on runs whose course is known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from fedgauge import Answer, StepEfficiency
from fedgauge.measurement.gauge.confirmation import Confirmation
from fedgauge.measurement.gauge.curves import BaseCurve
from fedgauge.measurement.gauge.runner import Track

STEPS = 1024


def level(worth: float) -> float:
    """f after so many steps that count."""
    return 2.0 / (1 + worth / 100)


GOAL = level(STEPS)
CURVE = BaseCurve(np.arange(0, STEPS + 1, 16.0), [level(step) for step in range(0, STEPS + 1, 16)])


def entry(local_steps: int, value: float) -> StepEfficiency:
    return StepEfficiency(local_steps, value, value / 1.2, value * 1.2, local_steps > 1)


def confirmed(
    found: list[StepEfficiency], cost: float, loss: Callable[[int, float], float], larger: bool = True
) -> tuple[list[StepEfficiency], set[int]]:
    """The efficiencies after runs in which f is ``loss`` of the local steps of a round and the steps so far."""

    def run(local_steps: int, rounds: int, every: int) -> Track:
        steps, losses = [0], [loss(local_steps, 0)]
        while losses[-1] > GOAL and steps[-1] < rounds * local_steps:
            steps.append(steps[-1] + every)
            losses.append(loss(local_steps, steps[-1]))
        return Track(tuple(steps), tuple(losses), steps[-1] // local_steps, steps[-1], len(steps), complete=True)

    confirmation = Confirmation(run, CURVE, GOAL, STEPS)
    after = confirmation.make(found, lambda each: Answer(tuple(each), "", cost).best(), cost, larger)
    return after, confirmation.tried


def test_a_number_that_stalls_above_the_goal_is_no_longer_recommended() -> None:
    """One run saw 40% of the work of 64 local steps count; alone, they never get below a level of drift."""

    def loss(local_steps: int, steps: float) -> float:
        return max(level(0.4 * steps), 4 * GOAL)

    found = [entry(1, 1.0), entry(16, 0.6), entry(64, 0.4)]
    assert Answer(tuple(found), "", 100.0).best().local_steps > 16
    after, tried = confirmed(found, 100.0, loss, larger=False)
    assert tried == {64}
    assert [each.limit for each in after] == [False, False, True]
    assert Answer(tuple(after), "", 100.0).best().local_steps == 16


def test_a_number_that_arrives_has_the_efficiency_of_its_run() -> None:
    after, tried = confirmed(
        [entry(1, 1.0), entry(16, 0.7), entry(64, 0.3)], 100.0, lambda local, steps: level(0.55 * steps), larger=False
    )
    assert tried == {64}
    assert after[-1].value == pytest.approx(0.55, rel=0.05)
    assert after[:2] == [entry(1, 1.0), entry(16, 0.7)]


def test_most_of_the_progress_is_extrapolated_and_little_of_it_is_not() -> None:
    """Twice the steps show 80% of the progress at an efficiency of 0.4, and 40% at 0.2."""
    start = [entry(1, 1.0), entry(16, 0.7), entry(64, 0.45)]
    far, _ = confirmed(start, 100.0, lambda local, steps: level(0.4 * steps), larger=False)
    assert not far[-1].limit
    assert far[-1].value == pytest.approx(0.4, rel=0.1)
    near, _ = confirmed(start, 100.0, lambda local, steps: level(0.2 * steps), larger=False)
    assert near[-1].limit
    assert near[-1].high == pytest.approx(0.5, rel=0.05)


def test_larger_numbers_are_tried_while_they_are_worth_it_and_nobody_named_others() -> None:
    free = [entry(1, 1.0), entry(16, 1.0), entry(64, 0.97)]
    after, tried = confirmed(free, 1000.0, lambda local, steps: level(0.9 * steps))
    assert tried == {256}  # a run of 1,024 local steps would have two rounds
    assert after[-1].local_steps == 256
    assert confirmed(free, 1000.0, lambda local, steps: level(steps), larger=False) == (free, set())
    assert confirmed(free, 1.0, lambda local, steps: level(steps)) == (free, set())


def test_what_is_efficient_is_not_run_again() -> None:
    found = [entry(1, 1.0), entry(16, 0.9), entry(64, 0.8), entry(256, 0.1)]
    assert confirmed(found, 20.0, lambda local, steps: math.nan) == (found, set())
