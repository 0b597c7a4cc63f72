"""Every command answers, in words and in JSON, and says what the library says."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rich.console import Console
from tests.cli.command import FEDERATION, Capture, answer, start, without_progress, words

from fedgauge import QuadraticFederation, expect, fedavg, fedavgm, minibatch, momentum
from fedgauge.base.terminal import command_line
from fedgauge.cli import app, main
from fedgauge.cli.demo import digits, quadratics
from fedgauge.federation.participation import Participation
from fedgauge.measurement.gauge.result import GaugeResult
from fedgauge.show import console
from fedgauge.simulation.runs.reader import read_run
from fedgauge.values import Trace
from fedgauge_wang2024 import table2


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fed.json").write_text(json.dumps(FEDERATION))
    return tmp_path


# -- help ----------------------------------------------------------------------------------------------------------


def paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The command, and all below it."""
    if path:
        yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from paths(below, (*path, name))


COMMANDS = sorted(paths(typer.main.get_command(app)))


def test_version_is_told_without_waiting_for_torch(tmp_path: Path) -> None:
    asked = "import sys; from fedgauge.cli import main; status = main(['--version']); assert 'torch' not in sys.modules"
    found = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert re.fullmatch(r"fedgauge \d+\.\d+\.\d+ \(Python 3\S+, torch \d\S+\)\n", found.stdout)


@pytest.mark.parametrize("line", ["", "runs"])
def test_nothing_asked_is_answered_with_help_alone(line: str, capsys: Capture) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert f"Usage: fedgauge {line}".strip() in out
    assert err == ""


@pytest.mark.parametrize("line", ["reprot", "simulat", "simulate fed.json --gama 1"])
def test_what_was_meant_is_suggested_once(line: str, capsys: Capture) -> None:
    assert main(line.split()) == 2
    err = capsys.readouterr().err
    assert err.casefold().count("did you mean") == 1
    assert err.endswith("?\n")
    assert ". " not in err


