"""The sweep: its curves, and where each combination ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from fedgauge.show.page.chart import Chart, Series, lines
from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.web.elements import CellValue, table
from fedgauge.show.web.writing import shown
from fedgauge.simulation.experiment.sweep import Combination, SeedCurve, SweepResult
from fedgauge.simulation.experiment.sweep import shown as plain_value


def sweep_charts(result: SweepResult, name: str) -> list[Chart]:
    """Mean and deviation over seeds: a chart for each combination of all keys but the first, a line for each value.

    Args:
        result: of the sweep.
        name: with which the names of its charts begin.
    """
    first, *others = result.over or [None]
    pictures: dict[str, list[Combination]] = {}
    for each in result.combinations:
        key = ", ".join(f"{key} = {plain_value(each.values[key])}" for key in others if key)
        pictures.setdefault(key, []).append(each)
    charts = []
    for place, (key, combinations) in enumerate(pictures.items()):
        for quantity, label, log in (("loss", "training loss f", True), ("accuracy", "test accuracy", False)):
            curves: list[SeedCurve | None] = [getattr(each, quantity) for each in combinations]
            series = [
                _band(f"{first} = {plain_value(each.values[first])}" if first else "all", each, curve, number % 8)
                for number, (each, curve) in enumerate(zip(combinations, curves, strict=True))
                if curve and each.rounds
            ]
            if series:
                title = label[0].upper() + label[1:] + (f", {key}" if key else "")
                note = "Mean over seeds, with one standard deviation to either side." if result.seeds > 1 else ""
                chart = f"{name}-{place}-{quantity}"
                charts.append(lines(chart, series, title=title, x_label="round", y_label=label, log=log, note=note))
    return charts


def _band(name: str, each: Combination, curve: SeedCurve, colour: int) -> Series:
    if not any(curve.deviation):
        return Series(name, each.rounds, curve.mean, colour)
    low = [mean - spread for mean, spread in zip(curve.mean, curve.deviation, strict=True)]
    high = [mean + spread for mean, spread in zip(curve.mean, curve.deviation, strict=True)]
    return Series(name, each.rounds, curve.mean, colour, "line", low, high)


def ending_table(result: SweepResult) -> Markup:
    """A table of where every combination ended."""
    rows: list[list[CellValue]] = []
    for each in result.combinations:
        loss, accuracy = ((curve.mean[-1] if curve and curve.mean else None) for curve in (each.loss, each.accuracy))
        rows.append(
            [
                _values(each.values) or "all",
                each.rounds[-1] if each.rounds else None,
                loss,
                each.loss.deviation[-1] if each.loss and each.rounds and result.seeds > 1 else None,
                None if accuracy is None else (accuracy, f"{accuracy:.2%}"),
                each.diverged,
                each.seconds,
            ]
        )
    heads = ("", "last round of all", "loss f", "± over seeds", "test accuracy", "diverged", "seconds")
    return table(heads, rows, "cards")


def _values(values: Any) -> str:
    return ", ".join(f"{key} = {plain_value(value)}" for key, value in values.items())


def best_combination(result: SweepResult) -> str:
    """The combination that ends with the lowest loss, in one sentence."""
    ended = [(each.loss.mean[-1], each) for each in result.combinations if each.loss and each.loss.mean]
    number = len(result.combinations)
    if not ended:
        return f"None of {number} combinations has a loss to show."
    least, best = min(ended, key=lambda pair: pair[0])
    spread = f" ± {best.loss.deviation[-1]:.2g}" if best.loss and result.seeds > 1 else ""
    reached = f" and {best.accuracy.mean[-1]:.1%} test accuracy" if best.accuracy else ""
    diverged = sum(each.diverged for each in result.combinations)
    lost = f"; {diverged} runs diverged" if diverged else ""
    return (
        f"Of {number} combinations, {_values(best.values) or 'the experiment'} ends with the lowest loss,"
        f" {shown(least)}{spread}{reached} after {best.rounds[-1]} rounds, mean over"
        f" {result.seeds} {'seed' if result.seeds == 1 else 'seeds'}{lost}."
    )


_TEMPLATE = """\
<div class="charts">{% for chart in charts %}{{ chart.html }}{% endfor %}</div>
<h3>Where they ended</h3>{{ ending }}
"""


def _sweep(given: ReportInput) -> SweepResult:
    found: SweepResult = given.found.by_kind[SweepResult.kind]
    return found


def _show(given: ReportInput) -> Mapping[str, Any]:
    found = _sweep(given)
    return {"charts": sweep_charts(found, "sweep"), "ending": ending_table(found)}


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    found = _sweep(given)
    over = {key: ", ".join(map(plain_value, values)) for key, values in found.over.items()}
    return {**over, "seeds": found.seeds, "combinations": len(found.combinations)}


def _commands(given: ReportInput) -> list[str]:
    command = _sweep(given).command
    return ["# the sweep", command] if command else []


SECTION = Section(
    "sweep",
    "The sweep",
    ("sweep",),
    _show,
    _TEMPLATE,
    Heading("sweep", lambda given: best_combination(_sweep(given)), _settings, _commands),
)
