"""Runs, as tables and pictures."""

from __future__ import annotations

from pathlib import Path

from fedgauge.report import figures
from fedgauge.values import Trace


def draw_trace(path: Path, trace: Trace) -> None:
    """Draw loss and squared gradient norm against rounds, and the test accuracy where there is one."""
    rounds = [record.round for record in trace.rounds]
    panels = [("loss", "f", trace.losses, ""), ("|grad f|²", "|grad f|²", trace.grad2, "y")]
    if any(record.accuracy is not None for record in trace.rounds):
        panels.insert(1, ("test accuracy", "accuracy", trace.accuracies, ""))
    title = trace.settings["algorithm"]["name"]
    with figures.figure(path, panels=len(panels)) as drawn:
        for axes, (ylabel, label, values, log) in zip(drawn, panels, strict=True):
            figures.lines(axes, rounds, {label: values.tolist()}, title=title, xlabel="round", ylabel=ylabel, log=log)
