"""Every chart of the page, whatever its numbers: each coordinate lies inside the box of the chart."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from fedgauge.show.charts import HeatMap, LineChart, Mark, Row, RowChart, Series, StackedChart, StackLayer
from fedgauge.show.page.chart import Drawing
from fedgauge.show.page.grids import draw as draw_chart

EXTREMES = [math.inf, -math.inf, math.nan, 0.0, -0.0, 5e-324, 1e-300, 1e300, -1e300, 1.7976931348623157e308, 1.0, -1.0]
NUMBERS = st.one_of(st.sampled_from(EXTREMES), st.floats(), st.floats(0.001, 1000.0))
COUNTS = st.integers(1, 7)
WORDS: Any = {"title": "t", "x_label": "x", "y_label": "y"}


def pictures(chart: Drawing) -> Iterator[tuple[ElementTree.Element, float, float]]:
    """The pictures of a chart, with their widths and heights."""
    for text in re.findall(r"<svg.*?</svg>", str(chart.html), flags=re.DOTALL):
        picture = ElementTree.fromstring(text)
        _, _, width, height = map(float, picture.attrib["viewBox"].split())
        yield picture, width, height


def corners(path: str) -> Iterator[tuple[float, float]]:
    """The points that a path goes through; of its commands, those that our pictures use."""
    x = y = 0.0
    for command, rest in re.findall(r"([MLHVhvlZz])([^MLHVhvlZz]*)", path):
        numbers = [float(number) for number in re.findall(r"-?(?:nan|inf|[\d.]+(?:e[-+]?\d+)?)", rest)]
        match command:
            case "M" | "L":
                for x, y in zip(numbers[::2], numbers[1::2], strict=True):
                    yield x, y
            case "l":
                x, y = x + numbers[0], y + numbers[1]
            case "H":
                x = numbers[0]
            case "V":
                y = numbers[0]
            case "h":
                x += numbers[0]
            case "v":
                y += numbers[0]
        yield x, y


def points(picture: ElementTree.Element) -> Iterator[tuple[float, float]]:
    """The points of everything that a picture draws."""
    for each in picture.iter():
        at = {
            name: float(each.attrib[name]) for name in ("x", "y", "cx", "cy", "width", "height") if name in each.attrib
        }
        if "d" in each.attrib:
            yield from corners(each.attrib["d"])
        elif "cx" in at:
            yield at["cx"], at["cy"]
        elif each.tag in ("rect", "text"):
            yield at["x"], at["y"]
            assert at.get("width", 0.0) >= 0 <= at.get("height", 0.0)
            yield at["x"] + at.get("width", 0.0), at["y"] + at.get("height", 0.0)


def data_of(picture: ElementTree.Element) -> Iterator[tuple[float, float]]:
    """The points of its lines, bands, layers and intervals alone."""
    for each in picture.iter():
        if set(each.attrib.get("class", "").split()) & {"line", "dashed", "steps", "dots", "area", "band", "mark"}:
            yield from (
                corners(each.attrib["d"])
                if "d" in each.attrib
                else [(float(each.attrib["cx"]), float(each.attrib["cy"]))]
            )


def axes_of(picture: ElementTree.Element) -> tuple[float, float, float, float]:
    """The box that the grid and the axes of a picture span."""
    found = [
        point
        for each in picture.iter()
        if each.attrib.get("class") in ("grid", "base")
        for point in corners(each.attrib["d"])
    ]
    across, down = zip(*found, strict=True)
    return min(across), max(across), min(down), max(down)


def check(chart: Drawing) -> None:
    said = re.sub(r"<details>.*?</details>", "", str(chart.html), flags=re.DOTALL)
    assert "<svg" in said or "No picture:" in said
    for picture, width, height in pictures(chart):
        for x, y in points(picture):
            assert 0 <= x <= width, chart.html
            assert 0 <= y <= height, chart.html
        if chart.data["kind"] != "cells":
            left, right, top, bottom = axes_of(picture)
            for x, y in data_of(picture):
                assert left - 0.1 <= x <= right + 0.1, chart.html
                assert min(top, 34) - 0.1 <= y <= bottom + 0.1, chart.html


@st.composite
def columns(draw: st.DrawFn, number: int) -> Sequence[list[float]]:
    count = draw(COUNTS)
    return [draw(st.lists(NUMBERS, min_size=count, max_size=count)) for _ in range(number)]


@given(st.lists(columns(4), min_size=1, max_size=3), st.booleans(), st.lists(NUMBERS, max_size=3))
def test_lines_and_bands_stay_inside(given: list[list[list[float]]], log_x: bool, at: list[float]) -> None:
    series = [Series(f"s{i}", x, y, i, "steps", low, high) for i, (x, y, low, high) in enumerate(given)]
    check(draw_chart(LineChart("a", series, log_x=log_x, marks=[Mark(x, "here") for x in at], **WORDS)))


@given(columns(4), st.booleans(), st.lists(NUMBERS, max_size=3))
def test_layers_stay_inside(given: list[list[float]], log_x: bool, at: list[float]) -> None:
    x, *heights = given
    layers = [StackLayer(f"l{i}", i, each) for i, each in enumerate(heights)]
    chart = draw_chart(StackedChart("a", x, layers, log_x=log_x, marks=[Mark(x, "here") for x in at], **WORDS))
    check(chart)
    if chart.data["kind"] == "stacked":
        shares = [sum(each) for each in zip(*(one["share"] for one in chart.data["series"]), strict=True)]
        assert all(0 <= share <= 1 + 1e-9 for share in shares)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, st.sampled_from("abc")), min_size=1, max_size=6), st.booleans())
def test_intervals_stay_inside(given: list[tuple[float, float, float, str]], log: bool) -> None:
    items = []
    for number, (*ends, row) in enumerate(given):
        low, value, high = sorted(ends, key=lambda end: -math.inf if math.isnan(end) else end)
        items.append(Row(row, f"s{number}", value, low, high))
    check(draw_chart(RowChart("a", items, title="t", x_label="x", log=log)))
    check(draw_chart(RowChart("a", items, title="t", x_label="x", bars=True)))


@given(columns(3))
def test_heat_maps_stay_inside(given: list[list[float]]) -> None:
    values = [[abs(value) for value in row] for row in given]
    names = [str(number) for number in range(len(values[0]))]
    check(draw_chart(HeatMap("a", values, "abc", names, title="t", row_label="row", column_label="column")))


def test_terms_that_are_infinite_are_a_sentence_and_not_a_picture() -> None:
    layers = [StackLayer(name, number, [math.inf, math.inf]) for number, name in enumerate("abcde")]
    chart = draw_chart(StackedChart("terms", [1, 64], layers, "Terms", "local steps I", "bound"))
    assert "<svg" not in chart.html
    assert "the bound has no finite value for any of these local steps I" in chart.html


def test_terms_that_become_infinite_end_where_they_do() -> None:
    layers = [StackLayer("a", 0, [1.0, 2.0, math.inf, math.inf]), StackLayer("b", 1, [1.0, 2.0, 3.0, math.inf])]
    chart = draw_chart(StackedChart("terms", [1, 2, 4, 8], layers, "Terms", "local steps I", "bound"))
    assert "From 4 on, the bound has no finite value." in chart.html
    assert [series["x"] for series in chart.data["series"]] == [[1, 2], [1, 2]]
