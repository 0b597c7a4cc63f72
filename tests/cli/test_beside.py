"""A saved run knows what it is: commands take it as it is, and a report finds what belongs to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.command import Capture, answer, snapshot, words

from fedgauge import random_quadratics
from fedgauge.cli import main

QUICK = "--gamma 0.05 --steps 60 --candidates 4"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Path:
    """A run in runs/first, with a gauge and a measurement of it beside ``runs``."""
    monkeypatch.chdir(tmp_path)
    random_quadratics(4, 3, hessian_spread=0.5, sigma2=0.1, seed=1).write(Path("fed.json"))
    random_quadratics(4, 3, seed=9).write(Path("other.json"))
    words(capsys, "simulate fed.json --gamma 0.05 --local-steps 4 --rounds 5 --out runs/first")
    words(capsys, f"gauge fed.json {QUICK} --out gauged")
    words(capsys, "measure runs/first --readings certified --out measured")
    return tmp_path


def test_a_report_finds_the_gauge_and_the_measurement(place: Path, capsys: Capture) -> None:
    told = answer(capsys, "report runs/first")
    assert told["beside"] == ["gauged/gauge.json", "measured/measure.json"]
    assert {"gauge", "constants"} <= set(told["sections"])
    named = answer(capsys, "report runs/first --gauge gauged/gauge.json --measure measured/measure.json")
    assert (named["beside"], named["sections"]) == ([], told["sections"])
    assert "Shown with it: gauged/gauge.json, measured/measure.json." in words(capsys, "report runs/first")


def test_a_report_finds_the_plan_of_the_same_experiment(place: Path, capsys: Capture) -> None:
    how = "--cost fixed=1,step=0.01 --over local_steps=1,4 --over gamma=0.05 --over eta=1 --jobs 1"
    for name in ("fed", "other"):
        words(capsys, f"plan {name}.json --gamma 0.05 --rounds 20 --goal loss --budget 60s {how} --out plans/{name}")
    Path("plans/fed").rename("plan")
    Path("plans/other").rename("another")
    told = answer(capsys, "report runs/first")
    assert told["beside"] == ["gauged/gauge.json", "plan/plan.json", "measured/measure.json"]
    assert "another/plan.json (for another experiment)" in words(capsys, "report runs/first")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda capsys: words(capsys, f"gauge other.json {QUICK} --out gauged"), "of another federation"),
        (
            lambda capsys: words(capsys, f"gauge fed.json --algorithm slowmo {QUICK} --out gauged"),
            "of another algorithm",
        ),
        (lambda capsys: Path("gauged/gauge.json").write_text("{}"), "not readable"),
    ],
    ids=["federation", "algorithm", "damaged"],
)
def test_what_belongs_to_something_else_is_left_out_with_the_reason(
    spoil: Callable[[Capture], object], why: str, place: Path, capsys: Capture
) -> None:
    for path in Path("gauged").rglob("*"):
        if path.is_file():
            path.unlink()
    spoil(capsys)
    assert f"left out: gauged/gauge.json ({why}" in words(capsys, "report runs/first")
    assert answer(capsys, "report runs/first")["beside"] == ["measured/measure.json"]


def test_constants_at_the_runs_own_model_come_first(place: Path, capsys: Capture) -> None:
    words(capsys, "simulate fed.json --gamma 0.05 --local-steps 2 --rounds 5 --out runs/second")
    words(capsys, "measure runs/second --readings certified --out about-second")
    assert answer(capsys, "report runs/first")["beside"][-1] == "measured/measure.json"
    assert answer(capsys, "report runs/second")["beside"][-1] == "about-second/measure.json"


@pytest.mark.parametrize(
    ("line", "words_said"),
    [
        ("gauge runs/first --model cnn", ("--model cannot change the model of the run in runs/first", "leave it out")),
        ("measure runs/first --gamma 0.1", ("--gamma cannot change the algorithm of the run", "experiment.toml")),
        ("measure runs/first --percent 50", ("--percent cannot change the data of the run",)),
        ("runs evaluate fed.json", ("There is no run in fed.json", "--out")),
        ("runs evaluate runs/first --model cnn", ("There is no option --model",)),
    ],
)
def test_what_a_run_settled_is_not_asked_again(
    line: str, words_said: tuple[str, ...], place: Path, capsys: Capture
) -> None:
    before = snapshot(place)
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert all(word in err for word in words_said), err
    assert snapshot(place) == before


def test_how_to_run_may_still_be_said(place: Path, capsys: Capture) -> None:
    run = "measure runs/first --readings noise --seed"
    assert answer(capsys, f"{run} 1")["readings"] != answer(capsys, f"{run} 2")["readings"]


def test_a_run_is_evaluated_at_another_model(place: Path, capsys: Capture) -> None:
    words(capsys, "simulate fed.json --gamma 0.05 --local-steps 4 --rounds 1 --out runs/short")
    last = answer(capsys, "runs evaluate runs/first")["losses"]
    assert answer(capsys, "runs evaluate runs/first --at runs/short")["losses"] != last
    assert answer(capsys, "runs evaluate runs/first --at runs/first/model.safetensors")["losses"] == last
