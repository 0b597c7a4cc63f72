"""Maps of where local SGD beats mini-batch SGD."""

from __future__ import annotations

import numpy as np

from fedgauge.base.symbols import symbol
from fedgauge.show.charts import Border, FieldMap
from fedgauge.show.views.view import View, view
from fedgauge.theory.region import TIE, Axis, Contest, Region


@view.register
def view_of_region(found: Region) -> View:
    """Who wins how much of the map, and the map with the borders of the bounds and of the paper's closed forms."""
    fixed = ", ".join(f"{name} = {value:g}" for name, value in found.fixed.items())
    return View(
        (found.summary,), title=f"{found.y.name} over {found.x.name} at {fixed}", charts=(_region_map(found, fixed),)
    )


def _region_map(found: Region, fixed: str) -> FieldMap:
    edge = -float(np.log1p(TIE))  # where local SGD begins to win
    borders = [
        Border("border by exact expectations", found.exact.log_ratio, edge, None, "line", _who(found.exact, edge)),
        Border("border by the bounds", found.bound.log_ratio, edge, 4, "dashed", _who(found.bound, edge)),
    ]
    if found.corollary is not None:
        label = r"Corollary 5.6: $\sigma^2 = \mathcal{F} N L_g/(RI)$"
        borders.append(Border(label, found.corollary, 1.0, 1, "dots", "beyond the map"))
    if (found.closed_noise <= 1).any():
        stated = np.ma.masked_where(found.closed_noise > 1, found.closed)
        label = "border by the closed form after A.3 and A.4"
        absent = "local SGD wins nowhere" if stated.min() >= 1 else "local SGD wins everywhere"
        borders.append(Border(label, stated, 1.0, 2, "steps", absent))
    return FieldMap(
        "region",
        found.exact.log_ratio,
        found.x.values,
        found.y.values,
        borders,
        title="Green: local SGD wins; purple: mini-batch SGD wins",
        x_label=_label(found.x),
        y_label=_label(found.y),
        bar_label="exact $E|\\nabla f|^2$ of local SGD / of mini-batch SGD",
        note=fixed,
        log_x=found.x.log,
        log_y=found.y.log,
        winners=(found.exact.winner.astype(int).tolist(), found.bound.winner.astype(int).tolist()),
    )


def _who(contest: Contest, edge: float) -> str:
    return "local SGD wins nowhere" if contest.log_ratio.min() >= edge else "local SGD wins everywhere"


def _label(axis: Axis) -> str:
    return f"${symbol(axis.name).latex}$: {symbol(axis.name).meaning}"
