"""Line charts and stacked charts as self-contained SVG.

The numbers of a chart appear in three places: in the picture, in a table below it, and in the data from which the
script shows what is under the pointer. All three are written from the same series, so that they cannot differ. Check
boxes and CSS decide which series are shown and which axis is used, so that both work without JavaScript. Positions are
computed here, and ``templates/charts.html`` writes the SVG.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from markupsafe import Markup

from fedgauge.show.charts import Chart, LineChart, Mark, Series, StackedChart, is_narrow
from fedgauge.show.scales import AxisScale, fit, labels, thin
from fedgauge.show.web.elements import CellValue, notes, page_environment, place, table

WIDTH, HEIGHT = 520, 316
_LEFT, RIGHT, TOP, _BOTTOM = 66.0, 500.0, 34.0, 264.0
LETTER = 10.2
"""The width of a letter in a picture on a phone, on which letters are largest."""
_SMALL_LETTER = 7.3  # elsewhere
_LINE = 20.0  # the height of a line of words
_BAR = 6.0  # half the width of a band or a layer that has a single point
_DOT = 2.0  # half the width of a single point, without the width of the line around it
_ROWS = 400  # of the table below a chart


@dataclass(frozen=True)
class Drawing:
    """A chart on a page: its name there, its HTML, and the data for what is shown under the pointer."""

    name: str
    html: Markup
    data: dict[str, Any] = field(default_factory=dict)


class Tick(NamedTuple):
    """A tick of an axis: its position, its label, the CSS class of the label, and the position of its middle."""

    at: float
    label: str
    kind: str
    middle: float


class DrawnMark(NamedTuple):
    """A mark, the side on which there is room for its label, and how far down the label is."""

    at: float
    label: str
    is_right: bool
    down: float


class DrawnSeries(NamedTuple):
    """A series as SVG paths."""

    group: int
    colour: int
    style: str
    path: str
    band: str = ""
    dots: str = ""


# -- the parts of a picture --------------------------------------------------------------------------------------


@functools.cache
def macros() -> Any:
    """The macros of ``templates/charts.html``."""
    return page_environment("fedgauge.show.page").get_template("charts.html").module


def ticks_of(scale: AxisScale, whole: bool = False) -> list[Tick]:
    """The ticks of an axis from left to right, as many as have room; every other label is hidden on a phone.

    Args:
        scale: the axis.
        whole: whether what it counts has no fractions, such as rounds.
    """
    for most in (6, 5, 4, 3, 2):
        marks = [mark for mark in scale.ticks(most) if not whole or mark.is_integer()] or scale.ticks(most)
        words = labels(marks)
        ticks = [
            Tick(at, label, "tick odd" if number % 2 else "tick", min(at, WIDTH - len(label) * LETTER / 2))
            for number, (at, label) in enumerate(zip(map(scale, marks), words, strict=True))
        ]
        if _apart(ticks, _SMALL_LETTER) and _apart(ticks[::2], LETTER):
            return ticks
    return ticks[:1]


def _ticks_at(scale: AxisScale, places: Iterable[float]) -> list[Tick]:
    """A tick at every place where a line has a point, such as the local steps that were tried; none without room."""
    marks = sorted(place for place in places if drawable(place, scale))
    words = [f"{mark:g}" for mark in marks]
    ticks = [
        Tick(at, label, "tick odd" if number % 2 else "tick", min(at, WIDTH - len(label) * LETTER / 2))
        for number, (at, label) in enumerate(zip(map(scale, marks), words, strict=True))
    ]
    fits = len(marks) > 1 and _apart(ticks, _SMALL_LETTER) and _apart(ticks[::2], LETTER)
    return ticks if fits and max(map(len, words)) <= 6 else []


def _apart(ticks: Sequence[Tick], letter: float) -> bool:
    """Whether there is a gap between each label and the next."""
    return all(
        other.middle - one.middle > letter * (len(one.label) + len(other.label) + 1) / 2
        for one, other in pairwise(ticks)
    )


def _heights_of(scale: AxisScale) -> list[Tick]:
    """The ticks of an axis from the bottom up, of which every label is shown."""
    marks = scale.ticks(6)
    return [Tick(scale(mark), label, "tick", 0.0) for mark, label in zip(marks, labels(marks), strict=True)]


def _left(scales: Iterable[AxisScale]) -> float:
    """Where the x axis begins, so that the labels of the y axis have room before it."""
    longest = max(len(tick.label) for scale in scales for tick in _heights_of(scale))
    return max(_LEFT, 10 + LETTER * longest)


def _marks(marks: Iterable[Mark], x: AxisScale) -> list[DrawnMark]:
    """The marks on the axis; labels that would cover one another are below one another."""
    drawn, taken = [], list[tuple[int, float, float]]()
    shown_marks = sorted((mark for mark in marks if x.low <= mark.x <= x.high), key=lambda each: each.x)
    for mark in shown_marks:
        at, wide = x(mark.x), LETTER * (len(mark.label) + 1)
        is_right = _is_right(at, wide, [x(each.x) for each in shown_marks], x)
        begin, end = (at - wide, at) if is_right else (at, at + wide)
        row = next(row for row in itertools.count() if not any(r == row and a < end and begin < b for r, a, b in taken))
        taken.append((row, begin, end))
        drawn.append(DrawnMark(at, mark.label, is_right, _LINE * row))
    return drawn


def _is_right(at: float, wide: float, lines: Sequence[float], x: AxisScale) -> bool:
    """Whether a label ends at its line rather than begins there: where no other line crosses it, if it can be."""
    likely = at > (x.start + x.end) / 2
    for is_right in (likely, not likely):
        begin, end = (at - wide, at) if is_right else (at, at + wide)
        if x.start <= begin and end <= x.end and not any(begin < line < end for line in lines if line != at):
            return is_right
    return likely


def drawable(number: float | None, scale: AxisScale) -> bool:
    """Whether a number can be drawn on an axis."""
    return number is not None and math.isfinite(number) and (number >= sys.float_info.min or not scale.log)


def _path(places: Sequence[float], heights: Sequence[float], x: AxisScale, y: AxisScale, steps: bool = False) -> str:
    """The path of a line, with a gap wherever a number cannot be drawn."""
    parts: list[str] = []
    points = zip(places, heights, strict=True)
    for is_drawn, run in itertools.groupby(points, lambda point: drawable(point[0], x) and drawable(point[1], y)):
        if not is_drawn:
            continue
        first, *rest = [(x(a), y(b)) for a, b in run]
        parts.append(f"M{place(first[0])} {place(first[1])}" if rest else _dot(*first, x, y))
        parts += [f"H{place(at)}V{place(up)}" if steps else f"L{place(at)} {place(up)}" for at, up in rest]
    return "".join(parts)


def _dot(at: float, up: float, x: AxisScale, y: AxisScale) -> str:
    """The path of a single point, large enough to be seen, inside the axes."""
    left, right = place(max(at - _DOT, x.start)), place(min(at + _DOT, x.end))
    over, under = place(max(up - _DOT, y.end)), place(min(up + _DOT, y.start))
    return f"M{left} {place(up)}L{place(at)} {over}L{right} {place(up)}L{place(at)} {under}Z"


def _dots(one: Series, x: AxisScale, y: AxisScale) -> str:
    """The path of the points of a series."""
    points = zip(one.x, one.y, strict=True)
    return "".join(_dot(x(a), y(b), x, y) for a, b in points if drawable(a, x) and drawable(b, y))


def _area(places: Sequence[float], lows: Sequence[float], highs: Sequence[float], x: AxisScale, y: AxisScale) -> str:
    """The path of a band or a layer, with a gap wherever an edge is missing; infinite edges are those of the axis."""

    def has_place(a: float, low: float, high: float) -> bool:
        known = low is not None and high is not None and not math.isnan(low) and not math.isnan(high)
        return drawable(a, x) and known and (high >= y.low or not y.log)

    points = zip(places, lows, highs, strict=True)
    parts = []
    for is_drawn, run in itertools.groupby(points, lambda point: has_place(*point)):
        if not is_drawn:
            continue
        chosen = [(x(a), y.nearest(low), y.nearest(high)) for a, low, high in run]
        if len(chosen) == 1:
            at, low, high = chosen[0]
            chosen = [(max(at - _BAR, x.start), low, high), (min(at + _BAR, x.end), low, high)]
        there = "L".join(f"{place(a)} {place(high)}" for a, _, high in chosen)
        back = "L".join(f"{place(a)} {place(low)}" for a, low, _ in reversed(chosen))
        parts.append(f"M{there}L{back}Z")
    return "".join(parts)


def plain(number: float | None) -> float | None:
    """A number for JSON; None if it is not finite.

    >>> plain(0.5), plain(math.inf)
    (0.5, None)
    """
    return number if number is not None and math.isfinite(number) else None


# -- charts ------------------------------------------------------------------------------------------------------


def figure_of(
    chart: Chart, pictures: Markup, numbers: Markup, legend: Sequence[tuple[str, str]] = (), **how: Any
) -> Markup:
    """A chart's pictures with its title, its note, its legend and its numbers."""
    html: Markup = macros().figure(chart.name, chart.title, chart.full_note, pictures, legend, numbers, **how)
    return html


