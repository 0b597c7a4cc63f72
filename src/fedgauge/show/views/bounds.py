"""Bounds: a theorem's answer, a search for the best rates, a bound beside a run, and exact expectations."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from fedgauge.show.charts import LineChart, Mark, Row, RowChart, Series, StackedChart, StackLayer, Style
from fedgauge.show.views.runs import some
from fedgauge.show.views.view import (
    Cell,
    Formula,
    Share,
    StandingCell,
    Table,
    View,
    conditions_table,
    estimates_table,
    number,
    terms_table,
    view,
)
from fedgauge.show.web.writing import shown
from fedgauge.theory.answer import Other, TheoremAnswer
from fedgauge.theory.base import Theorem
from fedgauge.theory.comparison import Comparison
from fedgauge.theory.corollaries import CorollaryRates
from fedgauge.theory.expectation import Expectation
from fedgauge.theory.search import Tuned
from fedgauge.values import Bound, Condition, Number
from fedgauge.values.display import short

VERSIONS: dict[str, tuple[int, Style]] = {
    "star": (2, "line"),
    "corrected": (4, "line"),
    "printed": (1, "dashed"),
    "sharp": (3, "line"),
    "prior": (5, "dashed"),
}
"""The colour and the style of each version of a theorem."""


def _ranged(value: Number) -> str:
    """A number, or the least and the largest of several."""
    low, high = float(np.min(value)), float(np.max(value))
    return short(low) if low == high else f"{short(low)} to {short(high)}"


def _bound_words(bound: Bound) -> str:
    return f"{bound.source.locator} says {bound.quantity} <= {_ranged(bound.total)}"


def _terms_chart(bound: Bound, rival: Bound | None = None) -> RowChart:
    """The terms of a bound as bars, and below them its total beside a rival's if it has one."""
    values = [(term.name, float(np.max(term.value)), 0) for term in bound.terms]
    if rival is not None:
        values.append(("all together", float(np.max(bound.total)), 4))
        values.append((f"instead: {rival.source.locator}", float(np.max(rival.total)), 3))
    note = "" if np.isfinite(np.max(bound.total)) else "The bound is infinite at these values."
    title = f"{bound.source.locator}: {bound.quantity}"
    # What is infinite has no length; the note says so.
    rows = [Row(name, "terms", v, v, v, colour) for name, v, colour in values if math.isfinite(v)]
    return RowChart(
        "bound-terms", rows or [Row("", "terms", 0.0, 0.0, 0.0)], title, "value of each term", note, bars=True
    )


@view.register
def view_of_bound(bound: Bound) -> View:
    """A bound and its terms, each at its largest where there are several."""
    rows = [(term.name, float(np.max(term.value)), Formula(term.formula)) for term in bound.terms]
    sentence = f"{bound.source.locator}, {bound.source.version}: {bound.quantity} <= {_ranged(bound.total)}."
    return View((sentence,), tables=(Table(("term", "value", "formula"), rows),), charts=(_terms_chart(bound),))


@view.register
def view_of_answer(answer: TheoremAnswer, title: str = "", caveat: str = "") -> View:
    """A bound: its terms with their shares, its conditions, its versions side by side and the verdict.

    A certificate ends with the ``caveat``: what it takes for granted, or what it is about.
    """
    bound = answer.bound
    ending = [caveat] if caveat and answer.standing == "certified" else []
    chosen = ", ".join(f"{name} = {number(answer.values[name])}" for name in answer.chosen)
    first = [f"Smallest within the conditions at {chosen}."] if chosen else []
    what = [bound.source.locator, bound.source.version, *([title] if title else [])]
    total = f"{bound.quantity} <= {number(float(bound.total))}"
    tables = terms_table(bound, answer.shares), conditions_table(bound.conditions), _versions(answer)
    return View(
        (" ".join([answer.verdict, *ending, *answer.notes]),),
        title=f"{answer.theorem} ({', '.join(what)}); {total}",
        tables=tables,
        charts=(_terms_chart(bound),),
        notes=[*first, *bound.source.deviations],
        standing=answer.standing,
    )


