"""The sweep: its curves, and where each combination ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedgauge.experiment.sweep import shown as plain_value
from fedgauge.experiment.sweep_result import SweepResult
from fedgauge.report.page.section import Heading, ReportInput, Section
from fedgauge.report.page.sweeping import best_combination, ending_table, sweep_charts
from fedgauge.web.elements import CellValue

_TEMPLATE = """\
<div class="charts">{% for chart in charts %}{{ chart.html }}{% endfor %}</div>
<h3>Where they ended</h3>{{ ending }}
"""


def _sweep(given: ReportInput) -> SweepResult:
    found: SweepResult = given.found.by_kind[SweepResult.kind]
    return found


def _show(given: ReportInput) -> Mapping[str, Any]:
    found = _sweep(given)
    return {"charts": sweep_charts(found, "sweep"), "ending": ending_table(found)}


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    found = _sweep(given)
    over = {key: ", ".join(map(plain_value, values)) for key, values in found.over.items()}
    return {**over, "seeds": found.seeds, "combinations": len(found.combinations)}


def _commands(given: ReportInput) -> list[str]:
    command = _sweep(given).command
    return ["# the sweep", command] if command else []


SECTION = Section(
    "sweep",
    "The sweep",
    ("sweep",),
    _show,
    _TEMPLATE,
    Heading("sweep", lambda given: best_combination(_sweep(given)), _settings, _commands),
)
