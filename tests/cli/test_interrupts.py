"""Ctrl-C is answered in one sentence, wherever it comes: with what the same command goes on, if with anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Capture

from fedgauge.cli import main
from fedgauge.simulation.experiment import prepare
from fedgauge_planning import jobs


def ctrl_c(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def _interrupting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes with the first job, or while data is read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs.InProcess, "map", ctrl_c)
    monkeypatch.setattr(prepare, "share_out", ctrl_c)


KEPT = ("table 1 --effort smoke", "table 2 --jobs 1", "certified --jobs 1", "lenses --source digits --jobs 1")


@pytest.mark.parametrize("line", KEPT)
def test_a_table_says_what_it_goes_on_with(line: str, capsys: Capture) -> None:
    assert main(["paper", *line.split(), "--out", "kept"]) == 130
    said = "fedgauge: Interrupted; run the same command again to resume from kept.\n"
    assert capsys.readouterr() == ("", said)
    assert main(["paper", *line.split()]) == 130
    # The paper's tables always have a place for their cells.
    said = said.replace("kept", "wang2024") if line.startswith("table") else "fedgauge: Interrupted.\n"
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize("line", ["simulate digits --gamma 0.1", "measure digits --gamma 0.1", "demo"])
def test_a_command_that_is_still_loading(line: str, capsys: Capture) -> None:
    assert main(line.split()) == 130
    assert capsys.readouterr() == ("", "fedgauge: Interrupted.\n")
