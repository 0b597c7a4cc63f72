"""The gauge around one model, and its explanation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedgauge import GaugeOptions, MeasureOptions, QuadraticFederation, fedavg, gauge, measure, random_quadratics
from fedgauge.algorithms import make_algorithm
from fedgauge.federation.identity import digest_of
from fedgauge.measurement.gauge.cause import Cause, Sight, explained
from fedgauge.simulation.setup import Setup
from fedgauge.values.answer import StepEfficiency

AROUND = GaugeOptions(steps=200, local_steps=(4, 16), around=True)


def test_around_a_model_the_base_run_starts_from_it_and_no_phase_is_told_apart() -> None:
    federation = random_quadratics(4, 3, hessian_spread=0.3, sigma2=0.01)
    model = torch.full((3,), 5.0, dtype=torch.float64)
    found = gauge(federation, fedavg(gamma=0.02), options=AROUND, start=model)
    losses = federation.losses(model.expand(4, 3), np.arange(4))
    assert math.isclose(found.losses[0], float(losses.mean()), rel_tol=1e-12)
    assert found.answer.phases == ()
    assert found.settings["start"] == digest_of(model)
    assert [each.local_steps for each in found.efficiency] == [1, 4, 16]


def test_equal_workers_are_free_around_any_model() -> None:
    federation = random_quadratics(4, 3, hessian_spread=0.0, linear_spread=0.0, sigma2=0.0)
    found = gauge(federation, fedavg(gamma=0.02), options=AROUND, start=torch.ones(3, dtype=torch.float64))
    assert [each.value for each in found.efficiency] == pytest.approx([1, 1, 1], abs=0.02)
    assert found.cause is None


def test_drift_that_puts_the_goal_out_of_reach_gets_only_a_limit() -> None:
    """Two workers that pull apart with unequal strength: I steps end at another point, where f is higher.

    With H = 1 ± 0.9 and b = ±1, f is least at 0. The fixed point of local steps is not 0, so that f stays above the
    base run's last value, however long it runs.
    """
    federation = QuadraticFederation([[[1.9]], [[0.1]]], [[1.0], [-1.0]], start=[3.0])
    found = gauge(federation, fedavg(gamma=0.1), options=GaugeOptions(steps=100, local_steps=(2, 16)))
    last = found.efficiency[-1]
    assert last.limit
    assert any("out of reach" in note for note in found.notes)


def test_the_cause_is_what_a_round_shows() -> None:
    """Without noise, all of the spread is disagreement, and L_h times the spread is the shift of the gradient."""
    federation = QuadraticFederation([[[1.9]], [[0.1]]], [[1.0], [-1.0]], start=[3.0])
    found = gauge(federation, fedavg(gamma=0.1), options=AROUND)
    cause = found.cause
    assert cause is not None
    assert cause.noise == 0
    # The mean of H_i (x_i - mean) is 0.9 times half the distance of two models, and so is the spread.
    assert cause.L_h == pytest.approx(0.9)
    assert cause.sentence.startswith(f"Why: after {cause.local_steps} local steps")


@pytest.mark.parametrize(
    ("name", "value", "deviation2", "said"),
    [
        ("fedavg", 0.5, 1.0, True),
        ("fedavg", 0.95, 1.0, False),
        ("fedavg", 0.5, 0.01, False),
        ("scaffold", 0.5, 1.0, False),
    ],
)
def test_nothing_is_said_where_the_numbers_do_not_explain_the_loss(
    name: str, value: float, deviation2: float, said: bool
) -> None:
    setup = Setup(random_quadratics(4, 3), make_algorithm(name, gamma=0.1))
    found, sights = [StepEfficiency(8, value, value, value)], [Sight(8, 2.0, deviation2, 1.0, 1.0)]
    cause = explained(setup, found, sights, sigma2=1.0)
    assert (cause is not None) == said
    if cause:
        # gamma^2 I sigma^2 (1 - 1/N) over the spread.
        assert cause.noise == pytest.approx(0.01 * 8 * 0.75 / 2.0)
        assert cause == Cause.from_json(cause.to_json())


@pytest.mark.parametrize(("values", "steps"), [((0.85, 0.7, 0.3), 16), ((0.89, 0.88, 0.85), 4), ((1.0, 0.95, 0.3), 64)])
def test_the_cause_is_that_of_the_fewest_local_steps_that_lose_much(values: tuple[float, ...], steps: int) -> None:
    setup = Setup(random_quadratics(4, 3), fedavg(gamma=0.1))
    numbers = (4, 16, 64)
    found = [StepEfficiency(each, E, E, E) for each, E in zip(numbers, values, strict=True)]
    cause = explained(setup, found, [Sight(each, 2.0, 1.0, 1.0, 1.0) for each in numbers], 1.0)
    assert cause is not None
    assert cause.local_steps == steps


def test_the_gauge_is_a_reading_at_the_model() -> None:
    federation = random_quadratics(4, 3, hessian_spread=0.3, sigma2=0.01)
    model = torch.full((3,), 5.0, dtype=torch.float64)
    options = MeasureOptions(("gauge",))
    found = measure(federation, fedavg(gamma=0.02), local_steps=8, model=model, options=options)
    reading = found.reading("gauge")
    assert reading is not None
    E = reading.constants["E"]
    assert E.kind == "sample"
    assert E.low <= E.value <= E.high
    direct = gauge(federation, fedavg(gamma=0.02), options=GaugeOptions(local_steps=(8,), around=True), start=model)
    assert E.value == direct.efficiency[-1].value
