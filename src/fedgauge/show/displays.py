"""Results as they are displayed: printed on one screen at most, drawn by ``plot()``, and in a notebook."""

from __future__ import annotations

import base64
import io
import textwrap
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fedgauge.base.errors import InputError
from fedgauge.show.views import Table, View, view
from fedgauge.show.views.view import Cell
from fedgauge.show.web.elements import html_facts, html_table, notes
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


# -- pictures and notebooks --------------------------------------------------------------------------------------------


def plot(result: Any, path: str | Path | None = None) -> Any:
    """Draw a result; return matplotlib's figure, written to a file too if one is named."""
    shown = view(result)
    if not shown.charts:
        raise InputError(f"There is no picture of a {type(result).__name__}.")
    return _figure(shown, path)


def _figure(shown: View, path: str | Path | None = None) -> Any:
    from fedgauge.show.pictures import Sheet, draw  # with matplotlib, which printing does not wait for

    sheet = Sheet()
    draw(shown.charts, sheet, shown.columns)
    if path is not None:
        if Path(path).suffix.lstrip(".") not in sheet.figure.canvas.get_supported_filetypes():
            raise InputError(f"{path} must end in .png, .pdf or .svg to be a picture.")
        sheet.figure.savefig(path)
    return sheet.figure


def html(result: Any) -> str:
    """A result as a notebook shows it: what it says, and its picture if it has one."""
    shown = view(result)
    page = notes(shown.sentences, "said") + (html_facts(shown.facts) if shown.facts else Markup(""))
    for table in shown.tables:
        if not table.detail:
            page += Markup("<p><b>{}</b></p>").format(table.title) + html_table(table)
    page += notes([*shown.limits, *shown.notes])
    if shown.charts:
        content = io.BytesIO()
        _figure(shown).savefig(content, format="png")
        picture = base64.b64encode(content.getvalue()).decode()
        page += Markup('<img alt="" style="max-width: 100%" src="data:image/png;base64,{}">').format(picture)
    return str(page)
