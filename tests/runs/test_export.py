"""What is written for other tools, they read; and what is read back is what it was."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import torch
from safetensors.torch import load_file
from tests.cli.command import Capture, answer, words

from fedgauge import Experiment, Round, execute, fedavg, prepare, random_quadratics, simulate
from fedgauge.base.errors import InputError
from fedgauge.cli import main
from fedgauge.simulation.options import Recording
from fedgauge.simulation.runs.checkpoints import read_model
from fedgauge.simulation.runs.export import read_records, write_model, write_records
from fedgauge.simulation.runs.observers import replay, watching
from fedgauge.simulation.runs.reader import FoundRun, find_runs, read_run

DIGITS = Experiment.of({"source": "digits", "gamma": 0.1, "rounds": 2, "processes": 1})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    execute(DIGITS, keep=place / "digits")
    federation = random_quadratics(3, 2)
    simulate(federation, fedavg(0.1), local_steps=2, rounds=3, keep=place / "quadratic")
    execute(DIGITS.changed({"local_steps": "auto", "cost": "local,step=0.01"}), keep=place / "auto")
    return place


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_records_there_and_back(suffix: str, runs: Path, tmp_path: Path) -> None:
    found = find_runs(runs)
    assert [len(run.rounds) for run in found] == [3, 3, 4]
    # Every entry of a record, and a value that only floats have.
    full = Round(1, 0.5, math.inf, 1.0, 2.0, 0.25, 3.0, 4.0, 5.0, (1, 2), (0.5, math.inf), 0, 7.0, "so it is")
    odd = replace(found[0], path="odd", rounds=(full, Round(2, 1.0, 2.0)), seconds=(0.5,), note="cut")
    empty = FoundRun("empty", "unfinished", 0, {"seed": 1})
    path = tmp_path / f"records{suffix}"
    assert write_records(path, [*found, odd, empty]) == 12
    assert read_records(path) == [*found, odd, empty]


def test_parquet_is_read_by_pyarrow_itself(runs: Path, tmp_path: Path, capsys: Capture) -> None:
    told = answer(capsys, f"runs export {runs} --to {tmp_path}/all.parquet")
    assert (told["runs"], told["records"], told["files"]) == (3, 10, [f"{tmp_path}/all.parquet"])
    table = pyarrow.parquet.read_table(tmp_path / "all.parquet")
    rows = table.to_pylist()
    digits = read_run(runs / "digits")
    mine = [row for row in rows if row["run"] == str(runs / "digits")]
    assert [row["loss"] for row in mine] == [record.loss for record in digits.rounds]
    assert [row["seconds"] for row in mine] == list(digits.seconds)
    kinds = {name: str(table.schema.field(name).type) for name in ("run", "round", "loss", "looked", "path", "why")}
    assert kinds == {
        "run": "string",
        "round": "int64",
        "loss": "double",
        "looked": "list<element: int64>",
        "path": "list<element: double>",
        "why": "string",
    }


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_models_there_and_back(suffix: str, runs: Path, tmp_path: Path) -> None:
    federation: Any = prepare(DIGITS).federation
    path = tmp_path / f"model{suffix}"
    write_model(path, runs / "digits")
    saved = load_file(path) if suffix == ".safetensors" else torch.load(path, weights_only=True)
    module = federation.module
    module.load_state_dict(saved)
    flat = load_file(runs / "digits" / "model.safetensors")["model"]
    assert torch.equal(federation.flatten(module), flat)
    for place in (path, runs / "digits" / "model.safetensors"):
        assert torch.equal(read_model(place, federation), flat)
    quadratic = random_quadratics(3, 2)
    write_model(path, runs / "quadratic")
    expected = load_file(runs / "quadratic" / "model.safetensors")["model"]
    assert torch.equal(read_model(path, quadratic), expected)


def test_a_run_begins_at_a_model_of_elsewhere(runs: Path, tmp_path: Path, capsys: Capture) -> None:
    torch.save(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)).state_dict(), tmp_path / "own.pt")
    line = "simulate digits --model softmax --gamma 0.1 --rounds 1 --processes 1"
    named = "\n".join(torch.load(tmp_path / "own.pt", weights_only=True))
    federation: Any = prepare(DIGITS.changed({"model": "softmax"})).federation
    assert named == "\n".join(federation.module.state_dict())
    own = answer(capsys, f"{line} --at {tmp_path}/own.pt")
    start = read_model(tmp_path / "own.pt", federation)
    assert own["rounds"][0]["loss"] == execute(DIGITS.changed({"model": "softmax", "rounds": 1}), start=start).losses[0]
    assert own["rounds"][0]["loss"] != answer(capsys, line)["rounds"][0]["loss"]


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("harmed"),)


def test_files_that_are_none_of_that(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    federation = prepare(DIGITS).federation
    torch.save({"model": Harmful()}, "harm.pt")
    torch.save([1, 2], "list.pt")
    torch.save({"0.weight": torch.ones(2, 2)}, "other.pt")
    state = load_file(runs / "digits" / "state_dict.safetensors")
    torch.save({**state, "more": torch.ones(1)}, "more.pt")
    whole = Path("more.pt").read_bytes()
    for at in range(0, len(whole), 97):
        # Whatever a damaged file does to its reader; where it hits a number, that is another number.
        Path("damaged.pt").write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        with pytest.raises(InputError):
            read_model("damaged.pt", federation)
    for content in (b"}q\x00\x85.", b"\x80\x02h\x07.", b"\x80\x02J\x01.", b""):
        Path("damaged.pt").write_bytes(content)
        with pytest.raises(InputError, match="no tensors that can be read"):
            read_model("damaged.pt", federation)
    first = next(iter(state))
    torch.save({**state, first: torch.ones(2)}, "shape.pt")
    for name, said in {
        "harm.pt": "no tensors that can be read",
        "list.pt": "no state_dict",
        "other.pt": "no parameter",
        "more.pt": "has more, which the model does not have",
        "shape.pt": r"has the shape \(2,\), but the model's has",
    }.items():
        with pytest.raises(InputError, match=said):
            read_model(name, federation)
    assert not Path("harmed").exists()
    Path("not.parquet").write_bytes(b"PAR1")
    Path("not.json").write_text("[]")
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), "strange.parquet")
    for name in ("not.parquet", "not.json", "strange.parquet"):
        with pytest.raises(InputError, match="holds no fedgauge records"):
            read_records(name)
    with pytest.raises(InputError, match=r"\.json or \.parquet"):
        read_records("x.csv")
    (tmp_path / "run").mkdir()
    with pytest.raises(InputError, match="has not ended; resume it"):
        write_model("model.pt", "run")


def test_the_extra_that_is_missing_is_named(runs: Path, tmp_path: Path, monkeypatch: Any, capsys: Capture) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["runs", "export", str(runs / "digits"), "--to", str(tmp_path / "a.parquet")]) == 2
    assert "run: pip install 'fedgauge[parquet]'." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# -- observers -----------------------------------------------------------------------------------------------------

TRACKER = """
class Tracker:
    def __init__(self, about):
        self.name = about["algorithm"]["name"]

    def __enter__(self):
        self.file = open("log.txt", "a")
        return self

    def __exit__(self, *_):
        self.file.write("closed\\n")
        self.file.close()

    def __call__(self, done, record):
        self.file.write(f"{self.name} {done} {record and record.loss}\\n")

