"""Kept runs are listed, shown, compared and exported, half-written ones as far as they go."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest
from tests.cli.command import Capture, answer, snapshot, words

from fedgauge.cli import main
from fedgauge.show import console
from fedgauge.show.views.comparisons import differing
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.runs.reader import read_run

ROUNDS = "--rounds 6 --processes 1 --gamma 0.1"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("kept")
    for steps in (1, 5):
        line = f"simulate digits {ROUNDS} --local-steps {steps} --out {place}/runs/I{steps}"
        assert main(line.split()) == 0
    assert main(f"theory generate {place}/fed.json --workers 3 --dim 2".split()) == 0
    assert main(f"simulate {place}/fed.json --gamma 0.1 --rounds 6 --out {place}/runs/deep/quadratic".split()) == 0
    return place


@pytest.fixture
def place(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Path:
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console.out, "width", 200)
    capsys.readouterr()
    return tmp_path


def test_list(place: Path, capsys: Capture) -> None:
    found = {each["run"]: each for each in answer(capsys, "runs list")}
    assert list(found) == ["runs/I1", "runs/I5", "runs/deep/quadratic"]
    assert found["runs/I5"]["source"] == "digits, mlp"
    assert found["runs/I5"]["loss"] < found["runs/I1"]["loss"]
    assert found["runs/deep/quadratic"]["accuracy"] is None
    assert "deep/quadratic" in words(capsys, "runs list runs")
    (place / "none").mkdir()
    assert answer(capsys, "runs list none") == []


def test_show_and_run_again(place: Path, capsys: Capture) -> None:
    shown = words(capsys, "runs show runs/I5")
    assert "fedavg (gamma 0.1, eta 1), 5 local steps, seed 0" in shown
    assert "digits, mlp; paper partition" in shown
    assert "workers; batch size" in shown
    assert "accuracy" in shown
    assert "To run it again: fedgauge simulate runs/I5/experiment.toml" in shown
    found = answer(capsys, "runs show runs/I5")
    assert Experiment.from_json(found["experiment"]).run.local_steps == 5
    again = answer(capsys, "simulate runs/I5/experiment.toml")
    assert [each["loss"] for each in again["rounds"]] == [each["loss"] for each in found["rounds"]]
    changed = answer(capsys, "simulate runs/I5/experiment.toml --local-steps 1")
    assert changed["settings"]["local_steps"] == 1
    assert "experiment.toml" in words(capsys, "runs show runs/deep/quadratic")


def test_compare(place: Path, capsys: Capture) -> None:
    shown = words(capsys, "runs compare runs/I1 runs/I5 runs/deep/quadratic --plot c.png")
    assert "local_steps" in shown
    assert (place / "c.png").read_bytes().startswith(b"\x89PNG")
    found = answer(capsys, "runs compare runs/I1 runs/I5")
    assert [each["local_steps"] for each in found] == [1, 5]


def test_comparison_of_many_runs_breaks_no_word(place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.out, "width", 80)
    names = [f"runs/I5_with_a_name_{number}" for number in range(4)]
    for name in names:
        shutil.copytree("runs/I5", name)
    shown = words(capsys, f"runs compare runs/I1 {' '.join(names)}").split()
    assert {"runs/I1", *names, "local_steps", "accuracy", "finished"} <= set(shown)
    # Every run has its column: the table goes on below where they do not fit.
    assert shown.count("finished") == 5
    assert shown.count("local_steps") == 2


def test_differences_of_the_same_name_are_all_shown(place: Path, capsys: Capture) -> None:
    words(capsys, f"simulate digits {ROUNDS} --model softmax --algorithm slowmo --local-steps 5 --out runs/other")
    found = differing([read_run("runs/I5"), read_run("runs/other")])
    assert found == {"model.name": [None, "softmax"], "algorithm.name": ["fedavg", "slowmo"]}
    assert "model.name" in words(capsys, "runs compare runs/I5 runs/other")
    # A key that is alone goes without its section.
    assert differing([read_run("runs/I1"), read_run("runs/I5")]) == {"local_steps": [1, 5]}


def test_settings_of_other_programs_are_no_runs(place: Path, capsys: Capture) -> None:
    (place / "runs" / ".vscode").mkdir()
    (place / "runs" / ".vscode" / "settings.json").write_text('{"algorithm": "quick"}')
    assert [each["run"] for each in answer(capsys, "runs list")] == ["runs/I1", "runs/I5", "runs/deep/quadratic"]


def cut(name: str, keep: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        (run / name).write_bytes(keep((run / name).read_bytes()))

    return damage


def without_round(content: bytes) -> bytes:
    return json.dumps({**json.loads(content), "stopped_at": None}).encode()


def gone(name: str) -> Callable[[Path], None]:
    return lambda run: (run / name).unlink()


DAMAGES: dict[str, tuple[Callable[[Path], None], str, int]] = {
    "result gone": (gone("result.json"), "", 7),
    "result cut": (cut("result.json", lambda content: content[:9]), "result.json", 7),
    "result without its round": (cut("result.json", without_round), "result.json is damaged", 7),
    "rounds cut": (cut("rounds.jsonl", lambda content: content[:-5]), "readable up to line 6", 6),
    "rounds gone": (gone("rounds.jsonl"), "rounds.jsonl", 0),
    "times cut": (cut("timing.jsonl", lambda content: content[:30]), "timing.jsonl", 7),
    "settings cut": (cut("settings.json", lambda content: b"{"), "settings.json", 7),
    "experiment cut": (cut("experiment.toml", lambda content: content[:-3] + b"["), "experiment.toml", 7),
    "environment gone": (gone("environment.json"), "environment.json", 7),
}


def other_loss(content: bytes) -> bytes:
    return content.replace(b'"loss": 2', b'"loss": 1', 1)


def without_last_line(content: bytes) -> bytes:
    return b"".join(content.splitlines(keepends=True)[:-1])


ALTERED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a loss": (cut("rounds.jsonl", other_loss), "rounds.jsonl is not what the run wrote"),
    "last line": (
        cut("rounds.jsonl", lambda content: content[: content[:-1].rindex(b"\n") + 1]),
        "rounds.jsonl is not",
    ),
    "model": (cut("model.safetensors", lambda content: content[:-1] + b"?"), "model.safetensors is not what the run"),
    "model gone": (gone("model.safetensors"), "model.safetensors is missing"),
}


@pytest.mark.parametrize("name", ALTERED)
def test_altered_runs_are_noticed_and_repaired(name: str, place: Path, capsys: Capture) -> None:
    run = place / "runs" / "I5"
    assert read_run(run).note == ""
    kept = {each: (run / each).read_bytes() for each in ("rounds.jsonl", "model.safetensors", "result.json")}
    damage, note = ALTERED[name]
    damage(run)
    assert note in words(capsys, "runs show runs/I5")
    words(capsys, "report runs/I5 --out r.html")
    assert note in (place / "r.html").read_text()
    # The note says that --resume repairs it.
    assert main(["simulate", "runs/I5/experiment.toml", "--out", "runs/I5", "--resume"]) == 0
    assert read_run(run).note == ""
    assert {each: (run / each).read_bytes() for each in kept} == kept


def test_a_report_names_the_last_round_that_is_there(place: Path, capsys: Capture) -> None:
    assert "After 6 rounds f fell" in words(capsys, "report runs/I5 --out r.html")
    ALTERED["last line"][0](place / "runs" / "I5")
    assert "After 5 of 6 rounds f fell" in words(capsys, "report runs/I5 --out r.html")


@pytest.mark.parametrize("name", DAMAGES)
def test_half_written_runs_go_as_far_as_they_go(name: str, place: Path, capsys: Capture) -> None:
    damage, note, rounds = DAMAGES[name]
    damage(place / "runs" / "I5")
    before = snapshot(place / "runs")
    found = answer(capsys, "runs show runs/I5")
    assert len(found["rounds"]) == rounds
    assert note in found["note"]
    assert note in words(capsys, "runs show runs/I5")
    assert note in words(capsys, "runs list runs")
    assert note in words(capsys, "runs compare runs/I5 runs/I1")
    if name in ("times cut", "rounds gone"):
        words(capsys, "runs compare runs/I5 runs/I1 --plot c.png")
    assert snapshot(place / "runs") == before


WRONG: dict[str, tuple[str, ...]] = {
    "runs show none": ("none", "holds no run", "no such directory"),
    "runs show .": ("holds no run", "settings.json"),
    "runs list none": ("no directory none",),
    "runs compare runs/I1 none": ("none", "holds no run"),
    "runs compare runs/I1 --plot c.bmp": (".png", "c.bmp"),
    "runs compare": ("fedgauge runs compare --help",),
    "runs export runs/I1": ("--to FILE", "--tensorboard DIR", "--observer"),
    "runs export runs/I1 --to rounds.csv": ("--to", ".parquet", "rounds.csv"),
    "runs export runs --to model.pt": ("runs holds 3 runs", "name one"),
    "runs export runs/I1 --to none/a.json": ("no directory none",),
    "runs export runs/I1 --observer tracker": ("module:factory", "'tracker'"),
    "runs export runs/I1 --observer nowhere:csv": ("Cannot import nowhere", "check the name"),
    "runs export runs/I1 --observer json:csv": ("json has no csv", "makes the observer"),
    "simulate digits --gamma 0.1 --at none.safetensors": ("none.safetensors", "No such file"),
    "simulate digits --gamma 0.1 --at bad.toml": ("bad.toml", "no tensors"),
    "simulate fed.json --gamma 0.1 --at runs/I1/model.safetensors": ("7510 parameters", "has 2"),
    "simulate fed.json --gamma 0.1 --at runs/I1/state_dict.safetensors": ("one flat model",),
    "simulate digits --gamma 0.1 --model softmax --at runs/I1/state_dict.safetensors": ("1.weight", "(100, 64)"),
    "runs export none --tensorboard board": ("none", "holds no run"),
    "runs export runs/I1 --tensorboard fed.json": ("tensorboard", "directory", "fed.json"),
    "simulate none.toml": ("none.toml", "No such file"),
    "simulate bad.toml": ("bad.toml", "not TOML", "fix the file"),
    "simulate binary.toml": ("binary.toml", "not text"),
    "simulate key.toml --out new": ("key.toml", "[run]", "'round'", "did you mean rounds?"),
    "simulate type.toml --out new": ("type.toml", "run.rounds", "whole number", "'ten'"),
    "simulate digits --gamma 0.1 --model-option width": ("NAME=VALUE", "'width'"),
    "simulate digits --gamma 0.1 --local-steps 1,x": ("--local-steps", "whole number", "'1,x'"),
    "simulate digits --gamma 0.1 --local-steps 1,2 --out new": ("--local-steps", "10", "2"),
    "simulate digits --gamma 0.1 --weights size": ("--weights", "numbers", "'size'"),
    "simulate digits --gamma 0.1 --goal accuracy=90": ("accuracy", "at most 1", "90"),
    "simulate digits --gamma 0.1 --workers 5000 --out new": ("workers", "1438", "5000"),
    "simulate digits --gamma 0.1 --percent 150 --out new": ("percent", "150"),
    "simulate digits --gamma 0.1 --scheme iid --percent 50 --out new": ("iid", "percent"),
    "simulate digits --gamma 0.1 --model vgg11 --out new": ("divisible by 32", "(1, 8, 8)", "choose mlp"),
    "simulate digits --gamma 0.1 --model no.such:thing --out new": ("no", "import"),
    "simulate fed.json --gamma 0.1 --model mlp --out new": ("fed.json", "model.name means nothing"),
    "simulate fed.json --gamma 0.1 --batch-size 5 --out new": ("--batch-size means nothing",),
    "simulate fed.json --gamma 0.1 --weights sizes --out new": ("weights", "means nothing"),
    "simulate digts --gamma 0.1 --out new": ("digts", "did you mean digits?"),
    "simulate runs --gamma 0.1": ("runs", "is a directory"),
    "simulate runs/I1 --gamma 0.1": ("is the directory of a run", "runs/I1/experiment.toml"),
    "runs export without_model --to m.pt": ("model.safetensors is missing", "resume"),
    "runs export unfinished --to m.pt": ("has not ended",),
    "simulate mnist --data empty --gamma 0.1 --out new": ("mnist", "train-images", "fedgauge data get"),
    "simulate mnist --data short --gamma 0.1 --out new": ("train-images", "cannot be read", "MD5"),
    "runs sweep digits --gamma 0.1": ("--out",),
    "runs sweep digits --gamma 0.1 --out new --over local_steps": ("--over", "local_steps=1,5,20", "'local_steps'"),
    "runs sweep digits --gamma 0.1 --out new --over local_step=1": ("local_step", "did you mean local_steps?"),
    "runs sweep digits --gamma 0.1 --out new --over percent=a": ("--percent", "number", "'a'"),
    "runs sweep digits --gamma 0.1 --out new --over percent=1 --over percent=2": ("percent", "twice"),
    "runs sweep digits --gamma 0.1 --out new --seeds 0": ("seeds", "at least 1"),
    "runs sweep digits --gamma 0.1 --out new --jobs 0": ("jobs", "at least 1"),
    "runs sweep digits --gamma 0.1 --out fed.json": ("directory", "fed.json"),
}


@pytest.mark.parametrize("line", WRONG)
def test_bad_input(line: str, place: Path, capsys: Capture) -> None:
    (place / "bad.toml").write_text("[run")
    shutil.copytree("runs/I1", "without_model", ignore=shutil.ignore_patterns("model.*", "state_dict.*"))
    shutil.copytree("runs/I1", "unfinished", ignore=shutil.ignore_patterns("result.json"))
    (place / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (place / "key.toml").write_text("[run]\nround = 3\n[algorithm]\ngamma = 0.1\n")
    (place / "type.toml").write_text("[run]\nrounds = 'ten'\n[algorithm]\ngamma = 0.1\n")
    (place / "empty").mkdir()
    raw = place / "short" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (raw / f"{name}-ubyte.gz").write_bytes(b"\x1f\x8b\x08\x00 cut short")
    before = snapshot(place)
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.startswith("fedgauge: ")) == ("", 1, True)
    assert err.endswith((".\n", "?\n"))
    for word in WRONG[line]:
        assert word in err
    assert snapshot(place) == before


def test_what_was_exported_is_what_is_told(place: Path, capsys: Capture) -> None:
    assert words(capsys, "runs export runs/I5 --to m.pt") == "Written: m.pt\n"
    assert words(capsys, "runs export runs/I5 --to m.pt --to r.json") == "Written: 7 records, m.pt, r.json\n"


def test_tensorboard_that_is_not_installed(place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert main(["runs", "export", "runs/I5", "--tensorboard", "board"]) == 2
    assert "pip install 'fedgauge[tensorboard]'" in capsys.readouterr().err
    assert not (place / "board").exists()


class Writer:
    """Stands for TensorBoard's own, which takes scalars by name and step."""

    written: ClassVar[dict[str, list[tuple[int, float]]]] = {}

    def __init__(self, directory: str) -> None:
        self.written.clear()

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.written.setdefault(name, []).append((step, value))

    def close(self) -> None:
        self.written["closed"] = []


def test_what_tensorboard_is_told(place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    package, module = ModuleType("torch.utils.tensorboard"), ModuleType("torch.utils.tensorboard.writer")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", package)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", module)
    assert "7 records" in words(capsys, "runs export runs/I5 --tensorboard board")
    losses = [(each["round"], each["loss"]) for each in answer(capsys, "runs show runs/I5")["rounds"]]
    assert Writer.written["loss"] == losses
    assert len(Writer.written["test accuracy"]) == 7
    assert len(Writer.written["L_h measured"]) == 6  # the model after the last round has no local models
    assert "closed" in Writer.written


def test_tensorboard(place: Path, capsys: Capture) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert answer(capsys, "runs export runs/I5 --tensorboard board")["records"] == 7
    events = accumulator.EventAccumulator(str(place / "board")).Reload()
    losses = [each["loss"] for each in answer(capsys, "runs show runs/I5")["rounds"]]
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(losses)
    assert [event.step for event in events.Scalars("test accuracy")] == list(range(7))
