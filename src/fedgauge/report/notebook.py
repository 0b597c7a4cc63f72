"""Results in a notebook, and ``plot()`` of each: a sentence, a table and a picture.

To show another kind of result, register its picture and its summary here.
"""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fedgauge.errors import InputError
from fedgauge.exact.expectation import Expectation
from fedgauge.exact.region import Region
from fedgauge.measurement.reading import Measurement
from fedgauge.planning.plan import Plan
from fedgauge.planning.theory_plan import TheoryPlan
from fedgauge.report.figures import COLOURS, Sheet, Target, figure, lines
from fedgauge.report.terminal import kept_runs, measurements, plans, regions, theory_plans
from fedgauge.theory.answer import Answer
from fedgauge.values import Constants, Trace
from fedgauge.values.text import counted
from fedgauge.web.elements import facts, notes, table


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
    said = summary(result)
    if draw.dispatch(type(result)) is draw.dispatch(object):
        return str(said)
    content = io.BytesIO()
    plot(result).savefig(content, format="png")
    picture = base64.b64encode(content.getvalue()).decode()
    return str(said + Markup('<img alt="" style="max-width: 100%" src="data:image/png;base64,{}">').format(picture))


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
    theory_plans.draw_theory(result, target)


@draw.register
def draw_expectation(result: Expectation, target: Target) -> None:
    """Draw the exact expected loss and squared gradient norm."""
    with figure(target, panels=2) as (left, right):
        count = range(len(result.loss))
        common = {"title": "exact expectation", "xlabel": result.index}
        lines(left, count, {"E f": result.loss}, ylabel="expected loss", log="", **common)
        lines(right, count, {"E |grad f|²": result.grad2}, ylabel="expected |grad f|²", **common)


@draw.register
def _(result: Answer, target: Target) -> None:
    with figure(target, width=6.0, height=0.5 + 0.45 * len(result.bound.terms)) as (axes,):
        terms = result.bound.terms[::-1]
        axes.barh([term.name for term in terms], [float(term.value) for term in terms], color=COLOURS[0])
        axes.set(title=f"{result.bound.source.locator}: {result.bound.quantity}", xlabel="value of each term")


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