def _versions(answer: TheoremAnswer) -> Table:
    rows = [(name, each.total, _holding(each), each.gamma_max) for name, each in answer.versions.items()]
    chosen = list(answer.versions).index(answer.bound.source.version) if rows else None
    return Table(("version", "bound", "conditions", "largest gamma"), rows, "Versions", chosen=chosen)


def _holding(other: Other) -> str:
    if other.missing:
        return f"needs {', '.join(other.missing)}"
    return "hold" if other.admissible else "fail"


@view.register
def view_of_tuned(tuned: Tuned) -> View:
    """The best rates, and the bound that they give."""
    steps = [f"{name} = {_ranged(value)}" for name, value in (("I", tuned.I), ("R", tuned.R)) if value is not None]
    rates = ", ".join([*steps, f"gamma = {_ranged(tuned.gamma)}", f"eta = {_ranged(tuned.eta)}"])
    return View((f"Best: {rates}, where {_bound_words(tuned.bound)}.",), charts=(_terms_chart(tuned.bound),))


@view.register
def view_of_corollary(corollary: CorollaryRates) -> View:
    """A corollary's rates, from how many rounds on they are allowed, the bound there, and what fails."""
    rates = f"gamma = {_ranged(corollary.gamma)}, eta = {_ranged(corollary.eta)}"
    fewest = f"from R = {_ranged(corollary.R_min)} on" if np.isfinite(np.max(corollary.R_min)) else "at no R"
    lines = [f"{corollary.locator}: {rates}, allowed {fewest}; there, {_bound_words(corollary.bound)}."]
    if corollary.rival is not None:
        lines.append(f"Instead, {_bound_words(corollary.rival)}.")
    failed = [each for each in (*corollary.conditions, *corollary.bound.conditions) if not np.all(each.holds)]
    lines += [f"Not satisfied: {_condition_words(each)}." for each in failed]
    return View((*lines, *corollary.deviations), charts=(_terms_chart(corollary.bound, corollary.rival),))


def _condition_words(condition: Condition) -> str:
    return f"{condition.name} = {_ranged(condition.value)} is above {condition.formula} = {_ranged(condition.limit)}"


def theorems_view(theorems: Iterable[Theorem]) -> View:
    """Every theorem with what it needs."""
    rows = []
    for each in theorems:
        needs = [*each.needs, *([f"[{' '.join(each.optional)}]"] if each.optional else [])]
        rows.append((each.name, each.locator, f"{each.title}\n{' '.join(needs)}\n{' '.join(each.versions)}"))
    note = "In brackets: what may be left out. prior uses L_tilde in place of L_g and L_h."
    return View(tables=(Table(("theorem", "in", "what it says, what it needs, its versions"), rows, note=note),))


@view.register
def view_of_expectation(expectation: Expectation, title: str = "") -> View:
    """The exact expected loss and squared gradient norm, after some of the rounds."""
    last = len(expectation.loss) - 1
    loss, grad2 = short(expectation.loss[-1]), short(expectation.grad2[-1])
    sentence = f"After {last} of {expectation.index}: E f = {loss} and E‖∇f‖² = {grad2}, exactly."
    rows = [(index, expectation.loss[index], expectation.grad2[index]) for index in some(len(expectation.loss))]
    table = Table((expectation.index, "E f", "E‖∇f‖²"), rows, note="exact, in closed form")
    x = [float(index) for index in range(len(expectation.loss))]
    charts = [
        LineChart(
            "expected-loss",
            [Series("E f", x, expectation.loss)],
            "Exact expected loss",
            expectation.index,
            "E f",
            log=False,
        ),
        LineChart(
            "expected-grad2",
            [Series("E‖∇f‖²", x, expectation.grad2)],
            "Exact expected squared gradient norm",
            expectation.index,
            "E‖∇f‖²",
        ),
    ]
    return View((sentence,), title, tables=(table,), charts=charts)


# -- beside a run ----------------------------------------------------------------------------------------------------

_FAILS = "a condition of it fails"


