"""Certificates on the command line: constants of one first model beside a run, or a plan, from another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tests.cli.command import Capture, answer

from fedgauge.cli import main
from fedgauge.measurement import proofs
from fedgauge.show.results.background import background_of
from fedgauge.show.results.reading import read_results
from fedgauge.theory.comparison import Comparison
from fedgauge.values import initial_gap
from fedgauge.values.results import sealed

DIGITS = "digits --model softmax --workers 4 --per-worker 50 --percent 50 --partition-seed 0 --local-steps 2"
RATE = "--gamma 0.004"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Constants for the first model of seed 0, a run from far away, and one from where the constants belong."""
    with pytest.MonkeyPatch.context() as patch:
        made = tmp_path_factory.mktemp("certificates")
        patch.chdir(made)
        far = 200 * torch.randn(650, generator=torch.Generator().manual_seed(0))
        save_file({"model": far}, "far.safetensors")
        for command in (
            f"measure {DIGITS} {RATE} --readings certified --most 1 --out s0",
            f"simulate {DIGITS} {RATE} --rounds 60 --at far.safetensors --out far",
            f"simulate {DIGITS} {RATE} --rounds 60 --out near",
        ):
            assert main(command.split()) == 0
        yield made


def compared(run: str, measured: str = "s0/measure.json") -> Comparison:
    found = background_of(read_results(Path(run), {"measure": Path(measured)})).comparison
    assert found is not None
    return found


def changed(name: str, change: Any) -> str:
    """The constants with every estimate changed, in a file of their own."""
    data = json.loads(Path("s0/measure.json").read_text())
    for entry in (*data["constants"].values(), *data["readings"][0]["estimates"]):
        change(entry)
    Path(name).write_text(json.dumps(sealed(data)))
    return name


def test_a_run_from_where_the_constants_belong_is_certified(place: Path) -> None:
    found = compared("near")
    assert found.answer.standing == "certified"
    assert not found.notes
    assert found.reached <= found.answer.bound.total


def test_a_run_from_another_first_model_gets_its_own_gap(place: Path, capsys: Capture) -> None:
    """With the gap of the measured first model, the least squared gradient norm is far above the certified bound."""
    gap = json.loads(Path("s0/measure.json").read_text())["constants"]["F"]
    found = compared("far")
    assert found.reached > compared("near").answer.bound.total  # what was called certified for this run
    assert found.constants["F"].low > 10 * gap["value"]
    assert found.answer.standing == "certified"
    assert found.reached <= found.answer.bound.total
    assert found.notes == (
        "F was computed again for this run, because the measured one belongs to another first model.",
    )
    assert main(["report", "far", "--measure", "s0/measure.json", "--out", "far.html"]) == 0
    assert found.notes[0] in Path("far.html").read_text()
    assert "(certified)" in " ".join(capsys.readouterr().out.split())


def test_without_a_proved_minimum_the_first_loss_bounds_the_gap(place: Path) -> None:

    def without_floor(entry: dict[str, Any]) -> None:
        if entry["symbol"] == "f_star":
            entry["kind"] = "sample"

    found = compared("far", changed("no-floor.json", without_floor))
    assert found.reached <= found.answer.bound.total
    assert found.constants["F"].method == "f(x0) - 0, as f is at least 0"


def test_a_file_of_an_earlier_version_is_read_and_checked_as_far_as_it_says(place: Path) -> None:
    found = compared("far", changed("older.json", lambda entry: entry.pop("scope", None)))
    assert found.reached <= found.answer.bound.total
    assert "does not say to which first model it belongs" in found.notes[0]


def _times(share: float, *symbols: str) -> Any:
    """Constants that are a part of what they were, and are said to be as safe as before."""

    def change(entry: dict[str, Any]) -> None:
        if entry["symbol"] in symbols or not symbols:
            for name in ("value", "low", "high"):
                entry[name] *= share

    return change


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("gap.json", _times(1e-9, "F"), "F cannot be"),
        ("smooth.json", _times(1e-6, "L_g", "L_h", "L_tilde"), "L_tilde cannot be"),
        ("all.json", _times(1e-6), "F cannot be"),
    ],
)
def test_a_bound_that_the_run_contradicts_is_called_so_and_never_certified(
    place: Path, name: str, change: Any, why: str, capsys: Capture
) -> None:
    assert compared("near").answer.standing == "certified"
    found = compared("near", changed(name, change))
    assert {one.standing for one in found.answers.values()} == {"contradicted"}
    line = f"report near --measure {name} --out near.html"
    told = answer(capsys, line)
    assert not any(version["certified"] for version in told["bound"]["versions"].values())
    assert why in told["summary"]
    page = Path("near.html").read_text()
    assert "Contradicted by the run" in page
    assert 'data-standing="certified"' not in page.partition("<body>")[2]
    assert main(line.split()) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert why in said
    assert "ertified" not in said + told["verdict"] + told["summary"]


