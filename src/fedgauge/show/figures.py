"""Pictures in one style, with the colours of the pages, written without a display.

A picture has no background of its own, and its text and lines have middle tones, so that it can be read on white and
on dark pages alike.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgauge.base.errors import InputError
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


COLOURS: tuple[str, ...] = tuple(palette()[f"t{number}"] for number in range(8))
"""The colours of series, in the order of the pages."""
INK: str = palette()["soft"]
"""The colour of text, axes and reference lines."""
_ORDERED = (COLOURS[1], COLOURS[4], COLOURS[5], COLOURS[0])
"""Colours for series that have an order, from the first to the last."""


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
    """A picture that is kept in memory, where a file could be named.

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
    from matplotlib.figure import Figure

    suffix = "png" if isinstance(path, Sheet) else Path(path).suffix.lstrip(".")
    if suffix not in FigureCanvasAgg.get_supported_filetypes():
        raise InputError(f"{path} must end in .png, .pdf or .svg to be a picture.")
    with rc_context(_style()):  # type: ignore[arg-type]
        page = Figure(figsize=(width * panels, height * rows), layout="constrained")
        FigureCanvasAgg(page)
        axes = page.subplots(rows, panels, squeeze=False)
        yield list(axes.flat)
        if isinstance(path, Sheet):
            path.figure = page
        else:
            page.savefig(path)


def lines(
    axes: Axes,
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    log: str = "y",
    **style: Any,
) -> None:
    """Draw one line for each entry of ``series``, with colours that follow their order."""
    for index, (label, values) in enumerate(series.items()):
        # The ticks of a logarithmic axis cannot be worked out near the largest number that there is.
        y = [value if abs(value) < _LARGEST else math.nan for value in values]
        axes.plot(x[: len(y)], y, label=label, color=shade(index, len(series)), **style)
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log and _suits_logarithms(value for values in series.values() for value in values):
        axes.set_yscale("log")
    _legend(axes, len(series))


def bands(
    axes: Axes,
    series: Mapping[str, tuple[Sequence[float], Sequence[float], Sequence[float]]],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    log: str = "",
) -> None:
    """Draw a line and its deviation to both sides for each (x, mean, deviation), coloured in their order."""
    scaled = "y" in log and _suits_logarithms(m for _, mean, _ in series.values() for m in mean)
    for index, (label, (x, mean, deviation)) in enumerate(series.items()):
        colour = shade(index, len(series))
        axes.plot(x, mean, label=label, color=colour)
        # On a logarithmic axis a band that reaches 0 has no lower end; half of the mean stands for it.
        low = [m - d if m - d > 0 or not scaled else m / 2 for m, d in zip(mean, deviation, strict=True)]
        high = [m + d for m, d in zip(mean, deviation, strict=True)]
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if scaled:
        axes.set_yscale("log")
    _legend(axes, len(series))


def _suits_logarithms(values: Iterable[float]) -> bool:
    """Whether an axis can be logarithmic: a line that goes below 0 would be cut there."""
    finite = [value for value in values if math.isfinite(value)]
    return max(finite, default=0.0) > 0 and min(finite) >= 0


def _legend(axes: Axes, number: int) -> None:
    """A legend inside the axes if it is small, and beside them if it would cover the lines."""
    if number > 3:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    else:
        axes.legend()


def count_along(axes: Axes) -> None:
    """Give the x axis whole numbers alone, as rounds and workers are counted."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def label_end(axes: Axes, x: Sequence[float], y: Sequence[float], words: str, colour: str) -> None:
    """Write what a line is beside its right end, where nothing covers the line."""
    axes.annotate(
        words, (x[-1], y[-1]), (10, 0), textcoords="offset points", va="center", color=colour, annotation_clip=False
    )


def shade(index: int, number: int) -> Any:
    """The colour of one series among several that have an order."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("ordered", _ORDERED)(index / max(number - 1, 1))


def matrix(
    axes: Axes, values: Any, *, title: str, xlabel: str, ylabel: str, columns: Sequence[str] = (), colour: str = ""
) -> None:
    """Draw a matrix as coloured cells, its first row on top, with a bar that says what the colours mean."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    accent = palette()["accent"]
    colours = LinearSegmentedColormap.from_list("accent", [to_rgba(accent, 0.04), to_rgba(accent, 1.0)])
    axes.grid(visible=False)
    image = axes.imshow(values, aspect="auto", cmap=colours, vmin=0, interpolation="nearest")
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if 0 < len(columns) <= 20:
        axes.set_xticks(range(len(columns)), columns, rotation=45 if max(map(len, columns)) > 3 else 0)
    if len(values) <= 20:
        axes.set_yticks(range(len(values)))
    if axes.figure is not None:
        axes.figure.colorbar(image, ax=axes, label=colour)
