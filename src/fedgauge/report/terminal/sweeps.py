"""Sweeps, as tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedgauge.experiment.sweep import shown
from fedgauge.report import figures
from fedgauge.report.terminal import console


def show_sweep(result: Mapping[str, Any]) -> None:
    """Print the mean and deviation over seeds at the last round that all seeds reached."""
    tested = any(each["accuracy"] for each in result["combinations"])
    watched = any(run["L_h_seen"] is not None for each in result["combinations"] for run in each["runs"])
    rows = []
    for each in result["combinations"]:
        last = str(each["rounds"][-1]) if each["rounds"] else "–"
        accuracy = [_percent(each["accuracy"], result["seeds"])] * tested
        seen = [run["L_h_seen"] for run in each["runs"] if run["L_h_seen"] is not None]
        rows.append(
            (
                *map(shown, each["values"].values()),
                last,
                _spread(each["loss"], result["seeds"]),
                *accuracy,
                *[console.number(max(seen, default=None))] * watched,
                str(each["diverged"]),
                f"{each['seconds']:.0f}",
            )
        )
    accuracy_head = ["test accuracy"] * tested
    head = (*result["over"], "round", "loss f", *accuracy_head, *["L_h seen (lower)"] * watched, "diverged", "seconds")
    title = f"Mean ± deviation over {result['seeds']} seeds" if result["seeds"] > 1 else "One seed"
    console.table(title, head, rows)


def _spread(curve: Mapping[str, Any] | None, seeds: int) -> str:
    if not curve or not curve["mean"]:
        return "–"
    return console.number(curve["mean"][-1]) + (f" ± {curve['deviation'][-1]:.2g}" if seeds > 1 else "")


def _percent(curve: Mapping[str, Any] | None, seeds: int) -> str:
    if not curve or not curve["mean"]:
        return "–"
    deviation = f" ± {100 * curve['deviation'][-1]:.2f}" if seeds > 1 else ""
    return f"{100 * curve['mean'][-1]:.2f}{deviation} %"


def draw_sweep(result: Mapping[str, Any], directory: Path) -> list[Path]:
    """Draw loss and accuracy against rounds: one line per value of the first key, one picture per value of the rest."""
    first, *others = result["over"] or [None]
    written: dict[str, list[Mapping[str, Any]]] = {}
    for each in result["combinations"]:
        name = ",".join(f"{key}={shown(each['values'][key])}" for key in others) or "curves"
        written.setdefault(name, []).append(each)
    paths = []
    for name, combinations in written.items():
        series = {f"{first} = {shown(each['values'][first])}" if first else "all": each for each in combinations}
        path = directory / f"{name}.png"
        panels = [("loss", "training loss f", "y")]
        if all(each["accuracy"] for each in combinations):
            panels.append(("accuracy", "test accuracy", ""))
        title = result["experiment"]["data"]["name"] + (f", {name}" if others else "")
        with figures.figure(path, panels=len(panels)) as drawn:
            for axes, (key, ylabel, log) in zip(drawn, panels, strict=True):
                figures.bands(
                    axes,
                    {
                        label: (each["rounds"], each[key]["mean"], each[key]["deviation"])
                        for label, each in series.items()
                    },
                    title=title,
                    xlabel="round",
                    ylabel=ylabel,
                    log=log,
                )
        paths.append(path)
    return paths