def test_a_run_far_above_a_bound_on_the_expectation_contradicts_it(place: Path) -> None:
    found = compared("near", changed("noise.json", _times(1e-3, "F", "L_g", "L_h", "L_tilde", "f_star")))
    surpassed = [sentence for sentence in found.answer.contradictions if "The run contradicts" in sentence]
    assert len(surpassed) == (found.reached > 1.01 * found.answer.bound.total)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"symbol": "sigma", "value": -1.0, "low": -1.0, "high": -1.0}, "sigma must be at least 0, not -1.0"),
        ({"symbol": "L_g", "value": float("nan")}, "L_g = nan must lie in its interval"),
        ({"symbol": "L_h", "low": 3.0, "value": 2.0, "high": 1.0}, "L_h = 2.0 must lie in its interval"),
        ({"symbol": "L_tilde", "low": 0.0, "value": 0.0, "high": 0.0, "kind": "exact"}, "cannot both be exact"),
    ],
)
def test_constants_that_nothing_can_have_are_refused(
    place: Path, change: dict[str, Any], words: str, capsys: Capture
) -> None:
    data = json.loads(Path("s0/measure.json").read_text())
    for entry in data["readings"][0]["estimates"]:
        if entry["symbol"] == "L_g" and "exact" in change.values():
            entry["kind"] = "exact"
        if entry["symbol"] == change["symbol"]:
            entry |= change
    Path("odd.json").write_text(json.dumps(sealed(data)))
    capsys.readouterr()
    assert main(["report", "near", "--measure", "odd.json", "--out", "odd.html"]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_constants_of_another_federation_certify_nothing(place: Path) -> None:
    def elsewhere(entry: dict[str, Any]) -> None:
        if entry["symbol"] == "L_g":
            entry["scope"] = {"federation": "another"}

    found = compared("near", changed("elsewhere.json", elsewhere))
    assert found.answer.standing == "plug-in"
    assert found.notes == ("L_g counts as assumed, because it belongs to another federation.",)


def test_a_measurement_of_a_run_is_about_its_own_first_model(place: Path, capsys: Capture) -> None:
    told = answer(capsys, "measure far --readings certified")
    settings = json.loads(Path("far/settings.json").read_text())
    assert told["constants"]["F"]["scope"]["start"] == settings["start"]
    Path("own.json").write_text(json.dumps(told))
    found = compared("far", "own.json")
    assert (found.answer.standing, found.notes) == ("certified", ())


def test_without_what_proves_them_a_report_and_a_plan_say_what_to_install(
    place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F is then the first loss at most, as f is never negative."""
    monkeypatch.setattr(proofs, "plugins", lambda group: {})
    found = background_of(read_results(Path("far"), {"measure": Path("s0/measure.json")}))
    assert found.comparison
    assert found.comparison.constants["F"].method == initial_gap(1.0, 0.0).method
    assert proofs.UNPROVED in found.notes
    assert proofs.UNPROVED.endswith("install it: pip install fedgauge-verification.")
    assert proofs.UNPROVED not in background_of(read_results(Path("near"), {"measure": Path("s0/measure.json")})).notes
    plan = f"plan {DIGITS} {RATE} --mode theory --goal grad2=0.1 --cost cross-device --values s0/measure.json"
    same, other = answer(capsys, plan), answer(capsys, f"{plan} --seed 3")
    assert proofs.UNPROVED in other["notes"]
    assert proofs.UNPROVED not in same["notes"]


def test_a_plan_for_another_seed_gets_its_own_gap(place: Path, capsys: Capture) -> None:
    plan = f"plan {DIGITS} {RATE} --mode theory --goal grad2=0.1 --cost cross-device --values s0/measure.json"
    same, other = answer(capsys, plan), answer(capsys, f"{plan} --seed 3")
    gap = json.loads(Path("s0/measure.json").read_text())["constants"]["F"]["value"]
    assert same["values"]["F"] == gap != other["values"]["F"]
    assert same["certified"]
    assert other["certified"]
    said = "F was computed again for this run, because that of the file belongs to another first model."
    assert said in other["notes"]
    assert said not in same["notes"]
    # It is the gap that measuring with that seed proves.
    own = answer(capsys, f"measure {DIGITS} {RATE} --seed 3 --readings certified --most 1")["constants"]["F"]
    assert other["values"]["F"] == pytest.approx(own["value"], rel=1e-6)
