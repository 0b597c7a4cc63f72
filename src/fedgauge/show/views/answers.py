"""The answer to "how many local steps?"."""

from __future__ import annotations

from fedgauge.show.charts import LineChart, Mark, Series
from fedgauge.show.views.view import Cell, Interval, Share, Table, View, view
from fedgauge.values.answer import COSTS, Answer


@view.register
def view_of_answer(answer: Answer) -> View:
    """The sentence, what to use for four costs of a round, the efficiencies, and their curve."""
    # What limits the answer is said with it.
    sentences = [*filter(None, [answer.sentence, answer.share]), *answer.notes]
    notes = [*filter(None, [answer.method])]
    if not answer.complete:
        return View(sentences, notes=notes)
    if answer.cost is None:
        notes.append("Your own cost of a round: time a round of communication, time a local step, and divide.")
    costs = list(COSTS) if answer.cost is None else sorted({*COSTS, answer.cost})
    best = [answer.best(cost) for cost in costs]
    edges = [each for each in best if each.edge == "largest"]
    if edges:
        notes.append(f"{edges[-1].local_steps} is the largest number that was tried; more may be faster still.")
    first = answer.efficiency[0].local_steps
    rows: list[list[Cell]] = [
        ["use", *(each.local_steps for each in best)],
        ["within 5% of the best", *(str(Interval(each.low, each.high)) or str(each.low) for each in best)],
        [f"faster than {first} by", *(f"{each.speedup:.3g}×" for each in best)],
        ["sure", *(Share(each.sure) for each in best)],
    ]
    recommended = Table(("a round costs as much as", *(f"{cost:,g}" for cost in costs)), rows, "Local steps to use")
    return View(sentences, tables=(recommended, _efficiencies(answer)), charts=(_chart(answer),), notes=notes)


def _efficiencies(answer: Answer) -> Table:
    rows: list[list[Cell]] = [
        [
            each.local_steps,
            Share(each.value),
            "reference" if not each.measured else str(Interval(round(100 * each.low), round(100 * each.high), "%")),
            *(
                next((Share(e.value) for e in found if e.local_steps == each.local_steps), None)
                for _, found in answer.phases
            ),
        ]
        for each in answer.efficiency
    ]
    heads = ("local steps", "work that counts", "90% interval", *(name for name, _ in answer.phases))
    return Table(heads, rows, "How much of the work counts")


def _chart(answer: Answer) -> LineChart:
    steps, values = [float(e.local_steps) for e in answer.efficiency], [e.value for e in answer.efficiency]
    low, high = [e.low for e in answer.efficiency], [e.high for e in answer.efficiency]
    marks = [] if answer.using is None else [Mark(answer.using, "now")]
    if answer.cost is not None:
        marks.append(Mark(answer.best().local_steps, "use"))
    return LineChart(
        "efficiency",
        [Series("efficiency", steps, values, 0, "line", low, high)],
        title="How much of the work counts",
        x_label="local steps",
        y_label="efficiency",
        note=f"Compared with {answer.reference}. The band is an interval of 90%.",
        log=False,
        log_x=True,
        marks=marks,
    )
