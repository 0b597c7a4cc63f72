"""Reasons are written by hand and checked: each belongs to a claim, a scale and a verdict, and names its instrument."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedgauge.base.errors import InputError
from fedgauge.cli import main
from fedgauge_wang2024 import ledger, ledger_page
from fedgauge_wang2024.notes import FILE, Notes, read_notes

RESULTS = Path(__file__).parents[1] / "results"
ROWS = ledger.rows(ledger.read(RESULTS))
FAILED = next(row for row in ROWS if row["verdict"] == "not reproduced")
REASON = {"claim": FAILED["claim"], "scale": FAILED["scale"], "because": "it is hot", "instrument": "a thermometer"}


def _written(directory: Path, content: Any) -> Path:
    (directory / FILE).write_text(content if isinstance(content, str) else json.dumps(content))
    return directory


def test_a_reason_stands_beside_its_verdict_and_data_beside_every_claim_on_it(tmp_path: Path) -> None:
    notes = ledger.notes_in(_written(tmp_path, {"page": "New.", "data": {"MNIST": "a part"}, "reasons": [REASON]}))
    rows = ledger.rows(ledger.read(RESULTS), notes)
    explained = [row for row in rows if row["reason"]]
    assert [row["claim"] for row in explained] == [FAILED["claim"]]
    assert explained[0]["verdict"] == "not reproduced"
    page = ledger_page.page(rows, {}, notes.page)
    assert ", because it is hot (found by a thermometer)" in page
    assert "\nNew.\n" in page
    assert all(row["ours"].endswith("(a part)") == ("MNIST" in row["claim"]) for row in rows)


def test_a_directory_without_notes_has_none(tmp_path: Path) -> None:
    assert read_notes(tmp_path, []) == Notes()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"claim": FAILED["claim"] + "s"}, "which is no claim; did you mean"),
        ({"instrument": " "}, "add instrument"),
        ({"because": 3}, "add because"),
        ({"by": "me"}, "leave out the others"),
    ],
)
def test_a_reason_that_is_incomplete_is_refused(changed: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        ledger.notes_in(_written(tmp_path, {"reasons": [{**REASON, **changed}]}))


@pytest.mark.parametrize("content", ["", "[]", "3", '{"reasons": 3}', '{"data": [1]}', '{"reasons": [1]}'])
def test_what_is_no_file_of_notes_is_refused(content: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no file of notes"):
        ledger.notes_in(_written(tmp_path, content))


def test_a_reason_whose_verdict_is_gone_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = next(row for row in ROWS if row["verdict"] == "reproduced")
    for stale in ({**REASON, "scale": "smoke"}, {**REASON, "claim": held["claim"], "scale": held["scale"]}):
        notes = ledger.notes_in(_written(tmp_path, {"reasons": [stale]}))
        with pytest.raises(InputError, match="correct the reason or remove it"):
            ledger.rows(ledger.read(RESULTS), notes)
    from shutil import copytree

    copytree(RESULTS / "fig1", tmp_path / "fig1")
    assert main(["paper", "ledger", str(tmp_path)]) == 2
    assert "correct the reason or remove it" in capsys.readouterr().err
