"""Charts of rows and columns: numbers with their intervals, and heat maps with their sums."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from fedgauge.show.charts import Chart, HeatMap, LineChart, Row, RowChart, StackedChart
from fedgauge.show.page.chart import (
    RIGHT,
    TOP,
    WIDTH,
    Drawing,
    draw_layers,
    draw_lines,
    drawable,
    figure_of,
    macros,
    plain,
    ticks_of,
    without_picture,
)
from fedgauge.show.scales import AxisScale, fit
from fedgauge.show.web.elements import CellValue, place, table
from fedgauge.show.web.writing import percent

_ROW_LETTER = 11.5
"""The same for the label of a row, which may have wide signs: an equals sign or a plus."""
_MARGIN = 0.04
"""The fraction of an axis that stays free beyond the outermost intervals, so that none looks cut off."""


def draw(chart: Chart) -> Drawing:
    """Draw a chart for a page."""
    if isinstance(chart, LineChart):
        return draw_lines(chart)
    if isinstance(chart, StackedChart):
        return draw_layers(chart)
    return draw_rows(chart) if isinstance(chart, RowChart) else draw_cells(chart)


class RowLabel(NamedTuple):
    """The label of a row, the position of its middle, and the position of the line below it."""

    label: str
    middle: float
    below: float


class DrawnInterval(NamedTuple):
    """An interval as positions, with arrows where it extends beyond the axis, or a bar from where it begins."""

    group: int
    colour: int
    at: float
    left: float
    right: float
    up: float
    arrows: str
    bar: float | None


def draw_rows(chart: RowChart) -> Drawing:
    """Draw numbers with their intervals, or as bars: one row per label, one colour per series.

    >>> chart = RowChart("c", [Row("L_h", "measured", 1.0, 0.5, 2.0)], "Constants", "value")
    >>> draw_rows(chart).data["points"][0]["value"]
    1.0
    """
    cells: list[list[CellValue]] = [
        [item.row, item.series, item.value, item.low, item.high, item.note] for item in chart.rows
    ]
    numbers = table(("", "by", "value", "from", "to", ""), cells)
    items, names = chart.drawn, chart.names
    if not items:
        return without_picture(chart, numbers)
    rows = list(dict.fromkeys(item.row for item in items))
    colours = {item.series: item.colour for item in items}
    most = max(len({item.series for item in items if item.row == row}) for row in rows)
    step = max(26.0, 11.0 * most)
    bottom = TOP + step * len(rows)
    left = min(max(104.0, 12 + _ROW_LETTER * max(map(len, rows))), WIDTH / 2)
    short = {row: _shortened(row, int((left - 12) / _ROW_LETTER)) for row in rows}
    x = _axis(chart, left)
    drawn, points = [], []
    for item in items:
        group = names.index(item.series)
        beside = [other.series for other in items if other.row == item.row]
        up = TOP + step * (rows.index(item.row) + (beside.index(item.series) + 1) / (len(beside) + 1))
        at, ends = x(item.value), (x.nearest(item.low), x.nearest(item.high))
        arrows = _arrows(item, x, ends, up)
        drawn.append(DrawnInterval(group, item.colour, at, *ends, up, arrows, x.nearest(0.0) if chart.bars else None))
        points.append(
            {
                "x": round(at, 1),
                "y": round(up, 1),
                "group": group,
                "title": f"{item.row}, {item.series}",
                "value": plain(item.value),
                "low": plain(item.low),
                "high": plain(item.high),
                "said": item.note,
            }
        )
    lines = [
        RowLabel(short[row], TOP + step * (number + 0.5), TOP + step * (number + 1)) for number, row in enumerate(rows)
    ]
    hint = f"{chart.title}: {', '.join(rows)}"
    size = WIDTH, bottom + 50
    picture = macros().intervals_picture(hint, x, TOP, bottom, lines, ticks_of(x), chart.x_label, drawn, *size)
    legend = [(one, f"t{colours[one]}") for one in names] if len(names) > 1 else []
    return Drawing(chart.name, figure_of(chart, picture, numbers, legend), {"kind": "points", "points": points})


def _axis(chart: RowChart, left: float) -> AxisScale:
    """An axis that extends beyond every interval."""
    ends = [end for item in chart.drawn for end in (item.value, item.low, item.high)]
    tight = fit(ends, left, RIGHT - 6, log=chart.is_log, zero=chart.bars)
    wide = tight.widened(_MARGIN)
    # If no number is negative, the axis does not go below 0.
    return replace(wide, low=0.0) if wide.low < 0 <= tight.low else wide


def _arrows(item: Row, x: AxisScale, ends: Sequence[float], up: float) -> str:
    """Arrowheads at ends that cannot be drawn: infinite ones, and 0 on a logarithmic axis."""
    parts = []
    if not drawable(item.low, x) or item.low < x.low:
        parts.append(f"M{place(ends[0] + 5)} {place(up - 4)}L{place(ends[0])} {place(up)}l5 4")
    if not drawable(item.high, x) or item.high > x.high:
        parts.append(f"M{place(ends[1] - 5)} {place(up - 4)}L{place(ends[1])} {place(up)}l-5 4")
    return "".join(parts)


def _shortened(label: str, most: int) -> str:
    return label if len(label) <= most else f"{label[: max(most - 1, 1)]}…"


# -- heat maps ---------------------------------------------------------------------------------------------------

_LEVELS = 16  # shades of a heat map's colour; nobody could distinguish more


class Box(NamedTuple):
    """The edges of a heat map, and the width and height of a cell."""

    left: float
    right: float
    top: float
    bottom: float
    width: float
    height: float


class SumBar(NamedTuple):
    """A bar for the sum of a row or a column."""

    kind: str
    x: float
    y: float
    width: float
    height: float


class PlacedName(NamedTuple):
    """The name of a row or a column, with its position."""

    x: float
    y: float
    label: str
    kind: str


def draw_cells(chart: HeatMap) -> Drawing:
    """Draw a matrix as a heat map, with the sums of its rows on the right and of its columns above.

    >>> chart = HeatMap("p", [[3, 0], [0, 4]], ["zero", "one"], ["0", "1"], "Labels", "label", "worker")
    >>> draw_cells(chart).data["values"]
    [[3, 0], [0, 4]]
    """
    left, right, top = 112.0, 452.0, 66.0
    values, rows, columns, parts = chart.values, chart.rows, chart.columns, chart.parts
    height = min(max(150.0 / max(len(rows), 1), 4.0), 24.0)
    box = Box(left, right, top, top + height * len(rows), (right - left) / max(len(columns), 1), height)
    picture = macros().heat_picture(
        f"{chart.title}: {chart.row_label}s by {chart.column_label}",
        box,
        _levels(parts, box),
        list(_sums(parts, box, chart.marked)),
        list(_row_names(rows, box)),
        list(_column_names(columns, box, chart.marked)),
        f"{chart.row_label}, across {chart.column_label}s",
        chart.column_label,
        WIDTH,
        box.bottom + 50,
    )
    cells: list[list[CellValue]] = [
        [columns[j], *((row[j], percent(row[j])) if chart.share else row[j] for row in values)]
        for j in range(len(columns))
    ]
    numbers = table((chart.column_label, *rows), cells)
    data = {
        "kind": "cells",
        "left": left,
        "top": top,
        "width": box.width,
        "height": height,
        "rows": list(rows),
        "columns": list(columns),
        "row": chart.row_label,
        "column": chart.column_label,
        "values": [[plain(value) for value in row] for row in values],
        "share": chart.share,
    }
    return Drawing(chart.name, figure_of(chart, picture, numbers), data)


def _levels(values: Sequence[Sequence[float]], box: Box) -> list[tuple[float, str]]:
    """The opacity of each shade, and one path with all cells of that shade."""
    gap = min(1.0, box.width / 8, box.height / 8)
    levels: dict[int, list[str]] = {}
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if value > 0:
                corner = f"M{box.left + j * box.width:.2f} {box.top + i * box.height:.2f}"
                cell = f"{corner}h{box.width - gap:.2f}v{box.height - gap:.2f}h-{box.width - gap:.2f}z"
                levels.setdefault(math.ceil(_LEVELS * value), []).append(cell)
    return [(level / _LEVELS, "".join(cells)) for level, cells in sorted(levels.items())]


def _sums(values: Sequence[Sequence[float]], box: Box, marked: Sequence[int]) -> Iterator[SumBar]:
    """Bars for the sums of rows and columns; the longest fills the room that there is."""
    across, down = [sum(row) for row in values], [sum(column) for column in zip(*values, strict=True)]
    for i, total in enumerate(across):
        length = 50 * total / (max(across) or 1)
        yield SumBar("sum", box.right + 4, box.top + i * box.height, length, box.height * 0.85)
    for j, total in enumerate(down):
        length = 34 * total / (max(down) or 1)
        kind = "sum out" if j in marked else "sum"
        yield SumBar(kind, box.left + j * box.width, box.top - 4 - length, box.width * 0.85, length)


def _row_names(rows: Sequence[str], box: Box) -> Iterator[PlacedName]:
    """The names of rows, as many as there is room for."""
    every = max(1, math.ceil(15 / box.height))
    for i in range(0, len(rows), every):
        short = rows[i] if len(rows[i]) <= 10 else f"…{rows[i][-9:]}"
        kind = "tick odd" if box.height * every < 20 and i // every % 2 else "tick"
        yield PlacedName(box.left - 7, box.top + (i + 0.5) * box.height + 4, short, kind)


def _column_names(columns: Sequence[str], box: Box, marked: Sequence[int]) -> Iterator[PlacedName]:
    """The names of columns, as many as there is room for."""
    longest = max((len(column) for column in columns), default=1)
    room = 11.0 * min(longest, 8) / box.width
    every = next(
        step for step in (1, 2, 5, 10, 20, 50, 100, 200, len(columns) + 1) if step >= room or step > len(columns)
    )
    for number, j in enumerate(range(0, len(columns), every)):
        short = columns[j] if len(columns[j]) <= 8 else f"{columns[j][:7]}…"
        kind = f"tick{' odd' if number % 2 else ''}{' out' if j in marked else ''}"
        yield PlacedName(box.left + (j + 0.5) * box.width, box.bottom + 20, short, kind)
