"""Results in a notebook, and ``plot()`` of each: what the view of a result says, and a picture of its charts."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fedgauge.base.errors import InputError
from fedgauge.show.pictures import Sheet, draw
from fedgauge.show.views import View, view
from fedgauge.show.web.elements import html_facts, html_table, notes


def plot(result: Any, path: str | Path | None = None) -> Any:
    """Draw a result; return matplotlib's figure, written to a file too if one is named."""
    shown = view(result)
    if not shown.charts:
        raise InputError(f"There is no picture of a {type(result).__name__}.")
    return _figure(shown, path)


def _figure(shown: View, path: str | Path | None = None) -> Any:
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
