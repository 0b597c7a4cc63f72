"""What a report says of gauges and of measured constants, and what the theory makes of them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedgauge.measurement.gauge.result import GaugeResult
from fedgauge.measurement.values import Measurement
from fedgauge.show.page.section import ANY, Heading, ReportInput, Section, answer
from fedgauge.show.views.bounds import view_of_comparison
from fedgauge.show.views.gauges import view_of_gauge
from fedgauge.show.views.measurements import parts_of, view_of_measurement, view_of_parts
from fedgauge.show.views.view import View
from fedgauge.show.web.elements import CellValue

# -- how the answer was measured ---------------------------------------------------------------------------------------


def _gauge_card(given: ReportInput) -> View:
    taken = given.results.run.settings.get("local_steps") if given.results.run else None
    return view_of_gauge(given.result(GaugeResult), taken if isinstance(taken, int) else None)


def _gauge_view(given: ReportInput) -> View | None:
    # The rest is at the beginning of the page.
    return replace(given.card, tables=given.card.tables[1:], charts=given.card.charts[1:]) if given.card else None


def _gauge_settings(given: ReportInput) -> Mapping[str, CellValue]:
    gauged = given.result(GaugeResult)
    algorithm = gauged.settings.get("algorithm") or {}
    rates = {name: str(value) if isinstance(value, bool) else value for name, value in algorithm.items()}
    rates.pop("name", None)
    return {"algorithm": str(algorithm.get("name", "–")), **rates, "seed": gauged.settings.get("seed")}


GAUGE = Section(
    "gauge",
    "How the answer was measured",
    (GaugeResult.kind, ANY),
    _gauge_view,
    heading=Heading("gauge", answer(GaugeResult), _gauge_settings, card=_gauge_card, goes_first=True),
)


# -- the constants -----------------------------------------------------------------------------------------------------


def _constants_view(given: ReportInput) -> View:
    content = view_of_measurement(given.result(Measurement), parts=False)
    # What each reading found is in the numbers of the chart.
    return replace(content, tables=[table for table in content.tables if not table.splits])


def _constants_options(measurement: Measurement) -> Mapping[str, Any]:
    options = measurement.settings.get("asked")
    return options if isinstance(options, Mapping) else {}


def _joined(values: Any) -> str:
    return ",".join(map(str, values)) if isinstance(values, list | tuple) else str(values)


def _constants_settings(given: ReportInput) -> Mapping[str, CellValue]:
    return {
        name: _joined(value)
        for name, value in _constants_options(given.result(Measurement)).items()
        if value is not None
    }


def _constants_commands(given: ReportInput) -> list[str]:
    measurement, run = given.result(Measurement), given.results.run
    options = _constants_options(measurement)
    if not measurement.settings.get("experiment"):
        return []  # fedgauge.measure measured a federation that no command knows
    names = {"rounds": "--trajectory-rounds", "seeds": "--seeds", "fall": "--near", "most": "--most"}
    source = shlex.quote(run.path) if run else "experiment.toml"
    parts = ["fedgauge measure", source, "--readings", _joined(options.get("readings"))]
    origin = str(measurement.point.get("origin", ""))
    if origin.endswith(".safetensors") and run is None:
        parts += ["--at", shlex.quote(origin)]
    parts += [f"{option} {options[name]}" for name, option in names.items() if name in options]
    return ["# the constants", " ".join(parts)]


CONSTANTS = Section(
    "constants",
    "The constants",
    ("measurement",),
    _constants_view,
    heading=Heading("measurement", answer(Measurement), _constants_settings, _constants_commands),
)


# -- where heterogeneity comes from ------------------------------------------------------------------------------------


def _origins_view(given: ReportInput) -> View | None:
    measurement = given.results.measurement
    parts = parts_of(measurement) if measurement else None
    if measurement is None or parts is None:
        return None
    reading, shown = measurement.reading("parts"), view_of_parts(parts)
    return replace(shown, tables=shown.tables[:1], notes=reading.notes if reading else ())


ORIGINS = Section("origins", "Where heterogeneity comes from", ("measurement",), _origins_view)


# -- the bound and what was measured -----------------------------------------------------------------------------------


def _bound_view(given: ReportInput) -> View | None:
    comparison = given.background.comparison
    return view_of_comparison(comparison) if comparison else None


BOUND = Section("bound", "Bound against reality", ("run",), _bound_view)
