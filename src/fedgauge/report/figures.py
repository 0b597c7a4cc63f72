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
def figure(path: str | Path, panels: int = 1, width: float = 4.2, height: float = 3.2) -> Iterator[list[Axes]]:
    """Give the axes of a row of panels, and save them when done; the suffix of ``path`` sets the format."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    suffix = Path(path).suffix.lstrip(".")
    if suffix not in FigureCanvasAgg.get_supported_filetypes():
        raise InputError(f"{path} must end in .png, .pdf or .svg to be a picture.")
    with rc_context(_STYLE):  # type: ignore[arg-type]
        page = Figure(figsize=(width * panels, height), layout="constrained")
        FigureCanvasAgg(page)
        axes = page.subplots(1, panels, squeeze=False)[0]
        yield list(axes)
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
    from matplotlib import colormaps

    shades = colormaps["viridis_r"]
    for index, (label, y) in enumerate(series.items()):
        axes.plot(x[: len(y)], y, label=label, color=shades(0.15 + 0.8 * index / max(len(series) - 1, 1)), **style)
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    axes.legend()


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