def test_all_commands_are_there() -> None:
    names = {" ".join(path) for path in COMMANDS}
    assert names >= {"demo", "simulate", "runs sweep", "data partition", "theory expect", "paper table"}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_shows_an_example(path: tuple[str, ...], capsys: Capture) -> None:
    assert main([*path, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "Example" in out
    assert f"fedgauge {' '.join(path)}" in out.split("Example", 1)[1]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_no_bracket_that_is_taken_for_markup(path: tuple[str, ...]) -> None:
    command: Any = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    for parameter in command.params:
        assert not re.search(r"(?<!\\)\[", getattr(parameter, "help", None) or ""), parameter.name


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_is_folded_where_the_terminal_ends(path: tuple[str, ...]) -> None:
    command: Any = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    for paragraph in command.help.split("\n\n"):
        _, *rest = paragraph.splitlines()
        assert all(line.startswith("Example:") for line in rest), paragraph


def test_the_command_is_recorded_as_it_can_be_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/study.py", "a b"])
    assert command_line() == "python study.py 'a b'"
    for program in ("/usr/bin/fedgauge", "/lib/fedgauge/__main__.py"):
        monkeypatch.setattr(sys, "argv", [program, "demo", "--out", "a b"])
        assert command_line() == "fedgauge demo --out 'a b'"


def test_help_imports_no_numbers() -> None:
    code = "import sys; from fedgauge.cli import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "fedgauge demo" in done.stdout
    # What makes --help slow is what it imports, which does not depend on how busy the machine is.
    heavy = {"torch", "numpy", "scipy", "matplotlib", "safetensors", "sklearn", "pandas", "ray", "flwr", "jinja2"}
    assert not heavy & set(done.stderr.split())


# -- what they answer ----------------------------------------------------------------------------------------------

DOCUMENTED = {"L_tilde", "L_g", "L_h", "L_h_paper", "mu", "kappa", "varphi", "x_star", "f_star"}

# Computed by hand: the Hessians are diagonal, so every eigenvalue is an entry.
BY_HAND: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # A = diag(2, 1), b = (-1, 1), c = 2, A_i - A = ±diag(1, 0)
    "two workers": (
        FEDERATION,
        {
            "L_tilde": 3,
            "L_g": 2,
            "L_h": 1,
            "L_h_paper": 1,
            "mu": 1,
            "kappa": 1 - 1 / 3,
            "varphi": 1,
            "x_star": [0.5, -1],
            "f_star": 1.25,
        },
    ),
    # A = diag(1, 1), and A_i - A = diag(3, 0), -diag(1, 0) three times: one worker alone is far off
    "four workers": (
        {"hessians": [[[4, 0], [0, 1]], *[[[0, 0], [0, 1]]] * 3], "linear": [[0, -2]] * 4},
        {
            "L_tilde": 4,
            "L_g": 1,
            "L_h": sqrt((9 + 3) / 4),
            "L_h_paper": 3,
            "mu": 1,
            "kappa": 1,
            "varphi": 1,
            "x_star": [0, 2],
            "f_star": -2,
        },
    ),
    "unbounded": (
        {"hessians": [[[2, 0], [0, -1]]] * 2, "linear": [[0, 0]] * 2},
        {
            "L_tilde": 2,
            "L_g": 2,
            "L_h": 0,
            "L_h_paper": 0,
            "mu": -1,
            "kappa": 1.5,
            "varphi": 1.5,
            "x_star": None,
            "f_star": float("-inf"),
        },
    ),
}


@pytest.mark.parametrize(("federation", "expected"), BY_HAND.values(), ids=BY_HAND)
def test_constants(federation: dict[str, Any], expected: dict[str, Any], place: Path, capsys: Capture) -> None:
    (place / "fed.json").write_text(json.dumps(federation))
    found = answer(capsys, "theory constants fed.json")
    assert set(expected) == DOCUMENTED
    bounded = {"d0"} if expected["x_star"] else set()
    assert set(found) == DOCUMENTED | {"sigma", "zeta", "F", "N"} | bounded
    for name, entry in found.items():
        assert set(entry) == {"value", "kind", *(("scope",) if name != "x_star" else ())}
        # Where the Hessians differ, the divergence at the start is only a lower bound of that over all models.
        assert entry["kind"] == ("lower" if name == "zeta" and expected["L_h"] else "exact")
    assert found["N"]["value"] == len(federation["hessians"])
    for name, value in expected.items():
        # A value is the safe end of an interval that allows for rounding.
        assert found[name]["value"] == (value if value is None else pytest.approx(value, abs=1e-13)), name


def test_constants_in_words(place: Path, capsys: Capture) -> None:
    shown = words(capsys, "theory constants fed.json")
    assert "fed.json: 2 workers, dimension 2" in shown
    rows = {line.split()[0]: line.split()[1] for line in shown.splitlines() if len(line.split()) > 1}
    assert (rows["L_tilde"], rows["kappa"], rows["sigma"], rows["f_star"]) == ("3", "0.6667", "0.5", "1.25")


EXPECTATIONS: dict[str, Any] = {
    "--gamma 0.1 --eta 1.5": lambda f: expect(f, fedavg(0.1, 1.5), local_steps=3, rounds=5),
    "--gamma 0.1 --algorithm minibatch": lambda f: expect(f, minibatch(0.1), local_steps=3, rounds=5),
    "--gamma 0.1 --algorithm fedavgm --nesterov": lambda f: expect(
        f, fedavgm(0.1, nesterov=True), local_steps=3, rounds=5
    ),
    "--gamma 0.1 --algorithm momentum --beta 0.5": lambda f: expect(f, momentum(0.1, 0.5), local_steps=3, rounds=5),
    "--gamma 0.1 --algorithm momentum --beta 0.5 --rounds-only": lambda f: expect(
        f, momentum(0.1, 0.5), local_steps=3, rounds=5, iterations=False
    ),
    "--gamma 0.1 --iterations": lambda f: expect(f, fedavg(0.1), local_steps=3, rounds=5, iterations=True),
    "--gamma 0.1 --weights 1,3": lambda f: expect(
        f, fedavg(0.1), local_steps=3, rounds=5, participation=Participation(weights=(1, 3))
    ),
    **{
        f"--gamma 0.1 --participants 1 --sampling {sampling}": lambda f, sampling=sampling: expect(
            f, fedavg(0.1), local_steps=3, rounds=5, participation=Participation(sampling, 1)
        )
        for sampling in ("with-replacement", "with-replacement-shared", "without-replacement")
    },
    "--gamma 0.1 --participants 1": lambda f: expect(
        f, fedavg(0.1), local_steps=3, rounds=5, participation=Participation("with-replacement", 1)
    ),
}


@pytest.mark.parametrize("line", EXPECTATIONS)
def test_expect_is_the_librarys(line: str, place: Path, capsys: Capture) -> None:
    found = answer(capsys, f"theory expect fed.json --local-steps 3 --rounds 5 {line}")
    expected = EXPECTATIONS[line](QuadraticFederation.read("fed.json"))
    per_iteration = "momentum" in line or "--iterations" in line
    entries = 5 * 3 + 1 if per_iteration and "--rounds-only" not in line else 5 + 1
    for name in ("grad2", "loss"):
        assert len(found[name]) == entries
        assert found[name] == list(getattr(expected, name))
    # By hand: f(1, 1) = 1/2 (2 + 1) - 1 + 1 + 2 and grad f(1, 1) = (2 - 1, 1 + 1); weighted, A = diag(3/2, 1),
    # b = (-2, 3/2) and c = 3.
    loss, grad2 = (3.75, 0.25 + 6.25) if "--weights" in line else (3.5, 5.0)
    assert (found["loss"][0], found["grad2"][0]) == (loss, grad2)


# A command whose start takes seconds -> what it imports first of all that is slow.
SLOW = {
    "report fed.json": "fedgauge.show.page.build",
    "simulate fed.json --gamma 0.1": "fedgauge.simulation.experiment.prepare",
    "measure fed.json --gamma 0.1": "fedgauge.simulation.experiment.prepare",
    "plan fed.json --gamma 0.1 --goal grad2=1": "fedgauge_planning.candidates",
    "plan fed.json --gamma 0.1 --goal grad2=1 --mode theory": "fedgauge_planning.measured_constants",
}


@pytest.mark.parametrize("line", SLOW)
def test_there_is_a_bar_before_what_is_slow(
    line: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    drawn = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=drawn, force_terminal=True))
    monkeypatch.setitem(sys.modules, SLOW[line], None)
    monkeypatch.setattr("tempfile.tempdir", str(place))  # for the traceback
    assert main(line.split()) == 70
    assert f"(ModuleNotFoundError: import of {SLOW[line]} halted" in capsys.readouterr().err
    assert "starting" in drawn.getvalue()


