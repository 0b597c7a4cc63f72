"""The measured constants: every reading's with their intervals, and those that a bound is given."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from fedgauge.measurement.values import Measurement
from fedgauge.show.page.estimates import estimates_table
from fedgauge.show.page.grids import IntervalRow, intervals
from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.terminal import measurements
from fedgauge.show.web.elements import CellValue

_TEMPLATE = """\
{{ facts(entries) }}{{ notes(unfinished, "warning") }}
<div class="charts">{% for chart in charts %}{{ chart.html }}{% endfor %}
<div class="beside"><h3>The constants for a bound</h3>{{ estimates }}</div></div>
{{ notes(remarks) }}
<details><summary>What the readings are</summary>{{ notes(meanings, "plain") }}</details>
"""


def _measurement(given: ReportInput) -> Measurement:
    assert given.found.measurement is not None
    return given.found.measurement


def _show(given: ReportInput) -> Mapping[str, Any]:
    found = _measurement(given)
    taken = [reading for reading in found.readings if reading.estimates]
    items = [
        IntervalRow(e.symbol, reading.name, e.value, e.low, e.high, colour % 8, e.kind)
        for colour, reading in enumerate(taken)
        for e in reading.estimates
        if e.value > 0 and reading.name != "lenses"
    ]
    charts = []
    if items:
        charts.append(
            intervals(
                "constants",
                items,
                title="Each constant, by reading",
                x_label="value",
                note="What happened along a trajectory can only lie below what is possible.",
            )
        )
    point = found.point
    entries: dict[str, CellValue] = {"measured at": str(point.get("origin", "–")), "f there": point.get("loss")}
    entries["‖∇f‖² there"] = point.get("grad2")
    return {
        "entries": {**entries, **found.cost},
        "unfinished": [] if found.complete else ["The measurement stopped before all readings were taken."],
        "charts": charts,
        "estimates": estimates_table(found.constants),
        "remarks": list(map(str, point.get("remarks", ())))
        + [note for reading in found.readings for note in reading.notes if reading.name != "parts"],
        "meanings": [f"{reading.name}: {reading.meaning}" for reading in found.readings],
    }


def _options(found: Measurement) -> Mapping[str, Any]:
    options = found.settings.get("asked")
    return options if isinstance(options, Mapping) else {}


def _joined(values: Any) -> str:
    return ",".join(map(str, values)) if isinstance(values, list | tuple) else str(values)


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    return {name: _joined(value) for name, value in _options(_measurement(given)).items() if value is not None}


def _commands(given: ReportInput) -> list[str]:
    found, run = _measurement(given), given.found.run
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


def _verdict(given: ReportInput) -> str:
    return measurements.verdict(_measurement(given))


SECTION = Section(
    "constants",
    "The constants",
    ("measurement",),
    _show,
    _TEMPLATE,
    Heading("measurement", _verdict, _settings, _commands),
)
