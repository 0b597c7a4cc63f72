"""One of the paper's Figures 2 to 9, run again: the curves of each study that it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.views.view import View
from fedgauge.show.web.elements import CellValue
from fedgauge_planning.sweep_views import best_combination, view_of_sweep
from fedgauge_wang2024.places import spelling
from fedgauge_wang2024.results import CurvesFigure


def _show(given: ReportInput) -> View:
    found = given.result(CurvesFigure)
    views = {name: view_of_sweep(study, f"study-{name}") for name, study in found.studies.items()}
    tables = [
        replace(table, title=f"{name}, {found.scale} scale: {table.title}")
        for name, shown in views.items()
        for table in shown.tables
    ]
    charts = [replace(chart, title=f"{name}: {chart.title}") for name, shown in views.items() for chart in shown.charts]
    return View(tables=tables, charts=charts)


def _verdict(given: ReportInput) -> str:
    return " ".join(f"{name}: {best_combination(study)}" for name, study in given.result(CurvesFigure).studies.items())


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    found = given.result(CurvesFigure)
    return {"figure": found.figure, "shows": found.title, "scale": found.scale}


def _commands(given: ReportInput) -> list[str]:
    found = given.result(CurvesFigure)
    again = f"fedgauge paper {spelling(found.figure)} --effort {found.scale} --data DIR --out again"
    return ["# the figure", again]


SECTION = Section("figure", "The figure", ("figure",), _show, heading=Heading("figure", _verdict, _settings, _commands))
