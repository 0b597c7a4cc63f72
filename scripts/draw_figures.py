"""Draw the figures that explain ideas: what drift is, what a round is, and which command reads which file.

    python scripts/draw_figures.py

Writes SVG files into docs/pictures. Like all pictures of fedgauge they have no background and middle tones, so that
they can be read on light and on dark pages.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedgauge.show.pictures import COLOURS, INK, figure

PLACE = Path(__file__).resolve().parent.parent / "docs" / "pictures"
FIRST, SECOND, MEAN = COLOURS[0], COLOURS[4], COLOURS[3]


def paths(hessians: Any, centres: Any, start: Any, gamma: float, steps: int) -> tuple[Any, Any]:
    """The models of each worker of F_i = (x - c_i)'A_i(x - c_i)/2, step by step, and those of synchronous training."""
    local, together = [np.stack([start, start])], [start]
    for _ in range(steps):
        local.append(local[-1] - gamma * np.einsum("nij,nj->ni", hessians, local[-1] - centres))
        slopes = np.einsum("nij,nj->ni", hessians, together[-1] - centres)
        together.append(together[-1] - gamma * slopes.mean(axis=0))
    return np.stack(local), np.stack(together)


def drift(place: Path) -> None:
    """Two workers, their local steps and their average, with equal curvature and with different curvature."""
    centres, start = np.array([[-1.6, 0.6], [1.6, 0.6]]), np.array([0.0, -2.2])
    equal = np.stack([np.diag([0.7, 0.7])] * 2)
    different = np.stack([np.diag([1.3, 0.15]), np.diag([0.3, 0.9])])
    with figure(place, 2, width=4.3, height=3.9) as panels:
        for axes, hessians, title, outcome in (
            (panels[0], equal, "Same curvature: nothing is lost", "the average is where\nsynchronous training goes"),
            (panels[1], different, "Different curvature: drift", "the average misses where\nsynchronous training goes"),
        ):
            local, together = paths(hessians, centres, start, 0.18, 12)
            x, y = np.meshgrid(np.linspace(-2.3, 2.3, 90), np.linspace(-2.7, 1.5, 90))
            points = np.stack([x, y], axis=-1)
            apart = points[..., None, :] - centres
            f = 0.25 * np.einsum("...ni,nij,...nj->...", apart, hessians, apart)
            axes.contour(x, y, f, levels=9, colors=INK, linewidths=0.6, alpha=0.45)
            for worker, colour in enumerate((FIRST, SECOND)):
                axes.plot(*local[:, worker].T, "o-", color=colour, markersize=3.2, linewidth=1.4)
                axes.plot(*centres[worker], "x", color=colour, markersize=8, markeredgewidth=2)
                side = "right" if worker == 0 else "left"
                axes.annotate(
                    f"worker {worker + 1}",
                    local[6, worker],
                    xytext=(-8 if worker == 0 else 8, -6),
                    textcoords="offset points",
                    color=colour,
                    ha=side,
                )
            axes.plot(*local[-1].T, ":", color=MEAN, linewidth=1.6)
            axes.plot(*together.T, "--", color=INK, linewidth=1.4)
            axes.plot(*together[-1], "o", color=INK, markersize=10, fillstyle="none", markeredgewidth=1.6)
            average = local[-1].mean(axis=0)
            axes.plot(*average, "D", color=MEAN, markersize=7)
            axes.text(0, 0.35, outcome, color=MEAN, ha="center", va="bottom")
            axes.annotate("start", start, xytext=(0, -6), textcoords="offset points", color=INK, ha="center", va="top")
            axes.set_title(title)
            axes.set(xlim=(-2.3, 2.3), ylim=(-2.75, 1.5), aspect="equal")
            _bare(axes)


