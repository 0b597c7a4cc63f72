"""Charts as self-contained SVG: lines with bands, and stacked areas.

The numbers of a chart appear in three places: in the picture, in a table below it, and in the data from which the
script shows what is under the pointer. All three are written from the same series, so that they cannot differ. Check
boxes and CSS decide which series are shown and which axis is used, so that both work without JavaScript. Positions are
computed here, and ``templates/charts.html`` writes the SVG.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from markupsafe import Markup

from fedgauge.report.page.scales import AxisScale, fit, labels, thin
from fedgauge.web.elements import CellValue, notes, page_environment, table
from fedgauge.web.templates import place

WIDTH, HEIGHT = 520, 304
_LEFT, RIGHT, TOP, _BOTTOM = 66.0, 510.0, 26.0, 256.0
OTHERS = 8
"""The colour number of series that are shown only for comparison; 0 to 7 are the explorer's colours."""

Style = Literal["line", "dashed", "dots", "steps"]


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes:
        name: the name in the legend; series with the same name are shown and hidden together.
        x: the x values, in increasing order.
        y: the y values; a value that is not finite leaves a gap.
        colour: the number of its colour in the palette.
        style: how the line is drawn.
        low: the lower edge of a band around the line.
        high: the upper edge of that band.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int = 0
    style: Style = "line"
    low: Sequence[float] = ()
    high: Sequence[float] = ()

    def thinned(self) -> Series:
        """The series reduced to as many points as a screen can show; extremes are kept."""
        finite = [0.0 if y is None or not math.isfinite(y) else y for y in self.y]
        kept = thin(self.x, finite)

        def some(numbers: Sequence[float]) -> tuple[float, ...]:
            return tuple(numbers[index] for index in kept) if numbers else ()

        return replace(self, x=some(self.x), y=some(self.y), low=some(self.low), high=some(self.high))


@dataclass(frozen=True)
class Mark:
    """A position on the x axis that gets a vertical line and a label."""

    x: float
    label: str


@dataclass(frozen=True)
class Chart:
    """A figure: its name on the page, its HTML, and the data for what is shown under the pointer."""

    name: str
    html: Markup
    data: dict[str, Any] = field(default_factory=dict)


class Tick(NamedTuple):
    """A tick of an axis: its position, its label, and the CSS class of the label."""

    at: float
    label: str
    kind: str = "tick"


class DrawnMark(NamedTuple):
    """A mark, and the side on which there is room for its label."""

    at: float
    label: str
    is_right: bool


class DrawnSeries(NamedTuple):
    """A series as SVG paths."""

    group: int
    colour: int
    style: str
    path: str
    band: str = ""


# -- the parts of a picture --------------------------------------------------------------------------------------


@functools.cache
def macros() -> Any:
    """The macros of ``templates/charts.html``."""
    return page_environment("fedgauge.report.page").get_template("charts.html").module


def ticks_of(scale: AxisScale, alternate: bool = False) -> list[Tick]:
    """The ticks of an axis; with ``alternate``, every other label is hidden on screens with large letters."""
    marks = scale.ticks(6)
    return [
        Tick(scale(mark), label, "tick odd" if alternate and number % 2 else "tick")
        for number, (mark, label) in enumerate(zip(marks, labels(marks), strict=True))
    ]


def _marks(marks: Iterable[Mark], x: AxisScale) -> list[DrawnMark]:
    middle = (x.start + x.end) / 2
    return [DrawnMark(x(mark.x), mark.label, x(mark.x) > middle) for mark in marks if x.low <= mark.x <= x.high]


def drawable(number: float | None, scale: AxisScale) -> bool:
    """Whether a number can be drawn on an axis."""
    return number is not None and math.isfinite(number) and (number > 0 or not scale.log)


def _path(places: Sequence[float], heights: Sequence[float], x: AxisScale, y: AxisScale, steps: bool = False) -> str:
    """The path of a line, with a gap wherever a number cannot be drawn."""
    parts: list[str] = []
    is_drawing = False
    for a, b in zip(places, heights, strict=True):
        if not (drawable(a, x) and drawable(b, y)):
            is_drawing = False
            continue
        at, up = place(x(a)), place(y(b))
        if is_drawing:
            parts.append(f"H{at}V{up}" if steps else f"L{at} {up}")
        else:
            parts.append(f"M{at} {up}h0")  # a single point is a dot
        is_drawing = True
    return "".join(parts)


