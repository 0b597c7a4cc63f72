"""Certified bounds beside runs: a chart for each theorem and partition, all lines as a table, and the constants."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from fedgauge.show.charts import LineChart, Series
from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.views.bounds import VERSIONS
from fedgauge.show.views.view import Cell, Table, View, estimates_table
from fedgauge.show.web.elements import CellValue
from fedgauge.theory import find
from fedgauge_wang2024.results import CertifiedBounds, CertifiedLine

_HEADS = ("", "I", "bound", "least, median", "least, worst", "bound/mean", "prior/corrected", "worth")


def _show(given: ReportInput) -> View:
    found = given.result(CertifiedBounds)
    groups: dict[tuple[str, int], list[CertifiedLine]] = {}
    for line in found.lines:
        groups.setdefault((line.theorem, line.percent), []).append(line)
    rows: list[list[Cell]] = [
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
    constants = [
        estimates_table(held.values(), f"Constants at {percent}% of one label", detail=True)
        for percent, held in found.constants.items()
    ]
    charts = [_chart(theorem, percent, held) for (theorem, percent), held in groups.items()]
    return View((found.verdict,), tables=(Table(_HEADS, rows, "All of them"), *constants), charts=charts)


def _chart(theorem: str, percent: int, held: list[CertifiedLine]) -> LineChart:
    held = sorted(held, key=lambda line: (line.R, line.I))
    steps = [line.I for line in held]
    low, high = [min(line.least, line.worst) for line in held], [max(line.least, line.worst) for line in held]
    series = [Series("measured, median to worst seed", steps, [line.least for line in held], 0, "line", low, high)]
    for version in ("star", "corrected", "sharp", "prior"):
        drawn = [line for line in held if version in line.versions]
        if drawn:
            bounds = [line.versions[version].bound for line in drawn]
            series.append(Series(version, [line.I for line in drawn], bounds, *VERSIONS[version]))
    return LineChart(
        f"certified-{theorem}-{percent}",
        series,
        title=f"{find(theorem).locator}, {percent}% of one label",
        x_label="local steps I",
        y_label="what the theorem bounds",
        log_x=True,
        note="Each version at its own best rates; the runs at those of the newest.",
    )


def _verdict(given: ReportInput) -> str:
    return given.result(CertifiedBounds).verdict


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    return {name.replace("_", " "): str(value) for name, value in given.result(CertifiedBounds).settings.items()}


def _commands(given: ReportInput) -> list[str]:
    settings, held = given.result(CertifiedBounds).settings, given.result(CertifiedBounds).lines
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
    heading=Heading("table of certified bounds", _verdict, _settings, _commands),
)
