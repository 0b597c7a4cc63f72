"""The answer to "how many local steps?", in the same words and numbers wherever it is shown."""

from __future__ import annotations

from collections.abc import Sequence

from fedgauge.show.charts import LineChart, Mark, Series
from fedgauge.show.views.view import Cell, Interval, Share, Table, View, view
from fedgauge.values.answer import Answer, Recommendation, StepEfficiency

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
    edges = [each for each in best if each.edge == "largest"]
    if edges:
        notes.insert(0, f"{edges[-1].local_steps} is the largest number that was tried; more may be faster still.")
    if answer.cost is None:
        notes.append(OWN_COST)
    sentences = [*filter(None, [answer.sentence, _gain(answer), answer.share])]
    return View(
        sentences,
        tables=(_recommended(answer, best), _efficiencies(answer)),
        charts=(efficiency_chart([("efficiency", answer)]),),
        notes=notes,
    )


def _gain(answer: Answer) -> str:
    """How much faster than what the user has; empty where that is not known, or there is nothing to gain."""
    if answer.using is None or answer.cost is None:
        return ""
    best, gain = answer.best().local_steps, answer.speedup_over(answer.using)
    if gain is None or best == answer.using:
        return ""
    return f"That is {gain:.2g} times as fast as with the {answer.using} in use."


def _recommended(answer: Answer, best: Sequence[Recommendation]) -> Table:
    first = answer.efficiency[0].local_steps
    rows: list[list[Cell]] = [
        ["use", *(f"{each.local_steps:,}" for each in best)],
        [f"faster than {'one step' if first == 1 else first} by", *(f"{each.speedup:.2g}×" for each in best)],
        ["within 5% of the best", *(str(Interval(each.low, each.high)) or str(each.low) for each in best)],
        ["sure to be within 10%", *(f"{each.sure:.0%}" for each in best)],
    ]
    if answer.using is not None and answer.efficiency[0].local_steps < answer.using:
        gains = [answer.speedup_over(answer.using, each.cost) for each in best]
        rows.insert(2, [f"faster than {answer.using} by", *(f"{gain:.2g}×" if gain else None for gain in gains)])
    heads = [f"{each.cost:,.0f}" if each.cost >= 1000 else f"{each.cost:.3g}" for each in best]
    return Table(("a round costs as much as", *heads[:-1], f"{heads[-1]} local steps"), rows, "Local steps to use")


def _efficiencies(answer: Answer) -> Table:
    rows: list[list[Cell]] = [
        [
            each.local_steps,
            Share(min(each.value, 1.0), "" if each.share.endswith("%") and not each.limit else each.share),
            "compared with this" if not each.measured else each.interval or None,
            *(_within(parts, each.local_steps) for _, parts in answer.phases),
        ]
        for each in answer.efficiency
    ]
    heads = ("local steps", "work that counts", "90% interval", *(name for name, _ in answer.phases))
    return Table(heads, rows, "How much of the work counts")


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
