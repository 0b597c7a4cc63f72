"""measure: a table with intervals and kinds, JSON that bounds take, budgets, Ctrl-C and what is refused."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file
from tests.cli.command import Capture, answer, start, words

from fedgauge.cli import main
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.measurement.values import Measurement
from fedgauge.show import console

QUICK = "--gamma 0.1 --processes 1 --near 0.3 --seeds 2 --trajectory-rounds 2"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["theory", "generate", "fed.json", "--workers", "4", "--dim", "3", "--sigma2", "0.1"]) == 0
    capsys.readouterr()
    return tmp_path


def test_a_quadratic_has_exact_and_measured_constants_side_by_side(place: Path, capsys: Capture) -> None:
    found = answer(capsys, f"measure fed.json {QUICK}")
    exact = QuadraticFederation.read("fed.json").constants()
    names = [reading["name"] for reading in found["readings"]]
    assert names == ["certified", "divergence", "noise", "trajectory", "trajectory maximum", "curvature", "parts"]
    assert found["constants"]["L_h"]["kind"] == "exact"
    assert found["constants"]["L_h"]["value"] == exact["L_h"].value
    curvature = {item["symbol"]: item["value"] for item in found["readings"][5]["estimates"]}
    assert curvature["L_tilde"] == pytest.approx(exact["L_tilde"].value, rel=1e-8)
    assert found["complete"]
    assert Measurement.from_json(found).to_json() == found


def test_a_table_of_many_readings_does_not_break_inside_words(
    place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "out", console.PrintableConsole(highlight=False, width=80))
    assert main(f"measure fed.json {QUICK}".split()) == 0
    shown = capsys.readouterr().out
    # Sentences are whole lines, which a terminal folds; tables are indented.
    lines = shown.splitlines()
    assert max(len(line) for line in lines if line.startswith(" ")) <= 80
    cells = {cell for line in lines for cell in line.split()}
    readings = {"certified", "divergence", "noise", "trajectory", "curvature"}
    assert readings | {"L_h_paper", "zeta_local", "sigma_rms"} <= cells
    assert "zeta_rms²" in cells
    assert sum("by worker" in line for line in lines) == 2
    # Ends that look alike say nothing.
    assert not [low for low, high in re.findall(r"\[(\S+), (\S+)\]", shown) if low == high]


def test_a_model_is_read_from_any_file_that_a_run_may_begin_at(place: Path, capsys: Capture) -> None:
    torch.save({"model": torch.ones(3)}, "own.pt")
    save_file({"model": torch.ones(3)}, "own.safetensors")
    line = f"measure fed.json {QUICK} --readings divergence --at"
    losses = [answer(capsys, f"{line} {name}")["point"]["loss"] for name in ("own.pt", "own.safetensors")]
    assert losses[0] == losses[1]


def test_digits_are_measured_shown_and_kept(place: Path, capsys: Capture) -> None:
    said = words(capsys, f"measure digits {QUICK} --out measured --readings trajectory,curvature")
    for part in ("trajectory maximum", "curvature", "lower", "happened along FedAvg's steps", "Hessian passes"):
        assert part in said
    assert (place / "measured" / "measure.png").read_bytes()[:4] == b"\x89PNG"
    kept = json.loads((place / "measured" / "measure.json").read_text())
    # The worst direction is the reader's to check: here by its length, and that it is the one that was measured.
    worst = load_file(place / "measured" / "directions.safetensors")
    assert np.linalg.norm(worst["curvature.L_h"]) == pytest.approx(1)
    curvature = next(reading for reading in kept["readings"] if reading["name"] == "curvature")
    value = next(item["value"] for item in curvature["estimates"] if item["symbol"] == "L_h")
    assert curvature["details"]["attained"]["L_h"] == pytest.approx(value, rel=0.05)  # float32, and ReLUs have kinks
    bound = answer(
        capsys,
        "theory bound nonconvex --values measured/measure.json I=4 R=100 N=10 F=2 sigma2=1 zeta2=1 gamma=0.001",
    )
    assert bound["values"]["L_h"] == pytest.approx(value)
    assert not bound["certified"]


def test_a_run_is_measured_at_its_own_model_and_checked_against_it(place: Path, capsys: Capture) -> None:
    assert main(["simulate", "digits", "--gamma", "0.1", "--rounds", "5", "--processes", "1", "--out", "run"]) == 0
    capsys.readouterr()
    found = answer(capsys, "measure run --readings curvature")
    assert found["point"]["origin"] == str(Path("run", "model.safetensors"))
    for model in ("run", "run/state_dict.safetensors"):
        same = answer(capsys, f"measure run --at {model} --readings curvature")
        assert same["readings"] == found["readings"]
    assert main(["measure", "run", "--readings", "curvature", "--out", "measured"]) == 0
    capsys.readouterr()
    # The curvature at the last model is no bound for earlier rounds, but L_h's is ten times what happens.
    measured = json.loads(Path("measured/measure.json").read_text())["constants"]
    Path("constants.json").write_text(json.dumps({"L_h": measured["L_h"]}))
    checked = answer(capsys, "runs check run --values constants.json")
    assert (checked["exceeded"], checked["rounds"]) == ([], 5)
    assert "None of 5 watched rounds" in words(capsys, "runs check run --values constants.json")
    Path("small.json").write_text(json.dumps({"L_h": 1e-3, "L_tilde": 1e9}))
    assert main(["runs", "check", "run", "--values", "small.json"]) == 1
    assert "does not cover this run" in capsys.readouterr().out
    assert main(["runs", "check", "run", "--values", "small.json", "--json"]) == 1
    flags = json.loads(capsys.readouterr().out)["exceeded"]
    assert {flag["symbol"] for flag in flags} == {"L_h"}
    assert len(flags) == 5


def test_ctrl_c_keeps_what_was_measured(place: Path) -> None:
    line = f"measure digits {QUICK} --readings noise,trajectory --trajectory-rounds 100000 --json --out kept"
    for patience in (0.5, 2, 8, 32):
        shutil.rmtree("kept", ignore_errors=True)
        with start(*line.split(), cwd=place) as process:
            # The trajectory begins when the noise has been measured and kept; its first round may take a while.
            while not Path("kept/measure.json").exists():
                assert process.poll() is None
                time.sleep(0.05)
            time.sleep(patience)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        found = json.loads(out)
        assert not found["complete"]
        trajectories = [reading for reading in found["readings"] if reading["name"] == "trajectory"]
        if trajectories and trajectories[0]["details"]["rounds"]:
            break
    (trajectory,) = trajectories
    assert len(trajectory["details"]["rounds"]) >= 1
    assert any("interrupted" in note for note in trajectory["notes"])


def test_a_budget_ends_it_with_what_there_is(place: Path, capsys: Capture) -> None:
    assert main(f"measure digits {QUICK} --trajectory-rounds 100000 --spend 4s --json".split()) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert not found["complete"]
    assert "budget is used up" in captured.err
    assert found["cost"]["seconds"] < 30
    assert found["readings"][0]["estimates"]


def test_what_is_refused(place: Path, capsys: Capture) -> None:
    save_file({"model": torch.zeros(3)}, "small.safetensors")
    save_file({"model": torch.full((7510,), float("nan"))}, "nan.safetensors")
    save_file({"1.weight": torch.zeros(2, 2)}, "other.safetensors")
    Path("no.safetensors").write_bytes(b"no")
    for line, said in (
        ("--at small.safetensors", "3 parameters, but the federation's has 7510"),
        ("--at nan.safetensors", "it has diverged"),
        ("--at other.safetensors", "1.weight has the shape (2, 2), but the model's has (100, 64)"),
        ("--at no.safetensors", "holds no tensors that can be read"),
        ("--at missing.safetensors", "Cannot read missing.safetensors"),
        ("--readings curvatur", "There is no reading 'curvatur'; did you mean curvature?"),
        ("--spend soon", "--spend must be a time or passes, as in 60s, 5m, 1h or 40passes, not 'soon'"),
        ("--spend 0.0001s", "is used up before one pass over the data"),
        ("--seeds 0", "seeds must be a whole number of at least 1"),
        ("--near 2", "fall must be between 0 and 1"),
    ):
        assert main(f"measure digits --gamma 0.1 --processes 1 --most 2 {line}".split()) == 2, line
        captured = capsys.readouterr()
        assert said in captured.err, (line, captured.err)
        assert captured.err.count("\n") == 1
    np.savez("nan.npz", x=np.full((20, 3), np.nan), y=np.arange(20) % 2)
    assert main(["measure", "nan.npz", "--gamma", "0.1", "--workers", "2"]) == 2
    assert "NaN" in capsys.readouterr().err
    assert main(["measure", "digits", "--gamma", "1e9", "--processes", "1"]) == 2
    assert "diverges" in capsys.readouterr().err


def test_a_model_that_training_left_far_from_convergence_is_called_that(place: Path, capsys: Capture) -> None:
    Path("rising.json").write_text('{"hessians": [[[1]]], "linear": [[0]], "constant": [1], "start": [1e-4]}')
    found = answer(capsys, "measure rising.json --gamma 2.05 --local-steps 1 --most 20 --readings noise")
    assert found["point"]["origin"] == "after 20 rounds, not near convergence"


def test_a_run_of_some_workers_is_checked_against_l_tilde_alone(place: Path, capsys: Capture) -> None:
    line = "simulate fed.json --gamma 0.1 --rounds 5 --participants 2 --sampling without-replacement --out few"
    assert main(line.split()) == 0
    Path("constants.json").write_text('{"L_h": 1e-9, "L_tilde": 1e9}')
    capsys.readouterr()
    found = answer(capsys, "runs check few --values constants.json")
    assert (found["exceeded"], found["unchecked"], found["limits"]) == ([], ["L_h"], {"L_tilde": 1e9})
    assert "Not checked: L_h" in words(capsys, "runs check few --values constants.json")
    Path("constants.json").write_text('{"L_h": 1e-9}')
    assert main(["runs", "check", "few", "--values", "constants.json"]) == 2


def test_weighted_quadratics_are_not_certified_by_the_plain_average(place: Path, capsys: Capture) -> None:
    Path("two.json").write_text('{"hessians": [[[1]], [[3]]], "linear": [[1], [2]], "start": [1]}')
    line = "measure two.json --gamma 0.1 --weights 0,1 --local-steps 1 --most 2 --readings certified,curvature"
    found = answer(capsys, line)
    # f is the second worker's own, whose Hessian is 3; that of the plain average is 2.
    assert (found["constants"]["L_g"]["value"], found["constants"]["L_g"]["kind"]) == (pytest.approx(3.0), "lower")
    assert "equal weights" in found["readings"][0]["notes"][0]
