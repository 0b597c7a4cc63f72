"""Whatever a file has become, reading it gives a report or one sentence, and never a traceback."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import pytest
from tests.report.made import measurement, write_measurement, write_run

from fedgauge.base.errors import InputError
from fedgauge.show.page.build import Report, build
from fedgauge.show.results.background import background_of
from fedgauge.show.results.reading import read_results
from fedgauge.values.results import sealed
from fedgauge_wang2024.table1 import show


def report_on(path: Path, measure: Path | None = None) -> Report:
    found = read_results(path, {"measure": measure} if measure else {})
    return build(found, background_of(found))


# What an entry may have become; None stands for a missing one too.
INSTEAD: tuple[Any, ...] = (None, "x", -1, 0, 1e308, float("inf"), float("nan"), [], {}, [1], True)
CURVE = {"mean": [2.0, 1.0], "deviation": [0.1, 0.2]}
SWEEP: dict[str, Any] = {
    "kind": "sweep",
    "version": 1,
    "experiment": {"data": {"name": "digits"}, "algorithm": {"gamma": 0.1}},
    "over": {"local_steps": [1, 5]},
    "seeds": 2,
    "combinations": [
        {"values": {"local_steps": 1}, "loss": CURVE, "accuracy": CURVE},
        {"values": {"local_steps": 5}, "loss": None, "accuracy": None},
    ],
    "command": "fedgauge runs sweep",
}
for each in SWEEP["combinations"]:
    each |= {"diverged": 0, "rounds": [0, 1], "seconds": 1.5, "runs": []}


def entries(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is something in an object."""
    items = data.items() if isinstance(data, dict) else enumerate(data[:3]) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from entries(value, (*path, key))


FIGURE: dict[str, Any] = {
    "kind": "figure",
    "version": 1,
    "figure": "fig2",
    "title": "MLP",
    "scale": "smoke",
    "studies": {"mlp": copy.deepcopy(SWEEP)},
}
LEDGER: dict[str, Any] = {
    "kind": "ledger",
    "version": 1,
    "verdicts": {"reproduced": 1},
    "claims": [
        {
            "claim": "a < b",
            "short": "below",
            "result": "table1",
            "where": "Table 1",
            "paper": "1",
            "ours": "2",
            "scale": "smoke",
            "seeds": None,
        }
        | {"seconds": 1.0, "verdict": "reproduced", "command": "fedgauge paper table 1"}
    ],
}


PAIRS = {"L_h": [0.1, 0.01], "L_tilde": [2.0, 0.2], "L_g": [1.0, 0.1]}
TABLE1: dict[str, Any] = {
    "kind": "table1",
    "version": 1,
    "settings": {"study": "mlp", "scale": "smoke"},
    "paper": {symbol: {"25": [1.0, 0.1], "50": [2.0, 0.1]} for symbol in PAIRS},
    "rows": [
        {"percent": percent, "readings": {"trajectory": PAIRS}, "rounds": [10], "losses": [0.5]} for percent in (25, 50)
    ],
}
TABLE2: dict[str, Any] = {
    "kind": "table2",
    "version": 1,
    "settings": {"dim": 100},
    "columns": [
        {
            "half": "steps",
            "eta": 1,
            "gamma": 0.005,
            "local_steps": steps,
            "batch": 1,
            "paper": "9",
            "label": f"I={steps}",
        }
        | {"ours": {"2": {"median": 1000 / steps, "low": 1, "high": 2000}}}
        for steps in (1, 10)
    ],
    "literal": {},
}
MADE = {"sweep": SWEEP, "figure": FIGURE, "ledger": LEDGER, "table1": TABLE1, "table2": TABLE2}


@pytest.mark.parametrize(
    "name", ["run/settings.json", "run/environment.json", "measure.json", *(f"{made}.json" for made in MADE)]
)
def test_a_file_in_any_state(name: str, tmp_path: Path) -> None:
    write_run(tmp_path / "run", rounds=4)
    write_measurement(tmp_path / "measure.json", measurement())
    for made, held in MADE.items():
        (tmp_path / f"{made}.json").write_text(json.dumps(held))
    whole, rng = json.loads((tmp_path / name).read_text()), random.Random(name)
    places = list(entries(whole))
    shown, told = 0, []
    for _ in range(40):
        data, path = copy.deepcopy(whole), rng.choice(places)
        holder = data
        for key in path[:-1]:
            holder = holder[key]
        if rng.random() < 0.2:
            del holder[path[-1]]
        else:
            holder[path[-1]] = rng.choice(INSTEAD)
        # A measurement with the digest of what it has become: without it, none would be read.
        (tmp_path / name).write_text(json.dumps(sealed(data) if name == "measure.json" else data))
        try:
            if not name.startswith(("run/", "measure")):
                report_on(tmp_path / name)
            else:
                report_on(tmp_path / "run", tmp_path / "measure.json" if name == "measure.json" else None)
            shown += 1
        except InputError as error:
            told.append(str(error))
        except Exception as error:
            raise AssertionError(f"{path} = {holder}") from error
    assert shown > 0
    assert all(sentence.endswith((".", "?")) and "\n" not in sentence for sentence in told)


