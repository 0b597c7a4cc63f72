"""The measured constants: every reading's with their intervals, and those that a bound is given."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedgauge.measurement.values import Measurement
from fedgauge.show.page.section import Heading, ReportInput, Section, answer
from fedgauge.show.views.measurements import view_of_measurement
from fedgauge.show.views.view import View
from fedgauge.show.web.elements import CellValue


def _show(given: ReportInput) -> View:
    content = view_of_measurement(given.result(Measurement), parts=False)
    # What each reading found is in the numbers of the chart.
    return replace(content, tables=[table for table in content.tables if not table.splits])


def _options(found: Measurement) -> Mapping[str, Any]:
    options = found.settings.get("asked")
    return options if isinstance(options, Mapping) else {}


def _joined(values: Any) -> str:
    return ",".join(map(str, values)) if isinstance(values, list | tuple) else str(values)


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    return {name: _joined(value) for name, value in _options(given.result(Measurement)).items() if value is not None}


def _commands(given: ReportInput) -> list[str]:
    found, run = given.result(Measurement), given.found.run
    options = _options(found)
    if not found.settings.get("experiment"):
        return []  # fedgauge.measure measured a federation that no command knows
    names = {"rounds": "--trajectory-rounds", "seeds": "--seeds", "fall": "--near", "most": "--most"}
    source = shlex.quote(run.path) if run else "experiment.toml"
    parts = ["fedgauge measure", source, "--readings", _joined(options.get("readings"))]
    origin = str(found.point.get("origin", ""))
    if origin.endswith(".safetensors") and run is None:
        parts += ["--at", shlex.quote(origin)]
    parts += [f"{option} {options[name]}" for name, option in names.items() if name in options]
    return ["# the constants", " ".join(parts)]


SECTION = Section(
    "constants",
    "The constants",
    ("measurement",),
    _show,
    heading=Heading("measurement", answer(Measurement), _settings, _commands),
)
