"""The pieces that pages are made of: numbers, tables, facts, notes and code, with everything from a file escaped.

Each function returns HTML that templates and other functions may put together further: ``markupsafe.Markup`` escapes
whatever is added to it that is not HTML itself.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jinja2 import Environment
from markupsafe import Markup, escape

from fedgauge.values import Condition
from fedgauge.web.standings import STANDINGS
from fedgauge.web.templates import environment, formula
from fedgauge.web.writing import distance, shown, written

CellValue = Markup | str | float | int | None | tuple[float, str]
"""Text, a number, a number with how it is to be written, or HTML."""


class WrittenCell(NamedTuple):
    """The HTML of a table's cell, and whether it is a number."""

    html: Markup
    is_number: bool


@functools.cache
def _macros() -> Any:
    return environment().get_template("elements.html").module


def number(value: float, text: str | None = None) -> Markup:
    """A number of which a reader sees four digits and a program all.

    >>> number(0.123456)
    Markup('<data value="0.123456">0.1235</data>')
    """
    if isinstance(value, int) and text is None:
        return Markup(_macros().number(value, f"{value:,}"))
    return Markup(_macros().number(written(value), shown(value) if text is None else text))


def cell(value: CellValue) -> WrittenCell:
    """A value as a table shows it."""
    if isinstance(value, tuple):
        return WrittenCell(number(*value), True)
    if isinstance(value, Markup):
        return WrittenCell(value, "<data" in value)
    if value is None:
        return WrittenCell(Markup("–"), False)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return WrittenCell(escape(str(value)), False)
    return WrittenCell(number(value), True)


def table(heads: Sequence[str], rows: Iterable[Sequence[CellValue]], kind: str = "") -> Markup:
    """A table whose first column names its rows.

    Args:
        heads: what the columns are.
        rows: their cells.
        kind: classes for the style; with ``cards`` each row becomes a card on a phone, where a table has no room.

    >>> table(("I", "loss"), [(1, 0.5)])[:54]
    Markup('<div class="table"><table><thead><tr><th scope="col">I')
    """
    written_rows = [[cell(value) for value in row] for row in rows]
    for row in written_rows:
        if len(row) != len(heads):
            raise ValueError(f"a row of {len(row)} cells does not fit {len(heads)} columns")
    numeric = {place for row in written_rows for place, held in enumerate(row) if place and held.is_number}
    return Markup(_macros().table(heads, [(row[0], row[1:]) for row in written_rows], numeric, kind))


def facts(entries: Mapping[str, CellValue]) -> Markup:
    """Names and what they stand for, side by side; those without a value are left out."""
    kept = [(name, cell(value).html) for name, value in entries.items() if value is not None and value != ""]
    return Markup(_macros().facts(kept))


def notes(sentences: Iterable[str], kind: str = "note") -> Markup:
    """Sentences that a reader must know, each a paragraph.

    >>> notes(["a < b", ""])
    Markup('<p class="note">a &lt; b</p>')
    """
    return Markup(_macros().notes([sentence for sentence in sentences if sentence], kind))


def code(text: str) -> Markup:
    """Something to type or to save."""
    return Markup(_macros().code(text))


def standing(name: str) -> Markup:
    """What a bound is worth, in a word or two."""
    mark, title, _ = STANDINGS[name]
    return Markup(_macros().standing(name, mark, title))


def standing_line(name: str) -> Markup:
    """What a bound is worth, as a line that says why."""
    return Markup(_macros().standing_line(name, *STANDINGS[name]))


def condition(found: Condition) -> Markup:
    """A condition of a theorem as an item of a list: whether it holds, and how far it is from its limit."""
    value, limit = float(found.value), float(found.limit)
    text = formula(f"{found.name} <= {found.formula}")
    return Markup(_macros().condition(bool(found.holds), text, number(value), number(limit), distance(limit, value)))


ELEMENTS = (number, table, facts, notes, code, standing, standing_line, condition)
"""What templates may call by name."""


@functools.cache
def page_environment(package: str) -> Environment:
    """The templates of a package, which may call every element by its name.

    >>> page_environment("fedgauge.report.page").from_string("{{ number(2) }}").render()
    '<data value="2">2</data>'
    """
    made = environment(package)
    made.globals |= {element.__name__: element for element in ELEMENTS}
    return made
