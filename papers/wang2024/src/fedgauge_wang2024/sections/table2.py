"""Table 2: rounds to the target, the paper's and ours with the least and the most over problems."""

from __future__ import annotations

from collections.abc import Mapping

from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.views.view import Cell, Table, View
from fedgauge.show.web.elements import CellValue
from fedgauge_wang2024.results import Table2


def _rounds(held: Mapping[str, float] | None) -> str | None:
    return f"{held['median']:g} ({held['low']:g} to {held['high']:g})" if held else None


def _show(given: ReportInput) -> View:
    found = given.result(Table2)
    workers = list(dict.fromkeys(N for column in found.columns for N in column.ours))
    rows: list[list[Cell]] = [
        [column.label, column.paper, *(_rounds(column.ours.get(N)) for N in workers)] for column in found.columns
    ]
    heads = ("setting", "paper", *(f"N = {N}: median (least to most)" for N in workers))
    return View(tables=(Table(heads, rows),))


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    return {name.replace("_", " "): str(value) for name, value in given.result(Table2).settings.items()}


def _commands(given: ReportInput) -> list[str]:
    return ["# the table", "fedgauge paper table 2 --out again"]


SECTION = Section(
    "table2",
    "Table 2: rounds to the target",
    ("table2",),
    _show,
    heading=Heading("table of rounds", lambda given: given.result(Table2).verdict, _settings, _commands),
)
