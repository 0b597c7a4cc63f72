"""The command gauge, and a report that begins with its answer."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from tests.cli.command import Capture, answer, words

from fedgauge import random_quadratics
from fedgauge.cli import main

SHORT = "--gamma 0.05 --steps 200 --candidates 4,16"


@pytest.fixture
def federation(tmp_path: Path) -> Path:
    random_quadratics(4, 3, hessian_spread=0.3).write(tmp_path / "fed.json")
    return tmp_path / "fed.json"


def test_the_first_line_is_the_answer(federation: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "gauged"
    printed = words(capsys, f"gauge {federation} {SHORT} --cost cross-device --out {out}")
    first = printed.splitlines()[0]
    assert first.startswith("Use ")
    assert "local steps if a round costs as much as" in first
    assert "A round costs as much as 200 local steps: 10 seconds besides its local steps" in printed
    assert "It holds for this federation at this rate" in printed
    assert {path.name for path in out.iterdir()} == {"gauge.json", "gauge.png", "parts"}


def test_several_rates(federation: Path, tmp_path: Path, capsys: Capture) -> None:
    line = (
        f"gauge {federation} --gamma 0.02 --steps 100 --candidates 4 --over gamma=0.02,0.05 --out {tmp_path / 'gauged'}"
    )
    first, second = answer(capsys, f"{line} --plot {tmp_path / 'rates.png'} --json")
    assert [each["settings"]["algorithm"]["gamma"] for each in (first, second)] == [0.02, 0.05]
    assert (tmp_path / "gauged" / "gamma=0.05" / "gauge.json").is_file()
    assert (tmp_path / "rates.png").stat().st_size > 1000


def test_json(federation: Path, capsys: Capture) -> None:
    found = answer(capsys, f"gauge {federation} {SHORT} --cost fixed=1,step=0.01 --json")
    assert found["kind"] == "gauge"
    assert [each["local_steps"] for each in found["answer"]["efficiency"]] == [1, 4, 16]
    assert found["sentence"].startswith("Use ")
    assert [each["cost"] for each in found["recommended"]] == [1, 10, 100, 1000]
    assert found["answer"]["cost"] == 100
    assert all(each["local_steps"] in range(1, 17) for each in found["recommended"])
    assert set(found["spent"]) == {"gradient_steps", "rounds", "passes"}
    assert found["rate"] is None


def test_without_a_rate_the_fastest_is_searched_for_and_named(federation: Path, capsys: Capture) -> None:
    found = answer(capsys, f"gauge {federation} --steps 400 --candidates 4,16 --cost 10 --json")
    rates = dict(found["rate"]["tried"])
    assert found["settings"]["algorithm"]["gamma"] == found["rate"]["gamma"] == min(rates, key=lambda g: rates[g])
    assert f"gamma {found['rate']['gamma']:.3g} was chosen" in " ".join(found["answer"]["notes"])
    again = answer(
        capsys, f"gauge {federation} --gamma {found['rate']['gamma']} --steps 400 --candidates 4,16 --cost 10 --json"
    )
    assert again["answer"]["efficiency"] == found["answer"]["efficiency"]


def test_the_cost_is_asked_for(federation: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("100\n0.5\n"))
    assert main(f"gauge {federation} {SHORT} --measure-cost --json".split()) == 0
    printed = capsys.readouterr()
    assert "Bandwidth of the server, in megabytes per second" in printed.err
    found = json.loads(printed.out)
    assert (found["cost"]["bandwidth"], found["cost"]["fixed"]) == (1e8, 0.5)
    assert found["answer"]["cost"] > 10
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(f"gauge {federation} {SHORT} --measure-cost".split()) == 2
    assert "--measure-cost asks for bandwidth and latency" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--goal accuracy=0.9", "must be a loss, as in loss=0.3"),
        ("--goal loss=low", "must be a loss, as in loss=0.3"),
        ("--goal loss=-1e9", "choose a larger loss as the goal"),
        ("--candidates 4,many", "--candidates must be whole numbers"),
        ("--cost 5 --measure-cost", "--measure-cost finds the cost that you have given already"),
        ("--extra-steps 0", "--extra-steps must be"),
        ("--over eta=1,2", "--over does not choose 'eta'; choose one of gamma."),
        ("--over gamma=0.1,fast", "--gamma must be a number, not 'fast'"),
        ("--over gamma=0", "gamma must be"),
        ("--cost cross-devise", "did you mean cross-device?"),
    ],
)
def test_bad_input(options: str, message: str, federation: Path, capsys: Capture) -> None:
    assert main(f"gauge {federation} --gamma 0.05 --steps 60 {options}".split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in " ".join(err.split())
    assert err.count("\n") == 1


def test_a_report_begins_with_the_answer(federation: Path, tmp_path: Path, capsys: Capture) -> None:
    run, gauged, page = tmp_path / "run", tmp_path / "gauged", tmp_path / "report.html"
    words(capsys, f"simulate {federation} --gamma 0.05 --local-steps 8 --rounds 20 --out {run}")
    words(capsys, f"gauge {run / 'experiment.toml'} --candidates 4,16 --out {gauged}")
    shown = answer(capsys, f"report {run} --gauge {gauged / 'gauge.json'} --out {page} --json")
    sentence = shown["verdict"]
    assert sentence.startswith("Use ")
    assert "fedavg with I = 8" in shown["summary"]
    assert shown["sections"] == ["answer", "rounds", "gauge", "federation", "settings", "commands"]
    html = page.read_text()
    assert "<h1>fed.json, fedavg</h1>" in html
    assert html.index(sentence) < html.index("Local steps to use") < html.index('id="chart-efficiency"')
    assert html.count('id="chart-efficiency"') == 1
    assert html.index(sentence) < html.index(shown["summary"]) < html.index('id="gauge"')
    assert "now" in html
    alone = answer(capsys, f"report {gauged} --out {tmp_path / 'alone.html'} --json")
    assert (alone["verdict"], alone["summary"]) == (sentence, "")


def test_the_gauge_of_another_federation_is_refused(federation: Path, tmp_path: Path, capsys: Capture) -> None:
    run = tmp_path / "run"
    words(capsys, f"simulate {federation} --gamma 0.05 --local-steps 8 --rounds 3 --out {run}")
    random_quadratics(4, 3, seed=9).write(tmp_path / "other.json")
    words(capsys, f"gauge {tmp_path / 'other.json'} --gamma 0.05 --steps 60 --candidates 4 --out {tmp_path / 'gauged'}")
    assert main(["report", str(run), "--gauge", str(tmp_path / "gauged" / "gauge.json")]) == 2
    assert "The result of 'fedgauge gauge' is of another federation" in capsys.readouterr()[1]
    (tmp_path / "bad.json").write_text(json.dumps({"kind": "gauge"}))
    assert main(["report", str(run), "--gauge", str(tmp_path / "bad.json")]) == 2


def test_a_run_that_is_not_there_is_named(tmp_path: Path, capsys: Capture) -> None:
    missing = tmp_path / "runs" / "none"
    assert main(["gauge", str(missing)]) == 2
    assert f"There is no directory {missing}; name a run" in capsys.readouterr().err
