"""The gauge says how many local steps count: checked by whole runs, by closed forms and by laws."""

from __future__ import annotations

import itertools
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
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
from fedgauge.measurement.gauge import store
from fedgauge.measurement.gauge.efficiency import BaseCurve, between
from fedgauge.measurement.gauge.efficiency import falling as pooled
from fedgauge.measurement.gauge.result import Efficiency, affordable, recommended
from fedgauge.simulation.runs.checkpoints import write_checkpoint

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
    assert found.affordable["0.8"] == 20
    assert found.sentence.startswith(
        "At gamma 0.02 this federation affords at least 20 local steps: 100% of them count"
    )


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
    assert each.value is None
    assert each.slowdown is None
    assert 0 < each.high < 0.8
    assert found.affordable["0.8"] == 1
    assert "no more than 1 local step per round" in found.sentence
    assert "at most" in found.sentence


def test_what_is_chosen_by_itself() -> None:
    free = gauge(random_quadratics(4, 3, hessian_spread=0.0), fedavg(gamma=GAMMA), options=GaugeOptions(steps=2000))
    assert [each.local_steps for each in free.efficiency][:3] == [1, 16, 64]
    assert free.affordable["0.8"] >= 64
    apart = gauge(random_quadratics(4, 3, hessian_spread=0.9), fedavg(gamma=0.1), options=GaugeOptions(steps=300))
    assert 4 in [each.local_steps for each in apart.efficiency]


@pytest.mark.parametrize("budget", [100, 700, 2000])
def test_the_budget_is_kept(budget: int) -> None:
    found = gauge(
        random_quadratics(4, 3, hessian_spread=0.5), fedavg(gamma=0.05), options=GaugeOptions(steps=400, budget=budget)
    )
    assert found.spent.gradient_steps <= budget
    assert found.spent.base_gradient_steps == 400
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
    assert part.spent.base_gradient_steps < 200
    with pytest.raises(InputError, match="give it more rounds, or choose a larger loss"):
        gauge(federation, fedavg(gamma=GAMMA), goal=-100.0, options=GaugeOptions(steps=50))


@pytest.mark.parametrize(
    ("options", "gamma", "message"),
    [
        ({"steps": 50}, 1e9, "diverges at this rate"),
        ({"threshold": 1.5}, 0.1, "threshold must be above 0 and at most 1"),
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
        options=GaugeOptions(steps=200, local_steps=[4, 16]),
        progress=progress,
    )
    assert not found.complete
    assert [each.local_steps for each in found.efficiency] == [1, 4]
    assert "interrupted" in found.notes[-1]


@pytest.mark.parametrize("moment", [40, 150, 260, 330])
def test_an_interrupted_gauge_is_resumed_to_the_same_result(moment: int, tmp_path: Path) -> None:
    federation = random_quadratics(4, 3, hessian_spread=0.3, sigma2=0.01)
    options = GaugeOptions(steps=200, local_steps=[4, 16])
    whole = gauge(federation, fedavg(gamma=GAMMA), options=options)

    def progress(what: str, done: int, total: int | None) -> None:
        if done >= moment:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):  # the base run has nothing to show yet
        assert not gauge(
            federation, fedavg(gamma=GAMMA), options=options, directory=tmp_path / "parts", progress=progress
        ).complete
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
    assert max(taken) < 200 + whole.spent.gradient_steps - moment / 2
    assert not list((tmp_path / "parts").glob("state-*"))
    with pytest.raises(InputError, match="another seed"):
        gauge(federation, fedavg(gamma=GAMMA), options=options, directory=tmp_path / "parts", seed=3)


