"""Several runs: lists of them, and runs side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedgauge.show.charts import LineChart, Series
from fedgauge.show.views.runs import local_steps_of, notes_on, outline
from fedgauge.show.views.view import Cell, Table, View, counted_share
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
