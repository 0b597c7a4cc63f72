"""Table 1: the constants beside the paper's."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from fedgauge.show.page.chart import Series, lines
from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.web.elements import CellValue
from fedgauge_wang2024.results import Table1

_TEMPLATE = """\
<div class="charts">{% for chart in charts %}{{ chart.html }}{% endfor %}</div>{{ table(heads, rows, "cards") }}
"""


def _table(given: ReportInput) -> Table1:
    found: Table1 = given.found.by_kind[Table1.kind]
    return found


def _show(given: ReportInput) -> Mapping[str, Any]:
    found = _table(given)
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
        charts.append(
            lines(f"table1-{symbol}", series, title=symbol, x_label="X, % of one label", y_label=symbol, note=note)
        )
    rows: list[list[CellValue]] = [
        [
            f"{row.percent}%",
            symbol,
            f"{found.paper[symbol][str(row.percent)][0]:g}",
            *(row.shown(name, symbol) if name in row.readings else None for name in found.rows[0].readings),
        ]
        for row in found.rows
        for symbol in found.paper
    ]
    return {"charts": charts, "heads": ("X", "", "paper", *found.rows[0].readings), "rows": rows}


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    return {name.replace("_", " "): str(value) for name, value in _table(given).settings.items()}


def _commands(given: ReportInput) -> list[str]:
    settings = _table(given).settings
    model, scale = (
        shlex.quote(str(settings.get(key, usual))) for key, usual in (("study", "mlp"), ("scale", "laptop"))
    )
    return ["# the table", f"fedgauge paper table1 --model {model} --effort {scale} --data DIR --out again"]


SECTION = Section(
    "table1",
    "Table 1: the constants",
    ("table1",),
    _show,
    _TEMPLATE,
    Heading("table of constants", lambda given: _table(given).verdict, _settings, _commands),
)
