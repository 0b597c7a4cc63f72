"""Charts of rows and columns: numbers with their intervals, and heat maps with their sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedgauge.report.page.chart import RIGHT, TOP, Chart, drawable, figure, keys, place, plain, svg, text
from fedgauge.report.page.scales import fit, labels
from fedgauge.report.page.tables import Cell, table
from fedgauge.web.writing import percent


@dataclass(frozen=True)
class Interval:
    """A number with the interval about it, in a row of its own or beside others."""

    row: str
    series: str
    value: float
    low: float
    high: float
    colour: int = 0
    said: str = ""


def intervals(
    name: str,
    items: Sequence[Interval],
    *,
    title: str,
    x_label: str,
    note: str = "",
    log: bool = True,
) -> Chart:
    """Draw numbers with their intervals, one row a name, one colour a series.

    >>> chart = intervals("c", [Interval("L_h", "seen", 1.0, 0.5, 2.0)], title="Constants", x_label="value")
    >>> chart.data["points"][0]["value"]
    1.0
    """
    rows = list(dict.fromkeys(item.row for item in items))
    names = list(dict.fromkeys(item.series for item in items))
    colours = {item.series: item.colour for item in items}
    most = max(len({item.series for item in items if item.row == row}) for row in rows)
    step = max(26.0, 11.0 * most)
    bottom = TOP + step * len(rows)
    ends = [end for item in items for end in (item.value, item.low, item.high)]
    x = fit(ends, 104.0, RIGHT - 6, log=log and any(math.isfinite(end) and end > 0 for end in ends))
    content = []
    for row, label in enumerate(rows):
        middle = TOP + step * (row + 0.5)
        content.append(f'<path class="grid" d="M{place(x.start)} {place(middle + step / 2)}H{place(x.end)}"/>')
        content.append(text(96, middle + 4, label, "row", "end"))
    marks = x.ticks(6)
    for number, (mark, label) in enumerate(zip(marks, labels(marks), strict=True)):
        content.append(f'<path class="grid" d="M{place(x(mark))} {place(TOP)}V{place(bottom)}"/>')
        content.append(text(x(mark), bottom + 20, label, "tick" if number % 2 == 0 else "tick odd"))
    content.append(text(x.end, bottom + 42, x_label, "name", "end"))
    points = []
    for item in items:
        if not drawable(item.value, x):
            continue
        group = names.index(item.series)
        beside = [other.series for other in items if other.row == item.row]
        up = TOP + step * (rows.index(item.row) + (beside.index(item.series) + 1) / (len(beside) + 1))
        left, right = (x(min(max(end, x.low), x.high)) for end in (item.low, item.high))
        at = x(item.value)
        content.append(
            f'<g class="s{group}"><path class="line t{item.colour}" d="M{place(left)} {place(up)}H{place(right)}"/>'
            f'<circle class="area t{item.colour}" cx="{place(at)}" cy="{place(up)}" r="4"/></g>'
        )
        points.append(
            {
                "x": round(at, 1),
                "y": round(up, 1),
                "group": group,
                "title": f"{item.row}, {item.series}",
                "value": plain(item.value),
                "low": plain(item.low),
                "high": plain(item.high),
                "said": item.said,
            }
        )
    picture = svg("log", f"{title}: {', '.join(rows)}", "".join(content), bottom + 50)
    legend = keys([(one, f"t{colours[one]}") for one in names]) if len(names) > 1 else ""
    cells: list[list[Cell]] = [[item.row, item.series, item.value, item.low, item.high, item.said] for item in items]
    numbers = table(("", "by", "value", "from", "to", ""), cells)
    return Chart(name, figure(name, title, note, picture, legend, numbers), {"kind": "points", "points": points})


_LEVELS = 16  # of a heat map's colour; more cannot be told apart


def heat_map(
    name: str,
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    row_label: str,
    column_label: str,
    note: str = "",
    share: bool = False,
    marked: Sequence[int] = (),
) -> Chart:
    """Draw a matrix, with the sums of its rows at the right and of its columns above.

    Args:
        name: of the chart on the page.
        values: one list a row, none below 0.
        rows: their names.
        columns: the names of the columns.
        title: above the picture.
        row_label: what a row is.
        column_label: what a column is.
        note: a sentence below the title.
        share: whether values are shares, shown in percent.
        marked: columns that stand out.

    >>> chart = heat_map("p", [[3, 0], [0, 4]], ["zero", "one"], ["0", "1"], title="Labels", row_label="label",
    ...     column_label="worker")
    >>> chart.data["values"]
    [[3, 0], [0, 4]]
    """
    left, right, top = 112.0, 452.0, 66.0
    height = min(max(150.0 / max(len(rows), 1), 4.0), 24.0)
    bottom, width = top + height * len(rows), (right - left) / max(len(columns), 1)
    gap = min(1.0, width / 8, height / 8)
    largest = max((value for row in values for value in row), default=0.0)
    levels: dict[int, list[str]] = {}
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if value > 0:
                corner = f"M{left + j * width:.2f} {top + i * height:.2f}"
                cell = f"{corner}h{width - gap:.2f}v{height - gap:.2f}h-{width - gap:.2f}z"
                levels.setdefault(math.ceil(_LEVELS * value / largest), []).append(cell)
    content = [f'<rect class="empty" x="{left}" y="{top}" width="{right - left}" height="{place(bottom - top)}"/>']
    content += [
        f'<path class="heat" fill-opacity="{level / _LEVELS:.3f}" d="{"".join(cells)}"/>'
        for level, cells in sorted(levels.items())
    ]
    content.append(_sums(values, left, right, top, width, height, marked))
    content.append(_names(rows, columns, left, bottom, width, height, top, marked))
    content += [
        text(0, 13, f"{row_label}, across {column_label}s", "name", "start"),
        text(right, bottom + 42, column_label, "name", "end"),
    ]
    picture = svg("log", f"{title}: {row_label} against {column_label}", "".join(content), bottom + 50)
    cells: list[list[Cell]] = [[column, *(_cell(row[j], share) for row in values)] for j, column in enumerate(columns)]
    numbers = table((column_label, *rows), cells)
    data = {
        "kind": "cells",
        "left": left,
        "top": top,
        "width": width,
        "height": height,
        "rows": list(rows),
        "columns": list(columns),
        "row": row_label,
        "column": column_label,
        "values": [list(row) for row in values],
        "share": share,
    }
    return Chart(name, figure(name, title, note, picture, "", numbers), data)


def _cell(value: float, share: bool) -> Cell:
    return (value, percent(value)) if share else value


def _sums(
    values: Sequence[Sequence[float]],
    left: float,
    right: float,
    top: float,
    width: float,
    height: float,
    marked: Sequence[int],
) -> str:
    """Bars of the sums of rows and columns, the longest as long as there is room."""
    across, down = [sum(row) for row in values], [sum(column) for column in zip(*values, strict=True)]
    parts = []
    for i, total in enumerate(across):
        length = 50 * total / (max(across) or 1)
        parts.append(
            f'<rect class="sum" x="{right + 4}" y="{top + i * height:.2f}" width="{length:.2f}"'
            f' height="{height * 0.85:.2f}"/>'
        )
    for j, total in enumerate(down):
        length = 34 * total / (max(down) or 1)
        parts.append(
            f'<rect class="{"sum out" if j in marked else "sum"}" x="{left + j * width:.2f}"'
            f' y="{top - 4 - length:.2f}" width="{width * 0.85:.2f}" height="{length:.2f}"/>'
        )
    return "".join(parts)


def _names(
    rows: Sequence[str],
    columns: Sequence[str],
    left: float,
    bottom: float,
    width: float,
    height: float,
    top: float,
    marked: Sequence[int],
) -> str:
    """The names of rows and columns, as many as there is room for."""
    parts = []
    every = max(1, math.ceil(15 / height))
    for i in range(0, len(rows), every):
        short = rows[i] if len(rows[i]) <= 12 else f"…{rows[i][-11:]}"
        kind = "tick odd" if height * every < 20 and i // every % 2 else "tick"
        parts.append(text(left - 7, top + (i + 0.5) * height + 4, short, kind, "end"))
    longest = max((len(column) for column in columns), default=1)
    room = 11.0 * min(longest, 8) / width
    every = next(
        step for step in (1, 2, 5, 10, 20, 50, 100, 200, len(columns) + 1) if step >= room or step > len(columns)
    )
    for number, j in enumerate(range(0, len(columns), every)):
        short = columns[j] if len(columns[j]) <= 8 else f"{columns[j][:7]}…"
        kind = f"tick{' odd' if number % 2 else ''}{' out' if j in marked else ''}"
        parts.append(text(left + (j + 0.5) * width, bottom + 20, short, kind))
    return "".join(parts)
