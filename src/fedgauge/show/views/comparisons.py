"""Several runs: lists of them, runs side by side, and sweeps with mean and deviation over seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedgauge.show.charts import LineChart, Series
from fedgauge.show.views.runs import local_steps_of, notes_on, outline
from fedgauge.show.views.view import Cell, Table, View, Written, counted_share, view
from fedgauge.show.web.writing import shown
from fedgauge.simulation.experiment.sweep import Combination, SeedCurve, SweepResult
from fedgauge.simulation.experiment.sweep import shown as plain_value
from fedgauge.simulation.runs.reader import FoundRun


def list_view(runs: Sequence[FoundRun], directory: Path) -> View:
    """A table with one row per run."""
    rows: list[list[Cell]] = []
    for run in runs:
        # Only the last record is read: a run may have a hundred thousand of them.
        last, algorithm = run.last, run.settings.get("algorithm") or {}
        rows.append(
            [
                str(Path(run.path).relative_to(directory)),
                run.status,
                f"{run.stopped_at}/{run.settings.get('rounds') or '–'}",
                run.source,
                str(algorithm.get("name", "–")),
                str(local_steps_of(run) or "–"),
                last.loss if last else None,
                counted_share(last.accuracy if last else None),
            ]
        )
    heads = ("run", "status", "round", "on", "algorithm", "I", "loss f", "accuracy")
    return View(tables=(Table(heads, rows, f"Runs in {directory}"),), notes=notes_on(runs))


def _flat(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{before}{key}.")
        else:
            flat[f"{before}{key}"] = value
    return flat


def differing(runs: Sequence[FoundRun]) -> dict[str, list[Any]]:
    """The keys whose values differ between runs, with the value of each run."""
    each = [_flat(run.experiment or run.settings) for run in runs]
    names = dict.fromkeys(name for settings in each for name in settings)
    # The section is left out if the key is unique; "name", for example, is a key of both the data and the model.
    often = Counter(name.split(".")[-1] for name in names)
    different = {}
    for name in names:
        values, key = [settings.get(name) for settings in each], name.split(".")[-1]
        if any(value != values[0] for value in values):
            different[key if often[key] == 1 else name] = values
    return different


def labels_of(runs: Sequence[FoundRun]) -> list[str]:
    """A short name for each run: the settings in which it differs from the others, or its directory."""
    different = {name: values for name, values in differing(runs).items() if name != "federation"}
    if not 0 < len(different) <= 3:
        return [Path(run.path).name for run in runs]
    names = [", ".join(f"{name} {values[i]}" for name, values in different.items()) for i in range(len(runs))]
    return names if len(set(names)) == len(names) else [Path(run.path).name for run in runs]


def comparison_view(runs: Sequence[FoundRun]) -> View:
    """One column per run with its differing settings and its results, and the curves in common charts."""
    different = differing(runs)
    heads = (*different, "status", "round", "loss f", "accuracy", "best", "L_h measured", "seconds")
    columns: list[list[Cell]] = []
    for index, run in enumerate(runs):
        points = outline(run)
        settings = ["–" if values[index] is None else str(values[index]) for values in different.values()]
        shares = [counted_share(points[name]) for name in ("accuracy", "best_accuracy")]
        numbers = [points["loss"], *shares, points["L_h_seen"], points["seconds"]]
        columns.append([*settings, run.status, run.stopped_at, *numbers])
    rows = list(zip(heads, *columns, strict=True))
    table = Table(("", *(run.path for run in runs)), rows, "Comparison", splits=True)
    return View(tables=(table,), charts=_compared(runs), notes=notes_on(runs))


def _compared(runs: Sequence[FoundRun]) -> list[LineChart]:
    """Loss, and accuracy if recorded, against rounds, local steps and time."""
    tested = any(record.accuracy is not None for run in runs for record in run.rounds)
    quantities = [("loss", "training loss f", True), *([("accuracy", "test accuracy", False)] if tested else [])]
    against: list[tuple[str, Callable[[FoundRun], Sequence[float]]]] = [
        ("round", lambda run: [record.round for record in run.rounds]),
        ("local steps of a worker", lambda run: run.steps),
        ("seconds", lambda run: list(run.seconds)),
    ]
    charts: list[LineChart] = []
    for name, label, log in quantities:
        for x_label, places in against:
            series = []
            for index, (run, who) in enumerate(zip(runs, labels_of(runs), strict=True)):
                values = [getattr(record, name) for record in run.rounds]
                points = [(a, b) for a, b in zip(places(run), values, strict=False) if b is not None]
                series.append(Series(who, [a for a, _ in points], [b for _, b in points], index % 8))
            title = f"{label[0].upper()}{label[1:]}, by {x_label}"
            charts.append(LineChart(f"{name}-{len(charts)}", series, title, x_label, label, log=log))
    return charts


# -- sweeps ------------------------------------------------------------------------------------------------------------


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