def test_who_takes_part_is_told_where_not_all_do(place: Path, capsys: Capture) -> None:
    line = "simulate fed.json --gamma 0.1 --rounds 1 --local-steps 2"
    # A title folds at the width of its table.
    shown = " ".join(words(capsys, f"{line} --participants 1 --out run").split())
    assert "2 local steps, 1 of 2 workers per round, with replacement, seed 0" in shown
    assert "Finished 1 round." in shown
    assert "2 local steps, 1 worker per round" in words(capsys, "runs show run")
    assert "per round" not in words(capsys, line)


def test_expect_in_words(place: Path, capsys: Capture) -> None:
    shown = words(capsys, "theory expect fed.json --gamma 0.1 --rounds 5")
    first = next(line for line in shown.splitlines() if line.split()[:1] == ["0"])
    assert first.split() == ["0", "3.5", "5"]
    assert sum(line.split()[:1] == [str(r)] for r in range(6) for line in shown.splitlines()) == 6


def test_from_generate_to_simulate(place: Path, capsys: Capture) -> None:
    made = answer(capsys, "theory generate new.json --workers 3 --dim 4 --hessian-spread 0.5 --seed 7")
    assert made["file"] == "new.json"
    constants = answer(capsys, "theory constants new.json")
    assert made["constants"] == {name: constants[name]["value"] for name in made["constants"]}
    rates = "--gamma 0.2 --eta 1.2 --local-steps 4 --rounds 30"
    expected = answer(capsys, f"theory expect new.json {rates}")
    trace = Trace.from_json(answer(capsys, f"simulate new.json {rates}"))
    assert trace.status == "finished"
    assert [record.round for record in trace.rounds] == list(range(31))
    # Without noise and with all workers nothing is random, so the run is its own expectation.
    assert trace.losses.tolist() == pytest.approx(expected["loss"], rel=1e-12)
    assert trace.grad2.tolist() == pytest.approx(expected["grad2"], rel=1e-9, abs=1e-20)
    assert trace.losses[-1] == pytest.approx(constants["f_star"]["value"], rel=0.05)


