"""The gauge says how many local steps count: checked by whole runs, by closed forms and by laws."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauge import (
    Compute,
    Cost,
    Experiment,
    GaugeOptions,
    GaugeResult,
    Participation,
    QuadraticFederation,
    Recording,
    fedavg,
    gauge,
    random_quadratics,
    scaffold,
    simulate,
)
from fedgauge.base.errors import InputError
from fedgauge.measurement.gauge.curves import BaseCurve

GAMMA = 0.02


def crossing(federation: QuadraticFederation, local_steps: int, goal: float, most: int = 2_000) -> float:
    """The steps after which a whole run reaches a value of f, between two records."""
    trace = simulate(
        federation,
        fedavg(gamma=GAMMA),
        local_steps=local_steps,
        rounds=most // local_steps,
        record=Recording(watch=False),
    )
    losses = trace.losses
    after = int(np.argmax(losses <= goal))
    assert losses[after] <= goal
    return float(local_steps * (after - 1 + (losses[after - 1] - goal) / (losses[after - 1] - losses[after])))


def test_local_steps_are_free_where_the_hessians_agree() -> None:
    federation = random_quadratics(5, 4, hessian_spread=0.0, seed=3)
    options = GaugeOptions(steps=240, local_steps=[2, 8, 20], budget=740)  # for three whole runs
    found = gauge(federation, fedavg(gamma=GAMMA), options=options)
    # The curve is a polygon through its records, so that the steps between them are exact only up to its bends.
    assert [each.value for each in found.efficiency] == pytest.approx([1.0] * 4, abs=0.02)
    assert found.answer.best(1000).local_steps == 20


@pytest.mark.parametrize(("spread", "seed"), [(0.3, 0), (0.3, 1), (0.6, 2)])
def test_the_slowdown_is_that_of_whole_runs(spread: float, seed: int) -> None:
    federation = random_quadratics(6, 5, hessian_spread=spread, seed=seed)
    found = gauge(federation, fedavg(gamma=GAMMA), options=GaugeOptions(steps=300, local_steps=[4, 16]))
    base = crossing(federation, 1, found.goal)
    assert base == pytest.approx(300, rel=0.02)
    for each in found.efficiency[1:]:
        truth = crossing(federation, each.local_steps, found.goal) / base
        assert each.slowdown == pytest.approx(truth, rel=0.1)
        assert each.low <= 1 / truth <= each.high


def test_drift_that_stalls_gets_no_made_up_number() -> None:
    """Hessians 1 and 3 with far minima: many local steps end where f is above the goal, however long they run."""
    federation = QuadraticFederation([[[0.2]], [[3.0]]], [[-6.0], [6.0]], start=[20.0])
    options = GaugeOptions(steps=400, local_steps=[64], budget=4000)
    found = gauge(federation, fedavg(gamma=0.05), options=options)
    (each,) = found.efficiency[1:]
    assert each.limit
    assert each.slowdown is None
    assert 0 < each.high < 0.8
    assert "at most" in found.answer.share


def test_what_is_chosen_by_itself() -> None:
    free = gauge(random_quadratics(4, 3, hessian_spread=0.0), fedavg(gamma=GAMMA), options=GaugeOptions(steps=2000))
    assert [each.local_steps for each in free.efficiency][:3] == [1, 16, 64]
    assert free.answer.best(100).local_steps >= 64
    apart = gauge(random_quadratics(4, 3, hessian_spread=0.9), fedavg(gamma=0.1), options=GaugeOptions(steps=300))
    assert 4 in [each.local_steps for each in apart.efficiency]


@pytest.mark.parametrize("budget", [100, 700, 2000])
def test_the_budget_is_kept(budget: int) -> None:
    found = gauge(
        random_quadratics(4, 3, hessian_spread=0.5), fedavg(gamma=0.05), options=GaugeOptions(steps=400, budget=budget)
    )
    assert 400 <= found.spent.gradient_steps <= 400 + budget
    unpaid = [note for note in found.notes if "the budget" in note]
    assert bool(unpaid) or len(found.efficiency) >= 2


def test_the_same_bits_with_two_processes() -> None:
    experiment = Experiment.of({"source": "digits", "gamma": 0.1, "percent": 50, "processes": 1})
    options = GaugeOptions(steps=60, local_steps=[4])
    one = gauge(experiment, options=options)
    two = gauge(experiment.changed({"processes": 2}), options=options)
    assert [each.value for each in one.efficiency] == [each.value for each in two.efficiency]
    assert one.losses == two.losses


@pytest.mark.parametrize("algorithm", [fedavg(gamma=0.05, eta=0.5), scaffold(gamma=0.05)])
def test_other_algorithms_and_partial_participation(algorithm: Any) -> None:
    found = gauge(
        random_quadratics(6, 3, hessian_spread=0.2, sigma2=0.01),
        algorithm,
        options=GaugeOptions(steps=200, local_steps=[4]),
        participation=Participation("without-replacement", 3),
        compute=Compute(processes=1),
        seed=1,
    )
    assert found.efficiency[1].value is not None


def test_unequal_local_steps_are_not_passed_over_in_silence() -> None:
    found = gauge(
        random_quadratics(3, 2),
        fedavg(gamma=GAMMA),
        options=GaugeOptions(steps=60, local_steps=[4]),
        local_steps=[2, 4, 6],
    )
    assert "all workers take the same number" in found.notes[0]


def test_the_goal_ends_the_way() -> None:
    federation = random_quadratics(4, 3, hessian_spread=0.2)
    whole = gauge(federation, fedavg(gamma=GAMMA), options=GaugeOptions(steps=300, local_steps=[4]))
    goal = whole.losses[len(whole.losses) // 2]
    part = gauge(federation, fedavg(gamma=GAMMA), goal=goal, options=GaugeOptions(steps=300, local_steps=[4]))
    assert part.goal == goal
    assert part.spent.gradient_steps < 200
    with pytest.raises(InputError, match="give it more rounds, or choose a larger loss"):
        gauge(federation, fedavg(gamma=GAMMA), goal=-100.0, options=GaugeOptions(steps=50))


@pytest.mark.parametrize(
    ("options", "gamma", "message"),
    [
        ({"steps": 50}, 1e9, "f diverges with one local step per round at this rate"),
        ({"budget": 0}, 0.1, "budget must be"),
        ({"local_steps": [0]}, 0.1, "local_steps must be"),
    ],
)
def test_bad_input(options: dict[str, Any], gamma: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        gauge(random_quadratics(3, 2), fedavg(gamma=gamma), options=GaugeOptions(**options))


def test_options_and_text_are_taken_as_a_user_means_them() -> None:
    federation, options = random_quadratics(4, 3), GaugeOptions(steps=100, local_steps=[4])
    plain = gauge(federation, fedavg(gamma=GAMMA), cost=Cost.parse("cross-device"), options=options)
    options = GaugeOptions(local_steps=[4])
    assert gauge(federation, fedavg(gamma=GAMMA), cost="cross-device", options=options, steps=100) == plain
    goal = plain.losses[-20]
    early = gauge(federation, fedavg(gamma=GAMMA), goal=f"loss={goal!r}", options=options, steps=100)
    assert early.goal == goal
    for wrong in ({"goal": "accuracy=1"}, {"goal": float("nan")}, {"options": {"steps": 3}}, {"stepz": 3}):
        with pytest.raises(InputError):
            gauge(federation, fedavg(gamma=GAMMA), **wrong)


def test_a_federation_at_its_minimum_has_no_way_down() -> None:
    federation = QuadraticFederation([[[1.0]], [[1.0]]], [[1.0], [-1.0]], start=[0.0])
    with pytest.raises(InputError, match="f does not fall"):
        gauge(federation, fedavg(gamma=0.1), options=GaugeOptions(steps=20))


def test_ctrl_c_keeps_what_there_is() -> None:
    def progress(what: str, done: int, total: int | None) -> None:
        if what == "16 local steps":
            raise KeyboardInterrupt

    found = gauge(
        random_quadratics(4, 3),
        fedavg(gamma=GAMMA),
        options=GaugeOptions(steps=100, local_steps=[4, 16]),
        progress=progress,
    )
    assert [each.local_steps for each in found.efficiency] == [1, 4]
    assert "interrupted" in found.notes[-1]


@pytest.mark.parametrize(("steps", "moment"), [(200, 40), (200, 150), (100, 60), (100, 160), (100, 230)])
def test_an_interrupted_gauge_is_resumed_to_the_same_result(steps: int, moment: int, tmp_path: Path) -> None:
    """200 steps are enough for one run that changes between these numbers; with 100, each has a run of its own."""
    federation = random_quadratics(4, 3, hessian_spread=0.3, sigma2=0.01)
    options = GaugeOptions(steps=steps, local_steps=[4, 16])
    whole = gauge(federation, fedavg(gamma=GAMMA), options=options)

    def progress(what: str, done: int, total: int | None) -> None:
        if done >= moment:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):  # the base run has nothing to show yet
        part = gauge(federation, fedavg(gamma=GAMMA), options=options, directory=tmp_path / "parts", progress=progress)
        assert part.spent.gradient_steps < whole.spent.gradient_steps
    taken: list[int] = []
    again = gauge(
        federation,
        fedavg(gamma=GAMMA),
        options=options,
        directory=tmp_path / "parts",
        progress=lambda what, done, total: taken.append(done),
    )
    assert again.to_json() == {**whole.to_json(), "spent": again.to_json()["spent"]}
    assert again.spent.gradient_steps == whole.spent.gradient_steps
    assert taken[0] > 0 or moment < 60
    assert not list((tmp_path / "parts").glob("state-*"))
    with pytest.raises(InputError, match="another seed"):
        gauge(federation, fedavg(gamma=GAMMA), options=options, directory=tmp_path / "parts", seed=3)


def test_a_result_is_read_as_it_was_written() -> None:
    options = GaugeOptions(steps=200, local_steps=[4])
    found = gauge(random_quadratics(4, 3), fedavg(gamma=GAMMA), cost=Cost.parse("cross-device"), options=options)
    again = GaugeResult.from_json(found.to_json())
    assert again.to_json() == found.to_json()
    assert {"answer", "sentence", "recommended", "spent"} <= found.to_json().keys()
    assert set(found.to_json()["answer"]["efficiency"][0]) >= {"local_steps", "value", "low", "high", "measured"}


# -- laws ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=30), st.floats(-60, 60), st.floats(0, 30))
def test_less_loss_is_never_earlier_on_the_curve(losses: list[int], loss: float, less: float) -> None:
    curve = BaseCurve(range(len(losses)), losses)
    if not curve.loss_at(len(losses) - 1) < curve.loss_at(0):
        return
    assert curve.steps_at(loss - less) >= curve.steps_at(loss) or math.isclose(
        curve.steps_at(loss - less), curve.steps_at(loss)
    )
