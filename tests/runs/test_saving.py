"""A trace that a user made is a run like any other."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import fedgauge as fg
from fedgauge import InputError, Round, Trace
from fedgauge.cli import main
from fedgauge.simulation.runs.reader import read_run, read_trace

RECORDS = (Round(0, 2.0, 1.0, 0.5, 0.25, 0.1), Round(7, math.inf, 0.5), Round(8, 1.0, 0.25))


def test_a_trace_of_simulate_is_saved_as_it_is(tmp_path: Path) -> None:
    trace = fg.simulate(fg.random_quadratics(4, 3), fg.fedavg(0.1), local_steps=3, rounds=5)
    assert fg.save_run(trace, tmp_path / "run") == trace
    again = read_trace(tmp_path / "run")
    assert again == trace
    assert tuple(again.seconds) == tuple(trace.seconds)
    assert (read_run(tmp_path / "run").note, read_run(tmp_path / "run").status) == ("", "finished")


@pytest.mark.parametrize("status", ["finished", "target", "diverged", "stopped"])
@pytest.mark.parametrize("seconds", [(), (0.5,), (0.5, 1.0, 2.0)])
def test_a_trace_of_a_users_own_is_read_back_equal(
    status: fg.values.traces.Status, seconds: tuple[float, ...], tmp_path: Path
) -> None:
    model = np.array([1.0, -2.5, 1e300])
    trace = Trace({"algorithm": {"name": "mine", "gamma": 0.1}}, status, 9, RECORDS, model, seconds)
    saved = fg.save_run(trace, tmp_path / "run")
    assert read_trace(tmp_path / "run") == saved
    assert tuple(read_trace(tmp_path / "run").seconds) == seconds
    assert {**saved.settings, **trace.settings} == saved.settings
    assert (saved.rounds, saved.stopped_at, saved.status) == (RECORDS, 9, status)
    assert main(["runs", "show", str(tmp_path / "run")]) == 0
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "report.html")]) == 0


def test_the_shortest_trace(tmp_path: Path) -> None:
    saved = fg.save_run(Trace({}, "finished", 0, (), np.zeros(0)), tmp_path / "run")
    assert read_trace(tmp_path / "run") == saved
    assert main(["runs", "show", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"localsteps": 3}, "did you mean local_steps?"),
        ({"algorithm": "sgd"}, "an object with a name"),
        ({"rounds": "ten"}, "rounds must be a whole number"),
    ],
)
def test_settings_that_no_run_has_are_refused(settings: dict[str, object], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        fg.save_run(Trace(settings, "finished", 8, RECORDS, np.zeros(1)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_it_overwrites_nothing(tmp_path: Path) -> None:
    trace = Trace({}, "finished", 8, RECORDS, np.zeros(1))
    fg.save_run(trace, tmp_path / "run")
    before = (tmp_path / "run" / "rounds.jsonl").read_bytes()
    with pytest.raises(InputError, match="already holds a run"):
        fg.save_run(trace, tmp_path / "run")
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == before
    with pytest.raises(InputError, match="must be a Trace"):
        fg.save_run(json.loads("{}"), tmp_path / "other")
