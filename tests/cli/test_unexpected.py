"""Whatever happens, the terminal shows one sentence; a traceback goes to a file."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Capture, snapshot, without_progress
from tests.system.test_files import within

from fedgauge import random_quadratics
from fedgauge.cli import main
from fedgauge.simulation.runs.directory import RunDirectory
from fedgauge.values import Round

RUN = "simulate fed.json --gamma 0.1 --rounds 2"


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    random_quadratics(3, 2).write("fed.json")


def sentence(capsys: Capture, line: list[str] | str, status: int, before: dict[str, Any] | None = None) -> str:
    """What a command answers, which is one sentence."""
    capsys.readouterr()
    with within(20):
        assert main(line.split() if isinstance(line, str) else line) == status
    out, err = capsys.readouterr()
    err = without_progress(err)
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("fedgauge: ")
    assert before is None or snapshot(Path.cwd()) == before
    return err


# -- the net ---------------------------------------------------------------------------------------------------------


def test_what_nobody_expected_is_saved_and_said_in_one_sentence(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Any:
        raise LookupError("a bug\nof two lines")

    monkeypatch.setattr("fedgauge.simulation.runs.reader.read_run", broken)
    said = sentence(capsys, "runs show run", 70)
    found = re.search(r"\(LookupError: a bug\); its traceback is in (\S+\.txt): ", said)
    assert found
    saved = Path(found[1]).read_text()
    assert "Traceback (most recent call last)" in saved
    assert "in broken" in saved
    assert re.search(r"fedgauge \d", saved)
    monkeypatch.setattr("tempfile.mkstemp", lambda **_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
    assert "could not be saved (No space left)" in sentence(capsys, "runs show run", 70)


OWN = {
    "module": ("raise SystemExit(0)", f"{RUN} --observer own:make", "Cannot import own for the observer (SystemExit"),
    "factory": ("def make(about): raise SystemExit(0)", f"{RUN} --observer own:make", "own:make cannot be made (Sys"),
    "observer": (
        "import sys\ndef make(about): return lambda done, record: sys.exit(0)",
        f"{RUN} --observer own:make",
        "The observer own:make failed after 1 rounds (SystemExit: 0); fix it or leave it out",
    ),
    "algorithm": (
        "def make(gamma): raise SystemExit(0)",
        f"{RUN} --algorithm own:make",
        "The algorithm own:make cannot be made (SystemExit: 0); fix it",
    ),
    "algorithm that fails": ("def make(gamma): return 1 / 0", f"{RUN} --algorithm own:make", "(ZeroDivisionError: "),
    "model": (
        "def make(shape, classes): raise SystemExit(0)",
        "simulate digits --gamma 0.1 --rounds 2 --model own:make",
        "The model own:make cannot be made (SystemExit: 0); its factory is called with the shape (1, 8, 8)",
    ),
    "model that fails": (
        "def make(shape, classes): return 1 / 0",
        "simulate digits --gamma 0.1 --rounds 2 --model own:make",
        "The model own:make cannot be made (ZeroDivisionError: division by zero); its factory is called",
    ),
}


@pytest.mark.parametrize("case", OWN)
def test_code_of_ones_own_cannot_end_a_command_unnoticed(
    case: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, line, words = OWN[case]
    Path("own.py").write_text(code)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    assert words in sentence(capsys, line, 2)


def test_an_exit_anywhere_else_is_not_a_success(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: object) -> Any:
        raise SystemExit(0)

    monkeypatch.setattr("fedgauge.simulation.runs.reader.read_run", leave)
    assert "Something called sys.exit(0) in the middle of the command" in sentence(capsys, "runs show run", 70)


# -- input that is out of all proportion -----------------------------------------------------------------------------

MANY = "1" * 400
DEEP = "[" * 3000 + "]" * 3000
LINES = {
    f"{RUN} --local-steps {10**23}": ("--local-steps must be at most 1,000,000,000,000", "not 1"),
    f"{RUN} --rounds {MANY}": ("rounds must be at most",),
    f"{RUN} --seed {MANY}": ("seed",),
    f"{RUN} --weights 1e308,1e308,1e308": ("weights are too large to be added up",),
    "theory expect fed.json --gamma 0.1 --weights 1e308,1e308,1e308": ("weights are too large to be added up",),
    "simulate digits --gamma 1e308 --rounds 2": ("gamma must be at most 3.4e+38, the largest float32, not 1e+308",),
    "simulate digits --gamma 0.1 --eta 1e39 --rounds 2": ("eta must be at most 3.4e+38",),
    "runs sweep fed.json --gamma 0.1 --seeds 1000000000 --out new": (
        "--seeds must be at most 100,000, not 1000000000",
    ),
    "runs sweep fed.json --over gamma=0.1,0.2 --gamma 1 --seeds 100000 --out new": (
        "at most 100,000 runs, not 200,000",
    ),
    "paper table 2 --seeds 1000000000": ("--seeds must be at most 100,000",),
    "paper certified --seeds 1000000000": ("--seeds must be at most 100,000",),
    "paper lenses --seeds 1000000000": ("--seeds must be at most 100,000",),
    "paper table 1 --seeds 1000000000": ("--seeds must be at most 100,000",),
    "falsify --samples 1000000000": ("samples must be at most 10,000,000",),
    "theory region --points 1000000000": ("points must be at most 1,000",),
    "data get mnist --data new --url http://[::1": ("url must be an address", "'http://[::1'"),
    "data get mnist --data new --url http://": ("url must be an address",),
    "data get mnist --data new --url http://a:b/": ("url must be an address",),
}


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[:60])
def test_options_out_of_proportion(line: str, capsys: Capture) -> None:
    said = sentence(capsys, line, 2, snapshot(Path.cwd()))
    for words in LINES[line]:
        assert words in said


TOML = {
    "integer": f"[algorithm]\ngamma = {MANY}",
    "integer beyond parsing": f"[algorithm]\ngamma = {'1' * 5000}",
    "rounds": f"[algorithm]\ngamma = 0.1\n[run]\nrounds = {MANY}",
    "deep": f"[data]\nname = {DEEP}",
    "deep keys": f"[model]\na{'.a' * 3000} = 1\n[algorithm]\ngamma = 0.1",
}


@pytest.mark.parametrize("case", TOML)
def test_experiments_out_of_proportion(case: str, capsys: Capture) -> None:
    Path("bad.toml").write_text(TOML[case])
    said = sentence(capsys, "simulate bad.toml --out new", 2, snapshot(Path.cwd()))
    assert "bad.toml is not TOML that can be used: " in said
    assert len(said) < 300


@pytest.mark.parametrize("text", [MANY, DEEP])
def test_options_of_a_model_out_of_proportion(text: str, capsys: Capture) -> None:
    sentence(capsys, ["simulate", "digits", "--gamma", "0.1", "--model-option", f"width={text}"], 2)


RUN_FILES = {
    "settings.json": ('{{"algorithm": {}}}', "settings.json"),
    "environment.json": ('{{"command": {}}}', "environment.json cannot be read"),
    "result.json": ('{{"status": "finished", "stopped_at": {}}}', "result.json"),
    "manifest.json": ('{{"sha256": {}}}', "manifest.json is damaged"),
    "rounds.jsonl": ('{{"round": {}, "loss": 1.0, "grad2": 1.0}}\n', "rounds.jsonl is readable up to line 0"),
    "timing.jsonl": ('{{"round": 0, "seconds": {}}}\n', "timing.jsonl is readable up to line 0"),
    "events.jsonl": ('{{"round": {}}}\n', "events.jsonl is readable up to line 0"),
    "experiment.toml": ("data = {}", "experiment.toml cannot be read"),
}


@pytest.fixture
def bad(capsys: Capture) -> Path:
    """A run without a manifest, so that whatever its files hold is read, beside a good one."""
    for name in ("bad", "good"):
        assert main([*RUN.split(), "--out", f"runs/{name}"]) == 0
    for name in ("manifest.json", "result.json"):
        (Path("runs/bad") / name).unlink()
    return Path("runs/bad")


@pytest.mark.parametrize("name", RUN_FILES)
@pytest.mark.parametrize("value", [MANY, DEEP, "[" * 90 + "]" * 90], ids=["long", "deep", "nested"])
def test_one_bad_run_does_not_hide_the_others(name: str, value: str, bad: Path, capsys: Capture) -> None:
    form, words = RUN_FILES[name]
    (bad / name).write_text(form.format(value))
    capsys.readouterr()
    for line in ("runs list runs", "runs list runs --json", "runs show runs/bad", "runs compare runs/bad runs/good"):
        assert main(line.split()) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert "good" in out or "show" in line
    if not value.startswith("[" * 90 + "]"):  # some of these may hold lists
        assert main(["runs", "show", "runs/bad"]) == 0
        assert words in capsys.readouterr().out.replace("\n", "")
    assert main(["report", "runs/bad", "--out", "r.html"]) in (0, 2)


SETTINGS = (
    '{"algorithm": "fedavg"}',
    '{"algorithm": {}}',
    '{"algorithm": null}',
    '{"local_steps": []}',
    '{"local_steps": {}}',
    '{"participation": [1]}',
)


@pytest.mark.parametrize("content", SETTINGS)
def test_settings_of_a_wrong_form_are_no_settings(content: str, bad: Path, capsys: Capture) -> None:
    (bad / "settings.json").write_text(content)
    for line in ("runs list runs", "runs show runs/bad", "runs compare runs/bad runs/good"):
        assert main(line.split()) == 0
    assert "settings.json is damaged" in capsys.readouterr().out.replace("\n", "")


def test_records_and_experiments_of_a_wrong_form(bad: Path, capsys: Capture) -> None:
    record = '{"round": 0, "loss": 1.0, "grad2": 1.0, "spread": -1.0, "deviation2": 1.0}\n'
    (bad / "rounds.jsonl").write_text(record)
    (bad / "experiment.toml").write_text("data = 3")
    capsys.readouterr()
    for line in ("runs show runs/bad", "runs compare runs/bad runs/good"):
        assert main(line.split()) == 0
    assert "experiment.toml is damaged" in capsys.readouterr().out.replace("\n", "")


# -- paths -----------------------------------------------------------------------------------------------------------


def test_paths_that_are_not_utf8(capsys: Capture) -> None:
    odd = os.fsdecode(b"caf\xe9")
    assert main([*RUN.split(), "--out", odd]) == 0
    for line in (["runs", "show", odd], ["runs", "list", "."], ["report", odd, "--out", "r.html"]):
        assert main(line) == 0
        assert "caf\\xe9" in capsys.readouterr().out or line[0] == "report"
    Path("fed.json").rename(f"{odd}.json")
    line = ["simulate", f"{odd}.json", "--gamma", "0.1", "--out", "new"]
    assert "is not UTF-8, so an experiment cannot name it; rename the file" in sentence(capsys, line, 2)


@pytest.fixture
def deep() -> Iterator[Path]:
    """A path of 1,500 levels, which is deleted here: what pytest deletes with recurses once per level, and fails."""
    yield Path(*["a"] * 1500)
    subprocess.run(["rm", "-rf", "a"], check=True)


def test_paths_of_1500_levels(deep: Path, capsys: Capture) -> None:
    assert main([*RUN.split(), "--out", str(deep)]) == 0
    assert main(["runs", "list", "."]) == 0
    assert main(["runs", "show", str(deep)]) == 0
    assert "Finished" in capsys.readouterr().out
    too_long = Path(*["a"] * 3000)
    assert "File name too long" in sentence(capsys, [*RUN.split(), "--out", str(too_long)], 2)


# -- memory and space ------------------------------------------------------------------------------------------------


def test_running_out_of_memory_is_a_sentence(tmp_path: Path) -> None:
    """With room for little more than the program itself, torch cannot make a mini-batch of a million examples."""
    code = (
        "import resource, sys; from fedgauge.cli import main;"
        "import torch, fedgauge.simulation.experiment.prepare, sklearn.datasets;"
        "now = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize();"
        "resource.setrlimit(resource.RLIMIT_AS, (now + 2**28, resource.RLIM_INFINITY));"
        "sys.exit(main(sys.argv[1:]))"
    )
    line = "simulate digits --model linear --gamma 0.1 --rounds 1 --local-steps 1 --batch-size 1000000 --processes 1"
    done = subprocess.run([sys.executable, "-c", code, *line.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("fedgauge: There is not enough memory (")
    assert done.stderr.endswith("use a smaller batch size, fewer local steps or workers, or a smaller model, and run"
                                " the command again.\n")  # fmt: skip


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "free some space"), (errno.EDQUOT, "free some space"), (errno.EIO, "fix that")],
)
def test_space_is_asked_for_only_where_it_helps(
    number: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with RunDirectory.open(tmp_path / "run", {}) as directory:
        monkeypatch.setattr(directory._rounds, "append", refuse)
        with pytest.raises(Exception, match=f"stopped: {os.strerror(number)}; .*: {words}, then repeat"):
            directory.append(Round(0, 1.0, 1.0), 0.0)
    monkeypatch.setattr("fedgauge.simulation.runs.reader.read_run", refuse)
    assert f"{os.strerror(number)}; {words} and run the command again." in sentence(capsys, "runs show run", 1)
