"""``fedgauge report``: every kind of results, half-written ones too, and one sentence a mistake."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import FEDERATION, Capture, answer, snapshot
from tests.report.made import measurement, write_measurement, write_run

import fedgauge as fg
from fedgauge.cli import main
from fedgauge.values.results import sealed


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run, a measurement of it, and a federation of quadratics."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    write_measurement(tmp_path / "measured" / "measure.json", measurement())
    (tmp_path / "fed.json").write_text(json.dumps(FEDERATION))
    return tmp_path


def change(path: str, how: Callable[[Any], Any]) -> None:
    data = json.loads(Path(path).read_text())
    made = how(data)
    # As a file that was written so, except where a change is what is to be noticed.
    Path(path).write_text(json.dumps(sealed(made) if "digest" in made else made))


def test_a_run_with_its_constants(place: Path, capsys: Capture) -> None:
    # A theorem for R rounds says nothing of the model after them.
    *before, last = (place / "run" / "rounds.jsonl").read_text().splitlines()
    last = json.dumps({**json.loads(last), "grad2": 1e-9})
    (place / "run" / "rounds.jsonl").write_text("\n".join([*before, last]) + "\n")
    told = answer(capsys, "report run --measure measured/measure.json --out r.html")
    names = ["rounds", "federation", "origins", "constants", "bound", "settings", "commands"]
    assert (told["out"], told["sections"]) == ("r.html", names)
    page = (place / "r.html").read_text()
    assert page.startswith("<!doctype html>")
    assert all(f'<section id="{name}"' in page for name in names)
    # A constant that was measured along a trajectory certifies nothing, whatever else is proved.
    assert told["bound"]["versions"]["corrected"]["kinds"]["L_h"] == "lower"
    assert told["bound"]["versions"]["corrected"]["values"]["L_g"] == 3.25
    assert not told["bound"]["versions"]["corrected"]["certified"]
    assert "(a plug-in)" in told["summary"]
    assert "The smallest squared gradient norm before the last round was" in told["summary"]
    records = [json.loads(line) for line in (place / "run" / "rounds.jsonl").read_text().splitlines()]
    assert told["charts"]["loss"]["series"][0]["y"] == [record["loss"] for record in records]
    assert told["bound"]["least"] == min(record["grad2"] for record in records[:-1])


def test_a_run_whose_records_are_made_from_a_sample(place: Path, capsys: Capture) -> None:
    line = "simulate digits --workers 4 --per-worker 60 --model softmax --batch-size 10 --gamma 0.1 --local-steps 3"
    assert main(f"{line} --rounds 4 --record-sample 20 --out sampled".split()) == 0
    assert main(["measure", "sampled", "--readings", "divergence", "--out", "sampled"]) == 0
    capsys.readouterr()
    told = answer(capsys, "report sampled --out r.html")
    assert "from a sample of 64 examples" in told["verdict"] + told["summary"]
    assert told["bound"] is None
    assert "a bound is about all of them" in (place / "r.html").read_text()


def test_a_run_of_a_federation_of_ones_own_with_its_measurement(place: Path, capsys: Capture) -> None:
    federation = fg.random_quadratics(4, 3, hessian_spread=0.5, sigma2=0.1, seed=1)
    fg.simulate(federation, fg.fedavg(gamma=0.01), local_steps=2, rounds=3, keep="own")
    options = fg.MeasureOptions(("certified", "divergence"), seeds=1)
    found = fg.measure(federation, fg.fedavg(gamma=0.01), local_steps=2, options=options)
    Path("own.json").write_text(json.dumps(found.to_json()))
    told = answer(capsys, "report own --measure own.json --out r.html")
    # The measurement knows how many workers there are.
    assert told["bound"]["versions"]["corrected"]["values"]["N"] == 4
    # No command can measure what only a script has.
    assert "fedgauge measure" not in (place / "r.html").read_text().split('<section id="commands"')[1]


def test_the_rates_of_a_run_are_named_and_its_other_settings_are_below(place: Path, capsys: Capture) -> None:
    assert (
        main(["simulate", "fed.json", "--algorithm", "diloco", "--gamma", "0.01", "--rounds", "2", "--out", "kept"])
        == 0
    )
    capsys.readouterr()
    told = answer(capsys, "report kept --out r.html")
    assert told["summary"] == "diloco with I = 10, gamma = 0.01, eta = 0.7 on fed.json."
    assert "local_beta1" in (place / "r.html").read_text()


def test_the_bound_is_what_the_command_bound_says(place: Path, capsys: Capture) -> None:
    told = answer(capsys, "report run --measure measured/measure.json --out r.html")
    first = json.loads((place / "run" / "rounds.jsonl").read_text().splitlines()[0])["loss"]
    line = f"theory bound nonconvex --values measured/measure.json I=5 R=20 N=10 gamma=0.001 eta=1 F={first}"
    for version in ("printed", "corrected", "sharp", "prior"):
        there = answer(capsys, f"{line} --theorem-version {version}")
        assert told["bound"]["versions"][version]["total"] == there["total"]


@pytest.mark.parametrize(
    ("line", "sections"),
    [
        ("run", ["rounds", "federation", "origins", "constants", "bound", "settings", "commands"]),
        ("measured", ["federation", "origins", "constants", "settings", "commands"]),
        ("measured/measure.json", ["federation", "origins", "constants", "settings", "commands"]),
    ],
)
def test_parts_appear_for_what_there_is(line: str, sections: list[str], place: Path, capsys: Capture) -> None:
    told = answer(capsys, f"report {line}")
    assert told["sections"] == sections
    where = Path(line) if Path(line).is_dir() else Path(line).parent
    assert (place / told["out"]) == place / where / "report.html"


def test_a_sweep(place: Path, capsys: Capture) -> None:
    assert (
        main(
            [
                "runs",
                "sweep",
                "fed.json",
                "--gamma",
                "0.1",
                "--rounds",
                "3",
                "--over",
                "local_steps=1,2",
                "--seeds",
                "2",
                "--jobs",
                "1",
                "--out",
                "sw",
            ]
        )
        == 0
    )
    capsys.readouterr()
    told = answer(capsys, "report sw")
    result = json.loads((place / "sw" / "result.json").read_text())
    series = told["charts"]["sweep-0-loss"]["series"]
    assert [one["y"] for one in series] == [each["loss"]["mean"] for each in result["combinations"]]
    assert "Of 2 combinations, local_steps = " in told["verdict"]


def test_a_run_on_quadratics_with_exact_constants_is_certified(place: Path, capsys: Capture) -> None:
    assert (
        main(["simulate", "fed.json", "--gamma", "0.001", "--local-steps", "2", "--rounds", "5", "--out", "quad"]) == 0
    )
    assert main(["measure", "quad", "--readings", "certified,divergence", "--out", "found"]) == 0
    capsys.readouterr()
    told = answer(capsys, "report quad --measure found/measure.json")
    corrected = told["bound"]["versions"]["corrected"]
    uncertain = {name for name, kind in corrected["kinds"].items() if kind not in ("exact", "upper")}
    # Where Hessians differ the gradients' divergence has no bound, and what was seen of it certifies nothing.
    assert uncertain <= {"zeta2"}
    assert told["bound"]["least"] <= corrected["total"]


def test_a_run_whose_local_steps_adapt(place: Path, capsys: Capture) -> None:
    line = "simulate fed.json --gamma 0.05 --local-steps auto --cost fixed=1,step=0.01 --rounds 12 --out paced"
    assert main(line.split()) == 0
    capsys.readouterr()
    told = answer(capsys, "report paced")
    records = [json.loads(line) for line in (place / "paced" / "rounds.jsonl").read_text().splitlines()]
    made = told["charts"]["pace"]["series"][0]
    assert made["y"] == [record["looked"][-1] for record in records if "looked" in record]
    assert "with I = auto" in told["summary"]


def test_a_plan_by_theory(place: Path, capsys: Capture) -> None:
    line = "plan fed.json --gamma 0.05 --goal grad2=0.5 --cost fixed=1,step=0.02 --mode theory --out planned"
    assert main(line.split()) == 0
    capsys.readouterr()
    told = answer(capsys, "report planned")
    written = json.loads((place / "planned" / "theory.json").read_text())
    assert (told["verdict"], told["sections"]) == (written["verdict"], ["certificate", "settings", "commands"])
    assert told["charts"]["theory-curve"]["series"][0]["y"] == [point["seconds"] for point in written["curve"]]


def test_certified_bounds_beside_runs(place: Path, capsys: Capture) -> None:
    source = Path(__file__).parents[2] / "papers" / "wang2024" / "results" / "certified" / "digits.json"
    (place / "table").mkdir()
    (place / "table" / "digits.json").write_text(source.read_text())
    told, result = answer(capsys, "report table"), json.loads(source.read_text())
    held = [line for line in result["lines"] if (line["theorem"], line["percent"]) == ("nonconvex", 50)]
    drawn = {series["name"]: series["y"] for series in told["charts"]["certified-nonconvex-50"]["series"]}
    for version in ("star", "corrected", "sharp", "prior"):
        assert sorted(drawn[version]) == sorted(line["versions"][version]["bound"] for line in held)
    assert "600 of 600 runs stay below their bound" in told["verdict"]


@pytest.mark.parametrize("kept", [0, 1, 7])
def test_a_run_that_broke_off_is_shown_as_far_as_it_goes(kept: int, place: Path, capsys: Capture) -> None:
    (place / "run" / "result.json").unlink()
    (place / "run" / "timing.jsonl").unlink()
    lines = (place / "run" / "rounds.jsonl").read_text().splitlines(keepends=True)
    (place / "run" / "rounds.jsonl").write_text("".join(lines[:kept]) + lines[kept][:20])
    told = answer(capsys, "report run --measure measured/measure.json --out r.html")
    page = (place / "r.html").read_text()
    assert "The run is not finished" in page
    assert f"rounds.jsonl is readable up to line {kept}" in page
    assert "timing.jsonl cannot be read" in page
    if kept:
        assert f"{kept - 1} of 20 rounds" in told["verdict"]
        # One point is no picture, but a number.
        assert ("loss" in told["charts"]) == (kept > 1)
        assert ("<dt>Training loss f</dt>" in page) == (kept == 1)
        assert kept == 1 or len(told["charts"]["loss"]["series"][0]["y"]) == kept
    else:
        assert "has recorded nothing yet" in told["verdict"]


def test_a_run_whose_data_is_elsewhere_is_shown_without_it(place: Path, capsys: Capture) -> None:
    toml = (place / "run" / "experiment.toml").read_text().replace('"digits"', '"gone.npz"')
    (place / "run" / "experiment.toml").write_text(toml)
    told = answer(capsys, "report run --out r.html")
    assert "partition" not in told["charts"]
    assert "cannot be shown" in (place / "r.html").read_text()


# What is wrong -> how it comes about, the command, and words that the sentence must have.
WRONG: dict[str, tuple[Callable[[], Any], str, tuple[str, ...]]] = {
    "nothing there": (lambda: None, "report gone", ("gone",)),
    "no such measurement": (lambda: None, "report run --measure gone.json", ("gone.json",)),
    "no such plan": (lambda: None, "report run --plan gone.json", ("gone.json",)),
    "a directory of other files": (lambda: Path("other").mkdir(), "report other", ("other", "measure.json")),
    "a federation": (lambda: None, "report fed.json", ("fed.json", "neither", "hessians")),
    "no JSON": (lambda: Path("bad.json").write_text("{"), "report bad.json", ("bad.json", "JSON")),
    "a list": (lambda: Path("bad.json").write_text("[]"), "report bad.json", ("bad.json", "object")),
    "a measurement for a plan": (
        lambda: None,
        "report run --plan measured/measure.json",
        ("measure.json", "fedgauge plan"),
    ),
    "a setting of another version": (
        lambda: change("run/settings.json", lambda data: {**data, "warmup": 3}),
        "report run",
        ("settings.json", "'warmup'"),
    ),
    "a setting that is missing": (
        lambda: change("run/settings.json", lambda data: {k: v for k, v in data.items() if k != "local_steps"}),
        "report run",
        ("settings.json", "'local_steps'"),
    ),
    "a record of another version": (
        lambda: Path("run/rounds.jsonl").write_text('{"round": 0, "loss": 1.0, "grad2": 1.0, "entropy": 2.0}\n'),
        "report run",
        ("rounds.jsonl", "'entropy'"),
    ),
    "an experiment of another version": (
        lambda: Path("run/experiment.toml").write_text("[algorithm]\ngamma = 0.1\nwarm = 3\n"),
        "report run",
        ("experiment.toml", "'warm'"),
    ),
    "a measurement of another version": (
        lambda: change("measured/measure.json", lambda data: {**data, "mood": 1}),
        "report measured",
        ("measure.json", "'mood'"),
    ),
    "a measurement that was edited": (
        lambda: Path("measured/measure.json").write_text(
            Path("measured/measure.json").read_text().replace('"value": 0.53', '"value": 0.5')
        ),
        "report measured",
        ("measure.json has changed since fedgauge wrote it", "fedgauge measure"),
    ),
    "an edited measurement for a bound": (
        lambda: Path("measured/measure.json").write_text(
            Path("measured/measure.json").read_text().replace('"value": 0.53', '"value": 0.5')
        ),
        "theory bound nonconvex --values measured/measure.json I=5 R=20 N=10 gamma=0.001",
        ("measure.json has changed since fedgauge wrote it", "numbers of your own"),
    ),
    "a measurement without its digest": (
        lambda: change("measured/measure.json", lambda data: {k: v for k, v in data.items() if k != "digest"}),
        "report measured",
        ("measure.json", "'digest'"),
    ),
    "a measurement with something missing": (
        lambda: change("measured/measure.json", lambda data: {k: v for k, v in data.items() if k != "point"}),
        "report measured",
        ("measure.json", "'point'"),
    ),
    "a measurement of another federation": (
        lambda: change(
            "measured/measure.json", lambda data: {**data, "settings": {**data["settings"], "federation": "other"}}
        ),
        "report run --measure measured/measure.json",
        ("another federation", "fedgauge measure run"),
    ),
    "a sweep with something missing": (
        lambda: Path("sweep.json").write_text(
            '{"kind": "sweep", "combinations": [{}], "over": {}, "seeds": 1, "experiment": {}}'
        ),
        "report sweep.json",
        ("sweep.json", "'values'"),
    ),
    "a table with something missing": (
        lambda: Path("table.json").write_text(
            '{"kind": "certified-bounds", "lines": [{"percent": 50}], "settings": {"seeds": 1}, "constants": {}}'
        ),
        "report table.json",
        ("table.json", "'theorem'"),
    ),
    "not a page": (lambda: None, "report run --out r.pdf", (".html", "r.pdf")),
    "no directory for it": (lambda: None, "report run --out gone/r.html", ("gone/r.html", "no directory gone")),
    "a directory in its place": (lambda: Path("r.html").mkdir(), "report run --out r.html", ("r.html", "directory")),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_one_sentence_a_mistake(wrong: str, place: Path, capsys: Capture) -> None:
    how, line, words = WRONG[wrong]
    how()
    before = snapshot(place)
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.startswith("fedgauge: ")) == ("", 1, True)
    assert err.endswith((".\n", "?\n"))
    assert all(word in err for word in words), err
    assert snapshot(place) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_may_not_be_written(place: Path, capsys: Capture) -> None:
    (place / "locked").mkdir(mode=0o500)
    assert main(["report", "run", "--out", "locked/r.html"]) == 2
    assert "permission denied" in capsys.readouterr().err


def test_a_report_that_is_there_stays_where_a_new_one_fails(place: Path, capsys: Capture) -> None:
    (place / "r.html").write_text("mine")
    (place / "run" / "settings.json").write_text("[]")
    assert main(["report", "run", "--out", "r.html"]) == 2
    assert (place / "r.html").read_text() == "mine"
    assert "settings.json" in capsys.readouterr().err
