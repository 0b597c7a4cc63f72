"""The sweep: its curves, and where each combination ended."""

from __future__ import annotations

from collections.abc import Mapping

from fedgauge.show.page.section import Heading, ReportInput, Section, answer, shown
from fedgauge.show.web.elements import CellValue
from fedgauge.simulation.experiment.sweep import SweepResult
from fedgauge.simulation.experiment.sweep import shown as plain_value


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    found = given.result(SweepResult)
    over = {key: ", ".join(map(plain_value, values)) for key, values in found.over.items()}
    return {**over, "seeds": found.seeds, "combinations": len(found.combinations)}


def _commands(given: ReportInput) -> list[str]:
    command = given.result(SweepResult).command
    return ["# the sweep", command] if command else []


SECTION = Section(
    "sweep",
    "The sweep",
    ("sweep",),
    shown(SweepResult),
    heading=Heading("sweep", answer(SweepResult), _settings, _commands),
)