def test_states_on_disk_give_the_same_result_and_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation, algorithm = random_quadratics(4, 3, sigma2=0.01), fedavg(gamma=0.02)
    options = GaugeOptions(steps=120, local_steps=(4,))
    held = gauge(federation, algorithm, options=options)
    monkeypatch.setattr(store, "_SMALL", 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    written: list[Path] = []

    def noted(path: Path, *rest: Any) -> None:
        written.append(path)
        write_checkpoint(path, *rest)

    monkeypatch.setattr(store, "write_checkpoint", noted)
    assert gauge(federation, algorithm, options=options).efficiency == held.efficiency
    assert written
    assert all(path.is_relative_to(tmp_path) for path in written)
    assert not list(tmp_path.iterdir())


def test_a_result_is_read_as_it_was_written() -> None:
    options = GaugeOptions(steps=200, local_steps=[4])
    found = gauge(random_quadratics(4, 3), fedavg(gamma=GAMMA), cost=Cost.parse("cross-device"), options=options)
    again = GaugeResult.from_json(found.to_json())
    assert again.to_json() == found.to_json()
    assert {"efficiency", "affordable", "recommended", "phases", "spent"} <= found.to_json().keys()
    assert set(found.to_json()["efficiency"][0]) >= {"local_steps", "value", "low", "high"}


# -- laws ----------------------------------------------------------------------------------------------------------

falling = st.lists(st.floats(0.05, 1.0), min_size=1, max_size=5).map(
    lambda values: [
        Efficiency(4**place, value, value, value) for place, value in enumerate([1.0, *sorted(values, reverse=True)])
    ]
)


@given(falling, st.floats(0.05, 1.0), st.floats(0.05, 1.0))
def test_a_higher_threshold_affords_fewer_steps(curve: list[Efficiency], one: float, other: float) -> None:
    high, low = max(one, other), min(one, other)
    assert 1 <= affordable(curve, high) <= affordable(curve, low) <= curve[-1].local_steps


@given(falling, st.floats(0.0, 10.0), st.floats(1e-6, 10.0))
@settings(max_examples=50)
def test_dearer_rounds_recommend_more_local_steps(curve: list[Efficiency], cheap: float, more: float) -> None:
    assert recommended(curve, cheap, 0.1) <= recommended(curve, cheap + more, 0.1)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=30), st.floats(-60, 60), st.floats(0, 30))
def test_less_loss_is_never_earlier_on_the_curve(losses: list[int], loss: float, less: float) -> None:
    curve = BaseCurve(range(len(losses)), losses)
    if not curve.loss_at(len(losses) - 1) < curve.loss_at(0):
        return
    assert curve.steps_at(loss - less) >= curve.steps_at(loss) or math.isclose(
        curve.steps_at(loss - less), curve.steps_at(loss)
    )


@given(falling, st.data())
def test_what_noise_hides_lies_between_its_neighbours(known: list[Efficiency], data: st.DataObject) -> None:
    hidden = {each.local_steps for each in known[1:-1] if data.draw(st.booleans(), label=f"hide {each.local_steps}")}
    given = [Efficiency(each.local_steps, None, 0.0, 1.0) if each.local_steps in hidden else each for each in known]
    found = between(given)
    assert [each.local_steps for each in found] == [each.local_steps for each in known]
    values = [each.value for each in found if each.value is not None]
    assert len(values) == len(known)
    assert all(one >= other - 1e-9 for one, other in itertools.pairwise(values))
    for before, each in zip(given, found, strict=True):
        assert each.low <= (each.value or 0.0) + 1e-9
        assert (each.how == "between") == (each.local_steps in hidden)
        assert each.local_steps in hidden or each == before


def test_what_drift_stalls_is_not_made_a_number() -> None:
    stalled = Efficiency(16, None, 0.0, 0.1)
    more = Efficiency(64, 0.5, 0.4, 0.6)
    assert between([Efficiency(1, 1.0, 1.0, 1.0), stalled, more])[1] == stalled
    assert between([Efficiency(1, 1.0, 1.0, 1.0), more, Efficiency(256, None, 0.0, 1.0)])[2].value is None


@given(st.lists(st.tuples(st.floats(0.1, 1.2), st.floats(0.01, 0.3)), min_size=2, max_size=5))
def test_the_interval_of_a_pooled_value_holds_it_as_measured_and_as_pooled(values: list[tuple[float, float]]) -> None:
    given = [Efficiency(4**place, value, value - error, value + error) for place, (value, error) in enumerate(values)]
    for before, after in zip(given, pooled(given), strict=True):
        assert after.value is not None
        assert after.low <= max(before.low, 0.0)
        assert before.high <= after.high
        assert after.low <= after.value <= after.high
