"""Table 1: the constants beside the paper's."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from fedgauge.show.charts import LineChart, Series
from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.views.view import Cell, Table, View
from fedgauge.show.web.elements import CellValue
from fedgauge_wang2024.results import Table1


def _show(given: ReportInput) -> View:
    found = given.result(Table1)
    percents = [row.percent for row in found.rows]
    charts = []
    for symbol, printed in found.paper.items():
        series = []
        for place, name in enumerate(found.rows[0].readings):
            held = [row.readings[name][symbol] for row in found.rows if name in row.readings]
            if len(held) == len(percents):
                low, high = [mean - spread for mean, spread in held], [mean + spread for mean, spread in held]
                series.append(Series(name, percents, [mean for mean, _ in held], place % 5, "line", low, high))
        paper = [printed[str(percent)][0] for percent in percents]
        series.append(Series("paper", percents, paper, 5, "dashed"))
        note = "Bands: one standard deviation over seeds." if len(found.rows[0].rounds) > 1 else "One seed."
        charts.append(LineChart(f"table1-{symbol}", series, symbol, "X, % of one label", symbol, note))
    rows: list[list[Cell]] = [
        [
            f"{row.percent}%",
            symbol,
            f"{found.paper[symbol][str(row.percent)][0]:g}",
            *(row.shown(name, symbol) if name in row.readings else None for name in found.rows[0].readings),
        ]
        for row in found.rows
        for symbol in found.paper
    ]
    return View(tables=(Table(("X", "", "paper", *found.rows[0].readings), rows, "All of them"),), charts=charts)


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    return {name.replace("_", " "): str(value) for name, value in given.result(Table1).settings.items()}


def _commands(given: ReportInput) -> list[str]:
    settings = given.result(Table1).settings
    model, scale = (
        shlex.quote(str(settings.get(key, usual))) for key, usual in (("study", "mlp"), ("scale", "laptop"))
    )
    return ["# the table", f"fedgauge paper table 1 --model {model} --effort {scale} --data DIR --out again"]


SECTION = Section(
    "table1",
    "Table 1: the constants",
    ("table1",),
    _show,
    heading=Heading("table of constants", lambda given: given.result(Table1).verdict, _settings, _commands),
)