def test_generate_overwrites_when_told(place: Path, capsys: Capture) -> None:
    words(capsys, "theory generate fed.json --workers 2 --dim 3 --force")
    assert QuadraticFederation.read("fed.json").dim == 3


def test_simulate_in_words(place: Path, capsys: Capture) -> None:
    shown = words(capsys, "simulate fed.json --gamma 0.1 --local-steps 2 --rounds 4 --seed 5 --out run")
    assert shown.startswith("fed.json; 2 workers\n")
    assert "fedavg (gamma 0.1, eta 1), 2 local steps, seed 5" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert next(row for row in rows if row[:1] == ["0"])[1:3] == ["3.5", "5"]
    assert "Finished 4 rounds." in shown
    assert "The run is in run." in shown


def test_the_target_that_was_reached_is_named(place: Path, capsys: Capture) -> None:
    line = "simulate fed.json --gamma 0.1 --rounds 50"
    assert "Reached the target loss in round 0." in words(capsys, f"{line} --goal loss=3.5")
    assert "Reached the target |grad f|^2 in round 0." in words(capsys, f"{line} --goal grad2=5,loss=0")
    line = "simulate digits --gamma 0.1 --rounds 1 --processes 1"
    assert "Reached the target accuracy in round 0." in words(capsys, f"{line} --goal accuracy=0.01")


@pytest.mark.parametrize("line", ["simulate fed.json --gamma 1e6", "simulate fed.json --gamma 3 --algorithm scaffold"])
def test_divergence_is_an_outcome(line: str, place: Path, capsys: Capture) -> None:
    found = answer(capsys, f"{line} --rounds 1000 --out run")
    assert found["status"] == "diverged"
    stopped = found["stopped_at"]
    assert 0 < stopped < 1000
    assert [record["round"] for record in found["rounds"]] == list(range(stopped))
    assert all(abs(record["loss"]) < float("inf") for record in found["rounds"])
    assert len((place / "run" / "rounds.jsonl").read_bytes().splitlines()) == stopped
    assert json.loads((place / "run" / "result.json").read_text())["status"] == "diverged"
    assert f"Diverged in round {stopped}; try a smaller gamma" in words(
        capsys, f"{line} --rounds 1000 --out run --resume"
    )


def test_divergence_at_the_start(place: Path, capsys: Capture) -> None:
    # Each number is small enough to be taken, and their product is not finite.
    steep = {"hessians": [[[1e100, 0], [0, 1]]] * 2, "linear": [[0, 0]] * 2, "start": [1e150, 0]}
    (place / "fed.json").write_text(json.dumps(steep))
    shown = words(capsys, "simulate fed.json --gamma 0.1 --out run --plot run/picture.svg")
    assert "Diverged in round 0" in shown
    assert (place / "run" / "rounds.jsonl").read_bytes() == b""


def test_algorithms(capsys: Capture) -> None:
    found = answer(capsys, "theory algorithms")
    assert found["momentum"]["parameters"] == ["gamma", "beta", "eta"]
    shown = words(capsys, "theory algorithms")
    for name, entry in found.items():
        assert name in shown
        assert entry["summary"]


