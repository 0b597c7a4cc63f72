"""Sweeps: the best combination, and curves with mean and deviation over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedgauge.show.charts import LineChart, Series
from fedgauge.show.views.view import Cell, Table, View, Written, view
from fedgauge.show.web.writing import shown
from fedgauge_planning.sweep import Combination, SeedCurve, SweepResult
from fedgauge_planning.sweep import shown as plain_value


@view.register
def view_of_sweep(sweep: SweepResult, name: str = "sweep") -> View:
    """The best combination, where all of them ended, and their curves; ``name`` begins the names of the charts."""
    charts = [chart for group in sweep_charts(sweep, name).values() for chart in group]
    title = f"Mean ± deviation over {sweep.seeds} seeds" if sweep.seeds > 1 else "One seed"
    return View((best_combination(sweep),), tables=(_endings(sweep, title),), charts=charts)


def sweep_charts(sweep: SweepResult, name: str = "sweep") -> dict[str, list[LineChart]]:
    """The charts for each combination of all keys but the first, with a line for each value of the first."""
    first, *others = sweep.over or [None]
    groups: dict[str, list[Combination]] = {}
    for each in sweep.combinations:
        key = ",".join(f"{key}={plain_value(each.values[key])}" for key in others if key)
        groups.setdefault(key, []).append(each)
    charts: dict[str, list[LineChart]] = {}
    note = "Mean over seeds, with one standard deviation to either side." if sweep.seeds > 1 else ""
    for place, (key, combinations) in enumerate(groups.items()):
        words = key.replace("=", " = ").replace(",", ", ")
        for quantity, label, log in (("loss", "training loss f", True), ("accuracy", "test accuracy", False)):
            curves: list[SeedCurve | None] = [getattr(each, quantity) for each in combinations]
            series = [
                band(f"{first} = {plain_value(each.values[first])}" if first else "all", each.rounds, curve, number)
                for number, (each, curve) in enumerate(zip(combinations, curves, strict=True))
                if curve and each.rounds
            ]
            if series:
                title = f"{label[0].upper()}{label[1:]}{f', {words}' if words else ''}"
                chart = LineChart(f"{name}-{place}-{quantity}", series, title, "round", label, note, log)
                charts.setdefault(key, []).append(chart)
    return charts


def band(name: str, rounds: Any, curve: SeedCurve, number: int) -> Series:
    """The mean of a curve, with its deviation to both sides if it has one."""
    if not any(curve.deviation):
        return Series(name, rounds, curve.mean, number % 8)
    low = [mean - spread for mean, spread in zip(curve.mean, curve.deviation, strict=True)]
    high = [mean + spread for mean, spread in zip(curve.mean, curve.deviation, strict=True)]
    return Series(name, rounds, curve.mean, number % 8, "line", low, high)


def _endings(sweep: SweepResult, title: str) -> Table:
    """Where every combination ended."""
    tested = any(each.accuracy for each in sweep.combinations)
    ratios = [[run.get("L_h_seen") for run in each.runs if isinstance(run, Mapping)] for each in sweep.combinations]
    watched = any(ratio is not None for each in ratios for ratio in each)
    rows = []
    for each, its_ratios in zip(sweep.combinations, ratios, strict=True):
        row: list[Cell] = [*map(plain_value, each.values.values())] or ["all"]
        row += [each.rounds[-1] if each.rounds else None, _last(each.loss, sweep.seeds)]
        row += [_last(each.accuracy, sweep.seeds, percent=True)] * tested
        row += [max((ratio for ratio in its_ratios if ratio is not None), default=None)] * watched
        rows.append([*row, each.diverged, each.seconds])
    accuracy, ratio = ["test accuracy"] * tested, ["L_h measured (lower)"] * watched
    heads = (*(sweep.over or [""]), "round", "loss f", *accuracy, *ratio, "diverged", "seconds")
    return Table(heads, rows, title)


def _last(curve: SeedCurve | None, seeds: int, percent: bool = False) -> Cell:
    """The last value of a curve, with its deviation over seeds."""
    if not curve or not curve.mean:
        return None
    value, deviation = curve.mean[-1], curve.deviation[-1]
    if percent:
        return Written(value, f"{100 * value:.2f}{f' ± {100 * deviation:.2f}' * (seeds > 1)} %")
    return Written(value, f"{value:.4g} ± {deviation:.2g}") if seeds > 1 else value


def best_combination(sweep: SweepResult) -> str:
    """The combination that ends with the lowest loss, in one sentence."""
    ended = [(each.loss.mean[-1], each) for each in sweep.combinations if each.loss and each.loss.mean]
    number = len(sweep.combinations)
    if not ended:
        return f"None of {number} combinations has a loss to show."
    least, best = min(ended, key=lambda pair: pair[0])
    spread = f" ± {best.loss.deviation[-1]:.2g}" if best.loss and sweep.seeds > 1 else ""
    reached = f" and {best.accuracy.mean[-1]:.1%} test accuracy" if best.accuracy else ""
    diverged = sum(each.diverged for each in sweep.combinations)
    lost = f"; {diverged} runs diverged" if diverged else ""
    values = ", ".join(f"{key} = {plain_value(value)}" for key, value in best.values.items())
    return (
        f"Of {number} combinations, {values or 'the experiment'} ends with the lowest loss,"
        f" {shown(least)}{spread}{reached} after {best.rounds[-1]} rounds, mean over"
        f" {sweep.seeds} {'seed' if sweep.seeds == 1 else 'seeds'}{lost}."
    )