def _area(places: Sequence[float], lows: Sequence[float], highs: Sequence[float], x: AxisScale, y: AxisScale) -> str:
    kept = [
        (x(a), y(max(b, y.low)), y(min(c, y.high)))
        for a, b, c in zip(places, lows, highs, strict=True)
        if drawable(a, x) and b is not None and drawable(c, y)
    ]
    if len(kept) < 2:
        return ""
    there = "L".join(f"{place(a)} {place(c)}" for a, _, c in kept)
    back = "L".join(f"{place(a)} {place(b)}" for a, b, _ in reversed(kept))
    return f"M{there}L{back}Z"


def plain(number: float | None) -> float | None:
    """A number for JSON; None if it is not finite.

    >>> plain(0.5), plain(math.inf)
    (0.5, None)
    """
    return number if number is not None and math.isfinite(number) else None


# -- charts ------------------------------------------------------------------------------------------------------


def lines(
    name: str,
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    note: str = "",
    log: bool = True,
    log_x: bool = False,
    marks: Sequence[Mark] = (),
    rows: int = 400,
) -> Chart:
    """Draw lines, with bands around those that have them; the reader can choose a logarithmic or a plain y axis.

    Args:
        name: the name of the chart on the page.
        series: the lines; they are reduced to as many points as a screen can show.
        title: the title above the picture.
        x_label: the label of the x axis.
        y_label: the label of the y axis.
        note: a sentence below the title.
        log: whether the logarithmic y axis is shown first.
        log_x: whether the x axis is logarithmic.
        marks: positions on the x axis with a line and a label.
        rows: the largest number of rows in the table.

    >>> chart = lines("loss", [Series("f", [0, 1, 2], [1.0, 0.5, 0.25])], title="Loss", x_label="round", y_label="f")
    >>> chart.data["series"][0]["y"], chart.html.count("<svg")
    ([1.0, 0.5, 0.25], 2)
    """
    drawn = [one.thinned() for one in series]
    names = list(dict.fromkeys(one.name for one in drawn))
    places = [at for one in drawn for at in (*one.x, *(mark.x for mark in marks))]
    heights = [up for one in drawn for up in (*one.y, *one.low, *one.high)]
    x = fit(places, _LEFT, RIGHT, log=log_x)
    scales = {"linear": fit(heights, _BOTTOM, TOP, zero=not _narrow(heights))}
    if any(up is not None and math.isfinite(up) and up > 0 for up in heights):
        scales = {"log": fit(heights, _BOTTOM, TOP, log=True), **scales}
    hint = f"{title}: {', '.join(names)} against {x_label}"
    pictures = []
    for kind, y in scales.items():
        paths = [
            DrawnSeries(
                names.index(one.name),
                one.colour,
                one.style,
                _path(one.x, one.y, x, y, steps=one.style == "steps"),
                _area(one.x, one.low, one.high, x, y) if one.low else "",
            )
            for one in drawn
        ]
        across, up = ticks_of(x, alternate=True), ticks_of(y)
        pictures.append(
            macros().lines_picture(
                kind, hint, x, y, across, up, x_label, y_label, paths, _marks(marks, x), WIDTH, HEIGHT
            )
        )
    colours = {one.name: f"t{one.colour} {one.style}" for one in reversed(drawn)}
    legend = [(one, colours[one]) for one in names] if len(names) > 1 else []
    numbers = _numbers(drawn, x_label, rows)
    switch = "log axis" if len(scales) == 2 else None
    html = macros().figure(name, title, note, Markup("").join(pictures), legend, numbers, switch, log)
    data = {
        "kind": "lines",
        "label": x_label,
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
    return Chart(name, html, data)


def _narrow(heights: Iterable[float | None]) -> bool:
    """Whether an axis from 0 would waste most of its height."""
    finite = [up for up in heights if up is not None and math.isfinite(up)]
    return bool(finite) and min(finite) > 0.5 * max(finite) > 0


def _numbers(series: Sequence[Series], x_label: str, most: int) -> Markup:
    """The table below a chart: one row per x value, or only some of them if there are too many."""
    places = sorted({at for one in series for at in one.x})
    kept = places
    if len(places) > most:
        # Keep the extremes of every line, and evenly spaced points between them.
        step = math.ceil(len(places) / (most // 2))
        ends = {one.x[at] for one in series for at in _extremes(one.y)}
        kept = sorted({*places[::step], places[-1], *ends})
    looked_up = [dict(zip(one.x, one.y, strict=True)) for one in series]
    rows: list[list[CellValue]] = [
        [at, *(found.get(at, "") if found.get(at, "") is not None else "" for found in looked_up)] for at in kept
    ]
    some = [f"{len(kept)} of {len(places)} rows, including the extremes."] if len(kept) < len(places) else []
    return notes(some) + table((x_label, *(one.name for one in series)), rows)


def _extremes(numbers: Sequence[float]) -> list[int]:
    finite = [(number, at) for at, number in enumerate(numbers) if number is not None and math.isfinite(number)]
    return [min(finite)[1], max(finite)[1]] if finite else []


def stacked(
    name: str,
    x: Sequence[float],
    layers: Sequence[tuple[str, int, Sequence[float]]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    note: str = "",
    shares: bool = False,
    log_x: bool = True,
    marks: Sequence[Mark] = (),
) -> Chart:
    """Draw layers on top of each other; the reader can choose between heights and shares of the whole.

    Args:
        name: the name of the chart on the page.
        x: the x values.
        layers: the layers from the bottom up, each with a name, a colour and its heights.
        title: the title above the picture.
        x_label: the label of the x axis.
        y_label: the label of the y axis.
        note: a sentence below the title.
        shares: whether shares are shown first.
        log_x: whether the x axis is logarithmic.
        marks: positions on the x axis with a line and a label.

    >>> chart = stacked("terms", [1, 2], [("a", 0, [1, 1]), ("b", 1, [0, 3])], title="T", x_label="I", y_label="bound")
    >>> chart.data["series"][1]["share"]
    [0.0, 0.75]
    """
    places = fit(x, _LEFT, RIGHT, log=log_x)
    totals: list[float] = [sum(heights) for heights in zip(*(layer[2] for layer in layers), strict=True)]
    parts = [[_share(h, t) for h, t in zip(layer[2], totals, strict=True)] for layer in layers]
    # The switch is the same in all charts: when it is on, it shows the picture with the class "log".
    kinds: dict[str, tuple[Sequence[Sequence[float]], AxisScale, str]] = {
        "log": ([layer[2] for layer in layers], fit([0.0, *totals], _BOTTOM, TOP), y_label),
        "linear": (parts, AxisScale(0.0, 1.0, _BOTTOM, TOP), "share of the whole"),
    }
    hint = f"{title}: {', '.join(layer[0] for layer in layers)} against {x_label}"
    pictures = []
    for kind, (all_heights, y, label) in kinds.items():
        drawn, below = [], [0.0] * len(x)
        for number, ((_, colour, _), heights) in enumerate(zip(layers, all_heights, strict=True)):
            above = [b + h for b, h in zip(below, heights, strict=True)]
            drawn.append(DrawnSeries(number, colour, "area", _area(x, below, above, places, y)))
            below = above
        across, up = ticks_of(places, alternate=True), ticks_of(y)
        pictures.append(
            macros().layers_picture(
                kind, hint, places, y, across, up, x_label, label, drawn, _marks(marks, places), WIDTH, HEIGHT
            )
        )
    legend = [(label, f"t{colour}") for label, colour, _ in layers]
    rows: list[list[CellValue]] = [
        [at, *(layer[2][index] for layer in layers), totals[index]] for index, at in enumerate(x)
    ]
    numbers = table((x_label, *(layer[0] for layer in layers), "all"), rows)
    html = macros().figure(
        name, title, note, Markup("").join(pictures), legend, numbers, "as heights", not shares, plain_keys=True
    )
    data = {
        "kind": "stacked",
        "label": x_label,
        "x": places.to_json(),
        "series": [
            {"name": layer[0], "colour": layer[1], "x": list(x), "y": [plain(h) for h in layer[2]], "share": part}
            for layer, part in zip(layers, parts, strict=True)
        ],
    }
    return Chart(name, html, data)


def _share(height: float, total: float) -> float:
    """A layer's share of the whole; if the whole is infinite, an infinite layer counts as all of it."""
    if math.isinf(total):
        return float(math.isinf(height))
    return height / total if total > 0 else 0.0
