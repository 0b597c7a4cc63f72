"""Results in a notebook, and ``plot()`` of each: a sentence, a table and a picture.

To show another kind of result, register its picture and its summary here.
"""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from fedgauge.base.errors import InputError
from fedgauge.data.partition import Partition
from fedgauge.measurement.certification import Certified
from fedgauge.measurement.gauge.result import GaugeResult
from fedgauge.measurement.parts import Decomposition
from fedgauge.measurement.values import Design, Measurement, Reading, WorkerEvaluation
from fedgauge.planning.plan import Plan
from fedgauge.planning.theory_plan import TheoryPlan
from fedgauge.show.figures import COLOURS, INK, Sheet, Target, bands, count_along, figure, lines
from fedgauge.show.printing import certified_words, corollary_words, parts_rows, parts_words, trace_of, tuned_words
from fedgauge.show.terminal import gauges, measurements, plans, regions
from fedgauge.show.terminal import runs as kept_runs
from fedgauge.show.web.elements import facts, notes, table
from fedgauge.simulation.experiment.sweep import SweepResult
from fedgauge.simulation.runs.reader import FoundRun
from fedgauge.theory.answer import Answer
from fedgauge.theory.corollaries import CorollaryRates
from fedgauge.theory.expectation import Expectation
from fedgauge.theory.region import Region
from fedgauge.theory.search import Tuned
from fedgauge.values import Bound, Constants, Trace
from fedgauge.values.display import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot(result: Any, path: str | Path | None = None) -> Any:
    """Draw a result; return matplotlib's figure, written to a file too if one is named."""
    sheet = Sheet()
    draw(result, sheet)
    if path is not None:
        if Path(path).suffix.lstrip(".") not in sheet.figure.canvas.get_supported_filetypes():
            raise InputError(f"{path} must end in .png, .pdf or .svg to be a picture.")
        sheet.figure.savefig(path)
    return sheet.figure


def html(result: Any) -> str:
    """A result as a notebook shows it: what it says, and its picture if it has one."""
    words = summary(result)
    content = io.BytesIO()
    plot(result).savefig(content, format="png")
    picture = base64.b64encode(content.getvalue()).decode()
    return str(words + Markup('<img alt="" style="max-width: 100%" src="data:image/png;base64,{}">').format(picture))


# -- pictures --------------------------------------------------------------------------------------------------------


@functools.singledispatch
def draw(result: object, target: Target) -> None:
    """Draw a result."""
    raise InputError(f"There is no picture of a {type(result).__name__}.")


@draw.register
def _(result: Trace, target: Target) -> None:
    kept_runs.draw_trace(target, result)


@draw.register
def _(result: Measurement, target: Target) -> None:
    measurements.draw(result, target)


@draw.register
def _(result: Region, target: Target) -> None:
    regions.draw(result, target)


@draw.register
def _(result: Plan, target: Target) -> None:
    plans.draw(result, target)


@draw.register
def _(result: TheoryPlan, target: Target) -> None:
    plans.draw_theory(result, target)


@draw.register
def draw_expectation(result: Expectation, target: Target) -> None:
    """Draw the exact expected loss and squared gradient norm."""
    with figure(target, panels=2) as (left, right):
        count = range(len(result.loss))
        common = {"title": "exact expectation", "xlabel": result.index}
        lines(left, count, {"E f": result.loss}, ylabel="expected loss", log="", **common)
        lines(right, count, {"E |grad f|²": result.grad2}, ylabel="expected |grad f|²", **common)


@draw.register
def _(result: Answer | Tuned, target: Target) -> None:
    draw(result.bound, target)


@draw.register
def _(result: Bound, target: Target) -> None:
    _draw_bound(result, None, target)


@draw.register
def _(result: CorollaryRates, target: Target) -> None:
    _draw_bound(result.bound, result.rival, target)


def _draw_bound(bound: Bound, rival: Bound | None, target: Target) -> None:
    """The terms of a bound as bars, and below them its total beside a rival's if it has one."""
    drawn = [(term.name, float(np.max(term.value)), COLOURS[0]) for term in bound.terms]
    if rival is not None:
        drawn.append(("all together", float(np.max(bound.total)), COLOURS[4]))
        drawn.append((f"instead: {rival.source.locator}", float(np.max(rival.total)), COLOURS[3]))
    names, values, colours = zip(*reversed(drawn), strict=True)
    with figure(target, width=6.0, height=0.7 + 0.4 * len(drawn)) as (axes,):
        axes.barh(names, [value if np.isfinite(value) else 0.0 for value in values], color=colours)
        if not np.isfinite(np.max(bound.total)):
            _write(axes, "The bound is infinite at these values.")
        axes.set(title=f"{bound.source.locator}: {bound.quantity}", xlabel="value of each term")


@draw.register
def _(result: Decomposition, target: Target) -> None:
    measurements.draw_decomposition(target, result)


@draw.register
def _(result: GaugeResult, target: Target) -> None:
    gauges.draw([result], target)


@draw.register
def _(result: FoundRun, target: Target) -> None:
    draw(trace_of(result), target)


