"""Charts as SVG that needs nothing else: lines with bands, stacked areas, intervals and heat maps.

A chart is a figure whose numbers stand in three places that cannot differ, as all are written from one series: in the
picture, in a table below it for those who read numbers, and in the data from which the script shows what is under the
pointer. Whether a series is shown and which axis is used is left to check boxes and CSS, so that both work without
JavaScript.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, Literal

from fedgauge.report.page.scales import Scale, fit, labels, thin
from fedgauge.report.page.tables import Cell, table

WIDTH, HEIGHT = 520, 304
_LEFT, RIGHT, TOP, _BOTTOM = 66.0, 510.0, 26.0, 256.0
OTHERS = 8
"""The colour of what is there for comparison only; 0 to 7 are those of the explorer."""

Style = Literal["line", "dashed", "dots", "steps"]


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes:
        name: for the legend; series of one name are shown and hidden together.
        x: places, in order.
        y: heights; what is not finite leaves a gap.
        colour: of the palette.
        style: how it is drawn.
        low: the lower end of a band about it.
        high: its upper end.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int = 0
    style: Style = "line"
    low: Sequence[float] = ()
    high: Sequence[float] = ()

    def thinned(self) -> Series:
        """The series with as many points as a screen shows; extremes stay."""
        finite = [0.0 if y is None or not math.isfinite(y) else y for y in self.y]
        kept = thin(self.x, finite)

        def some(numbers: Sequence[float]) -> tuple[float, ...]:
            return tuple(numbers[index] for index in kept) if numbers else ()

        return replace(self, x=some(self.x), y=some(self.y), low=some(self.low), high=some(self.high))


@dataclass(frozen=True)
class Mark:
    """A place on the x axis worth a line of its own."""

    x: float
    label: str


@dataclass(frozen=True)
class Chart:
    """A figure: its name on the page, its HTML, and the data behind what is shown under the pointer."""

    name: str
    html: str
    data: dict[str, Any] = field(default_factory=dict)


# -- the parts of a picture --------------------------------------------------------------------------------------


def place(number: float) -> str:
    """A place on a screen, to a tenth of a unit."""
    return f"{number:.1f}".removesuffix(".0")


def text(x: float, y: float, words: str, kind: str, anchor: str = "middle") -> str:
    """A word in a picture."""
    return f'<text x="{place(x)}" y="{place(y)}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def _axes(x: Scale, y: Scale, x_label: str, y_label: str) -> str:
    """Lines across for the heights, and what the places and heights are."""
    parts = []
    marks = y.ticks(6)
    for mark, label in zip(marks, labels(marks), strict=True):
        at = y(mark)
        parts.append(f'<path class="grid" d="M{place(x.start)} {place(at)}H{place(x.end)}"/>')
        parts.append(text(x.start - 7, at + 4, label, "tick", "end"))
    marks = x.ticks(6)
    for number, (mark, label) in enumerate(zip(marks, labels(marks), strict=True)):
        at = x(mark)
        parts.append(f'<path class="base" d="M{place(at)} {place(y.start)}v5"/>')
        # Every other one gives way where letters are large.
        parts.append(text(at, y.start + 22, label, "tick" if number % 2 == 0 else "tick odd"))
    parts.append(f'<path class="base" d="M{place(x.start)} {place(y.start)}H{place(x.end)}"/>')
    parts.append(text(0, 13, y_label, "name", "start"))
    parts.append(text(x.end, y.start + 44, x_label, "name", "end"))
    return "".join(parts)


def _marks(marks: Iterable[Mark], x: Scale, y: Scale) -> str:
    parts = []
    for mark in marks:
        if x.low <= mark.x <= x.high:
            at = x(mark.x)
            left = at > (x.start + x.end) / 2
            parts.append(f'<path class="mark" d="M{place(at)} {place(y.start)}V{place(y.end)}"/>')
            parts.append(text(at + (-6 if left else 6), y.end + 12, mark.label, "said", "end" if left else "start"))
    return "".join(parts)


def drawable(number: float | None, scale: Scale) -> bool:
    """Whether a number has a place on an axis."""
    return number is not None and math.isfinite(number) and (number > 0 or not scale.log)


def _path(places: Sequence[float], heights: Sequence[float], x: Scale, y: Scale, steps: bool = False) -> str:
    """A line, with a gap wherever a number has no place."""
    parts: list[str] = []
    going = False
    for a, b in zip(places, heights, strict=True):
        if not (drawable(a, x) and drawable(b, y)):
            going = False
            continue
        at, up = place(x(a)), place(y(b))
        if going:
            parts.append(f"H{at}V{up}" if steps else f"L{at} {up}")
        else:
            parts.append(f"M{at} {up}h0")  # a point alone is a dot
        going = True
    return "".join(parts)


def _area(
    places: Sequence[float], lows: Sequence[float], highs: Sequence[float], x: Scale, y: Scale, colour: str
) -> str:
    kept = [
        (x(a), y(max(b, y.low)), y(min(c, y.high)))
        for a, b, c in zip(places, lows, highs, strict=True)
        if drawable(a, x) and b is not None and drawable(c, y)
    ]
    if len(kept) < 2:
        return ""
    there = "L".join(f"{place(a)} {place(c)}" for a, _, c in kept)
    back = "L".join(f"{place(a)} {place(b)}" for a, b, _ in reversed(kept))
    return f'<path class="{colour}" d="M{there}L{back}Z"/>'


def svg(kind: str, title: str, content: str, height: float = HEIGHT) -> str:
    """A picture."""
    # The script puts what the pointer is at into the last group.
    return (
        f'<svg class="{kind}" viewBox="0 0 {WIDTH} {place(height)}" role="img" aria-label="{escape(title)}">'
        f'{content}<g class="pointer"></g></svg>'
    )


def figure(name: str, title: str, note: str, pictures: str, legend: str, numbers: str) -> str:
    """A picture with its title, its legend, and its numbers as a table."""
    said = f"<p>{escape(note)}</p>" if note else ""
    below = f'<div class="keys">{legend}</div>' if legend else ""
    return (
        f'<figure class="chart" id="chart-{name}"><figcaption><h3>{escape(title)}</h3>{said}</figcaption>'
        f'<div class="plot">{pictures}<div class="tip" hidden></div></div>{below}'
        f"<details><summary>Numbers</summary>{numbers}</details></figure>"
    )


def keys(names: Sequence[tuple[str, str]], toggle: str = "", on: bool = True) -> str:
    """The legend, each entry a check box that shows or hides its series, and the switch between two pictures."""
    entries = [
        f'<label><input type="checkbox" checked data-series="{number}"><i class="key {colour}" aria-hidden="true"></i>'
        f"{escape(name)}</label>"
        for number, (name, colour) in enumerate(names)
    ]
    if toggle:
        entries.append(
            f'<label class="axis"><input type="checkbox" data-axis{" checked" if on else ""}>{escape(toggle)}</label>'
        )
    return "".join(entries)


def plain(number: float | None) -> float | None:
    """A number as JSON has it: what is not finite is missing.

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
    """Draw lines, each with a band where it has one, on a logarithmic and on a plain axis to choose from.

    Args:
        name: of the chart on the page.
        series: the lines; they are thinned to what a screen shows.
        title: above the picture.
        x_label: what the places are.
        y_label: what the heights are.
        note: a sentence below the title.
        log: whether the logarithmic axis is shown first.
        log_x: whether places are on a logarithmic axis.
        marks: places with a line and a word.
        rows: the most rows of the table.

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
    pictures = []
    for kind, y in scales.items():
        content = []
        for one in drawn:
            group = f"s{names.index(one.name)}"
            band = _area(one.x, one.low, one.high, x, y, f"band t{one.colour}") if one.low else ""
            drawing = _path(one.x, one.y, x, y, steps=one.style == "steps")
            content.append(f'<g class="{group}">{band}<path class="{one.style} t{one.colour}" d="{drawing}"/></g>')
        hint = f"{title}: {', '.join(names)} against {x_label}"
        pictures.append(svg(kind, hint, _axes(x, y, x_label, y_label) + "".join(content) + _marks(marks, x, y)))
    colours = {one.name: f"t{one.colour} {one.style}" for one in reversed(drawn)}
    legend = [(one, colours[one]) for one in names] if len(names) > 1 else []
    both = len(scales) == 2
    legend_html = keys(legend, "log axis" if both else "", on=log)
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
    return Chart(name, figure(name, title, note, "".join(pictures), legend_html, _numbers(drawn, x_label, rows)), data)


def _narrow(heights: Iterable[float | None]) -> bool:
    """Whether an axis from 0 would waste most of its height."""
    finite = [up for up in heights if up is not None and math.isfinite(up)]
    return bool(finite) and min(finite) > 0.5 * max(finite) > 0


def _numbers(series: Sequence[Series], x_label: str, most: int) -> str:
    """The table below a chart: a row for each place, some of them where there are too many."""
    places = sorted({at for one in series for at in one.x})
    kept = places
    if len(places) > most:
        # The extremes of every line, and others evenly between.
        step = math.ceil(len(places) / (most // 2))
        ends = {one.x[at] for one in series for at in _extremes(one.y)}
        kept = sorted({*places[::step], places[-1], *ends})
    looked_up = [dict(zip(one.x, one.y, strict=True)) for one in series]
    rows: list[list[Cell]] = [
        [at, *(found.get(at, "") if found.get(at, "") is not None else "" for found in looked_up)] for at in kept
    ]
    said = f"<p>{len(kept)} of {len(places)} places, the extremes among them.</p>" if len(kept) < len(places) else ""
    return said + table((x_label, *(one.name for one in series)), rows)


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
    """Draw layers on top of each other, as heights and as shares of the whole to choose from.

    Args:
        name: of the chart on the page.
        x: places.
        layers: from the bottom up, each a name, a colour and its heights.
        title: above the picture.
        x_label: what the places are.
        y_label: what the heights are.
        note: a sentence below the title.
        shares: whether shares are shown first.
        log_x: whether places are on a logarithmic axis.
        marks: places with a line and a word.

    >>> chart = stacked("terms", [1, 2], [("a", 0, [1, 1]), ("b", 1, [0, 3])], title="T", x_label="I", y_label="bound")
    >>> chart.data["series"][1]["share"]
    [0.0, 0.75]
    """
    places = fit(x, _LEFT, RIGHT, log=log_x)
    totals: list[float] = [sum(heights) for heights in zip(*(layer[2] for layer in layers), strict=True)]
    parts = [[_share(h, t) for h, t in zip(layer[2], totals, strict=True)] for layer in layers]
    kinds: dict[str, tuple[Sequence[Sequence[float]], Scale, str]] = {
        "log": ([layer[2] for layer in layers], fit([0.0, *totals], _BOTTOM, TOP), y_label),
        "linear": (parts, Scale(0.0, 1.0, _BOTTOM, TOP), "share of the whole"),
    }
    pictures = []
    for kind, (all_heights, y, label) in kinds.items():
        content, below = [], [0.0] * len(x)
        for number, ((_, colour, _), heights) in enumerate(zip(layers, all_heights, strict=True)):
            above = [b + h for b, h in zip(below, heights, strict=True)]
            content.append(f'<g class="s{number}">{_area(x, below, above, places, y, f"area t{colour}")}</g>')
            below = above
        hint = f"{title}: {', '.join(layer[0] for layer in layers)} against {x_label}"
        axes = _axes(places, y, x_label, label)
        pictures.append(svg(kind, hint, axes + "".join(content) + _marks(marks, places, y)))
    # The switch of all charts shows the first picture where it is on.
    legend = "".join(
        f'<span><i class="key t{colour}" aria-hidden="true"></i>{escape(label)}</span>' for label, colour, _ in layers
    ) + keys([], "as heights", on=not shares)
    rows: list[list[Cell]] = [[at, *(layer[2][index] for layer in layers), totals[index]] for index, at in enumerate(x)]
    numbers = table((x_label, *(layer[0] for layer in layers), "all"), rows)
    data = {
        "kind": "stacked",
        "label": x_label,
        "x": places.to_json(),
        "series": [
            {"name": layer[0], "colour": layer[1], "x": list(x), "y": [plain(h) for h in layer[2]], "share": part}
            for layer, part in zip(layers, parts, strict=True)
        ],
    }
    return Chart(name, figure(name, title, note, "".join(pictures), legend, numbers), data)


def _share(height: float, total: float) -> float:
    """A layer's part of the whole; of an infinite whole the infinite layer is all."""
    if math.isinf(total):
        return float(math.isinf(height))
    return height / total if total > 0 else 0.0
