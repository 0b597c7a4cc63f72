"""How well the model serves each worker."""

from __future__ import annotations

from collections.abc import Mapping

from fedgauge.measurement.values import WorkerEvaluation
from fedgauge.show.page.section import Heading, ReportInput, Section, answer, shown
from fedgauge.show.web.elements import CellValue


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    found = given.result(WorkerEvaluation)
    return {"workers N": len(found.losses), "federation": found.federation, "model": found.model}


SECTION = Section(
    "workers",
    "How well it serves each worker",
    ("workers",),
    shown(WorkerEvaluation),
    heading=Heading("workers", answer(WorkerEvaluation), _settings),
)
