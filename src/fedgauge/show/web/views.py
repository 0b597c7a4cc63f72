"""The tables of views as HTML, for pages and notebooks."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from fedgauge.base.symbols import SYMBOLS
from fedgauge.show.views.view import Cell, Formula, Held, Interval, Kind, Named, Share, Standing, Symbol, Table
from fedgauge.show.web.elements import CellValue, environment, facts, formula, number, standing, table

KINDS = {
    "exact": "exact up to rounding",
    "upper": "never above this",
    "lower": "at least this, perhaps more",
    "sample": "an estimate that may err on either side",
    "assumed": "a number that nobody has measured",
}
_LETTERS = {"gamma": "γ", "eta": "η", "largest gamma": "largest γ"}
_SYMBOL = """\
<span class="symbol">{% if long %}<code>{{ name }}</code>{% else %}{{ name | symbol }}{% endif %}</span>
{#- -#}
<small>{{ meaning }}</small>{% if method %}<small class="how">{{ method }}</small>{% endif %}"""
_KIND = '<span class="kind" data-safe="{{ safe }}" title="{{ title }}">{{ kind }}</span>'
_HELD = '<span class="{{ "holds" if holds else "fails" }}">{{ mark }}</span>'


def _render(template: str, **context: object) -> Markup:
    return Markup(environment().from_string(template).render(**context))


def html_cell(cell: Cell) -> CellValue:
    """A cell as a page shows it."""
    match cell:
        case Symbol(name, method):
            # A definition is too long for a table, and words set as variables are not mathematics.
            long = any(word in SYMBOLS[name].latex for word in ("frac", "mathrm", "max"))
            return _render(_SYMBOL, name=name, meaning=SYMBOLS[name].meaning, long=long, method=method)
        case Kind(name, certain):
            worth = "a bound may rest on it" if certain else "a bound with it is a plug-in"
            title, safe = f"{KINDS[name]}: {worth}", "true" if certain else "false"
            return _render(_KIND, safe=safe, title=title, kind=name)
        case Interval(low, high, unit):
            return Markup("{} to {} {}").format(number(low), number(high), unit) if low != high else ""
        case Held(holds):
            return _render(_HELD, holds=holds, mark=str(cell))
        case Share(value):
            return (value, str(cell))
        case Formula(text):
            return formula(text)
        case Standing(name):
            return standing(name)
        case Named(name):
            return name
    return cell


def html_table(shown: Table) -> Markup:
    """A table of a view; on a phone, the rows of one with many columns become cards."""
    has_symbols = any(isinstance(cell, Symbol) for row in shown.rows for cell in row[:1])
    kind = "estimates cards" if has_symbols and len(shown.heads) == 4 else "cards" if len(shown.heads) > 3 else ""
    kind = "brief" if shown.brief else kind
    rows = [[html_cell(cell) for cell in row] for row in shown.rows]
    html = table([_LETTERS.get(head, head) for head in shown.heads], rows, kind)
    return html + Markup('<p class="note">{}</p>').format(shown.note) if shown.note else html


def html_facts(entries: Mapping[str, Cell]) -> Markup:
    """The facts of a view."""
    return facts({_LETTERS.get(name, name): html_cell(value) for name, value in entries.items()})