def one_round(place: Path) -> None:
    """One round: the model goes out, every worker takes its local steps, the server averages and moves."""
    with figure(place, width=8.6, height=3.1) as (axes,):
        axes.set(xlim=(0, 100), ylim=(0, 34))
        _box(axes, 1, 13, 15, 9, "global model\nx̄", INK)
        for worker, (colour, y) in enumerate(zip((FIRST, COLOURS[5], SECOND), (25, 14, 3), strict=True)):
            _arrow(axes, (16.5, 17.5), (25.5, y + 3))
            for step in range(6):
                axes.add_patch(_rectangle(26 + 5.2 * step, y, 4.4, 6, colour))
            axes.text(58.5, y + 3, f"x_{worker + 1}", va="center", color=colour)
            _arrow(axes, (62.5, y + 3), (70.5, 17.5))
        axes.text(41.5, 33, "I local steps each: rate gamma, local optimiser", ha="center", va="center")
        _box(axes, 71, 12, 12, 11, "average of\nthe changes", MEAN)
        _arrow(axes, (83.5, 17.5), (86, 17.5))
        _box(axes, 86.5, 12, 13.3, 11, "server's step:\neta, momentum", INK)
        axes.plot([93, 93, 8.5], [11.6, 0.6, 0.6], color=INK, linewidth=1.2)
        _arrow(axes, (8.5, 0.4), (8.5, 12.6))
        axes.text(77, 1.4, "the next round", ha="center", va="bottom")
        _bare(axes)


FILES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("simulate", ("data, experiment.toml",), ("runs/NAME/",)),
    ("gauge", ("data, experiment.toml",), ("gauge.json",)),
    ("measure", ("data, experiment.toml", "runs/NAME/"), ("measure.json",)),
    ("plan", ("data, experiment.toml",), ("plan.json, plan.toml",)),
    ("theory …", ("measure.json",), ()),
    ("report", ("runs/NAME/", "gauge.json", "measure.json", "plan.json, plan.toml"), ("report.html",)),
)
"""Each command, the files that it reads, and those that it writes."""


def files(place: Path) -> None:
    """A table of dots: which command reads and which writes what."""
    columns = list(dict.fromkeys(name for _, reads, writes in FILES for name in (*reads, *writes)))
    order = ["data, experiment.toml", "runs/NAME/", "gauge.json", "measure.json", "plan.json, plan.toml", "report.html"]
    assert sorted(columns) == sorted(order)
    with figure(place, width=8.2, height=3.4) as (axes,):
        for row, (name, reads, writes) in enumerate(FILES):
            y = -row
            touched = [order.index(each) for each in (*reads, *writes)]
            axes.plot([min(touched), max(touched)], [y, y], color=INK, linewidth=1, alpha=0.5, zorder=1)
            axes.plot([order.index(each) for each in reads], [y] * len(reads), "o", color=FIRST, markersize=10)
            axes.plot([order.index(each) for each in writes], [y] * len(writes), "s", color=SECOND, markersize=10)
            axes.text(-0.45, y, f"fedgauge {name}", ha="right", va="center", family="monospace")
        for column, name in enumerate(order):
            axes.text(column, 0.55, name.replace(", ", ",\n"), ha="center", va="bottom", family="monospace", fontsize=8)
        axes.plot([1.35], [-5.95], "o", color=FIRST, markersize=8)
        axes.text(1.5, -5.95, "reads", va="center")
        axes.plot([2.85], [-5.95], "s", color=SECOND, markersize=8)
        axes.text(3.0, -5.95, "writes", va="center")
        axes.set(xlim=(-2.0, 5.5), ylim=(-6.3, 1.4))
        _bare(axes)


def _bare(axes: Any) -> None:
    axes.grid(False)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _rectangle(x: float, y: float, width: float, height: float, colour: str) -> Any:
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=0.8"
    return FancyBboxPatch((x, y), width, height, style, facecolor=colour, edgecolor="none", alpha=0.85)


def _box(axes: Any, x: float, y: float, width: float, height: float, text: str, colour: str) -> None:
    patch = _rectangle(x, y, width, height, "none")
    patch.set(edgecolor=colour, linewidth=1.6, alpha=1.0)
    axes.add_patch(patch)
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", color=colour)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, xytext=start, arrowprops={"arrowstyle": "->", "color": INK, "linewidth": 1.2})


FIGURES: dict[str, Callable[[Path], None]] = {"drift": drift, "round": one_round, "files": files}


def main() -> None:
    """Draw every figure, to the same bytes every time."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", "0")
    PLACE.mkdir(exist_ok=True)
    for name, drawn in FIGURES.items():
        drawn(PLACE / f"{name}.svg")


if __name__ == "__main__":
    main()