def test_symbols(capsys: Capture) -> None:
    found = answer(capsys, "theory symbols")
    assert set(found) >= DOCUMENTED - {"x_star"}
    shown = words(capsys, "theory symbols")
    assert all(name in shown for name in found)


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
@pytest.mark.parametrize("command", ["simulate", "theory expect"])
def test_pictures(command: str, suffix: str, place: Path, capsys: Capture) -> None:
    words(capsys, f"{command} fed.json --gamma 0.1 --rounds 3 --plot picture{suffix}")
    magic = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}
    assert (place / f"picture{suffix}").read_bytes().startswith(magic[suffix])


def test_table2_from_finished_cells(place: Path, capsys: Capture) -> None:
    # A whole table takes half a minute, an interrupted one goes on from its cells: here all are finished.
    cells = place / "table" / "table2" / "cells"
    cells.mkdir(parents=True)
    for workers in (2, 5, 10):
        asked = [workers, 0, 5, table2.DIM, table2.SIGMA2, table2.TARGET]
        cell = {"workers": workers, "problem": 0, "rounds": [[100 + workers, 101 + workers]] * 9, "seconds": 1.0}
        (cells / f"cell-{workers}-0-5.json").write_text(json.dumps({"asked": asked, "cell": cell}))
    found = answer(capsys, "paper table 2 --seeds 1 --out table")
    assert [column["ours"]["5"]["median"] for column in found["columns"]] == [105] * 9
    assert json.loads((place / "table" / "table2" / "result.json").read_text()) == found
    assert (place / "table" / "table2" / "table2.png").read_bytes().startswith(b"\x89PNG")
    shown = words(capsys, "paper table 2 --seeds 1 --out table")
    assert "86 ± 1.6" in shown
    assert "105" in shown


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--out", "my demo"]) == 0
    printed, err = capsys.readouterr()
    assert without_progress(err) == ""
    result = json.loads((tmp_path / "my demo" / "result.json").read_text())
    written = {path.name: path.read_bytes() for path in (tmp_path / "my demo").iterdir() if path.is_file()}
    pictures = {"partition.png", "digits.png", "rounds.png", "local-steps.png"}
    assert set(written) == {"result.json", "report.html", *pictures}
    assert all(written[name].startswith(b"\x89PNG") for name in pictures)
    report = written["report.html"].decode()
    # The terminal ends with the answer with which the report begins, and the files and the notebook say the same.
    gauged = json.loads((tmp_path / "my demo" / "gauged" / "gauge.json").read_text())
    sentence = gauged["sentence"]
    assert result["sentence"] == sentence
    assert sentence.startswith("Use ")
    assert f'<p class="verdict">{sentence}</p>' in report
    assert "<h1>digits, mlp, fedavg</h1>" in report
    assert sentence in GaugeResult.from_json(gauged)._repr_html_()
    end = printed[printed.index(sentence) :]
    assert "How much of the work counts" in end
    assert end.splitlines()[-1].startswith("It holds for this federation")
    assert "Report, which begins" in printed[: printed.index(sentence)].splitlines()[-2]
    assert all(f'<section id="{name}"' in report for name in ("federation", "rounds", "constants", "bound", "origins"))
    # On digits, more local steps make a round worth more.
    losses = [run["loss"][-1] for run in result["digits"]["runs"]]
    assert losses == sorted(losses, reverse=True)
    assert result["digits"]["runs"][-1]["accuracy"][-1] > 0.9
    kept = [read_run(path) for path in sorted((tmp_path / "my demo" / "runs").iterdir())]
    assert [run.status for run in kept] == ["finished"] * 3
    # The idea that it shows: with equal Hessians the most local steps are as good as any, with others they are not.
    ends = {
        name: [run["expected_excess"][-1] for run in federation["runs"]]
        for name, federation in result["federations"].items()
    }
    assert ends["equal Hessians"][-1] < 1.01 * min(ends["equal Hessians"])
    assert ends["different Hessians"][-1] > 2 * min(ends["different Hessians"])
    # As JSON it is the same; what has ended is not computed again.
    monkeypatch.setattr(quadratics, "run", lambda _: {name: result[name] for name in result if name != "digits"})
    monkeypatch.setattr(digits, "measure", lambda *_: tmp_path / "my demo" / "measured" / "measure.json")
    monkeypatch.setattr(digits, "gauge", lambda *_: GaugeResult.from_json(gauged))
    assert main(["demo", "--out", "my demo", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == result


# -- how they are used ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["with spaces", "[red]", "[/b]", "naïve"])
def test_any_name_of_a_directory(name: str, place: Path, capsys: Capture) -> None:
    """Brackets are markup to the library that prints tables, and a reader must not see them eaten."""
    (place / name).mkdir(parents=True)
    federation, kept = f"{name}/fed.json", f"{name}/below/run"
    for arguments in (
        ["theory", "generate", federation, "--workers", "2", "--dim", "2"],
        ["theory", "constants", federation],
        ["theory", "expect", federation, "--gamma", "0.1", "--rounds", "2"],
    ):
        assert main(arguments) == 0
        assert federation in capsys.readouterr().out
    assert main(["simulate", federation, "--gamma", "0.1", "--rounds", "2", "--out", kept]) == 0
    assert f"The run is in {kept}." in capsys.readouterr().out
    assert (place / kept / "result.json").exists()


@pytest.mark.parametrize(
    "line",
    [
        "theory constants fed.json",
        "theory constants fed.json --json",
        "theory expect fed.json --gamma 0.1 --rounds 20000 --json",  # more than a pipe holds
        "simulate fed.json --gamma 0.1 --rounds 3",
    ],
)
def test_a_reader_who_leaves_early_sees_no_traceback(line: str, place: Path) -> None:
    with start(*line.split(), cwd=place) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert without_progress(process.stderr.read()) == ""
        assert process.wait(60) == 1


def test_interrupted_run_says_how_to_go_on_and_does_so_to_the_same_bits(place: Path, capsys: Capture) -> None:
    line = "simulate fed.json --gamma 0.01 --algorithm fedadam --participants 2 --local-steps 2 --rounds 2000"
    (place / "a b").mkdir()
    rounds = place / "a b" / "run" / "rounds.jsonl"
    with start(*line.split(), "--out", "a b/run", cwd=place) as process:
        while not rounds.exists() or rounds.stat().st_size < 5_000:
            assert process.poll() is None
            time.sleep(0.01)
        # Meanwhile nobody else may write there.
        assert main([*line.split(), "--out", "a b/run", "--resume"]) == 2
        assert "Another process is writing the run in a b/run" in capsys.readouterr().err
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Stopped in round" in out
    err = without_progress(err)
    assert err.startswith("fedgauge: Interrupted in round ")
    assert err.endswith("; to resume the run in a b/run, repeat the command with --resume.\n")
    assert not (place / "a b" / "run" / "result.json").exists()
    assert 0 < len(rounds.read_bytes().splitlines()) < 2001

    assert main([*line.split(), "--out", "a b/run", "--resume"]) == 0
    assert main([*line.split(), "--out", "whole"]) == 0
    for name in ("rounds.jsonl", "model.safetensors", "result.json", "settings.json"):
        assert (place / "a b" / "run" / name).read_bytes() == (place / "whole" / name).read_bytes()


def test_pictures_say_where_they_were_written(place: Path, capsys: Capture) -> None:
    assert main(["theory", "expect", "fed.json", "--gamma", "0.1", "--rounds", "2", "--plot", "expected.png"]) == 0
    assert "Written: expected.png\n" in capsys.readouterr().out
    assert main(["theory", "region", "--points", "2", "--plot", "map.svg"]) == 0
    assert "Written: map.svg\n" in capsys.readouterr().out
    assert (place / "expected.png").exists()
    assert (place / "map.svg").exists()
    assert main(["theory", "region", "--points", "2", "--plot", "map.svg", "--json"]) == 0
    json.loads(capsys.readouterr().out)  # and nothing else
