"""The gauge: how many local steps a federation affords."""

from __future__ import annotations

from collections.abc import Sequence

from fedgauge.measurement.gauge.result import Efficiency, GaugeResult
from fedgauge.show.charts import LineChart, Mark, Series
from fedgauge.show.views.view import Cell, Table, View, view
from fedgauge.values.display import counted


@view.register
def view_of_gauge(found: GaugeResult, run_steps: int | None = None) -> View:
    """The answer, the efficiencies, and what they cost; a run's own local steps are marked, if they are given."""
    afforded, facts = found.affordable[f"{found.threshold:g}"], dict[str, Cell]()
    facts[f"affordable I ({found.threshold:.0%} count)"] = afforded
    notes = []
    if found.recommended is not None and found.cost is not None:
        facts[f"fastest I ({found.cost.name})"] = found.recommended
        steps = counted(found.recommended, "local step")
        notes.append(f"Fastest with the cost {found.cost.name}: {steps} per round.")
    if run_steps is not None:
        facts["I of the run"] = run_steps
    spent = found.spent
    notes += [
        *([found.cause.sentence] if found.cause else []),
        found.compared_with,
        f"Spent: {spent.gradient_steps} steps of each worker beyond the base run's {spent.base_gradient_steps}, in"
        f" {counted(spent.rounds, 'round')}. This is an instrument: measured on this federation, at this rate, from"
        f" f = {found.losses[0]:.4g} to {found.goal:.4g}.",
        *found.notes,
    ]
    heads = ("I", "efficiency", "90% interval", "slowdown", *(phase.name for phase in found.phases))
    table = Table(heads, [_row(found, each) for each in found.efficiency], "Efficiency of local steps")
    chart = gauge_chart([found], [] if run_steps is None else [Mark(run_steps, "the run")])
    return View((found.sentence,), facts=facts, tables=(table,), charts=(chart,), notes=notes)


def _row(found: GaugeResult, each: Efficiency) -> list[Cell]:
    parts = [next((e for e in p.efficiency if e.local_steps == each.local_steps), None) for p in found.phases]
    name = each.local_steps if each.how != "reference" or found.base is None else "synchronous"
    slowdown = None if each.slowdown is None else f"{each.slowdown:.2f}"
    return [name, each.share, each.interval, slowdown, *(part.share if part else None for part in parts)]


def gauge_chart(results: Sequence[GaugeResult], marks: Sequence[Mark] = ()) -> LineChart:
    """The efficiency over local steps with its interval, at one rate or at several, and what can be afforded."""
    series, marks = [], list(marks)
    for number, found in enumerate(results):
        known = found.curve
        rate = (found.settings.get("algorithm") or {}).get("gamma")
        name = f"gamma {rate:g}" if len(results) > 1 and rate is not None else ""
        steps, values = [float(each.local_steps) for each in known], [each.value or 0.0 for each in known]
        low, high = [each.low for each in known], [each.high for each in known]
        series.append(Series(name or "efficiency", steps, values, (0, 4, 3, 1, 6, 7)[number % 6], "line", low, high))
        marks.append(Mark(found.affordable[f"{found.threshold:g}"], f"affordable {name}".strip()))
        if found.recommended is not None and found.cost is not None:
            marks.append(Mark(found.recommended, f"fastest {name}".strip()))
    ends = [at for one in series for at in (one.x[0], one.x[-1])]
    series.append(Series("threshold", [min(ends), max(ends)], [results[0].threshold] * 2, 5, "dashed"))
    return LineChart(
        "gauge",
        series,
        title="How many of the local steps count",
        x_label="local steps I",
        y_label="efficiency",
        note="1: local steps are free. 0.5: every second one is lost to drift. The band is an interval of 90%.",
        log=False,
        log_x=True,
        marks=marks,
    )
