"""The command that plans: what it writes is what runs, and every mistake gets one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedgauge.cli import main

FEW = "--over local_steps=1,8,64 --over gamma=0.03,0.1 --over eta=1 --jobs 1"
Capture = pytest.CaptureFixture[str]


def ran(command: str, status: int = 0) -> None:
    assert main(command.split()) == status


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Path:
    monkeypatch.chdir(tmp_path)
    ran("theory generate fed.json --workers 4 --dim 5 --sigma2 0.01 --seed 1")
    capsys.readouterr()
    return tmp_path


def test_the_plan_is_written_and_simulate_runs_it(place: Path, capsys: Capture) -> None:
    command = f"plan fed.json --gamma 0.1 --goal grad2=0.01 --cost cross-device,step=0.01 {FEW} --out plan"
    ran(command)
    said = " ".join(capsys.readouterr().out.split())
    assert "communication is" in said
    assert "run it: fedgauge simulate plan/plan.toml" in said
    assert {"plan.json", "plan.toml", "plan.png", "theory.png", "pilots"} <= {
        p.name for p in (place / "plan").iterdir()
    }
    chosen = json.loads((place / "plan" / "plan.json").read_text())["choice"]
    ran("simulate plan/plan.toml --json")
    run = json.loads(capsys.readouterr().out)
    assert run["status"] == "target"
    assert run["settings"]["local_steps"] == chosen["I"]
    # The same command again runs nothing anew, and comes to the same.
    before = (place / "plan" / "plan.toml").read_bytes()
    ran(f"{command} --json")
    assert json.loads(capsys.readouterr().out)["choice"] == chosen
    assert (place / "plan" / "plan.toml").read_bytes() == before


def test_a_plan_for_data_by_accuracy(place: Path, capsys: Capture) -> None:
    options = "--goal accuracy=0.8 --cost cross-silo --over gamma=0.3 --over local_steps=2,16 --over eta=1 --jobs 1"
    ran(f"plan digits --percent 75 --gamma 0.3 {options} --json")
    found = json.loads(capsys.readouterr().out)
    assert found["reached"]
    assert found["choice"]["I"] in (2, 16)
    assert 'goal = "accuracy=0.8"' in found["toml"]


def test_the_theory_alone(place: Path, capsys: Capture) -> None:
    command = "plan fed.json --gamma 0.01 --goal grad2=0.1 --mode theory --out theory"
    ran(command)
    assert "What the theory certifies" in capsys.readouterr().out
    assert (place / "theory" / "theory.png").exists()
    ran(f"{command} --json")
    found = json.loads(capsys.readouterr().out)
    assert found["practice"]["gamma"] == 0.01
    assert (
        main(
            ["measure", "fed.json", "--gamma", "0.01", "--readings", "certified,divergence,noise", "--out", "measured"]
        )
        == 0
    )
    capsys.readouterr()
    command = "plan fed.json --gamma 0.01 --goal grad2=0.1 --mode theory --values measured/measure.json --json"
    ran(command)
    again = json.loads(capsys.readouterr().out)
    assert again["values"]["L_h"] == found["values"]["L_h"]


@pytest.mark.parametrize(
    ("section", "option", "name"),
    [("", "", "cross-device"), ('cost = "cross-silo"', "", "cross-silo"), ('cost = "cross-silo"', "local", "local")],
)
def test_the_cost_is_the_options_or_else_the_experiments(
    section: str, option: str, name: str, place: Path, capsys: Capture
) -> None:
    (place / "asked.toml").write_text(f'[data]\nname = "fed.json"\n[algorithm]\ngamma = 0.01\n[run]\n{section}\n')
    command = "plan asked.toml --goal grad2=0.1 --mode theory --json"
    ran(f"{command} --cost {option}" if option else command)
    assert json.loads(capsys.readouterr().out)["cost"]["name"] == name


def test_as_many_draws_as_workers_are_planned_by_the_theorem_of_draws(place: Path, capsys: Capture) -> None:
    signs = [[3.0 if worker % 2 else -3.0] for worker in range(10)]
    Path("opposed.json").write_text(json.dumps({"hessians": [[[1.0]]] * 10, "linear": signs, "start": [1.0]}))
    command = "plan opposed.json --gamma 0.5 --goal grad2=0.01 --mode theory --cost fixed=1,step=0.01"
    ran(f"{command} --json")
    assert json.loads(capsys.readouterr().out)["choice"]["theorem"] == "equal-hessians"
    ran(f"{command} --participants 10 --json")
    found = json.loads(capsys.readouterr().out)
    assert found["choice"]["theorem"] == "partial"
    assert found["practice"]["gamma"] > found["practice"]["gamma_max"]


def test_a_goal_out_of_reach_says_how_close_it_came_and_fails(place: Path, capsys: Capture) -> None:
    ran(f"plan fed.json --gamma 0.1 --goal grad2=1e-12 --limit 5m {FEW}", 1)
    said = " ".join(capsys.readouterr().out.split())
    assert "Not reached: none of 6 candidates reached |grad f|^2 of at most 1e-12" in said
    assert "reached a squared gradient norm of" in said


RUN = "plan fed.json --gamma 0.1"
BAD = {
    RUN: ("--goal", "accuracy=0.95"),
    f"{RUN} --goal los=1": ("no goal 'los'", "did you mean loss"),
    f"{RUN} --goal loss": ("value to reach", "budget"),
    f"{RUN} --goal loss --budget soon": ("--budget", "60s", "soon"),
    f"{RUN} --goal loss --budget 1s": ("budget of 1 s is below one round", "10."),
    f"{RUN} --goal accuracy=0.9": ("accuracy needs test examples",),
    f"{RUN} --goal accuracy=1.5": ("at most 1", "1.5"),
    f"{RUN} --goal grad2=0.1 --cost fast": ("no cost fast", "cross-device"),
    f"{RUN} --goal grad2=0.1 --cost cross-device,bandwidth=0": ("bandwidth must be above 0", "nothing would arrive"),
    f"{RUN} --goal grad2=0.1 --cost fixed=0,step=0": ("must cost something",),
    f"{RUN} --goal grad2=0.1 --over participants=9": ("participants must be at most the 4 workers", "9"),
    f"{RUN} --goal grad2=0.1 --sampling full --over participants=2": ("contradicts --participants 2",),
    f"{RUN} --goal grad2=0.1 --over batch_size=2": ("does not choose 'batch_size'",),
    f"{RUN} --goal grad2=-1": ("grad2", "above 0"),
    f"{RUN} --goal grad2=0.1 --theorem nonconvex": ("--theorem is for --mode theory",),
    f"{RUN} --goal grad2=0.1 --spend 0s": ("spend must be above 0",),
    f"{RUN} --goal grad2=0.1 --jobs -1": ("jobs must be a whole number of at least 1", "-1"),
    f"{RUN} --goal grad2=0.1 --jobs 0": ("jobs must be a whole number of at least 1", "0"),
    f"{RUN} --goal grad2=0.1 --mode theory --over local_steps=1,2": ("--over is for pilot runs", "leave it out"),
    f"{RUN} --goal grad2=0.1 --mode theory --seeds 0": ("--seeds is for pilot runs",),
    f"{RUN} --goal grad2=0.1 --mode theory --spend 1s": ("--spend is for pilot runs",),
    f"{RUN} --goal grad2=0.1 --mode theory --limit 1s": ("--limit is for pilot runs",),
    f"{RUN} --goal grad2=0.1 --mode theory --jobs 1": ("--jobs is for pilot runs",),
    f"{RUN} --goal grad2=0.1 --mode guess": ("guess",),
    f"{RUN} --goal loss=0.1 --local-steps 1,2,3,4": ("one number",),
    f"{RUN} --goal loss=0.1 --local-steps auto": ("one number",),
    "plan fed.json --gamma 1000 --goal grad2=0.1 --jobs 1": (
        "Every candidate diverged",
        "gamma from 111",
        "try --gamma",
    ),
    "plan nothing.toml --goal loss=1": ("nothing.toml",),
}


@pytest.mark.parametrize("command", BAD)
def test_bad_input_gets_one_sentence(place: Path, capsys: Capture, command: str) -> None:
    ran(command, 2)
    said = capsys.readouterr()
    text = " ".join(said.err.split())
    for words in BAD[command]:
        assert words in text
    assert "Traceback" not in text
    assert said.out == ""


def test_constants_of_another_federation_are_refused(place: Path, capsys: Capture) -> None:
    ran("theory generate other.json --workers 3 --dim 2 --seed 2")
    ran("measure other.json --gamma 0.1 --readings certified --out measured")
    ran("simulate fed.json --gamma 0.1 --rounds 3 --out run")
    capsys.readouterr()
    for command, what in (
        ("plan fed.json --gamma 0.1 --goal grad2=0.1 --mode theory --values measured/measure.json", "fed.json"),
        ("runs check run --values measured/measure.json", "the run in run"),
    ):
        ran(command, 2)
        assert (
            f"measure.json was measured on another federation than {what}; measure this one" in capsys.readouterr().err
        )
    ran(f"plan other.json --gamma 0.1 --goal grad2=0.1 --cost local,step=0.01 {FEW} --out plan")
    capsys.readouterr()
    ran("simulate other.json --gamma 0.1 --rounds 3 --out same")
    ran("report same --plan plan/plan.json --out page.html")
    ran("report run --plan plan/plan.json --out page.html", 2)
    assert "The plan is for other.json, and the run in run is on fed.json" in capsys.readouterr().err