def broken(about):
    raise RuntimeError("no server")

def nothing(about):
    return None

def tired(about):
    def observer(done, record):
        if done == 2:
            raise ValueError("no more")
    return observer

class Closed(Tracker):
    def __enter__(self):
        raise OSError("no disk")
"""


def test_an_observer_of_the_users_own(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "linetracker", raising=False)
    (tmp_path / "linetracker.py").write_text(TRACKER)
    random_quadratics(3, 2).write("fed.json")
    line = "simulate fed.json --gamma 0.1 --rounds 3 --record-every 2 --out run"
    words(capsys, f"{line} --observer linetracker:Tracker")
    records = {record.round: record.loss for record in read_run("run").rounds}
    told = (tmp_path / "log.txt").read_text()
    assert told == f"fedavg 1 {records[0]}\nfedavg 2 None\nfedavg 3 {records[2]}\nfedavg 3 {records[3]}\nclosed\n"
    (tmp_path / "log.txt").unlink()
    words(capsys, "runs export run --observer linetracker:Tracker")
    lines = [f"fedavg {number} {loss}\n" for number, loss in records.items()]
    assert (tmp_path / "log.txt").read_text() == "".join([*lines, "closed\n"])
    (tmp_path / "halfdone.py").write_text("1 / 0")
    for name, said in {
        "linetracker:broken": "RuntimeError: no server",
        "linetracker:nothing": "must return a function",
        "linetracker:tired": "linetracker:tired failed after 2 rounds (ValueError: no more); fix it",
        "linetracker:Closed": "linetracker:Closed failed when it was opened (OSError: no disk); fix it",
        "halfdone:tracker": "Cannot import halfdone for the observer (ZeroDivisionError: division by zero)"
        "; fix the module.",
    }.items():
        for command in ("runs export run", f"{line} --resume --out {name.replace(':', '-')}"):
            assert main([*command.split(), "--observer", name]) == 2
            told = capsys.readouterr().err
            assert said in told
            assert told.count("\n") == 1


def test_observers_together_from_python() -> None:
    first: list[int] = []
    second: list[float] = []
    observers = [
        lambda done, record: first.append(done),
        lambda done, record: second.append(record.loss) if record else None,
    ]
    with watching(observers) as observer:
        trace = simulate(
            random_quadratics(3, 2), fedavg(0.1), local_steps=2, rounds=3, record=Recording(observer=observer)
        )
    assert first == [1, 2, 3, 3]
    assert second == trace.losses.tolist()


def test_tensorboard_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.chdir(tmp_path)
    random_quadratics(3, 2).write("fed.json")
    words(capsys, "simulate fed.json --gamma 0.1 --rounds 3 --tensorboard board --out run")
    events = EventAccumulator("board").Reload()
    assert [event.step for event in events.Scalars("loss")] == [0, 1, 2, 3]
    seen: list[int] = []
    replay(read_run("run"), lambda done, record: seen.append(done))
    assert seen == [0, 1, 2, 3]
