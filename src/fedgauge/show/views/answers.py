"""The answer to "how many local steps?", in the same words and numbers wherever it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedgauge.show.charts import LineChart, Mark, Series
from fedgauge.show.views.view import Cell, Deferred, Share, Table, View, view
from fedgauge.values.answer import Answer, Recommendation, StepEfficiency, number_of_steps, times
from fedgauge.values.display import share_of

OWN_COST = (
    "Your own cost of a round: time a round of communication, time a local step, and divide; --measure-cost times a"
    " local step on this machine."
)
_COLOURS = (0, 4, 3, 1, 6, 7)


@view.register
def view_of_answer(answer: Answer) -> View:
    """The sentence, what to use for several costs of a round, the efficiencies, and their curve."""
    method = [*filter(None, [answer.method])]
    if not answer.complete:
        return View([answer.sentence, *answer.notes], notes=method)
    notes = [*answer.notes, *method]
    best = answer.recommendations
    if answer.cost is None:
        notes.append(OWN_COST)
    return View(
        [*filter(None, [answer.sentence, _gain(answer), _ideal(answer), answer.share])],
        tables=(_recommended(answer, best), _efficiencies(answer)),
        charts=Deferred(lambda: [efficiency_chart([("efficiency", answer)]), choice_chart(answer)]),
        notes=notes,
        limits=_limits(best),
    )


def below_answer(answer: Answer | None, shown: View) -> View:
    """What a result says, below the answer that it has to the first question: how many local steps?"""
    if answer is None:
        return shown
    card, charts = view_of_answer(answer), shown.charts
    return replace(
        shown,
        sentences=[*card.sentences, *filter(None, [shown.title]), *shown.sentences],
        title="",
        tables=[*card.tables, *shown.tables],
        charts=Deferred(lambda: [*card.charts, *charts]) if isinstance(charts, Deferred) else [*card.charts, *charts],
        notes=[*shown.notes, *card.notes],
        limits=card.limits,
    )


def _limits(best: Sequence[Recommendation]) -> list[str]:
    """Whether more local steps than were tried may be faster still."""
    edges = [each.local_steps for each in best if each.edge == "largest"]
    return [f"{edges[-1]:,} is the largest number that was tried; more may be faster still."] if edges else []


def _gain(answer: Answer) -> str:
    """How much faster than what the user has; empty where that is not known, or there is nothing to gain."""
    if answer.using is None or answer.cost is None:
        return ""
    best, gain = answer.best().local_steps, answer.speedup_over(answer.using)
    if gain is None or best == answer.using:
        return ""
    return f"That is {times(gain)} times as fast as with the {answer.using:,} in use."


def _ideal(answer: Answer) -> str:
    """How fast that is, compared with communication that takes no time."""
    if answer.cost is None:
        return ""
    share = answer.best().ideal
    return f"Its speed is {_of(share)} that of {answer.reference} with free communication."


def _of(share: float) -> str:
    return f"{times(share)} times" if share > 1.005 else f"{share_of(share)} of"


def _recommended(answer: Answer, best: Sequence[Recommendation]) -> Table:
    first = answer.efficiency[0].local_steps
    rows: list[list[Cell]] = [
        ["use", *(f"{each.local_steps:,}" for each in best)],
        [f"faster than {'one step' if first == 1 else f'{first:,}'} by", *(f"{times(each.speedup)}×" for each in best)],
        ["within 5% of the best", *(_between(each.low, each.high) for each in best)],
        ["sure to be within 10%", *(f"{each.sure:.0%}" for each in best)],
        ["share of ideal speed", *(share_of(each.ideal) for each in best)],
    ]
    if answer.using is not None and answer.efficiency[0].local_steps < answer.using:
        gains = [answer.speedup_over(answer.using, each.cost) for each in best]
        rows.insert(2, [f"faster than {answer.using:,} by", *(f"{times(gain)}×" if gain else None for gain in gains)])
    heads = [number_of_steps(each.cost) for each in best]
    return Table(
        ("a round costs as much as", *heads[:-1], f"{heads[-1]} local steps"), rows, "Local steps to use", brief=True
    )


def _between(low: int, high: int) -> str:
    return f"{low:,} to {high:,}" if low < high else f"{low:,}"


def _efficiencies(answer: Answer) -> Table:
    rows: list[list[Cell]] = [
        [
            each.local_steps,
            Share(each.value if each.is_above_one else min(each.value, 1.0), each.share),
            "compared with this" if not each.measured else each.interval or None,
            *(_within(parts, each.local_steps) for _, parts in answer.phases),
        ]
        for each in answer.efficiency
    ]
    heads = ("local steps", "work that counts", "90% interval", *(name for name, _ in answer.phases))
    return Table(heads, rows, "How much of the work counts", splits=bool(answer.phases), brief=True)


def _within(parts: Sequence[StepEfficiency], local_steps: int) -> str | None:
    return next((each.share for each in parts if each.local_steps == local_steps), None)


def efficiency_chart(answers: Sequence[tuple[str, Answer]]) -> LineChart:
    """The efficiency against local steps with its interval, for one answer or for several by name."""
    series, marks = [], []
    for number, (name, answer) in enumerate(answers):
        entries = answer.efficiency
        steps, values = [float(each.local_steps) for each in entries], [each.value for each in entries]
        low, high = [each.low for each in entries], [each.high for each in entries]
        series.append(Series(name, steps, values, _COLOURS[number % len(_COLOURS)], "line", low, high))
        label = "" if len(answers) == 1 else f", {name}"
        if answer.using is not None:
            marks.append(Mark(answer.using, f"now{label}"))
        if answer.cost is not None and answer.complete:
            marks.append(Mark(answer.best().local_steps, f"use{label}"))
    return LineChart(
        "efficiency",
        series,
        title="How much of the work counts",
        x_label="local steps per round",
        y_label="efficiency",
        note=f"Compared with {answers[0][1].reference}: 1 means that local steps are free, 0.5 that every second one is"
        " lost to drift. The band is an interval of 90%.",
        log=False,
        log_x=True,
        marks=marks,
    )


def choice_chart(answer: Answer, bandwidths: Sequence[tuple[float, float]] = (), now: float = 0.0) -> LineChart:
    """The best number of local steps against the cost of a round, or against the bandwidth.

    Args:
        answer: the answer.
        bandwidths: bytes per second, and what a round costs with them, in local steps; by default, costs alone.
        now: the user's own bandwidth.
    """
    known = answer.cost or 0.0
    costs = np.unique([*np.geomspace(0.1, max(1e4, 10 * known), 80), *([known] if known else [])])
    places, costs = (costs, costs) if not bandwidths else (np.array(column) for column in zip(*bandwidths, strict=True))
    best = [answer.best(float(cost)) for cost in costs] if answer.complete else []
    low, high = [float(each.low) for each in best], [float(each.high) for each in best]
    against = "bandwidth" if bandwidths else "the cost of a round"
    marks = [Mark(known, "your cost")] if known and not bandwidths else [Mark(now, "yours")] if now else []
    return LineChart(
        "choice",
        [Series("best", [float(each) for each in places], [each.local_steps for each in best], 0, "line", low, high)],
        title=f"Best local steps against {against}",
        x_label="bandwidth, bytes per second" if bandwidths else "cost of a round, in local steps",
        y_label="local steps per round",
        note="The band holds the numbers that take at most 5% longer.",
        log_x=True,
        marks=marks,
    )
