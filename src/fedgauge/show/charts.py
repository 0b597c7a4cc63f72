"""What a chart shows, without how it is drawn: pages draw it as SVG, and pictures with matplotlib."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedgauge.show.web.writing import shown

OTHERS = 8
"""The colour number of series that are shown only for comparison; 0 to 7 are the explorer's colours."""
_FEW = 12  # the most points of a line that are drawn as dots too

Style = Literal["line", "dashed", "dots", "steps"]


def is_finite(number: float | None) -> bool:
    """Whether there is a number, and it is finite."""
    return number is not None and math.isfinite(number)


def suits_logarithms(numbers: Iterable[float | None]) -> bool:
    """Whether an axis can be logarithmic: a line that goes below 0 would be cut there."""
    finite = [number for number in numbers if number is not None and math.isfinite(number)]
    return max(finite, default=0.0) >= sys.float_info.min and min(finite) >= 0


def is_narrow(numbers: Iterable[float | None]) -> bool:
    """Whether an axis from 0 would waste most of its height."""
    finite = [number for number in numbers if number is not None and math.isfinite(number)]
    return bool(finite) and min(finite) > 0.5 * max(finite) > 0


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

    @property
    def has_dots(self) -> bool:
        """Whether each of its points is a dot: on their own, or because they are few."""
        return self.style == "dots" or (self.style == "line" and len(self.x) <= _FEW)


@dataclass(frozen=True)
class Mark:
    """A position on the x axis that gets a vertical line and a label."""

    x: float
    label: str


@dataclass(frozen=True)
class LineChart:
    """Lines, with bands around those that have them.

    Attributes:
        name: the name of the chart on a page.
        series: the lines.
        title: the title above the picture.
        x_label: the label of the x axis.
        y_label: the label of the y axis.
        note: a sentence below the title.
        log: whether the y axis is logarithmic where the numbers allow it; on a page a reader can change it.
        log_x: whether the x axis is logarithmic.
        marks: positions on the x axis with a line and a label.
    """

    name: str
    series: Sequence[Series]
    title: str
    x_label: str
    y_label: str
    note: str = ""
    log: bool = True
    log_x: bool = False
    marks: Sequence[Mark] = ()

    @property
    def drawn(self) -> list[Series]:
        """The lines that have a finite value."""
        return [one for one in self.series if any(map(is_finite, one.y))]

    @property
    def names(self) -> list[str]:
        """The names of those lines, in their order."""
        return list(dict.fromkeys(one.name for one in self.drawn))

    @property
    def can_be_log(self) -> bool:
        """Whether the y axis can be logarithmic."""
        return suits_logarithms(up for one in self.drawn for up in one.y)

    @property
    def full_note(self) -> str:
        """The note, and what is left out of the picture."""
        missing = [name for name in dict.fromkeys(one.name for one in self.series) if name not in self.names]
        if not self.names:
            return f"No picture: {self.y_label} has no finite value here."
        left_out = f" Not drawn, as none of its values is finite: {', '.join(missing)}." if missing else ""
        return f"{self.note}{left_out}".strip()


@dataclass(frozen=True)
class StackLayer:
    """A layer of a stacked chart: its name, the number of its colour, and its heights."""

    name: str
    colour: int
    heights: Sequence[float]


@dataclass(frozen=True)
class StackedChart:
    """Layers on top of each other, from the bottom up.

    Attributes:
        name: the name of the chart on a page.
        x: the x values.
        layers: the layers.
        title: the title above the picture.
        x_label: the label of the x axis.
        y_label: the label of the y axis.
        note: a sentence below the title.
        shares: whether shares of the whole are shown rather than heights; on a page a reader can change it.
        log_x: whether the x axis is logarithmic.
        marks: positions on the x axis with a line and a label.
    """

    name: str
    x: Sequence[float]
    layers: Sequence[StackLayer]
    title: str
    x_label: str
    y_label: str
    note: str = ""
    shares: bool = False
    log_x: bool = True
    marks: Sequence[Mark] = ()

    @property
    def names(self) -> list[str]:
        """The names of the layers."""
        return [layer.name for layer in self.layers]

    @property
    def totals(self) -> list[float]:
        """The height of all layers together, at every x."""
        return [float(sum(heights)) for heights in zip(*(layer.heights for layer in self.layers), strict=True)]

    @property
    def places(self) -> list[int]:
        """Where the layers can be stacked: where each has a height, and so has their sum."""
        whole = [math.isfinite(at) and all(one.heights[i] >= 0 for one in self.layers) for i, at in enumerate(self.x)]
        return [i for i, total in enumerate(self.totals) if whole[i] and math.isfinite(total)]

    def stacks(self, shares: bool) -> list[list[float]]:
        """The heights of each layer, or their shares of the whole; NaN where the layers cannot be stacked."""
        places, totals = set(self.places), self.totals
        stacks = [
            [float(one.heights[i]) if i in places else math.nan for i in range(len(self.x))] for one in self.layers
        ]
        if not shares:
            return stacks
        return [[h / t if t > 0 else 0 * h for h, t in zip(heights, totals, strict=True)] for heights in stacks]

    @property
    def full_note(self) -> str:
        """The note, and where there is nothing to draw."""
        places = self.places
        if not places:
            return f"No picture: the {self.y_label} has no finite value for any of these {self.x_label}."
        if len(places) == len(self.x):
            return self.note
        left_out = f"From {shown(self.x[len(places)])} on" if places[-1] == len(places) - 1 else "In the gaps"
        return f"{self.note} {left_out}, the {self.y_label} has no finite value.".strip()


