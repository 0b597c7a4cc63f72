"""Runs with local optimisers and schedules, through every command: it works, or one sentence says why not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.cli.command import Capture, answer, words

from fedgauge import random_quadratics
from fedgauge.cli import main

MOMENTUM = "--gamma 0.05 --local-momentum 0.8 --optimiser-state kept"


@pytest.fixture
def federation(tmp_path: Path) -> Path:
    random_quadratics(4, 3, hessian_spread=0.3, sigma2=0.1).write(tmp_path / "fed.json")
    return tmp_path / "fed.json"


@pytest.fixture
def run(federation: Path, tmp_path: Path, capsys: Capture) -> Path:
    words(
        capsys,
        f"simulate {federation} {MOMENTUM} --gamma-schedule cosine,by=step --local-steps 3 --rounds 8"
        f" --out {tmp_path / 'run'}",
    )
    return tmp_path / "run"


def test_a_report_shows_no_bound(run: Path, tmp_path: Path, capsys: Capture) -> None:
    words(capsys, f"measure {run} --out {tmp_path / 'measured'} --trajectory-rounds 2 --seeds 1")
    page = tmp_path / "report.html"
    words(capsys, f"report {run} --measure {tmp_path / 'measured' / 'measure.json'} --out {page}")
    shown = page.read_text()
    assert "No theorem here covers fedavg with a local optimiser or a schedule." in shown
    assert re.search(r"optimiser_state</\w+>\s*<[^>]+>kept<", shown)
    found = words(capsys, f"runs check {run} --values {tmp_path / 'measured' / 'measure.json'}")
    assert "watched rounds" in found
    settings = json.loads((run / "settings.json").read_text())
    assert settings["algorithm"]["gamma_schedule"] == "cosine,by=step,over=24"


def test_resumed_and_in_processes(federation: Path, tmp_path: Path, capsys: Capture) -> None:
    how = f"simulate {federation} --algorithm diloco --gamma 0.02 --local-steps 3 --rounds 6"
    whole = answer(capsys, f"{how} --json")
    shared = answer(capsys, f"{how} --json --processes 2 --out {tmp_path / 'shared'}")
    assert shared["model"] == whole["model"]
    assert answer(capsys, f"{how} --json --out {tmp_path / 'shared'} --resume")["model"] == whole["model"]


def test_steps_adapt(federation: Path, capsys: Capture) -> None:
    found = answer(capsys, f"simulate {federation} {MOMENTUM} --local-steps auto --rounds 5 --json")
    assert found["rounds"][0]["looked"][0] == 1
    assert found["rounds"][-1]["loss"] < found["rounds"][0]["loss"]


def test_the_gauge_and_a_plan(federation: Path, capsys: Capture) -> None:
    gauged = answer(capsys, f"gauge {federation} {MOMENTUM} --steps 100 --candidates 4 --json")
    assert gauged["settings"]["algorithm"]["local_momentum"] == 0.8
    planned = answer(
        capsys,
        f"plan {federation} {MOMENTUM} --goal loss=-0.2 --cost cross-silo --over local_steps=1,4 --over gamma=0.05"
        " --json",
    )
    assert planned["experiment"]["algorithm"]["local_momentum"] == 0.8
    assert any("not with a local optimiser" in note for note in planned["notes"])


REFUSED = {
    "plan {} --gamma 0.1 --local-momentum 0.8 --goal grad2=0.1 --mode theory": "plans FedAvg with plain local SGD",
    "plan {} --gamma 0.1 --gamma-schedule cosine --goal loss=0": "let it go by=step",
    "plan {} --gamma 0.1 --gamma-schedule cosine,by=step --goal loss=0": "say when it ends",
    "gauge {} --gamma 0.1 --gamma-schedule cosine": "let it go by=step",
    "simulate {} --algorithm diloco --gamma 0.1 --participants 2": "sample without-replacement",
}


@pytest.mark.parametrize("line", REFUSED)
def test_one_sentence_says_why_not(line: str, federation: Path, capsys: Capture) -> None:
    assert main(line.format(federation).split()) == 2
    assert REFUSED[line] in " ".join(capsys.readouterr().err.split())
