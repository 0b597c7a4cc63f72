"""Pictures in one style, with the colours of the pages, written without a display.

A picture has no background of its own, and its text and lines have middle tones, so that it can be read on white and
on dark pages alike.
"""

from __future__ import annotations

import functools
import io
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgauge.base.errors import InputError
from fedgauge.show.charts import (
    FieldMap,
    HeatMap,
    LineChart,
    Mark,
    Picture,
    RowChart,
    Series,
    StackedChart,
    Tiles,
    is_narrow,
)
from fedgauge.show.scales import labels, log_ticks
from fedgauge.show.web.writing import resource

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@functools.cache
def palette() -> dict[str, str]:
    """The colours of ``web/palette.css``, each halfway between its light and its dark tone.

    >>> palette()["t4"]
    '#d66a52'
    """
    themes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in resource("palette.css").split("@media")]
    light, dark = themes[0], themes[1]
    return {name: _between(light[name], dark[name]) for name in light}


def _between(one: str, other: str) -> str:
    pairs = ((int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{(a + b) // 2:02x}" for a, b in pairs)


COLOURS: tuple[str, ...] = tuple(palette()[f"t{number}"] for number in range(9))
"""The colours of series, by the numbers that charts give them."""
INK: str = palette()["soft"]
"""The colour of text, axes and reference lines."""
_STYLES = {"line": "-", "dashed": "--", "steps": "-", "dots": ""}
_RATIOS = (1e-3, 0.01, 0.03, 0.1, 0.3, 0.5, 1, 2, 3, 10, 30, 100, 1000)
_LABEL = 26  # the most letters of a name in a legend that has room inside the axes
_CLOSE = 0.03  # of an axis: labels of marks this close would cover one another
_NAMES = 20  # of rows or columns, for which there is room


def _style() -> dict[str, Any]:
    from cycler import cycler

    coloured = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color")
    return {
        **dict.fromkeys(coloured, INK),
        "figure.dpi": 130,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
        "font.size": 9,
        # Neighbours that nobody takes for one another.
        "axes.prop_cycle": cycler(color=[COLOURS[number] for number in (0, 4, 3, 1, 5, 7, 2, 6)]),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "lines.linewidth": 1.6,
        "legend.framealpha": 0.0,
        "legend.edgecolor": "none",
        "svg.hashsalt": "fedgauge",
    }


class Sheet:
    """A picture that is held in memory, where a file could be named.

    Attributes:
        figure: matplotlib's figure, once it has been drawn.
    """

    figure: Figure


_LARGEST = 1e200
Target = str | Path | Sheet
"""Where a picture goes."""


@contextmanager
def figure(
    path: Target, panels: int = 1, rows: int = 1, width: float = 4.2, height: float = 3.2
) -> Iterator[list[Axes]]:
    """Give the axes of the panels, row by row, and save them at the end; the suffix of ``path`` sets the format."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    suffix = "png" if isinstance(path, Sheet) else Path(path).suffix.lstrip(".")
    if suffix not in FigureCanvasAgg.get_supported_filetypes():
        raise InputError(f"{path} must end in .png, .pdf or .svg to be a picture.")
    with rc_context(_style()):  # type: ignore[arg-type]
        page = _shown_by_notebooks()(figsize=(width * panels, height * rows), layout="constrained")
        FigureCanvasAgg(page)
        axes = page.subplots(rows, panels, squeeze=False)
        yield list(axes.flat)
        if isinstance(path, Sheet):
            path.figure = page
        else:
            page.savefig(path)


@functools.cache
def _shown_by_notebooks() -> type[Figure]:
    """A figure that a notebook shows without ``%matplotlib inline``, which would have to come before it."""
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            content = io.BytesIO()
            self.savefig(content, format="png")
            return content.getvalue()

    return NotebookFigure


def draw(charts: Sequence[Picture], target: Target, columns: int = 3) -> None:
    """Draw charts side by side.

    Args:
        charts: what is drawn.
        target: where the picture goes.
        columns: how many charts may stand side by side.
    """
    if not charts:
        charts = [LineChart("none", [], "", "", "what was recorded")]
    columns = min(columns, len(charts))
    rows = -(-len(charts) // columns)
    width, height = max(_size(chart)[0] for chart in charts), max(_size(chart)[1] for chart in charts)
    with figure(target, columns, rows, width, height) as panels:
        for chart, axes in zip(charts, panels, strict=False):
            _draw(chart, axes)
        for axes in panels[len(charts) :]:
            axes.set_axis_off()


def _size(chart: Picture) -> tuple[float, float]:
    """The width and the height that a chart needs."""
    match chart:
        case RowChart():
            return 6.0, max(2.0, 0.9 + 0.3 * len({row.row for row in chart.drawn}))
        case HeatMap():
            return min(max(4.8, 0.16 * len(chart.columns)), 12.0), min(max(3.4, 1.2 + 0.16 * len(chart.rows)), 9.0)
        case Tiles():
            return 4.6, max(3.2, 0.45 * len(chart.images))
        case FieldMap():
            return 6.6, 5.2
        case _:
            return (6.8, 3.6) if isinstance(chart, StackedChart) or _is_beside(chart.names) else (4.8, 3.6)


def _draw(chart: Picture, axes: Axes) -> None:
    """Draw one chart on its axes, with its title, and its note below that."""
    drawers: dict[type, Any] = {
        LineChart: _draw_lines,
        StackedChart: _draw_layers,
        RowChart: _draw_rows,
        HeatMap: _draw_cells,
        FieldMap: _draw_field,
        Tiles: _draw_tiles,
    }
    note = "" if isinstance(chart, Tiles) else chart.note if isinstance(chart, FieldMap) else chart.full_note
    lines = textwrap.wrap(note, 78)
    above = 46.0 if isinstance(chart, HeatMap) else 6.0
    axes.set_title(chart.title, pad=above + 9.5 * len(lines))
    if lines:
        place: Any = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 7, "va": "bottom"}
        axes.annotate("\n".join(lines), (0.5, 1.0), (0, above - 3), ha="center", color=INK, **place)
    if not isinstance(chart, FieldMap | Tiles | HeatMap) and not chart.names:
        axes.set_axis_off()
        return
    drawers[type(chart)](chart, axes)


def _label(axes: Axes, chart: LineChart | StackedChart, y_label: str) -> None:
    """Label the axes, and give the x axis the ticks of the pages."""
    axes.set(xlabel=chart.x_label, ylabel=y_label)
    places = [
        float(at) for at in (chart.x if isinstance(chart, StackedChart) else [x for s in chart.drawn for x in s.x])
    ]
    if chart.log_x and min(places, default=0.0) > 0:
        axes.set_xscale("log")
        _tick(axes.xaxis, min(places), max(places))
    elif all(map(float.is_integer, places)):
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _draw_marks(axes, chart.marks)


def _tick(side: Any, low: float, high: float) -> None:
    """Give a logarithmic axis round numbers."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    if high > low:
        ticks = log_ticks(low, high)
        side.set_major_locator(FixedLocator(ticks))
        side.set_major_formatter(FixedFormatter(labels(ticks)))
        side.set_minor_locator(NullLocator())


def _draw_marks(axes: Axes, marks: Sequence[Mark]) -> None:
    """A line and a label for each mark; labels of lines that are close together stand side by side."""
    scale, low, high = axes.xaxis.get_transform(), *axes.get_xlim()
    start, end = (float(scale.transform(np.array([edge]))[0]) for edge in (low, high))
    taken: list[float] = []
    for mark in marks:
        if not math.isfinite(mark.x) or (axes.get_xscale() == "log" and mark.x <= 0):
            continue
        at = (float(scale.transform(np.array([mark.x]))[0]) - start) / (end - start)
        beside = sum(abs(at - other) < _CLOSE for other in taken)
        taken.append(at)
        axes.axvline(mark.x, color=INK, linewidth=1, linestyle=":")
        how: Any = {"rotation": 90, "fontsize": 7, "ha": "right", "va": "top", "color": INK}
        how |= {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
        axes.annotate(mark.label, (mark.x, 0.97), (-1 - 9 * beside, 0), **how)


def _drawable(numbers: Sequence[float]) -> list[float]:
    """Numbers whose ticks can be worked out, which those near the largest one that there is cannot."""
    return [math.nan if each is None or not abs(each) < _LARGEST else float(each) for each in numbers]


def _draw_lines(chart: LineChart, axes: Axes) -> None:
    named = set[str]()
    is_log = chart.log and chart.can_be_log
    for one in chart.drawn:
        label = None if one.name in named else one.name
        named.add(one.name)
        _draw_series(one, label, axes, is_log)
    heights = [up for one in chart.drawn for up in (*one.y, *one.low, *one.high)]
    if is_log:
        axes.set_yscale("log")
        _tick(axes.yaxis, *axes.get_ylim())
    elif not is_narrow(heights) and min(_drawable(heights), default=0.0) >= 0:
        axes.set_ylim(bottom=0.0)
    _label(axes, chart, chart.y_label)
    if len(named) > 1:
        _legend(axes, _is_beside(chart.names))


def _draw_series(one: Series, label: str | None, axes: Axes, is_log: bool) -> None:
    how: Any = {"color": COLOURS[one.colour], "label": label, "linestyle": _STYLES[one.style]}
    how |= {"marker": "o", "markersize": 3.5} if one.has_dots else {}
    how |= {"drawstyle": "steps-post"} if one.style == "steps" else {}
    x, y = list(map(float, one.x)), _drawable(one.y)
    axes.plot(x, y, **how, linewidth=0.8 if one.colour == len(COLOURS) - 1 else 1.6)
    if one.low:
        low, high = _drawable(one.low), _drawable(one.high)
        # On a logarithmic axis a band that reaches 0 has no lower end; half of the line stands for it.
        low = [m / 2 if is_log and not a > 0 else a for a, m in zip(low, y, strict=True)]
        axes.fill_between(x, low, high, color=how["color"], alpha=0.2, linewidth=0)


def _is_beside(names: Sequence[str]) -> bool:
    """Whether a legend stands beside the axes, because it would cover what is drawn."""
    return len(names) > 3 or max(map(len, names), default=0) > _LABEL


def _legend(axes: Axes, is_beside: bool) -> None:
    handles, names = axes.get_legend_handles_labels()
    place: Any = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if is_beside else {}
    axes.legend(handles, [textwrap.fill(name, _LABEL + 8) for name in names], **place)


def _draw_layers(chart: StackedChart, axes: Axes) -> None:
    stacks, places = chart.stacks(chart.shares), chart.places
    rows = [[heights[i] for i in places] for heights in stacks]
    x = [float(chart.x[i]) for i in places]
    if len(x) == 1:
        # An area of one point has no width.
        x, rows = [x[0] * 0.9, x[0] * 1.1], [[*row, *row] for row in rows]
    axes.stackplot(x, rows, labels=chart.names, colors=[COLOURS[layer.colour] for layer in chart.layers], linewidth=0)
    axes.set_ylim(bottom=0.0, top=1.0 if chart.shares else None)
    _label(axes, chart, "share of the whole" if chart.shares else chart.y_label)
    _legend(axes, is_beside=True)


def _draw_rows(chart: RowChart, axes: Axes) -> None:
    rows = list(dict.fromkeys(row.row for row in chart.drawn))
    named = set[str]()
    for each in chart.drawn:
        beside = list(dict.fromkeys(other.series for other in chart.drawn if other.row == each.row))
        up = rows.index(each.row) + (beside.index(each.series) + 1) / (len(beside) + 1) - 0.5
        label = None if each.series in named else each.series
        named.add(each.series)
        colour = COLOURS[each.colour]
        if chart.bars:
            axes.barh([up], [each.value], height=0.7 / len(beside), color=colour, label=label)
            continue
        # An end that cannot be drawn is left out.
        ends = [[each.value - each.low], [min(each.high, 10 * abs(each.value)) - each.value]]
        ends = [[max(end, 0.0) if math.isfinite(end) else 0.0 for end in side] for side in ends]
        axes.errorbar(each.value, up, xerr=ends, fmt="o", color=colour, capsize=3, label=label)
    axes.set_yticks(range(len(rows)), rows)
    axes.set(xlabel=chart.x_label)
    axes.invert_yaxis()
    if chart.is_log:
        axes.set_xscale("log")
    if len(named) > 1:
        _legend(axes, is_beside=True)


def _draw_cells(chart: HeatMap, axes: Axes) -> None:
    """Cells, the first row on top, with the sums of the columns above and those of the rows on the right."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    accent = palette()["accent"]
    colours = LinearSegmentedColormap.from_list("accent", [to_rgba(accent, 0.04), to_rgba(accent, 1.0)])
    axes.grid(visible=False)
    parts = np.array(chart.parts)
    axes.imshow(parts, aspect="auto", cmap=colours, vmin=0, interpolation="nearest")
    axes.set(xlabel=chart.column_label, ylabel=chart.row_label)
    for side, names in ((axes.xaxis, chart.columns), (axes.yaxis, chart.rows)):
        every = -(-len(names) // _NAMES)
        short = [name if len(name) <= 12 else f"…{name[-11:]}" for name in names[::every]]
        side.set_ticks(range(0, len(names), every), short)
    if max(map(len, chart.columns), default=0) > 3:
        axes.tick_params(axis="x", rotation=45)
    above, right = axes.inset_axes((0, 1.01, 1, 0.14)), axes.inset_axes((1.01, 0, 0.1, 1))
    warned = [palette()["bad"] if column in chart.marked else accent for column in range(len(chart.columns))]
    above.bar(range(len(chart.columns)), parts.sum(axis=0), color=warned, alpha=0.6)
    right.barh(range(len(chart.rows)), parts.sum(axis=1), color=accent, alpha=0.6)
    above.set_xlim(axes.get_xlim())
    right.set_ylim(axes.get_ylim())
    for each in (above, right):
        each.set_axis_off()


def _draw_field(chart: FieldMap, axes: Axes) -> None:
    """The field as colours, green below 0 and purple above, with the borders and a legend below."""
    from matplotlib.colors import CenteredNorm, LinearSegmentedColormap, to_rgba
    from matplotlib.lines import Line2D

    green, purple = palette()["good"], palette()["t5"]
    tones = [to_rgba(green, 0.9), to_rgba(green, 0.05), to_rgba(purple, 0.05), to_rgba(purple, 0.9)]
    colours = LinearSegmentedColormap.from_list("region", list(zip((0.0, 0.5, 0.5, 1.0), tones, strict=True)))
    norm = CenteredNorm(0.0, max(float(np.abs(chart.field).max()), 0.1))
    # One cell per point: smooth shading would show its seams through colours that are half transparent.
    drawn = axes.pcolormesh(chart.x, chart.y, chart.field, cmap=colours, norm=norm, shading="nearest")
    axes.grid(visible=False)
    legend = []
    styles = {"line": "-", "dashed": "--", "dots": ":", "steps": "-."}
    for border in chart.borders:
        colour = INK if border.colour is None else COLOURS[border.colour]
        style: Any = {"linestyle": styles[border.style], "linewidth": 2.0}
        if border.field.min() < border.level < border.field.max():
            how: Any = {"colors": colour, "linestyles": style["linestyle"], "linewidths": 2.0}
            axes.contour(chart.x, chart.y, border.field, levels=[border.level], **how)
            legend.append(Line2D([], [], color=colour, label=border.label, **style))
        else:
            legend.append(Line2D([], [], color="none", label=f"{border.label}: none, {border.absent}"))
    axes.set(xlabel=chart.x_label, ylabel=chart.y_label, xlim=(chart.x[0], chart.x[-1]), ylim=(chart.y[0], chart.y[-1]))
    for side, values, log in ((axes.xaxis, chart.x, chart.log_x), (axes.yaxis, chart.y, chart.log_y)):
        if log:
            getattr(axes, f"set_{side.axis_name}scale")("log")
            _tick(side, min(values), max(values))
    page: Any = axes.figure
    bar = page.colorbar(drawn, ax=axes, pad=0.02)
    ticks = [tick for tick in _RATIOS if abs(np.log(tick)) <= norm.halfrange]
    bar.set_ticks([float(np.log(tick)) for tick in ticks], labels=[f"{tick:g}" for tick in ticks])
    bar.set_label(chart.bar_label)
    bar.outline.set_visible(False)
    axes.legend(handles=legend, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=1, frameon=False)


def _draw_tiles(chart: Tiles, axes: Axes) -> None:
    """The images as one, all on one scale of brightness, so that gains can be seen."""
    tiles: Any = chart.images
    rows, columns, height, width, channels = tiles.shape
    low, high = np.nanpercentile(tiles, [1, 99])
    whole = np.clip((tiles - low) / max(high - low, 1e-12), 0.0, 1.0)
    padded = np.full((rows, columns, height + 1, width + 1, channels), np.nan)
    padded[:, :, :height, :width] = whole
    picture = padded.transpose(0, 2, 1, 3, 4).reshape(rows * (height + 1), columns * (width + 1), channels)
    if channels == 3:
        # Without a colour, a gap between the tiles is see-through.
        picture = np.concatenate([np.nan_to_num(picture), ~np.isnan(picture[..., :1])], axis=-1)
    axes.imshow(picture.squeeze(-1) if channels == 1 else picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([(row + 0.5) * (height + 1) for row in range(rows)], [str(row) for row in range(rows)])
    axes.set_ylabel(chart.row_label)
    for row, words in enumerate(chart.labels):
        for column, word in enumerate(words):
            place = ((column + 0.05) * (width + 1), (row + 0.05) * (height + 1))
            axes.text(*place, word, color=COLOURS[4], fontsize=7, ha="left", va="top")
