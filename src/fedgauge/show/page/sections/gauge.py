"""The gauge: how many local steps the federation affords, which is the first thing that a reader wants to know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedgauge.measurement.gauge.result import GaugeResult
from fedgauge.show.page.chart import Mark, Series, lines
from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.web.elements import CellValue, table

_TEMPLATE = """\
{{ facts(entries) }}
<div class="charts">{% for chart in charts %}{{ chart.html }}{% endfor %}
<div class="beside"><h3>Efficiency of local steps</h3>{{ numbers }}</div></div>
{{ notes(remarks) }}
"""


def _gauge(given: ReportInput) -> GaugeResult:
    found: GaugeResult = given.found.by_kind[GaugeResult.kind]
    return found


def _show(given: ReportInput) -> Mapping[str, Any]:
    found = _gauge(given)
    known = found.curve
    steps = [float(each.local_steps) for each in known]
    marks = [Mark(found.affordable[f"{found.threshold:g}"], "affordable")]
    entries: dict[str, CellValue] = {
        f"affordable I ({found.threshold:.0%} count)": found.affordable[f"{found.threshold:g}"]
    }
    if found.recommended is not None and found.cost is not None:
        entries[f"fastest I ({found.cost.name})"] = found.recommended
        marks.append(Mark(found.recommended, "fastest"))
    run = given.found.run
    taken = run.settings.get("local_steps") if run else None
    if isinstance(taken, int):
        entries["I of the run"] = taken
        marks.append(Mark(taken, "the run"))
    curve = Series(
        "efficiency",
        steps,
        [each.value or 0.0 for each in known],
        low=[each.low for each in known],
        high=[each.high for each in known],
    )
    threshold = Series("threshold", [steps[0], steps[-1]], [found.threshold] * 2, 5, "dashed")
    chart = lines(
        "gauge",
        [curve, threshold],
        title="How many of the local steps count",
        x_label="local steps I",
        y_label="efficiency",
        note="1: local steps are free. 0.5: every second one is lost to drift. The band is an interval of 90%.",
        log=False,
        log_x=True,
        marks=marks,
    )
    rows: list[list[CellValue]] = []
    for each in found.efficiency:
        parts = [next((e for e in p.efficiency if e.local_steps == each.local_steps), None) for p in found.phases]
        slowdown = "–" if each.slowdown is None else f"{each.slowdown:.2f}"
        name = each.local_steps if each.how != "reference" or found.base is None else "synchronous"
        rows.append([name, each.share, slowdown, *(part.share if part else "–" for part in parts)])
    remarks = [
        *([found.cause.sentence] if found.cause else []),
        found.compared_with,
        "This is an instrument: it was measured on this federation, at this rate, along the way from"
        f" f = {found.losses[0]:.4g} to {found.goal:.4g}."
        f" It took {found.spent.gradient_steps} steps of each worker beyond the {found.spent.base_gradient_steps} of"
        " the base run.",
        *found.notes,
    ]
    numbers = table(["I", "efficiency", "slowdown", *(phase.name for phase in found.phases)], rows)
    return {"entries": entries, "charts": [chart], "numbers": numbers, "remarks": remarks}


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    found = _gauge(given)
    algorithm = found.settings.get("algorithm") or {}
    rates = {name: str(value) if isinstance(value, bool) else value for name, value in algorithm.items()}
    rates.pop("name", None)
    return {"algorithm": str(algorithm.get("name", "–")), **rates, "seed": found.settings.get("seed")}


SECTION = Section(
    "gauge",
    "How many local steps it affords",
    ("gauge",),
    _show,
    _TEMPLATE,
    Heading("gauge", lambda given: _gauge(given).sentence, _settings, is_answer=True),
)