def without_picture(chart: Chart, numbers: Markup) -> Drawing:
    """A chart whose numbers no picture can show: a sentence, and the numbers."""
    return Drawing(chart.name, figure_of(chart, Markup(), numbers), {"kind": "none"})


def thinned(series: Series) -> Series:
    """A series reduced to as many points as a screen can show; extremes stay."""
    placed = [index for index, x in enumerate(series.x) if math.isfinite(x)]
    heights = [0.0 if (y := series.y[index]) is None or not math.isfinite(y) else y for index in placed]
    chosen = thin([series.x[index] for index in placed], heights)

    def some(numbers: Sequence[float]) -> tuple[float, ...]:
        return tuple(numbers[placed[index]] for index in chosen) if numbers else ()

    return replace(series, x=some(series.x), y=some(series.y), low=some(series.low), high=some(series.high))


def draw_lines(chart: LineChart, rows: int = _ROWS) -> Drawing:
    """Draw lines, with bands around those that have them; the reader can choose a logarithmic or a plain y axis.

    Args:
        chart: what is drawn; its series are reduced to as many points as a screen can show.
        rows: the largest number of rows in the table.

    >>> drawing = draw_lines(LineChart("loss", [Series("f", [0, 1, 2], [1.0, 0.5, 0.25])], "Loss", "round", "f"))
    >>> drawing.data["series"][0]["y"], drawing.html.count("<svg")
    ([1.0, 0.5, 0.25], 2)
    """
    numbers = _numbers([thinned(one) for one in chart.series], chart.x_label, rows)
    drawn, names = [thinned(one) for one in chart.drawn], chart.names
    if not drawn:
        return without_picture(chart, numbers)
    places = [at for one in drawn for at in (*one.x, *(mark.x for mark in chart.marks))]
    heights = [up for one in drawn for up in (*one.y, *one.low, *one.high)]
    scales = {"linear": fit(heights, _BOTTOM, TOP, zero=not is_narrow(heights))}
    if chart.can_be_log:
        scales = {"log": fit(heights, _BOTTOM, TOP, log=True), **scales}
    x = fit(places, _left(scales.values()), RIGHT, log=chart.log_x)
    hint = f"{chart.title}: {', '.join(names)} against {chart.x_label}"
    across = _ticks_at(x, {at for one in drawn for at in one.x}) if chart.log_x else []
    across = across or ticks_of(x, all(map(float.is_integer, map(float, places))))
    pictures = []
    for kind, y in scales.items():
        paths = [
            DrawnSeries(
                names.index(one.name),
                one.colour,
                one.style,
                "" if one.style == "dots" else _path(one.x, one.y, x, y, steps=one.style == "steps"),
                _area(one.x, one.low, one.high, x, y) if one.low else "",
                _dots(one, x, y) if one.has_dots else "",
            )
            for one in drawn
        ]
        axes = x, y, across, _heights_of(y), chart.x_label, chart.y_label
        pictures.append(macros().lines_picture(kind, hint, *axes, paths, _marks(chart.marks, x), WIDTH, HEIGHT))
    colours = {one.name: f"t{one.colour} {one.style}" for one in reversed(drawn)}
    legend = [(one, colours[one]) for one in names] if len(names) > 1 else []
    switch = "log axis" if len(scales) == 2 else None
    html = figure_of(chart, Markup("").join(pictures), numbers, legend, switch=switch, is_on=chart.log)
    data = {
        "kind": "lines",
        "label": chart.x_label,
        "x": x.to_json(),
        "y": {kind: y.to_json() for kind, y in scales.items()},
        "series": [
            {
                "name": one.name,
                "group": names.index(one.name),
                "colour": one.colour,
                "x": list(one.x),
                "y": [plain(up) for up in one.y],
                **({"low": [plain(n) for n in one.low], "high": [plain(n) for n in one.high]} if one.low else {}),
            }
            for one in drawn
        ],
    }
    return Drawing(chart.name, html, data)


