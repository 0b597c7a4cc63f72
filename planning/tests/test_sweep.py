"""A sweep runs every combination once, goes on where it was, and sums up what its runs say."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
from tests.cli.command import snapshot, start, without_progress

from fedgauge import random_quadratics
from fedgauge.base.errors import InputError
from fedgauge.cli import main
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.options import Compute
from fedgauge.simulation.runs.reader import find_runs, read_run
from fedgauge_planning import jobs, sweep
from fedgauge_planning.sweep import Sweep, SweepResult, run_sweep

CONFIG = """
[data]
name = "digits"
[algorithm]
gamma = 0.1
[run]
rounds = 4
record_every = 2
watch = false
"""
LINE = [
    *(
        "runs",
        "sweep",
        "config.toml",
        "--over",
        "local_steps=1,4",
        "--over",
        "percent=50,75",
        "--jobs",
        "1",
        "--out",
        "out",
    ),
    *("--json", "--seeds"),
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(CONFIG)
    return tmp_path


def test_a_sweep_and_once_more(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    assert main([*LINE, "2"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    result = json.loads(out)
    assert result == json.loads((place / "out" / "result.json").read_text())
    assert [each["values"] for each in result["combinations"]] == [
        {"local_steps": steps, "percent": percent} for steps in (1, 4) for percent in (50.0, 75.0)
    ]
    found = {Path(each.path).name: each for each in find_runs(place / "out" / "runs")}
    assert len(found) == 8
    first = result["combinations"][0]
    ends = [found[f"local_steps=1,percent=50,seed={seed}"].rounds[-1] for seed in (0, 1)]
    assert first["loss"]["mean"][-1] == pytest.approx(mean(end.loss for end in ends))
    assert first["loss"]["deviation"][-1] == pytest.approx(stdev(end.loss for end in ends))
    assert first["rounds"] == [0, 2, 4]
    pictures = {path.name: path.read_bytes() for path in (place / "out").glob("*.png")}
    assert set(pictures) == {"percent=50.png", "percent=75.png"}
    assert all(content.startswith(b"\x89PNG") for content in pictures.values())
    # Once more with another seed: what is there stays as it is.
    before = snapshot(place / "out" / "runs")
    line = [argument for argument in LINE if argument != "--json"]
    assert main([*line, "3"]) == 0
    assert "Mean ± deviation over 3 seeds" in capsys.readouterr().out
    after = snapshot(place / "out" / "runs")
    assert len(find_runs(place / "out" / "runs")) == 12
    assert {name: after[name] for name in before} == before
    # With another rate, its runs are not those.
    assert main([*LINE, "2", "--gamma", "0.2"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "--gamma 0.1, not 0.2" in err


def test_an_interrupted_sweep_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = ["runs", "sweep", "config.toml", "--rounds", "80", "--over", "local_steps=1,2", "--out", "out"]
    with start(*line, cwd=place) as process:
        runs = place / "out" / "runs"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if any(path.stat().st_size > 1000 for path in runs.rglob("rounds.jsonl")):
                break
            time.sleep(0.01)
        # Ctrl-C reaches all processes of a terminal, and here each by itself.
        for child in children(process.pid):
            os.kill(child, signal.SIGINT)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert without_progress(err) == "fedgauge: Interrupted; repeat the same command to resume the runs in out.\n"
    assert "unfinished" in {each.status for each in find_runs(runs)}
    monkeypatch.chdir(place)
    assert main([*line, "--jobs", "1"]) == 0
    assert {each.status for each in find_runs(runs)} == {"finished"}
    assert read_run(runs / "local_steps=2,seed=0").stopped_at == 80


def swept(*arguments: Any, **options: Any) -> SweepResult:
    """What a sweep found that nobody interrupted."""
    found = run_sweep(*arguments, **options)
    assert found is not None
    return found


def test_runs_that_have_ended_are_read_and_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = BASE.changed({"rounds": 3, "watch": False})
    once, twice = (Sweep(base, {"local_steps": [1, 2]}, seeds) for seeds in (1, 2))
    expected = swept(once, tmp_path, jobs=1)
    said: list[tuple[int, int, int]] = []
    with monkeypatch.context() as without:
        without.setattr(sweep, "make_pool", None)
        assert run_sweep(once, tmp_path, report=lambda *how_far: said.append(how_far)) == expected
    assert said == [(6, 6, 2)]
    # Of more seeds those alone are run that are not there, or not whole.
    (tmp_path / "local_steps=2,seed=0" / "rounds.jsonl").write_bytes(b"{}")
    began: list[int | None] = []

    def make_pool(compute: Compute, report: Any) -> Any:
        began.append(compute.processes)
        return jobs.InProcess(report)

    monkeypatch.setattr(sweep, "make_pool", make_pool)
    found = swept(twice, tmp_path, jobs=4, report=lambda *how_far: said.append(how_far))
    assert began == [3]
    assert said[1] == (3, 12, 1)
    assert said[-1][:2] == (12, 12)
    assert [each.runs[0]["loss"] for each in found.combinations] == [
        each.runs[0]["loss"] for each in expected.combinations
    ]


def test_the_longest_runs_begin_first_and_one_alone_has_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[int, int | None]] = []

    class Watched(jobs.InProcess):
        def map(self, function: Any, cells: Any, directories: Any = None) -> Any:
            runs = [cell.experiment.run for (cell,) in cells.values()]
            given.extend((run.local_steps, run.processes) for run in runs)
            return super().map(function, cells, directories)

    monkeypatch.setattr(sweep, "make_pool", lambda compute, report: Watched(report))
    base = Experiment.of({"source": "digits", "gamma": 0.1, "rounds": 2, "watch": False})
    first = swept(Sweep(base, {"local_steps": [1, 3, 2]}), tmp_path, 2)
    assert given == [(3, 1), (2, 1), (1, 1)]
    assert [each.values["local_steps"] for each in first.combinations] == [1, 3, 2]
    del given[:]
    alone = swept(Sweep(base, {"local_steps": [1, 3, 2, 4]}), tmp_path, 2)
    assert given == [(4, 2)]
    # The number of processes changes no bit, so that this run is the one that would have been made beside others.
    there = swept(Sweep(base, {"local_steps": [4]}), tmp_path / "other", 1)
    assert given[1:] == [(4, 1)]
    assert alone.combinations[-1].loss == there.combinations[0].loss


def test_a_long_run_that_is_left_alone_is_resumed_with_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools: list[tuple[int | None, list[int | None]]] = []

    def make_pool(compute: Compute, report: Any) -> Any:
        pool = jobs.make_pool(compute, report)
        begin = pool.map

        def watched(function: Any, cells: Any, directories: Any = None) -> Any:
            pools.append((compute.processes, [cell.experiment.run.processes for (cell,) in cells.values()]))
            return begin(function, cells, directories)

        monkeypatch.setattr(pool, "map", watched)
        return pool

    monkeypatch.setattr(sweep, "make_pool", make_pool)
    monkeypatch.setattr(sweep, "_WORTH", 0.0)
    said: list[int] = []
    base = Experiment.of({"source": "digits", "gamma": 0.1, "watch": False, "record_every": 50})
    over = {"rounds": [2, 400], "local_steps": [2]}
    found = swept(Sweep(base, over), tmp_path / "two", 2, report=lambda done, total, ended: said.append(done))
    assert pools == [(2, [1, 1]), (1, [2])]
    assert (said[0], said[-1], said == sorted(said)) == (0, 402, True)
    # Where it was interrupted, and by how many processes it was computed, changes no bit.
    alone = swept(Sweep(base, over), tmp_path / "one", 1)
    assert [each.loss for each in found.combinations] == [each.loss for each in alone.combinations]


def test_how_long_the_last_run_takes_is_told_by_the_steps_of_all() -> None:
    base = Experiment.of({"source": "digits", "gamma": 0.1})
    cells = Sweep(base, {"rounds": [10, 100], "local_steps": [4]}).cells
    # 40 steps and 200 of 400 took 24 seconds, so that 200 more take 20; at the end there is nothing left.
    assert sweep._seconds_left(cells, cells[1], 60, 24.0) == pytest.approx(20.0)
    assert sweep._seconds_left(cells, cells[1], 110, 24.0) == 0.0


def test_a_file_that_has_changed_is_not_what_was_run(tmp_path: Path) -> None:
    federation, runs = tmp_path / "fed.json", tmp_path / "runs"
    random_quadratics(4, 3, seed=0).write(federation)
    sweep = Sweep(Experiment.of({"source": str(federation), "gamma": 0.01, "rounds": 2}), {"local_steps": [1]})
    run_sweep(sweep, runs, jobs=1)
    random_quadratics(4, 3, seed=1).write(federation)
    with pytest.raises(InputError, match="has federation = "):
        run_sweep(sweep, runs, jobs=1)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


BASE = Experiment.of({"source": "digits", "gamma": 0.1})


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"local_step": [1]}, "did you mean local_steps"),
        ({"seed": [1]}, "as in seeds=3"),
        ({"local_steps": []}, "at least one"),
        ({"local_steps": [1, 1]}, "differ"),
        ({"gamma": [1, 1.0]}, "Two runs of the sweep would have the name gamma=1,seed=0: values must differ"),
        ({"data": ["a/b", "a_b"]}, "would have the name data=a_b,seed=0"),
        ({"rounds": [1, 0]}, "rounds must be"),
        ({"algorithm": ["fedavg", "fedavgg"]}, "did you mean fedavg"),
        ({"beta": [0.9]}, "no parameter beta"),
    ],
)
def test_what_a_sweep_cannot_go_over(over: dict[str, list[object]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Sweep(BASE, over)
