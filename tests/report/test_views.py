"""Every result has a view, and a chart is the same on a page and in a picture."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.report.test_notebook import KINDS, made

from fedgauge.show import console, pictures
from fedgauge.show.charts import Chart, HeatMap, LineChart, Mark, Row, RowChart, Series, StackedChart, StackLayer
from fedgauge.show.displays import text
from fedgauge.show.page.grids import draw
from fedgauge.show.views import View, view
from fedgauge.show.web.elements import html_table

WORDS = st.text("abcdefghij", min_size=1, max_size=8)
NUMBERS = st.floats(0.01, 100.0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_result_has_a_view_that_all_renderers_show(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = made(kind)
    shown = view(result)
    assert isinstance(shown, View)
    assert shown.sentences
    assert all(sentence.strip() for sentence in (*shown.sentences, *shown.notes))
    assert shown.sentences[0] != repr(result)
    assert shown.charts
    for table in shown.tables:
        assert all(len(row) == len(table.heads) for row in table.rows)
        assert str(html_table(table)).startswith('<div class="table">')
    console.show(shown)
    printed = capsys.readouterr().out
    notebook = re.sub(r"\s+", " ", unescape(re.sub("<[^>]*>", "", result._repr_html_())))
    for sentence in shown.sentences:
        words = " ".join(sentence.split())
        assert words in " ".join(printed.split())
        assert words in notebook
    # What is printed of a gauge is its answer alone.
    assert shown.sentences[0][:60] in text(result).replace("\n", " ")


# -- one chart, two drawings -----------------------------------------------------------------------------------------


@st.composite
def lines(draw: st.DrawFn) -> LineChart:
    names = draw(st.lists(WORDS, min_size=2, max_size=4, unique=True))
    x = sorted(draw(st.lists(NUMBERS, min_size=2, max_size=6, unique=True)))
    heights = st.lists(NUMBERS, min_size=len(x), max_size=len(x))
    styles: Any = st.sampled_from(["line", "dashed", "steps", "dots"])
    series = [Series(name, x, draw(heights), draw(st.integers(0, 8)), draw(styles)) for name in names]
    title, x_label, y_label = (draw(WORDS) for _ in range(3))
    how: Any = {"log": draw(st.booleans()), "log_x": draw(st.booleans()), "marks": [Mark(x[0], draw(WORDS))]}
    return LineChart("a", series, title, x_label, y_label, **how)


@st.composite
def layers(draw: st.DrawFn) -> StackedChart:
    names = draw(st.lists(WORDS, min_size=2, max_size=4, unique=True))
    x = sorted(draw(st.lists(NUMBERS, min_size=2, max_size=6, unique=True)))
    heights = st.lists(NUMBERS, min_size=len(x), max_size=len(x))
    stack = [StackLayer(name, draw(st.integers(0, 7)), draw(heights)) for name in names]
    return StackedChart("a", x, stack, draw(WORDS), draw(WORDS), draw(WORDS), marks=[Mark(x[0], draw(WORDS))])


@st.composite
def rows(draw: st.DrawFn) -> RowChart:
    names = draw(st.lists(WORDS, min_size=2, max_size=4, unique=True))
    colours = draw(st.lists(st.integers(0, 7), min_size=len(names), max_size=len(names)))
    held = []
    for name, colour in zip(names, colours, strict=True):
        low, value, high = sorted(draw(st.tuples(NUMBERS, NUMBERS, NUMBERS)))
        held.append(Row(draw(WORDS), name, value, low, high, colour))
    return RowChart("a", held, draw(WORDS), draw(WORDS), log=draw(st.booleans()), bars=draw(st.booleans()))


def legend_of(axes: Any) -> dict[str, str]:
    """The names in a picture's legend with their colours."""
    from matplotlib.colors import to_hex

    found = {}
    for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
        drawn = handle[0] if isinstance(handle, tuple) else handle
        colour = drawn.get_color() if hasattr(drawn, "get_color") else drawn.get_facecolor()
        found[name] = to_hex(colour)
    return found


def keys_of(html: str) -> dict[str, str]:
    """The names in a page's legend with their colours, as pictures have them."""
    keys = re.findall(r'<i class="key t(\d)[^"]*" aria-hidden="true"></i>([^<]*)<', html)
    return {name: pictures.COLOURS[int(number)] for number, name in keys}


@given(st.one_of(lines(), layers(), rows()))
@settings(max_examples=30)
def test_a_page_and_a_picture_have_the_same_labels_names_and_colours(chart: Chart) -> None:
    html, sheet = str(draw(chart).html), pictures.Sheet()
    pictures.draw([chart], sheet)
    axes: Any = sheet.figure.axes[0]
    assert list(keys_of(html).items()) == [
        (name, colour) for name, colour in legend_of(axes).items() if name in chart.names
    ]
    assert re.findall("<h3>(.*?)</h3>", html) == [axes.get_title()]
    written = set(re.findall(r"<text [^>]*>([^<]*)</text>", html))
    labels = {axes.get_xlabel(), *([] if isinstance(chart, RowChart) else [axes.get_ylabel()])}
    if isinstance(chart, StackedChart):
        assert "as heights" in html
    if isinstance(chart, LineChart):
        assert ("data-axis checked" in html) == (axes.get_yscale() == "log")
        assert chart.log_x == (axes.get_xscale() == "log")
    marks = {each.get_text() for each in axes.texts}
    assert labels | marks <= written


def test_a_heat_map_has_the_same_rows_and_columns() -> None:
    chart = HeatMap("a", [[1.0, 0.0], [2.0, 3.0]], ["one", "two"], ["x", "y"], "t", "label", "worker", "A note.")
    html, sheet = str(draw(chart).html), pictures.Sheet()
    pictures.draw([chart], sheet)
    axes = sheet.figure.axes[0]
    ticks = [label.get_text() for side in (axes.get_yticklabels(), axes.get_xticklabels()) for label in side]
    assert ticks == ["one", "two", "x", "y"]
    written = re.findall(r"<text [^>]*>([^<]*)</text>", html)
    assert set(ticks) <= set(written)
    assert "A note." in html
    assert "A note." in [each.get_text() for each in axes.texts]
