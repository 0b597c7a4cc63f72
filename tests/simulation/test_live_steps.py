"""A simulated run whose local steps a live gauge chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedgauge as fg
from fedgauge.base.errors import InputError
from fedgauge.simulation.experiment.prepare import prepare
from fedgauge.simulation.options import StopAt

STEPS = 1600


def gauge() -> fg.LiveGauge:
    return fg.LiveGauge(16, STEPS, cost=10, candidates=(4, 16))


def run(directory: Path | None = None, live: fg.LiveGauge | None = None, **how: Any) -> fg.Trace:
    setup = prepare(fg.Experiment.of({"source": "digits", "model": "softmax", "percent": 60, "gamma": 0.1}))
    keep = None if directory is None else fg.Keep(directory, resume=bool(how.pop("resume", False)))
    live = live or gauge()
    return fg.simulate(
        setup.federation, setup.algorithm, local_steps=live, rounds=10**6, keep=keep, compute=fg.Compute(1), **how
    )


def test_it_runs_until_the_gauges_steps_are_taken_and_has_its_answer() -> None:
    live = gauge()
    trace = run(live=live)
    taken = [record.taken or 0 for record in trace.rounds]
    assert trace.status == "finished"
    assert STEPS <= sum(taken) < STEPS + 16
    assert set(taken[:-1]) == {4, 16}
    answer = live.answer()
    assert answer.complete
    assert [each.local_steps for each in answer.efficiency] == [4, 16]


def test_its_choices_are_those_that_follow_from_the_recorded_losses() -> None:
    trace, live = run(), gauge()
    for record, following in zip(trace.rounds, trace.rounds[1:], strict=False):
        assert record.taken == live.local_steps
        live.record(following.loss, record.taken)


def test_an_interrupted_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole = run()
    run(tmp_path / "run", stop=StopAt(round=70))
    again = run(tmp_path / "run", resume=True)
    assert [record.taken for record in again.rounds] == [record.taken for record in whole.rounds]
    assert again.losses.tolist() == whole.losses.tolist()
    np.testing.assert_array_equal(again.model, whole.model)


def test_a_saved_run_knows_its_local_steps(tmp_path: Path) -> None:
    trace = run(tmp_path / "run")
    from fedgauge.simulation.runs.reader import read_run

    saved = read_run(tmp_path / "run")
    assert saved.settings["local_steps"]["name"] == "live"
    assert saved.steps[:3] == [0.0, *np.cumsum([record.taken or 0 for record in trace.rounds[:2]]).astype(float)]


@pytest.mark.parametrize("algorithm", [fg.diloco(0.01), fg.fedavgm(0.1), fg.slowmo(0.1)])
def test_servers_with_a_memory_are_refused(algorithm: fg.Algorithm) -> None:
    with pytest.raises(InputError, match="remembers rounds of another length after"):
        fg.simulate(fg.random_quadratics(3, 2), algorithm, local_steps=gauge(), rounds=10)


def test_a_gauge_that_was_used_already_is_refused() -> None:
    live = gauge()
    live.record(1.0)
    with pytest.raises(InputError, match="make a new one"):
        run(live=live)
