"""Results as they are printed: what the view of a result says, its first table and its notes, one screen at most."""

from __future__ import annotations

import textwrap
from typing import Any

from fedgauge.show.views import Table, view
from fedgauge.show.views.view import Cell
from fedgauge.values.display import counted, short

_WIDTH, _HEIGHT = 100, 36
"""The columns and lines of a screen."""


def text(result: Any) -> str:
    """What a result says when it is printed: one screen at most."""
    shown = view(result)
    main = [table for table in shown.tables if not table.detail][:1]
    rows = (row for each in main for row in lines_of(each))
    lines = [*([shown.title] if shown.title else []), *shown.sentences, *rows, *shown.limits, *shown.notes]
    screen = [part for line in lines for part in textwrap.wrap(line, _WIDTH, replace_whitespace=False) or [""]]
    more = len(screen) - _HEIGHT
    return "\n".join([*screen[:_HEIGHT], f"… and {counted(more, 'more line')}"] if more > 0 else screen)


def lines_of(table: Table) -> list[str]:
    """A table as lines whose columns stand below one another."""
    cells = [list(table.heads), *([_words(cell) for cell in row] for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _words(cell: Cell) -> str:
    return short(cell) if isinstance(cell, float) else "–" if cell is None else str(cell).replace("\n", " ")
