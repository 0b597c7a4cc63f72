"""The worst case of Theorem 4.3 over gamma as a picture."""

from __future__ import annotations

import math

from fedgauge.report import figures
from fedgauge.theory.worst_case import WorstCase

_LOOKS = {"sdp": (figures.INK, "-"), "star": (figures.COLOURS[2], "-"), "sharp": (figures.COLOURS[3], "--")}
_LOOKS |= {"corrected": (figures.COLOURS[4], ":")}


def draw(found: WorstCase, path: figures.Target) -> None:
    """Draw the bounds against gamma; each ends where its theorem admits no larger rate."""
    with figures.figure(path, width=6.6, height=4.2) as (axes,):
        for name, heights in (found.curves or {}).items():
            colour, style = _LOOKS[name]
            shown = [math.nan if height is None else height for height in heights]
            axes.plot(found.gammas, shown, color=colour, linestyle=style, linewidth=2.0, label=name)
        axes.plot([found.values["gamma"]], [found.found.grad2], "o", color=figures.COLOURS[0], label="a federation")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("gamma")
        axes.set_ylabel(r"bound on the average of $E|\nabla f|^2$")
        axes.set_title(f"I = {found.values['I']:g}, R = {found.values['R']:g}", loc="left")
        axes.legend(frameon=False)
