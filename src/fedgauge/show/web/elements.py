"""The pieces that pages are made of: numbers, tables, facts, notes and code, with everything from a file escaped.

Each function returns HTML that templates and other functions may put together further: ``markupsafe.Markup`` escapes
whatever is added to it that is not HTML itself.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from fedgauge.base.symbols import SYMBOLS
from fedgauge.show.views.view import (
    Cell,
    Formula,
    Held,
    IntervalCell,
    Kind,
    Named,
    Share,
    StandingCell,
    SymbolCell,
    Table,
)
from fedgauge.show.web import mathml
from fedgauge.show.web.writing import distance, percent, policy, shown, written


@functools.cache
def environment(package: str | None = None) -> Environment:
    """The templates in the directory ``templates`` of a package and of this one, with what all pages use.

    >>> environment().from_string("{{ text }}, {{ 0.123456 | shown }}").render(text="<b>")
    '&lt;b&gt;, 0.1235'
    """
    packages = [name for name in (package, "fedgauge.show.web") if name]
    made = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "place": place,
        "shown": shown,
        "written": written,
        "percent": percent,
        "formula": formula,
        "symbol": lambda name: Markup(f"<math>{mathml.symbol_math(name)}</math>"),
        "quantity": lambda text: Markup(mathml.quantity_html(text)),
    }
    made.globals["distance"] = distance
    return made


def place(number: float) -> str:
    """A place in a picture, to a tenth of a unit.

    >>> place(3.14159), place(2.0)
    ('3.1', '2')
    """
    return f"{number:.1f}".removesuffix(".0")


def formula(text: str) -> Markup:
    """A formula as MathML; what its letters stand for is on lines of its own.

    >>> formula("L_g")
    Markup('<div class="line"><math><msub><mi>L</mi><mi>g</mi></msub></math></div>')
    """
    return Markup("").join(Markup(f'<div class="line">{mathml.math(part)}</div>') for part in text.split(", "))


def finite(value: Any) -> Any:
    """The same data with infinite and undefined numbers as text, because JSON has no other way to hold them.

    >>> finite({"F": math.inf, "I": 3})
    {'F': 'Infinity', 'I': 3}
    """
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return written(value)
    return value


def embedded(data: Any) -> Markup:
    r"""JSON for the inside of a script element, which nothing in the data can end.

    >>> embedded("</script>")
    Markup('"\\u003c/script>"')
    """
    return Markup(json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


def render_page(made: Environment, template: str, *, style: str, script: str, data: Any, **context: Any) -> str:
    """A page from a template that extends ``page.html``.

    Args:
        made: of the package that has the template.
        template: its name.
        style: CSS from the package.
        script: JavaScript from the package.
        data: what the script reads, as JSON.
        **context: what the template shows.
    """
    trusted = {"style": Markup(style), "script": Markup(script), "data": embedded(data)}
    return made.get_template(template).render(policy=policy(style, script), **trusted, **context)


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


ELEMENTS = (number, table, facts, notes, code, standing, standing_line)
"""What templates may call by name."""


@functools.cache
def page_environment(package: str) -> Environment:
    """The templates of a package, which may call every element by its name.

    >>> page_environment("fedgauge.show.page").from_string("{{ number(2) }}").render()
    '<data value="2">2</data>'
    """
    made = environment(package)
    made.globals |= {element.__name__: element for element in ELEMENTS}
    return made


STANDINGS = {
    "certified": ("✓", "Certified", "every condition holds and every constant is exact or safe"),
    "as printed": ("≈", "As printed only", "the printed conditions hold, but the printed formula had to be corrected"),
    "plug-in": ("≈", "Plug-in", "every condition holds, but a constant may be on the unsafe side"),
    "contradicted": ("✗", "Contradicted by the run", "the constants cannot be those of what was run"),
    "not certified": ("✗", "Not certified", "a condition fails, so the theorem does not apply"),
}


# -- tables and facts of views -----------------------------------------------------------------------------------------


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
        case SymbolCell(name, method):
            # A definition is too long for a table, and words set as variables are not mathematics.
            long = any(word in SYMBOLS[name].latex for word in ("frac", "mathrm", "max"))
            return _render(_SYMBOL, name=name, meaning=SYMBOLS[name].meaning, long=long, method=method)
        case Kind(name, certain):
            worth = "a bound may rest on it" if certain else "a bound with it is a plug-in"
            title, safe = f"{KINDS[name]}: {worth}", "true" if certain else "false"
            return _render(_KIND, safe=safe, title=title, kind=name)
        case IntervalCell(low, high, unit):
            return Markup("{} to {} {}").format(number(low), number(high), unit) if low != high else ""
        case Held(holds):
            return _render(_HELD, holds=holds, mark=str(cell))
        case Share(value):
            return (value, str(cell))
        case Formula(text):
            return formula(text)
        case StandingCell(name):
            return standing(name)
        case Named(name):
            return name
    return cell


def html_table(shown: Table) -> Markup:
    """A table of a view; on a phone, the rows of one with many columns become cards."""
    has_symbols = any(isinstance(cell, SymbolCell) for row in shown.rows for cell in row[:1])
    kind = "estimates cards" if has_symbols and len(shown.heads) == 4 else "cards" if len(shown.heads) > 3 else ""
    kind = "brief" if shown.brief else kind
    rows = [[html_cell(cell) for cell in row] for row in shown.rows]
    html = table([_LETTERS.get(head, head) for head in shown.heads], rows, kind)
    return html + Markup('<p class="note">{}</p>').format(shown.note) if shown.note else html


def html_facts(entries: Mapping[str, Cell]) -> Markup:
    """The facts of a view."""
    return facts({_LETTERS.get(name, name): html_cell(value) for name, value in entries.items()})