@dataclass(frozen=True)
class Row:
    """A number with an interval around it; several may share a row.

    Attributes:
        row: the label of the row.
        series: what it belongs to, which has a colour of its own.
        value: the number.
        low: the lower end of the interval.
        high: the upper end of the interval.
        colour: the number of its colour in the palette.
        note: a word or two about the number.
    """

    row: str
    series: str
    value: float
    low: float
    high: float
    colour: int = 0
    note: str = ""


@dataclass(frozen=True)
class RowChart:
    """Numbers with their intervals, or as bars: one row per label, one colour per series.

    Attributes:
        name: the name of the chart on a page.
        rows: the numbers.
        title: the title above the picture.
        x_label: the label of the x axis.
        note: a sentence below the title.
        log: whether the axis is logarithmic where the numbers allow it.
        bars: whether each number is a bar from 0.
    """

    name: str
    rows: Sequence[Row]
    title: str
    x_label: str
    note: str = ""
    log: bool = True
    bars: bool = False

    @property
    def is_log(self) -> bool:
        """Whether the axis is logarithmic."""
        return (
            self.log and not self.bars and any(is_finite(r.value) and r.value >= sys.float_info.min for r in self.rows)
        )

    @property
    def drawn(self) -> list[Row]:
        """The numbers that have a place on the axis."""
        return [r for r in self.rows if math.isfinite(r.value) and (r.value >= sys.float_info.min or not self.is_log)]

    @property
    def names(self) -> list[str]:
        """The names of the series that are drawn."""
        return list(dict.fromkeys(row.series for row in self.drawn))

    @property
    def full_note(self) -> str:
        """The note, and what is left out of the picture."""
        drawn = self.drawn
        if not drawn:
            return f"No picture: {self.x_label} has no finite value here."
        left_out = ", ".join(f"{row.row} ({shown(row.value)})" for row in self.rows if row not in drawn)
        return f"{self.note} Not drawn: {left_out}.".strip() if left_out else self.note


@dataclass(frozen=True)
class HeatMap:
    """A matrix, with the sums of its rows and of its columns.

    Attributes:
        name: the name of the chart on a page.
        values: the values, one list per row; none may be negative.
        rows: the names of the rows.
        columns: the names of the columns.
        title: the title above the picture.
        row_label: a word for what a row is.
        column_label: a word for what a column is.
        note: a sentence below the title.
        share: whether the values are shares, which are shown in per cent.
        marked: the numbers of the columns to highlight.
    """

    name: str
    values: Sequence[Sequence[float]]
    rows: Sequence[str]
    columns: Sequence[str]
    title: str
    row_label: str
    column_label: str
    note: str = ""
    share: bool = False
    marked: Sequence[int] = ()

    @property
    def names(self) -> list[str]:
        """The names of its series, of which it has none."""
        return []

    @property
    def parts(self) -> list[list[float]]:
        """The values as parts of the largest finite one; those that are not finite are 0, and so are left empty."""
        finite = [[value if math.isfinite(value) else 0.0 for value in row] for row in self.values]
        largest = max((value for row in finite for value in row), default=0.0)
        return [[value / largest if value > 0 else 0.0 for value in row] for row in finite]

    @property
    def full_note(self) -> str:
        """The note, and what empty cells are."""
        empty = "" if all(math.isfinite(value) for row in self.values for value in row) else " "
        return f"{self.note} Cells without a finite number are empty.".strip() if empty else self.note


@dataclass(frozen=True)
class Border:
    """A line on a map: where a field has a level, or, where it nowhere has, why not."""

    label: str
    field: Any
    level: float
    colour: int | None
    style: Style
    absent: str


@dataclass(frozen=True)
class FieldMap:
    """A field over two axes with borders on it, for a picture alone.

    Attributes:
        name: the name of the chart.
        field: the logarithm of a ratio, one row per y.
        x: the x values.
        y: the y values.
        borders: the lines on it.
        title: the title above the picture.
        x_label: the label of the x axis.
        y_label: the label of the y axis.
        bar_label: what the colours stand for.
        note: a sentence below the title.
        log_x: whether the x axis is logarithmic.
        log_y: whether the y axis is logarithmic.
        winners: who wins at each point, by what the colours stand for and by a second opinion: 1, 0 for a tie, or -1.
    """

    name: str
    field: Any
    x: Sequence[float]
    y: Sequence[float]
    borders: Sequence[Border]
    title: str
    x_label: str
    y_label: str
    bar_label: str
    note: str = ""
    log_x: bool = False
    log_y: bool = False
    winners: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]] = ((), ())


@dataclass(frozen=True)
class Tiles:
    """Small images in rows, for a picture alone.

    Attributes:
        name: the name of the chart.
        images: one row of images per worker, with channels last; NaN where there is none.
        labels: what is written into each image.
        title: the title above the picture.
        row_label: what a row is.
    """

    name: str
    images: Any
    labels: Sequence[Sequence[str]]
    title: str
    row_label: str


Chart = LineChart | StackedChart | RowChart | HeatMap
"""What pages and pictures draw."""
Picture = Chart | FieldMap | Tiles
"""What pictures draw."""
