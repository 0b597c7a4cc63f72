"""The primitives of charts: ticks that people would choose, scales with their ends, thinning that keeps extremes."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedgauge.show.charts import HeatMap, LineChart, Mark, Row, RowChart, Series, StackedChart, StackLayer
from fedgauge.show.page.chart import Drawing, _marks, draw_lines
from fedgauge.show.page.grids import draw
from fedgauge.show.scales import AxisScale, fit, labels, log_ticks, thin, ticks
from fedgauge.show.web.elements import embedded, number, table

MARKUP = '<img src=x onerror="alert(1)">&"'
# Beyond these no number of a run lies, and differences of them are still finite.
NUMBERS = st.floats(-1e150, 1e150, allow_subnormal=False)
POSITIVE = st.floats(1e-200, 1e200)
SIZES = st.integers(2, 12)


@given(NUMBERS, NUMBERS, SIZES)
def test_ticks_are_few_round_numbers_inside(first: float, second: float, most: int) -> None:
    low, high = sorted((first, second))
    assume(high - low > 1e-9 * max(abs(low), abs(high)))
    found = ticks(low, high, most)
    assert 1 <= len(found) <= most
    assert low <= found[0]
    assert found[-1] <= high
    assert found == sorted(set(found))
    # Equally far apart, by 1, 2 or 5 times a power of ten, up to the rounding of the numbers themselves.
    steps = np.diff(found)
    for step in steps:
        assert math.isclose(step, steps[0], rel_tol=1e-5)
    if len(found) > 1:
        leading = steps[0] / 10 ** math.floor(math.log10(steps[0] * (1 + 1e-5)))
        assert any(math.isclose(leading, digit, rel_tol=1e-4) for digit in (1, 2, 5))
        # None is left out at either end.
        assert found[0] - low <= steps[0] * (1 + 1e-5)
        assert high - found[-1] <= steps[0] * (1 + 1e-5)


@given(st.integers(-300, 300), st.integers(1, 300), st.integers(-6, 6))
def test_ticks_are_the_decimals_that_are_written(start: int, span: int, power: int) -> None:
    unit = Fraction(10) ** power
    for tick in ticks(float(start * unit), float((start + span) * unit)):
        assert tick == float(f"{tick:.12g}")


@given(POSITIVE, POSITIVE, SIZES)
def test_log_ticks_are_few_and_inside(first: float, second: float, most: int) -> None:
    low, high = sorted((first, second))
    assume(high > low * (1 + 1e-6))
    found = log_ticks(low, high, most)
    assert 1 <= len(found) <= most
    assert all(low <= tick <= high for tick in found)
    assert found == sorted(set(found))
    if high >= 1000 * low and most >= 4:
        assert len(found) > 1
        assert all(f"{tick:e}"[0] in "125" for tick in found)


@given(st.lists(NUMBERS, min_size=1), st.booleans())
def test_a_scale_maps_ends_to_ends_and_keeps_the_order(values: list[float], log: bool) -> None:
    scale = fit(values, 10.0, 90.0, log=log)
    assert (scale(scale.low), scale(scale.high)) == (10.0, 90.0)
    placed = [scale(value) for value in sorted(values) if value > 0 or not log]
    assert all(10.0 - 1e-6 <= at <= 90.0 + 1e-6 for at in placed)
    # Numbers that are next to each other may fall into one place, but never change sides.
    assert all(a <= b + 1e-9 for a, b in pairwise(placed))


def test_a_scale_has_room_for_one_number_for_none_and_for_what_is_not_finite() -> None:
    assert fit([3.0], 0, 100)(3.0) == 50.0
    assert fit([0.0], 0, 100)(0.0) == 50.0
    assert fit([3.0], 0, 100, log=True)(3.0) == pytest.approx(50.0)
    assert fit([], 0, 100).low < fit([], 0, 100).high
    assert fit([math.inf, math.nan, -1.0, 2.0, 8.0], 0, 100, log=True).to_json()["low"] == 2.0
    assert AxisScale(1, 10, 100, 0)(1) == 100


def test_ticks_that_need_more_digits_get_them() -> None:
    marks = ticks(123456.1, 123456.9)
    assert len(set(labels(marks))) == len(marks) > 1


@given(st.lists(NUMBERS, min_size=1, max_size=400), st.integers(1, 30))
def test_thinning_keeps_extremes_and_ends(values: list[float], columns: int) -> None:
    kept = thin(range(len(values)), values, columns)
    assert kept == sorted(set(kept))
    assert len(kept) <= max(4 * columns, min(len(values), 4 * columns))
    assert {values[at] for at in kept} >= {min(values), max(values)}
    assert {0, len(values) - 1} <= set(kept)


def test_thinning_keeps_the_extremes_of_every_column() -> None:
    heights = np.random.default_rng(0).normal(size=100_000)
    kept = thin(range(100_000), heights.tolist(), columns=50)
    assert len(kept) <= 200
    for column in range(50):
        own = heights[column * 2000 : (column + 1) * 2000]
        drawn = {heights[at] for at in kept if column * 2000 <= at < (column + 1) * 2000}
        assert {own.min(), own.max()} <= drawn


def made() -> list[Drawing]:
    """One chart of each kind, with markup wherever a name can stand."""
    series = [
        Series(MARKUP, [0, 1, 2], [1.0, math.nan, 0.1], 0, "line", [0.5, 1, 0], [2, 3, 1]),
        Series("b", [0], [1.0]),
    ]
    items = [Row(MARKUP, MARKUP, 1.0, 0.5, math.inf, note=MARKUP), Row("b", "c", 2.0, 2.0, 2.0)]
    return [
        draw(LineChart("a", series, MARKUP, MARKUP, MARKUP, MARKUP, marks=[Mark(1, MARKUP)])),
        draw(
            StackedChart(
                "b", [1, 2], [StackLayer(MARKUP, 0, [1.0, 2.0]), StackLayer("b", 1, [0.0, 0.0])], MARKUP, MARKUP, MARKUP
            )
        ),
        draw(RowChart("c", items, note=MARKUP, title=MARKUP, x_label=MARKUP)),
        draw(HeatMap("d", [[1, 0], [2, 3]], [MARKUP, "b"], [MARKUP, "1"], MARKUP, MARKUP, MARKUP)),
    ]


@pytest.mark.parametrize("chart", made(), ids=lambda chart: str(chart.name))
def test_every_chart_escapes_names_and_holds_json(chart: Drawing) -> None:
    assert "<img" not in chart.html
    assert "<img" not in embedded(chart.data)
    assert "nan" not in re.sub(r"[^\d.a-z]", " ", chart.html).split()


def test_an_interval_that_goes_on_beyond_the_axis_ends_in_an_arrow() -> None:
    items = [
        Row("a", "x", 1.0, 0.5, math.inf),
        Row("b", "x", 2.0, 0.0, 3.0),
        Row("c", "x", 1, 1, 2),
    ]
    chart = draw(RowChart("c", items, title="", x_label=""))
    drawn = re.findall(r'class="line t0" d="([^"]*)"', chart.html)
    assert [path.count("L") for path in drawn] == [1, 1, 0]


def test_a_gap_is_a_gap() -> None:
    chart = draw(LineChart("a", [Series("f", [0, 1, 2, 3], [1.0, 2.0, math.inf, 1.0])], "", "", ""))
    drawn = re.findall(r'class="line t0" d="([^"]*)"', chart.html)
    assert [path.count("M") for path in drawn] == [2, 2]
    assert chart.data["series"][0]["y"] == [1.0, 2.0, None, 1.0]


def test_what_is_not_above_zero_has_no_place_on_a_log_axis_and_a_chart_of_nothing_else_has_none() -> None:
    assert 'class="log"' not in draw(LineChart("a", [Series("f", [0, 1], [0.0, -1.0])], "", "", "")).html
    assert 'class="log"' in draw(LineChart("a", [Series("f", [0, 1], [0.0, 1.0])], "", "", "")).html


def test_the_table_of_a_long_series_is_short_and_has_its_extremes() -> None:
    heights = [0.5] * 5000
    heights[1234], heights[4321] = 9.25, 0.125
    chart = draw_lines(LineChart("a", [Series("f", range(5000), heights)], "", "round", ""), rows=50)
    assert chart.html.count("<tr>") < 70
    assert number(9.25) in chart.html
    assert number(0.125) in chart.html


def test_layers_add_up_to_one() -> None:
    chart = draw(StackedChart("a", [1, 2], [StackLayer("x", 0, [1, 0]), StackLayer("y", 1, [3, 0])], "", "", ""))
    assert [series["share"] for series in chart.data["series"]] == [[0.25, 0.0], [0.75, 0.0]]


def test_a_table_shows_four_digits_and_holds_all() -> None:
    html = table(("a", MARKUP), [(MARKUP, 1 / 3), ("b", math.inf), ("c", None)])
    assert '<data value="0.3333333333333333">0.3333</data>' in html
    assert '<data value="Infinity">∞</data>' in html
    assert "<img" not in html


def test_a_line_that_goes_below_0_has_no_logarithmic_axis() -> None:
    def scales(*values: float) -> set[str]:
        drawn = draw(LineChart("f", [Series("f", range(len(values)), values)], "f", "round", "f"))
        return set(drawn.data["y"])

    assert scales(1.2, 0.4, -4.4) == {"linear"}
    assert scales(1.2, 0.4, 0.0) == {"linear", "log"}


def test_a_single_point_can_be_seen_and_rounds_are_whole() -> None:
    one, two = (str(draw(LineChart("f", [Series("f", range(n), [0.2] * n)], "f", "round", "f")).html) for n in (1, 2))
    path = re.findall(r'class="line t0" d="([^"]+)"', one)[0]
    across, up = ([float(pair[axis]) for pair in re.findall(r"([\d.]+) ([\d.]+)", path)] for axis in (0, 1))
    assert max(across) - min(across) == max(up) - min(up) == 4
    for page in (one, two):
        written = re.findall(r'class="tick[^"]*" text-anchor="middle">([^<]+)<', page)
        assert written
        assert all(label in ("0", "1") for label in written)


def test_no_line_of_a_mark_crosses_the_label_of_another() -> None:
    scale = AxisScale(1, 16, 66, 500, log=True)
    admitted, run = _marks([Mark(3, "admitted"), Mark(4, "the run")], scale)
    assert (admitted.is_right, run.is_right) == (True, False)
    assert (admitted.down, run.down) == (0.0, 0.0)