@draw.register
def _(result: Reading | Constants | Certified, target: Target) -> None:
    held = result if isinstance(result, Constants) else result.constants
    title = result.name if isinstance(result, Reading) else "constants"
    drawn = [each for each in held.values() if np.isfinite(each.value)]
    with figure(target, width=6.0, height=0.9 + 0.3 * max(len(drawn), 1)) as (axes,):
        for row, each in enumerate(drawn):
            ends = [[each.value - each.low], [min(each.high, 10 * abs(each.value)) - each.value]]
            ends = [[max(end, 0.0) if np.isfinite(end) else 0.0 for end in side] for side in ends]
            axes.errorbar(each.value, row, xerr=ends, fmt="o", color=COLOURS[0], capsize=3)
        axes.set_yticks(range(len(drawn)), [f"{each.symbol} ({each.kind})" for each in drawn])
        axes.set(xlabel="value", title="certified constants" if isinstance(result, Certified) else title)
        if not drawn:
            _write(axes, "No constant here is finite.")
        axes.invert_yaxis()
        positive = [each.value for each in drawn if each.value > 0]
        if len(positive) == len(drawn) > 0 and max(positive) > 50 * min(positive):
            axes.set_xscale("log")


def _write(axes: Axes, words: str) -> None:
    """A sentence where there is nothing to draw."""
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=INK)


@draw.register
def _(result: Partition, target: Target) -> None:
    with figure(target, width=6.0) as (axes,):
        axes.bar(range(result.num_workers), result.sizes, color=COLOURS[0])
        axes.set(title=f"{result.scheme}: examples by worker", xlabel="worker", ylabel="examples")
        count_along(axes)


@draw.register
def _(result: WorkerEvaluation, target: Target) -> None:
    columns = {"loss": result.losses} | ({"accuracy": result.accuracies} if result.accuracies else {})
    with figure(target, panels=len(columns)) as panels:
        for axes, (name, values) in zip(panels, columns.items(), strict=True):
            places = range(1, len(values) + 1)
            title = f"{name} of the workers, in growing order"
            lines(axes, places, {name: sorted(values)}, title=title, xlabel="worker", ylabel=name, log="", marker=".")
            count_along(axes)


@draw.register
def _(result: Design, target: Target) -> None:
    names = [each.kind for each in result.federations]
    with figure(target, panels=2, width=4.6) as (left, right):
        left.bar(names, [each.zeta_rms for each in result.federations], color=COLOURS[0])
        left.axhline(result.zeta, color=INK, linestyle="--")
        left.set(title="zeta_rms, and what was wanted", ylabel="zeta_rms")
        right.bar(names, [each.efficiency.value or 0.0 for each in result.federations], color=COLOURS[4])
        right.set(title=f"efficiency of {counted(result.local_steps, 'local step')}", ylabel="efficiency")
        for axes in (left, right):
            axes.tick_params(axis="x", rotation=30)


@draw.register
def _(result: SweepResult, target: Target) -> None:
    tested = any(each.accuracy for each in result.combinations)
    with figure(target, panels=1 + tested, width=5.4) as panels:
        for axes, name in zip(panels, ("loss", "accuracy"), strict=False):
            series = {}
            for each in result.combinations:
                curve = getattr(each, name)
                if curve and each.rounds:
                    label = ", ".join(f"{key} = {value}" for key, value in each.values.items()) or "all"
                    series[label] = (each.rounds, curve.mean, curve.deviation)
            count_along(axes)
            bands(axes, series, title="sweep", xlabel="round", ylabel=name, log="y" if name == "loss" else "")


# -- words and tables ------------------------------------------------------------------------------------------------


@functools.singledispatch
def summary(result: object) -> Markup:
    """What a result says."""
    return Markup("<pre>{}</pre>").format(result)


def _estimates(constants: Mapping[str, Any]) -> Markup:
    rows = [(name, e.value, e.low, e.high, e.kind, e.method) for name, e in constants.items()]
    return table(("constant", "value", "low", "high", "kind", "method"), rows)


@summary.register
def _(result: Trace) -> Markup:
    last = result.rounds[-1] if result.rounds else None
    entries: dict[str, Any] = {"status": result.status, "rounds": result.stopped_at}
    if last:
        entries |= {"loss": last.loss, "|grad f|²": last.grad2, "test accuracy": last.accuracy}
    return Markup("<p>{}</p>").format(f"A run of {counted(result.stopped_at, 'round')}.") + facts(entries)


@summary.register
def _(result: Constants) -> Markup:
    return _estimates(result)


@summary.register
def _(result: Certified) -> Markup:
    return Markup("<p>{}</p>").format(certified_words(result)) + _estimates(result.constants)


@summary.register
def _(result: Decomposition) -> Markup:
    return Markup("").join(
        Markup("<p>{}</p>").format(parts_words(part)) + table(("worker", "share"), parts_rows(part))
        for part in result.parts
    )


@summary.register
def _(result: Tuned) -> Markup:
    return Markup("<p>{}</p>").format(tuned_words(result))


@summary.register
def _(result: CorollaryRates) -> Markup:
    return Markup("").join(Markup("<p>{}</p>").format(line) for line in corollary_words(result))


@summary.register
def _(result: Measurement) -> Markup:
    tables = Markup("")
    for reading in result.readings:
        tables += Markup("<p><b>{}</b> {}</p>").format(reading.name, reading.meaning)
        tables += (_estimates(reading.constants) if reading.estimates else Markup("")) + notes(reading.notes)
    return tables


@summary.register
def _(result: Plan | TheoryPlan | Answer) -> Markup:
    return Markup("<p>{}</p>").format(result.verdict)


@summary.register
def _(result: Expectation) -> Markup:
    entries = {result.index: len(result.loss) - 1, "E f": result.loss[-1], "E|grad f|²": result.grad2[-1]}
    return Markup("<p>Exact expectations.</p>") + facts(entries)


@summary.register
def _(result: Region) -> Markup:
    return Markup("<p>{}</p>").format(result.summary)
