"""One of the paper's Figures 2 to 9, run again: the curves of each study that it shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.page.sections.sweep import best_combination, ending_table, sweep_charts
from fedgauge.show.web.elements import CellValue
from fedgauge_wang2024.results import CurvesFigure

_TEMPLATE = """\
{% for title, drawn, ending in studies %}<h3>{{ title }}</h3>
<div class="charts">{% for chart in drawn %}{{ chart.html }}{% endfor %}</div>
<h3>Where they ended</h3>{{ ending }}
{% endfor %}
"""


def _figure(given: ReportInput) -> CurvesFigure:
    found: CurvesFigure = given.found.by_kind[CurvesFigure.kind]
    return found


def _show(given: ReportInput) -> Mapping[str, Any]:
    found = _figure(given)
    studies = [
        (f"{name}, {found.scale} scale", sweep_charts(study, f"study-{name}"), ending_table(study))
        for name, study in found.studies.items()
    ]
    return {"studies": studies, "charts": [chart for _, drawn, _ in studies for chart in drawn]}


def _verdict(given: ReportInput) -> str:
    return " ".join(f"{name}: {best_combination(study)}" for name, study in _figure(given).studies.items())


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    found = _figure(given)
    return {"figure": found.figure, "shows": found.title, "scale": found.scale}


def _commands(given: ReportInput) -> list[str]:
    found = _figure(given)
    again = f"fedgauge paper {found.figure} --effort {found.scale} --data DIR --out again"
    return ["# the figure", again]


SECTION = Section(
    "figure", "The figure", ("figure",), _show, _TEMPLATE, Heading("figure", _verdict, _settings, _commands)
)
