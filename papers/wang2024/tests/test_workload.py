"""The work that is said beforehand is the work that is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import Capture

from fedgauge_wang2024 import table1
from fedgauge_wang2024.studies import CURVES, STUDIES, study
from fedgauge_wang2024.training_curves import CurvePart
from fedgauge_wang2024.workload import StepTime, Workload, steps_of, workloads


@pytest.mark.parametrize("name", STUDIES)
def test_the_steps_of_curves_are_those_of_the_runs(name: str) -> None:
    expected = {work.part: (work.runs, work.steps) for work in workloads(study(name), "workstation")}
    for figure, panels in CURVES.items():
        for percent in {panel.percent for panel in panels if panel.study == name}:
            cells = CurvePart((name,), (percent,)).sweeps(figure, "workstation")[name].cells
            assert expected[f"{percent}%"] == (len(cells), sum(steps_of(cell.experiment) for cell in cells))
    assert sum("Table 1" in part for part in expected) == (4 if name in table1.PAPER else 0)


def test_numbers_by_hand() -> None:
    """CNN: (1 + 5 + 20 + 80) x 200 rounds x 10 workers x 2 seeds; 21 records of 2,400 images and 2,000 tests each."""
    curves, _, *rows = workloads(study("cnn"), "workstation")
    assert curves == Workload("cnn", "50%", 8, 424_000, round(8 * 21 * (2400 * 4 / 3 + 2000 / 3)))
    # 203 rounds of ten workers with I = 10; ten passes over 50,000 images.
    assert rows[0].steps == 2 * 10 * 203 * 10
    assert rows[0].images == 2 * (21 * 2000 * 4 / 3 + 10 * 50_000)
    assert StepTime(0.01, 0.001).hours(Workload("cnn", "50%", 1, 3600, 36_000)) == pytest.approx(0.02)


def test_a_figure_says_its_steps_before_it_starts(tmp_path: Path, capsys: Capture) -> None:
    from fedgauge.cli import main

    line = ["paper", "figure", "4", "--effort", "smoke", "--data", str(tmp_path), "--out", str(tmp_path)]
    assert main(line) == 2
    told = capsys.readouterr().err
    # Two and four steps of ten workers.
    assert told.startswith("Figure 4 has 2 runs with 60 gradient steps in all; finished ones are not run again.")
