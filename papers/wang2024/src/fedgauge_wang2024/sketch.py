"""Figure 1 from real numbers: local models that drift apart while their average stays close to the centralised model.

Two workers with quadratics in the plane pull in directions far apart. In the first panel their Hessians are nearly the
same, so L_h is small, and the average of the local models follows gradient descent on f; in the second they are not,
and it leaves. zeta would order them the wrong way round: it is larger in the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedgauge.base.types import Floats
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.show import console, pictures
from fedgauge.values.display import counted
from fedgauge_wang2024.results import Sketch

GAMMA, STEPS = 0.08, 30
START = np.array([-2.0, -1.5])
PULL = np.array([[3.0, -1.5], [-3.0, 1.5]])
"""The workers' linear terms, about their mean 0: they set zeta."""
HESSIAN = np.array([[1.0, 0.2], [0.2, 0.6]])
APART = np.array([[0.8, -0.1], [-0.1, -0.4]])
"""How the workers' Hessians differ: plus this for one of them, minus this for the other."""
PANELS = {"small L_h": 0.05, "large L_h": 1.0}
"""The part of that difference in each panel."""


def federation(part: float) -> QuadraticFederation:
    """The two workers, with some part of the difference between their Hessians."""
    return QuadraticFederation(
        hessians=np.stack([HESSIAN + part * APART, HESSIAN - part * APART]), linear=PULL, start=START
    )


def _descend(hessian: Floats, linear: Floats) -> Floats:
    """The models of gradient descent from the common start, the start included."""
    models = [START]
    for _ in range(STEPS):
        models.append(models[-1] - GAMMA * (hessian @ models[-1] + linear))
    return np.stack(models)


def run() -> dict[str, Any]:
    """The paths in both panels, and the constants that tell them apart.

    >>> [round(panel["gap"], 3) for panel in run()["panels"]]
    [0.099, 1.967]
    """
    panels = []
    for name, part in PANELS.items():
        workers = federation(part)
        first, second = (_descend(H, b) for H, b in zip(workers.hessians, workers.linear, strict=True))
        central = _descend(workers.hessians.mean(axis=0), workers.linear.mean(axis=0))
        average = (first + second) / 2
        panels.append(
            {
                "name": name,
                "first": first.tolist(),
                "second": second.tolist(),
                "average": average.tolist(),
                "central": central.tolist(),
                "L_h": workers.constants()["L_h"].value,
                "zeta": float(workers.zeta(START).max()),
                "drift": float(np.linalg.norm(first[-1] - second[-1]) / 2),
                "gap": float(np.linalg.norm(average[-1] - central[-1])),
            }
        )
    return Sketch("fig1", GAMMA, STEPS, tuple(panels)).to_json()


def show(result: Mapping[str, Any]) -> None:
    """Print how far the local models drift, and the average from the centralised model."""
    rows = [
        (panel["name"], *(console.number(panel[key]) for key in ("zeta", "L_h", "drift", "gap")))
        for panel in result["panels"]
    ]
    head = ("panel", "zeta at the start", "L_h", "local models from their average", "average from the centralised")
    console.table(f"Figure 1, after {counted(result['local_steps'], 'local step')}", head, rows)


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Picture the paths."""
    with pictures.figure(path, panels=len(result["panels"]), width=4.4, height=3.6) as drawn:
        for axes, panel in zip(drawn, result["panels"], strict=True):
            for key, colour, style, label in (
                ("first", pictures.COLOURS[0], "-", "worker 1"),
                ("second", pictures.COLOURS[1], "-", "worker 2"),
                ("central", pictures.INK, "--", "centralised"),
                ("average", pictures.COLOURS[4], "-", "average of the workers"),
            ):
                path_of = np.array(panel[key])
                axes.plot(path_of[:, 0], path_of[:, 1], style, color=colour, label=label)
                axes.plot(*path_of[-1], "o", color=colour, markersize=5)
            axes.plot(*panel["central"][0], "*", color=pictures.INK, markersize=9)
            axes.set(
                title=f"{panel['name']}: L_h = {panel['L_h']:.2g}, zeta = {panel['zeta']:.2g} at the start",
                xlabel="first coordinate",
                ylabel="second coordinate",
            )
            axes.legend(fontsize=7)