def _numbers(series: Sequence[Series], x_label: str, most: int) -> Markup:
    """The table below a chart: one row per x value, or only some of them if there are too many."""
    places = sorted({at for one in series for at in one.x})
    chosen = places
    if len(places) > most:
        # Keep the extremes of every line, and evenly spaced points between them.
        step = math.ceil(len(places) / (most // 2))
        ends = {one.x[at] for one in series for at in _extremes(one.y)}
        chosen = sorted({*places[::step], places[-1], *ends})
    looked_up = [dict(zip(one.x, one.y, strict=True)) for one in series]
    rows: list[list[CellValue]] = [
        [at, *(found.get(at, "") if found.get(at, "") is not None else "" for found in looked_up)] for at in chosen
    ]
    some = [f"{len(chosen)} of {len(places)} rows, including the extremes."] if len(chosen) < len(places) else []
    return notes(some) + table((x_label, *(one.name for one in series)), rows)


def _extremes(numbers: Sequence[float]) -> list[int]:
    finite = [(number, at) for at, number in enumerate(numbers) if number is not None and math.isfinite(number)]
    return [min(finite)[1], max(finite)[1]] if finite else []


def draw_layers(chart: StackedChart) -> Drawing:
    """Draw layers on top of each other; the reader can choose between heights and shares of the whole.

    >>> from fedgauge.show.charts import StackLayer
    >>> layers = [StackLayer("a", 0, [1, 1]), StackLayer("b", 1, [0, 3])]
    >>> draw_layers(StackedChart("terms", [1, 2], layers, "T", "I", "bound")).data["series"][1]["share"]
    [0.0, 0.75]
    """
    x, layers, totals, chosen = chart.x, chart.layers, chart.totals, chart.places
    rows: list[list[CellValue]] = [
        [at, *(layer.heights[index] for layer in layers), totals[index]] for index, at in enumerate(x)
    ]
    numbers = table((chart.x_label, *chart.names, "all"), rows)
    if not chosen:
        return without_picture(chart, numbers)
    stacks, parts = chart.stacks(False), chart.stacks(True)
    # The switch is the same in all charts: when it is on, it shows the picture with the class "log".
    kinds: dict[str, tuple[Sequence[Sequence[float]], AxisScale, str]] = {
        "log": (stacks, fit([0.0, *(totals[i] for i in chosen)], _BOTTOM, TOP), chart.y_label),
        "linear": (parts, AxisScale(0.0, 1.0, _BOTTOM, TOP), "share of the whole"),
    }
    places = fit(x, _left(y for _, y, _ in kinds.values()), RIGHT, log=chart.log_x)
    hint = f"{chart.title}: {', '.join(chart.names)} against {chart.x_label}"
    pictures = []
    for kind, (all_heights, y, label) in kinds.items():
        drawn, below = [], [0.0] * len(x)
        for number, (layer, heights) in enumerate(zip(layers, all_heights, strict=True)):
            above = [b + h for b, h in zip(below, heights, strict=True)]
            drawn.append(DrawnSeries(number, layer.colour, "area", _area(x, below, above, places, y)))
            below = above
        axes = places, y, ticks_of(places), _heights_of(y), chart.x_label, label
        pictures.append(macros().layers_picture(kind, hint, *axes, drawn, _marks(chart.marks, places), WIDTH, HEIGHT))
    legend = [(layer.name, f"t{layer.colour}") for layer in layers]
    how = {"switch": "as heights", "is_on": not chart.shares, "plain_keys": True}
    data = {
        "kind": "stacked",
        "label": chart.x_label,
        "x": places.to_json(),
        "edges": [_BOTTOM, TOP],
        "series": [
            {
                "name": layer.name,
                "colour": layer.colour,
                "x": [x[i] for i in chosen],
                "y": [layer.heights[i] for i in chosen],
                "share": [part[i] for i in chosen],
            }
            for layer, part in zip(layers, parts, strict=True)
        ],
    }
    return Drawing(chart.name, figure_of(chart, Markup("").join(pictures), numbers, legend, **how), data)