def test_a_sweep_of_which_all_runs_diverged(tmp_path: Path) -> None:
    data = copy.deepcopy(SWEEP)
    for each in data["combinations"]:
        each |= {"rounds": [], "loss": {"mean": [], "deviation": []}, "accuracy": None, "diverged": 2}
    (tmp_path / "result.json").write_text(json.dumps(data))
    assert report_on(tmp_path).data["verdict"] == "None of 2 combinations has a loss to show."


RESULTS = Path(__file__).parents[2] / "papers" / "wang2024" / "results"


def test_the_ledger_is_shown_whole() -> None:
    held = json.loads((RESULTS / "ledger.json").read_text())
    made = report_on(RESULTS / "ledger.json")
    assert made.data["verdict"].startswith(f"Of {len(held['claims'])} claims")
    for row in held["claims"]:
        assert escape(row["claim"]) in made.html


def test_a_figure_has_a_chart_for_each_panel_with_its_numbers() -> None:
    held = json.loads((RESULTS / "fig2" / "result.json").read_text())
    made = report_on(RESULTS / "fig2")
    charts = made.data["charts"]
    for name, study in held["studies"].items():
        for place, percent in enumerate((50.0, 75.0)):
            wanted = [each["loss"]["mean"] for each in study["combinations"] if each["values"]["percent"] == percent]
            series = charts[f"study-{name}-{place}-loss"]["series"]
            assert [line["y"] for line in series] == wanted


@pytest.mark.parametrize(("name", "deviates"), [("table1", True), ("table1-cnn-workstation", False)])
def test_one_seed_has_no_deviation(name: str, deviates: bool, capsys: pytest.CaptureFixture[str]) -> None:
    held = json.loads((RESULTS / name / "result.json").read_text())
    show(held)
    for text in (capsys.readouterr().out, report_on(RESULTS / name).html):
        value, deviation = held["rows"][0]["readings"]["trajectory"]["L_h"]
        assert f"{value:.3g}" in text
        assert (f"{value:.3g} ± {deviation:.2g}" in text) == deviates


@pytest.mark.parametrize("name", ["table1", "table1-cnn", "table1-vgg11", "table1-vgg16"])
def test_the_constants_are_shown_beside_the_papers(name: str) -> None:
    held = json.loads((RESULTS / name / "result.json").read_text())
    made = report_on(RESULTS / name)
    for symbol, printed in held["paper"].items():
        series = {line["name"]: line["y"] for line in made.data["charts"][f"table1-{symbol}"]["series"]}
        assert series["paper"] == [value for value, _ in printed.values()]
        assert series["trajectory"] == [row["readings"]["trajectory"][symbol][0] for row in held["rows"]]
    assert "of L_tilde" in made.data["verdict"]


def test_the_rounds_are_shown_beside_the_papers() -> None:
    held = json.loads((RESULTS / "table2" / "result.json").read_text())
    made = report_on(RESULTS / "table2")
    for column in held["columns"]:
        assert escape(column["paper"]) in made.html
        for ours in column["ours"].values():
            assert f"{ours['median']:g} ({ours['low']:g} to {ours['high']:g})" in made.html


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("fig1", "paper figure 1"),
        ("sampling", "paper sampling"),
        ("lenses.json", "paper lenses"),
        ("../../../verification/results/falsify.json", "falsify"),
    ],
)
def test_what_has_no_page_is_called_by_its_name(name: str, command: str) -> None:
    with pytest.raises(InputError, match=f"is the result of '{command}', for which there is no report page"):
        report_on(RESULTS / name)


def test_the_command_of_certified_bounds_has_what_the_table_has() -> None:
    page = report_on(RESULTS / "certified" / "digits-long.json").html
    assert "paper certified --source digits --rounds 5000 --seeds 20 --theorem nonconvex --local-steps 1 --out" in page
