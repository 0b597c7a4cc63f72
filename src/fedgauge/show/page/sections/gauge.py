"""The gauge: how many local steps to take, which is the first thing that a reader wants to know."""

from __future__ import annotations

from collections.abc import Mapping

from fedgauge.measurement.gauge.result import GaugeResult
from fedgauge.show.page.section import Heading, ReportInput, Section, answer
from fedgauge.show.views.gauges import view_of_gauge
from fedgauge.show.views.view import View
from fedgauge.show.web.elements import CellValue


def _show(given: ReportInput) -> View:
    taken = given.found.run.settings.get("local_steps") if given.found.run else None
    return view_of_gauge(given.result(GaugeResult), taken if isinstance(taken, int) else None)


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    found = given.result(GaugeResult)
    algorithm = found.settings.get("algorithm") or {}
    rates = {name: str(value) if isinstance(value, bool) else value for name, value in algorithm.items()}
    rates.pop("name", None)
    return {"algorithm": str(algorithm.get("name", "–")), **rates, "seed": found.settings.get("seed")}


SECTION = Section(
    "gauge",
    "How many local steps",
    ("gauge",),
    _show,
    heading=Heading("gauge", answer(GaugeResult), _settings, is_answer=True),
)
