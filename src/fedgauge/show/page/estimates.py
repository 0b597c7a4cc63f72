"""Constants as a table: value, interval, kind, and whether a bound may rest on them."""

from __future__ import annotations

from markupsafe import Markup

from fedgauge.base.symbols import SYMBOLS
from fedgauge.show.web.elements import CellValue, number, page_environment, table
from fedgauge.values import Constants, Estimate

KINDS = {
    "exact": "exact up to rounding",
    "upper": "never above this",
    "lower": "at least this, perhaps more",
    "sample": "an estimate that may err on either side",
    "assumed": "a number that nobody has measured",
}
_SYMBOL = """\
<span class="symbol">{% if long %}<code>{{ name }}</code>{% else %}{{ name | symbol }}{% endif %}</span>
{#- -#}
<small>{{ meaning }}</small>{% if method %}<small class="how">{{ method }}</small>{% endif %}"""
_KIND = '<span class="kind" data-safe="{{ safe }}" title="{{ title }}">{{ kind }}</span>'


def _render(template: str, **context: object) -> Markup:
    return Markup(page_environment("fedgauge.show.page").from_string(template).render(**context))


def symbol_cell(name: str, method: str = "") -> Markup:
    """A symbol as mathematics writes it, with its meaning beside it and how it was found below."""
    # A definition is too long for a table, and words set as variables are not mathematics.
    long = any(word in SYMBOLS[name].latex for word in ("frac", "mathrm", "max"))
    return _render(_SYMBOL, name=name, meaning=SYMBOLS[name].meaning, long=long, method=method)


def estimates_table(found: Constants) -> Markup:
    """A table of constants."""
    rows = [[symbol_cell(e.symbol, e.method), e.value, _interval(e), _kind(e)] for e in found.values()]
    return table(("constant", "value", "interval", "kind"), rows, "estimates cards")


def _interval(estimate: Estimate) -> CellValue:
    if estimate.low == estimate.high:
        return ""
    return Markup("{} to {}").format(number(estimate.low), number(estimate.high))


def _kind(estimate: Estimate) -> Markup:
    worth = "a bound may rest on it" if estimate.certain else "a bound with it is a plug-in"
    safe = "true" if estimate.certain else "false"
    return _render(_KIND, safe=safe, title=f"{KINDS[estimate.kind]}: {worth}", kind=estimate.kind)
