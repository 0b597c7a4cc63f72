"""Pictures, in one style, written without a display."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgauge.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE = {
    "figure.dpi": 130,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.6,
    "legend.framealpha": 0.85,
    "legend.edgecolor": "none",
    "svg.hashsalt": "fedgauge",
}


@contextmanager
def figure(
    path: str | Path, panels: int = 1, rows: int = 1, width: float = 4.2, height: float = 3.2
) -> Iterator[list[Axes]]:
    """Give the axes of the panels, row by row, and save them when done; the suffix of ``path`` sets the format."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    suffix = Path(path).suffix.lstrip(".")
    if suffix not in FigureCanvasAgg.get_supported_filetypes():
        raise InputError(f"{path} must end in .png, .pdf or .svg to be a picture.")
    with rc_context(_STYLE):  # type: ignore[arg-type]
        page = Figure(figsize=(width * panels, height * rows), layout="constrained")
        FigureCanvasAgg(page)
        axes = page.subplots(rows, panels, squeeze=False)
        yield list(axes.flat)
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
    """Draw one line for each entry of ``series``, coloured in order from light to dark."""
    for index, (label, y) in enumerate(series.items()):
        axes.plot(x[: len(y)], y, label=label, color=shade(index, len(series)), **style)
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    axes.legend()


def bands(
    axes: Axes,
    series: Mapping[str, tuple[Sequence[float], Sequence[float], Sequence[float]]],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    log: str = "",
) -> None:
    """Draw a line and its deviation to both sides for each (x, mean, deviation), coloured from light to dark."""
    for index, (label, (x, mean, deviation)) in enumerate(series.items()):
        colour = shade(index, len(series))
        axes.plot(x, mean, label=label, color=colour)
        # On a logarithmic axis a band that reaches 0 has no lower end; half of the mean stands for it.
        low = [m - d if m - d > 0 or not log else m / 2 for m, d in zip(mean, deviation, strict=True)]
        high = [m + d for m, d in zip(mean, deviation, strict=True)]
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if "y" in log:
        axes.set_yscale("log")
    axes.legend()


def shade(index: int, number: int) -> Any:
    """The colour of a line among others, from light to dark in their order."""
    from matplotlib import colormaps

    return colormaps["viridis_r"](0.15 + 0.8 * index / max(number - 1, 1))


def matrix(
    axes: Axes, values: Any, *, title: str, xlabel: str, ylabel: str, columns: Sequence[str] = (), colour: str = ""
) -> None:
    """Draw a matrix as coloured cells, its first row on top, with a bar that says what the colours mean."""
    axes.grid(visible=False)
    image = axes.imshow(values, aspect="auto", cmap="viridis", vmin=0, interpolation="nearest")
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if 0 < len(columns) <= 20:
        axes.set_xticks(range(len(columns)), columns, rotation=45 if max(map(len, columns)) > 3 else 0)
    if len(values) <= 20:
        axes.set_yticks(range(len(values)))
    if axes.figure is not None:
        axes.figure.colorbar(image, ax=axes, label=colour)
