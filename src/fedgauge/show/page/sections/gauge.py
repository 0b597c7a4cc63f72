"""How the answer at the beginning of a report was measured: every number of local steps, and the method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedgauge.measurement.gauge.result import GaugeResult
from fedgauge.planning.plan import Plan
from fedgauge.show.page.section import Heading, ReportInput, Section, answer
from fedgauge.show.results.reading import RUN
from fedgauge.show.views.gauges import view_of_gauge
from fedgauge.show.views.view import View
from fedgauge.show.web.elements import CellValue


def _card(given: ReportInput) -> View:
    taken = given.found.run.settings.get("local_steps") if given.found.run else None
    return view_of_gauge(given.result(GaugeResult), taken if isinstance(taken, int) else None)


def _show(given: ReportInput) -> View | None:
    # The rest is at the beginning of the page.
    return replace(given.card, tables=given.card.tables[1:], charts=()) if given.card else None


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    found = given.result(GaugeResult)
    algorithm = found.settings.get("algorithm") or {}
    rates = {name: str(value) if isinstance(value, bool) else value for name, value in algorithm.items()}
    rates.pop("name", None)
    return {"algorithm": str(algorithm.get("name", "–")), **rates, "seed": found.settings.get("seed")}


SECTION = Section(
    "gauge",
    "How the answer was measured",
    (GaugeResult.kind, RUN, Plan.kind),
    _show,
    heading=Heading("gauge", answer(GaugeResult), _settings, card=_card, goes_first=True),
)
