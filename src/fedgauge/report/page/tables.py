"""Tables and numbers as HTML, with everything that comes from a file escaped."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from fedgauge.web.writing import shown, written

_RIGHT = ' class="n"'


class Markup(str):
    """HTML that is written already."""

    __slots__ = ()


Cell = Markup | str | float | int | None | tuple[float, str]
"""Text, a number, a number with how it is to be written, or HTML."""


def number(value: float, text: str | None = None) -> Markup:
    """A number that a reader sees with four digits and a program with all.

    >>> number(0.123456)
    '<data value="0.123456">0.1235</data>'
    """
    if isinstance(value, int) and text is None:
        return Markup(f'<data value="{value}">{value:,}</data>')
    return Markup(f'<data value="{written(value)}">{escape(shown(value) if text is None else text)}</data>')


def cell(value: Cell) -> tuple[str, bool]:
    """The HTML of a table's cell, and whether it is a number."""
    if isinstance(value, tuple):
        return number(*value), True
    if isinstance(value, Markup):
        return value, "<data" in value
    if value is None:
        return "–", False
    if isinstance(value, bool) or not isinstance(value, int | float):
        return escape(str(value)), False
    return number(value), True


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]], kind: str = "") -> str:
    """A table whose first column names its rows.

    Args:
        heads: what the columns are.
        rows: their cells.
        kind: classes for the style; of ``cards`` each row is a card on a phone, where a table has no room.

    >>> table(("I", "loss"), [(1, 0.5)])[:54]
    '<div class="table"><table><thead><tr><th scope="col">I'
    """
    body = []
    numeric: set[int] = set()
    for row in rows:
        written_cells = [cell(value) for value in row]
        first, *rest = [text for text, _ in written_cells]
        numeric |= {place for place, (_, is_number) in enumerate(written_cells) if place and is_number}
        classes = [_RIGHT if is_number else "" for _, is_number in written_cells[1:]]
        said = [f' data-label="{escape(head)}"' if "cards" in kind else "" for head in heads[1:]]
        cells = "".join(f"<td{a}{b}>{text}</td>" for a, b, text in zip(classes, said, rest, strict=True))
        body.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    top = "".join(
        f'<th scope="col"{_RIGHT if place in numeric else ""}>{escape(head)}</th>' for place, head in enumerate(heads)
    )
    style = f' class="{kind}"' if kind else ""
    return f'<div class="table"><table{style}><thead><tr>{top}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def facts(entries: Mapping[str, Cell]) -> str:
    """Names and what they stand for, side by side."""
    rows = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{cell(value)[0]}</dd></div>"
        for name, value in entries.items()
        if value is not None and value != ""
    )
    return f'<dl class="facts">{rows}</dl>'


def notes(sentences: Iterable[str], kind: str = "note") -> str:
    """Sentences that a reader must know."""
    return "".join(f'<p class="{kind}">{escape(sentence)}</p>' for sentence in sentences if sentence)


def code(text: str) -> str:
    """Something to be typed."""
    return f"<pre><code>{escape(text)}</code></pre>"


def embedded(data: Any) -> str:
    r"""JSON for the inside of an element, which nothing in it can end.

    >>> embedded("</script>")
    '"\\u003c/script>"'
    """
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def finite(value: Any) -> Any:
    """The same with infinite and undefined numbers as text, which JSON has no other way to hold.

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
