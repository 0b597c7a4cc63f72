"""Where heterogeneity comes from, as tables and a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedgauge.report import figures
from fedgauge.report.terminal import console

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedgauge.measurement.parts import Decomposition, Parts

_MOST_ROWS = 5
_MOST_WORKERS = 40


def show_decomposition(found: Decomposition) -> None:
    """Print which blocks and workers contribute most to each constant, and which workers stand out."""
    for part in found.parts:
        for what, names, shares in (
            ("block", part.blocks, part.by_block),
            ("worker", tuple(map(str, range(len(part.weights)))), part.by_worker),
        ):
            order = np.argsort(-shares, kind="stable")[:_MOST_ROWS]
            title = f"{part.symbol}² = {console.number(part.total)} by {what}"
            more = len(names) - len(order)
            console.out.print(title)
            console.table(
                "", (what, "share"), [(names[i], f"{shares[i]:.1%}") for i in order], f"and {more} more" * bool(more)
            )
        far = ", ".join(map(str, part.outliers[:_MOST_ROWS])) or "none"
        console.out.print(
            f"Workers that stand out in {part.symbol}: {far} (beyond median + 3 · 1.4826 · MAD of their distances,"
            f" {console.number(part.threshold)})."
        )


def draw_decomposition(path: figures.Target, found: Decomposition) -> None:
    """Draw for each constant workers × blocks, and each worker's share with those that stand out in red."""
    count = len(found.parts[0].weights)
    height = min(max(3.2, 0.16 * min(count, _MOST_WORKERS)), 7.0)
    with figures.figure(path, panels=2, rows=len(found.parts), width=5.2, height=height) as panels:
        for row, part in enumerate(found.parts):
            shown = _shown(part)
            _draw_cells(panels[2 * row], part, shown)
            _draw_bars(panels[2 * row + 1], part, shown)


def _shown(part: Parts) -> list[int]:
    """The workers to draw, in order: all, or of many those with the largest shares."""
    if len(part.weights) <= _MOST_WORKERS:
        return list(range(len(part.weights)))
    largest: list[int] = np.sort(np.argsort(-part.by_worker, kind="stable")[:_MOST_WORKERS]).tolist()
    return largest


def _draw_cells(axes: Axes, part: Parts, shown: list[int]) -> None:
    title = f"{part.symbol}² = {part.total:.3g}: workers × parameters"
    figures.matrix(
        axes,
        100 * part.shares[shown],
        title=title,
        xlabel="block of parameters",
        ylabel="worker",
        columns=part.blocks,
        colour="share, %",
    )
    if len(shown) <= 20:
        axes.set_yticks(range(len(shown)), list(map(str, shown)))


def _draw_bars(axes: Axes, part: Parts, shown: list[int]) -> None:
    colours = [figures.COLOURS[4 if worker in part.outliers else 0] for worker in shown]
    axes.bar(range(len(shown)), 100 * part.by_worker[shown], color=colours)
    if len(shown) <= 20:
        axes.set_xticks(range(len(shown)), list(map(str, shown)))
    of = "" if len(shown) == len(part.weights) else f" (the {len(shown)} largest of {len(part.weights)})"
    far = ", ".join(map(str, part.outliers[:5])) or "none"
    axes.set(xlabel=f"worker{of}", ylabel=f"share of {part.symbol}², %", title=f"Standing out: {far}")
