"""Maps of where local SGD beats mini-batch SGD, drawn as a picture and printed in a terminal."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.text import Text

from fedgauge.base.symbols import symbol
from fedgauge.show import figures
from fedgauge.show.terminal.console import out
from fedgauge.theory.region import TIE, Axis, Region

_TICKS = (1e-3, 0.01, 0.03, 0.1, 0.3, 0.5, 1, 2, 3, 10, 30, 100, 1000)
_LETTERS = {1: "L", 0: "=", -1: "M"}
_COLOURS = {1: "black on green", 0: "black on white", -1: "white on magenta"}


def _fixed(region: Region) -> str:
    return ", ".join(f"{name} = {value:g}" for name, value in region.fixed.items())


def _scale(axes: Any, which: str, axis: Axis) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    label = f"${symbol(axis.name).latex}$: {symbol(axis.name).meaning}"
    axes.set(**{f"{which}label": label, f"{which}lim": (axis.values[0], axis.values[-1])})
    if axis.log:
        axes.set(**{f"{which}scale": "log"})
        if axis.name in ("I", "R"):  # 1, 2, 4, 8 rather than powers of ten
            side = getattr(axes, f"{which}axis")
            side.set_major_locator(LogLocator(base=2, numticks=12))
            side.set_major_formatter(StrMethodFormatter("{x:g}"))
            side.set_minor_formatter(NullFormatter())


def _colours() -> Any:
    """Green where local SGD wins, purple where mini-batch SGD does, and next to nothing where they tie."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    green, purple = figures.palette()["good"], figures.palette()["t5"]
    tones = [to_rgba(green, 0.9), to_rgba(green, 0.05), to_rgba(purple, 0.05), to_rgba(purple, 0.9)]
    return LinearSegmentedColormap.from_list("region", list(zip((0.0, 0.5, 0.5, 1.0), tones, strict=True)))


def draw(region: Region, path: figures.Target) -> None:
    """Draw the exact ratio of the two methods, with both borders and those of the paper's closed forms."""
    from matplotlib.colors import CenteredNorm
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FixedLocator

    x, y = np.array(region.x.values), np.array(region.y.values)
    edge = -np.log1p(TIE)  # where local SGD begins to win
    with figures.figure(path, width=6.6, height=4.4) as (axes,):
        norm = CenteredNorm(0.0, max(float(np.abs(region.exact.log_ratio).max()), 0.1))
        # One cell per point: smooth shading would show its seams through colours that are half transparent.
        shown = axes.pcolormesh(x, y, region.exact.log_ratio, cmap=_colours(), norm=norm, shading="nearest")
        axes.grid(False)
        legend = []
        borders: list[tuple[str, Any, float, str, Any]] = [
            ("border by exact expectations", region.exact.log_ratio, edge, figures.INK, "-"),
            ("border by the bounds", region.bound.log_ratio, edge, figures.COLOURS[4], "--"),
        ]
        if region.corollary is not None:
            borders.append(
                (r"Corollary 5.6: $\sigma^2 = \mathcal{F} N L_g/(RI)$", region.corollary, 1.0, figures.COLOURS[1], ":")
            )
        if (region.closed_noise <= 1).any():
            stated = np.ma.masked_where(region.closed_noise > 1, region.closed)
            borders.append(("border by the closed form after A.3 and A.4", stated, 1.0, figures.COLOURS[2], "-."))
        for label, field, level, colour, style in borders:
            if field.min() < level < field.max():
                axes.contour(x, y, field, levels=[level], colors=colour, linestyles=style, linewidths=2.0)
                legend.append(Line2D([], [], color=colour, linestyle=style, linewidth=2.0, label=label))
            else:
                who = "local SGD wins nowhere" if field.min() >= level else "local SGD wins everywhere"
                missing = who if "border" in label else "beyond the map"
                legend.append(Line2D([], [], color="none", label=f"{label}: none, {missing}"))
        _scale(axes, "x", region.x)
        _scale(axes, "y", region.y)
        page: Any = axes.figure
        bar = page.colorbar(shown, ax=axes, pad=0.02)
        ticks = [tick for tick in _TICKS if abs(np.log(tick)) <= norm.halfrange]
        bar.ax.yaxis.set_major_locator(FixedLocator([float(np.log(tick)) for tick in ticks]))
        bar.ax.set_yticklabels([f"{tick:g}" for tick in ticks])
        bar.set_label("exact $E|\\nabla f|^2$ of local SGD / of mini-batch SGD")
        bar.outline.set_visible(False)
        axes.legend(handles=legend, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=1, frameon=False)
        axes.set_title("Green: local SGD wins; purple: mini-batch SGD wins", loc="left", pad=18)
        axes.text(0, 1.02, _fixed(region), transform=axes.transAxes, fontsize=7, color=figures.INK)


def _map(region: Region) -> Text:
    text = Text()
    width = max(len(f"{value:.3g}") for value in region.y.values)
    exact, bound = region.exact.winner.astype(int), region.bound.winner.astype(int)
    for row in reversed(range(len(region.y.values))):
        text.append(f"{region.y.values[row]:>{width}.3g} ")
        for one, other in zip(exact[row].tolist(), bound[row].tolist(), strict=True):
            text.append(_LETTERS[one] + _LETTERS[other], _COLOURS[one])
        text.append("\n")
    ends = f"{region.x.values[0]:.3g}", f"{region.x.values[-1]:.3g}"
    room = 2 * len(region.x.values) - sum(map(len, ends))
    text.append(f"{'':{width}} {ends[0]}{region.x.name:^{max(room, len(region.x.name) + 2)}}{ends[1]}")
    return text


def show(region: Region) -> None:
    """Print the map, with two letters per point: the first by exact expectations, the second by the bounds."""
    out.print(Text.assemble((f"{region.y.name} over {region.x.name}", "bold"), f" at {_fixed(region)}"))
    out.print(_map(region), no_wrap=True, crop=False)
    legend = [("L", 1, "local SGD"), ("=", 0, "within 1%"), ("M", -1, "mini-batch SGD")]
    parts = [part for letter, side, name in legend for part in ((f" {letter} ", _COLOURS[side]), f" {name}  ")]
    out.print(Text.assemble(*parts, "first letter: exact; second letter: by the bounds"))
    out.print(region.summary)
