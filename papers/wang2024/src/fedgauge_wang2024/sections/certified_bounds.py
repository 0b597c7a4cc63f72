"""Certified bounds beside runs: a chart for each theorem and partition, all lines as a table, and the constants."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from fedgauge.show.page.chart import Chart, Series, Style, lines
from fedgauge.show.page.estimates import estimates_table
from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.web.elements import CellValue
from fedgauge.theory import find
from fedgauge.values import Constants
from fedgauge_wang2024.results import CertifiedBounds, CertifiedLine

_LOOKS: dict[str, tuple[int, Style]] = {
    "star": (2, "line"),
    "corrected": (4, "line"),
    "sharp": (3, "line"),
    "prior": (5, "dashed"),
}
_HEADS = ("", "I", "bound", "least, median", "least, worst", "bound/mean", "prior/corrected", "worth")
_TEMPLATE = """\
<div class="charts">{% for chart in charts %}{{ chart.html }}{% endfor %}</div>{{ table(heads, rows, "cards") }}
{% for percent, constants in proved %}
<details><summary>Constants at {{ percent }}% of one label</summary>{{ constants }}</details>
{% endfor %}
"""


def _bounds(given: ReportInput) -> CertifiedBounds:
    found: CertifiedBounds = given.found.by_kind[CertifiedBounds.kind]
    return found


def _show(given: ReportInput) -> Mapping[str, Any]:
    found = _bounds(given)
    groups: dict[tuple[str, int], list[CertifiedLine]] = {}
    for line in found.lines:
        groups.setdefault((line.theorem, line.percent), []).append(line)
    rows: list[list[CellValue]] = [
        [
            f"{find(line.theorem).locator}, {line.percent}% of one label",
            line.I,
            line.versions[line.new].bound,
            line.least,
            line.worst,
            line.looseness,
            line.prior_over_new,
            "certified" if line.versions[line.new].certified else "plug-in",
        ]
        for line in found.lines
    ]
    return {
        "charts": [_chart(theorem, percent, held) for (theorem, percent), held in groups.items()],
        "heads": _HEADS,
        "rows": rows,
        "proved": [
            (percent, estimates_table(Constants(tuple(held.values())))) for percent, held in found.constants.items()
        ],
    }


def _chart(theorem: str, percent: int, held: list[CertifiedLine]) -> Chart:
    held = sorted(held, key=lambda line: (line.R, line.I))
    steps = [line.I for line in held]
    low, high = [min(line.least, line.worst) for line in held], [max(line.least, line.worst) for line in held]
    series = [Series("measured, median to worst seed", steps, [line.least for line in held], 0, "line", low, high)]
    for version, (colour, style) in _LOOKS.items():
        drawn = [line for line in held if version in line.versions]
        if drawn:
            bounds = [line.versions[version].bound for line in drawn]
            series.append(Series(version, [line.I for line in drawn], bounds, colour, style))
    return lines(
        f"certified-{theorem}-{percent}",
        series,
        title=f"{find(theorem).locator}, {percent}% of one label",
        x_label="local steps I",
        y_label="what the theorem bounds",
        log_x=True,
        note="Each version at its own best rates; the runs at those of the newest.",
    )


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    return {name.replace("_", " "): str(value) for name, value in _bounds(given).settings.items()}


def _commands(given: ReportInput) -> list[str]:
    settings, held = _bounds(given).settings, _bounds(given).lines
    parts = [f"fedgauge paper certified --source {shlex.quote(str(settings.get('source', 'digits')))}"]
    parts += [f"--{name} {settings[name]}" for name in ("rounds", "seeds") if name in settings]
    parts += [f"--theorem {theorem}" for theorem in dict.fromkeys(line.theorem for line in held)]
    parts += [f"--local-steps {I}" for I in dict.fromkeys(line.I for line in held)]  # noqa: E741
    return ["# the table", " ".join([*parts, "--out certified"])]


SECTION = Section(
    "certified",
    "Certified bounds beside runs",
    ("certified-bounds",),
    _show,
    _TEMPLATE,
    Heading("table of certified bounds", lambda given: _bounds(given).verdict, _settings, _commands),
)
