"""Runs, as tables and pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape

from fedgauge.show import figures
from fedgauge.show.terminal import console
from fedgauge.simulation.experiment.sweep import shown
from fedgauge.simulation.runs.reader import FoundRun
from fedgauge.values import Round, Trace
from fedgauge.values.display import counted


def draw_trace(path: figures.Target, trace: Trace) -> None:
    """Draw loss and squared gradient norm against rounds, and test accuracy and adaptive local steps if recorded."""
    rounds = [record.round for record in trace.rounds]
    panels = [("loss", "f", trace.losses, ""), ("|grad f|²", "|grad f|²", trace.grad2, "y")]
    if any(record.accuracy is not None for record in trace.rounds):
        panels.insert(1, ("test accuracy", "accuracy", trace.accuracies, ""))
    if any(record.looked for record in trace.rounds):
        steps = np.array([record.looked[-1] if record.looked else np.nan for record in trace.rounds])
        panels.append(("local steps", "I", steps, "y"))
    title = trace.settings["algorithm"]["name"]
    with figures.figure(path, panels=len(panels)) as drawn:
        for axes, (ylabel, label, values, log) in zip(drawn, panels, strict=True):
            figures.lines(axes, rounds, {label: values.tolist()}, title=title, xlabel="round", ylabel=ylabel, log=log)
            figures.count_along(axes)


def _steps(run: FoundRun) -> Any:
    steps = run.settings.get("local_steps")
    return "auto" if isinstance(steps, Mapping) else steps


def outline(run: FoundRun) -> dict[str, Any]:
    """The main facts about a run, as JSON."""
    last = run.last
    return {
        "run": run.path,
        "status": run.status,
        "round": run.stopped_at,
        "rounds": run.settings.get("rounds"),
        "source": run.source,
        "algorithm": run.settings.get("algorithm"),
        "local_steps": _steps(run),
        "seed": run.settings.get("seed"),
        "loss": last.loss if last else None,
        "accuracy": last.accuracy if last else None,
        "best_accuracy": max((r.accuracy for r in run.rounds if r.accuracy is not None), default=None),
        "L_h_seen": run.L_h_seen,
        "seconds": run.seconds[-1] if run.seconds else None,
        "note": run.note,
    }


def _accuracy(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"


def show_list(runs: Sequence[FoundRun], directory: Path) -> None:
    """Print a table with one row per run."""
    rows = []
    for run in runs:
        # Only the last record is read: a run may have a hundred thousand of them.
        last, algorithm = run.last, run.settings.get("algorithm") or {}
        rows.append(
            (
                str(Path(run.path).relative_to(directory)),
                run.status,
                f"{run.stopped_at}/{run.settings.get('rounds') or '–'}",
                run.source,
                str(algorithm.get("name", "–")),
                str(_steps(run) or "–"),
                console.number(last.loss if last else None),
                _accuracy(last.accuracy if last else None),
            )
        )
    head = ("run", "status", "round", "on", "algorithm", "I", "loss f", "accuracy")
    console.table(f"Runs in {directory}", head, rows)
    _notes(runs)


def _notes(runs: Sequence[FoundRun]) -> None:
    for run in runs:
        if run.note:
            console.out.print(escape(f"  {run.path}: {run.note}"), soft_wrap=True)


def show_run(run: FoundRun) -> None:
    """Print a run, or the recorded part of an unfinished one."""
    title = console.title_of(run.settings) if "algorithm" in run.settings else run.path
    if run.experiment:
        console.out.print(escape(console.federation_line(run.experiment)), soft_wrap=True)
    console.show_rounds(title, run.rounds)
    console.show_decisions(run.rounds)
    took = f" in {run.seconds[-1]:.1f} s" if run.seconds else ""
    rounds = run.settings.get("rounds", "–")
    for sentence in run.incidents:
        console.out.print(escape(sentence), soft_wrap=True)
    console.out.print(escape(f"{run.path}: {run.status}, round {run.stopped_at} of {rounds}{took}."), soft_wrap=True)
    if run.status == "unfinished" and run.experiment:
        console.out.print(escape(f"To resume it: {run.resume_command}"), soft_wrap=True)
    elif run.experiment:
        console.out.print(escape(f"To run it again: {run.rerun_command}"), soft_wrap=True)
    _notes([run])


def _flat(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value
    return found


def differing(runs: Sequence[FoundRun]) -> dict[str, list[Any]]:
    """The keys whose values differ between runs, with the value of each run."""
    each = [_flat(run.experiment or run.settings) for run in runs]
    names = dict.fromkeys(name for settings in each for name in settings)
    # The section is left out if the key is unique; "name", for example, is a key of both the data and the model.
    often = Counter(name.split(".")[-1] for name in names)
    found = {}
    for name in names:
        values, key = [settings.get(name) for settings in each], name.split(".")[-1]
        if any(value != values[0] for value in values):
            found[key if often[key] == 1 else name] = values
    return found


def labels_of(runs: Sequence[FoundRun]) -> list[str]:
    """A short name for each run: the settings in which it differs from the others, or its directory."""
    different = {name: values for name, values in differing(runs).items() if name != "federation"}
    if not 0 < len(different) <= 3:
        return [Path(run.path).name for run in runs]
    names = [", ".join(f"{name} {values[i]}" for name, values in different.items()) for i in range(len(runs))]
    return names if len(set(names)) == len(names) else [Path(run.path).name for run in runs]


def show_comparison(runs: Sequence[FoundRun]) -> None:
    """Print one column per run: its differing settings and its results; those that do not fit get a further table."""
    different = differing(runs)
    keys = ("", *different, "status", "round", "loss f", "accuracy", "best", "L_h seen", "seconds")
    columns = []
    for index, run in enumerate(runs):
        points = outline(run)
        columns.append(
            (
                run.path,
                *(str("–" if values[index] is None else values[index]) for values in different.values()),
                run.status,
                str(run.stopped_at),
                console.number(points["loss"]),
                _accuracy(points["accuracy"]),
                _accuracy(points["best_accuracy"]),
                console.number(points["L_h_seen"]),
                console.number(points["seconds"]),
            )
        )
    for number, beside in enumerate(console.side_by_side(keys, columns)):
        head, *rows = zip(keys, *beside, strict=True)
        console.table("" if number else "Comparison", head, rows)
    _notes(runs)


def draw_comparison(path: Path, runs: Sequence[FoundRun]) -> None:
    """Draw loss, and accuracy if recorded, against rounds, local steps and time."""
    tested = any(record.accuracy is not None for run in runs for record in run.rounds)
    labels = labels_of(runs)
    quantities: list[tuple[str, Callable[[Round], float | None]]] = [("training loss f", lambda record: record.loss)]
    if tested:
        quantities.append(("test accuracy", lambda record: record.accuracy))
    against: list[tuple[str, Callable[[FoundRun], list[float]]]] = [
        ("round", lambda run: [record.round for record in run.rounds]),
        ("local steps of a worker", lambda run: run.steps),
        ("seconds", lambda run: list(run.seconds)),
    ]
    with figures.figure(path, panels=len(against), rows=len(quantities)) as drawn:
        cells = iter(drawn)
        for ylabel, value in quantities:
            for xlabel, places in against:
                axes = next(cells)
                for index, (run, label) in enumerate(zip(runs, labels, strict=True)):
                    x, y = places(run), [value(record) for record in run.rounds]
                    kept = [(a, b) for a, b in zip(x, y, strict=False) if b is not None]
                    colour = figures.shade(index, len(runs))
                    axes.plot([a for a, _ in kept], [b for _, b in kept], label=label, color=colour)
                axes.set(xlabel=xlabel, ylabel=ylabel)
        drawn[0].legend()


def show_check(
    run: FoundRun, limits: Mapping[str, float], flags: Sequence[tuple[int, str, float]], rounds: int
) -> None:
    """Print the rounds that exceed a constant, or say that there are none."""
    if flags:
        shown = [flags[index] for index in console.some(len(flags))]
        more = len(flags) - len(shown)
        rows = [(str(number), name, console.number(seen), console.number(limits[name])) for number, name, seen in shown]
        title = f"{counted(len(flags), 'ratio')} exceed{'s' if len(flags) == 1 else ''} the constant"
        left_out = f"{more} more {'is' if more == 1 else 'are'} left out; --json lists all of them" if more else None
        console.table(title, ("round", "symbol", "seen", "constant"), rows, left_out)
        console.out.print("A bound that was evaluated with these constants does not cover this run.")
    else:
        names = ", ".join(f"{name} = {console.number(limit)}" for name, limit in limits.items())
        console.out.print(f"None of {rounds} watched rounds of {run.path} exceeds {names}.")


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