def worth(comparison: Comparison) -> str:
    """The bound and what happened, and what the bound is worth, in a sentence."""
    total, standing = float(comparison.answer.bound.total), comparison.answer.standing
    if standing == "contradicted":
        return comparison.answer.verdict
    if not math.isfinite(total):
        why = _FAILS if standing == "not certified" else "a constant is infinite"
        return f"{comparison.locator} gives no bound for this run: {why}."
    exceeded = ", which the run exceeds: a constant is too small" if total < comparison.reached else ""
    values = {"plug-in": f"a plug-in{exceeded}", "not certified": f"not certified, because {_FAILS}"}
    times = f", {shown(total / comparison.reached)} times as much" if comparison.reached > 0 else ""
    return (
        f"The smallest squared gradient norm before the last round was {shown(comparison.reached)}, where"
        f" {comparison.locator} with the measured constants says at most {shown(total)}{times}"
        f" ({values.get(standing, standing)})."
    )


@view.register
def view_of_comparison(comparison: Comparison) -> View:
    """A theorem beside what was measured, its terms over local steps, its versions and its conditions."""
    answer, reached = comparison.answer, comparison.reached
    rows: list[list[Cell]] = []
    for version, one in comparison.answers.items():
        total = float(one.bound.total)
        times = total / reached if reached > 0 else None
        rows.append([version, total, times, float(one.bound.gamma_max), StandingCell(one.standing)])
    heads = ("version", "bound", "times what happened", "largest gamma", "worth")
    terms = terms_table(answer.bound, answer.shares)
    if not math.isfinite(float(answer.bound.total)):
        # Of an infinite whole there are no shares.
        terms = Table(terms.heads, [[None if isinstance(c, Share) else c for c in row] for row in terms.rows], "Terms")
    return View(
        (worth(comparison), answer.verdict),
        tables=(
            Table(heads, rows, f"Versions after {shown(answer.values['R'])} rounds"),
            conditions_table(answer.bound.conditions, f"Conditions, {answer.bound.source.version}"),
            terms,
            estimates_table(comparison.constants.values(), "Constants that entered the bound", detail=True),
        ),
        charts=(_against(comparison), _terms_over_steps(comparison)),
        notes=[
            f"{comparison.locator} bounds {answer.bound.quantity}, an expectation. The run is one draw of it, and its"
            f" smallest value before the last round was {shown(reached)}.",
            *comparison.notes,
        ],
        standing=answer.standing,
    )


def _against(comparison: Comparison) -> LineChart:
    series = [Series("measured, least so far", comparison.records, comparison.least, 0, "steps")]
    totals = dict(comparison.totals)
    same = totals.get("printed") == totals.get("corrected")
    if same:
        del totals["printed"]
    for version, heights in totals.items():
        words = "corrected, as printed" if same and version == "corrected" else version
        name = f"{words} ({comparison.answers[version].standing})"
        series.append(Series(name, comparison.rounds, heights, *VERSIONS[version]))
    return LineChart(
        "bound",
        series,
        title=f"{comparison.locator} and the run on one axis",
        x_label="rounds R",
        y_label="min ‖∇f‖² over the rounds",
        log_x=True,
        note="With the measured constants; a plug-in where one of them may be on the unsafe side.",
    )


def _terms_over_steps(comparison: Comparison) -> StackedChart:
    layers = [
        StackLayer(name, index % 8, heights)
        for index, (name, heights) in enumerate(comparison.terms.items())
        if any(height > 0 for height in heights)
    ]
    totals = [sum(heights) for heights in zip(*comparison.terms.values(), strict=True)]
    marks, limit = [Mark(float(comparison.run_steps), "the run")], comparison.admitted
    admitted = "The conditions admit none of these I at the run’s rates."
    if limit is not None:
        most = limit == comparison.local_steps[-1]
        admitted = "The conditions admit all of these I." if most else f"The conditions admit I up to {limit}."
        marks += [] if most else [Mark(limit, "admitted")]
    return StackedChart(
        "terms",
        comparison.local_steps,
        layers,
        title=f"Terms of the bound ({comparison.answer.bound.source.version}), over local steps",
        x_label="local steps I",
        y_label="bound",
        note=f"At the run’s rates and rounds. {admitted}",
        shares=max(totals) > 30 * min(totals),
        marks=marks,
    )
