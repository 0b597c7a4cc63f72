"""Bound against reality: a theorem beside what was measured, its terms over local steps, its conditions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedgauge.planning.comparison import Comparison
from fedgauge.show.page.chart import Chart, Mark, Series, Style, lines, stacked
from fedgauge.show.page.estimates import estimates_table
from fedgauge.show.page.section import ReportInput, Section
from fedgauge.show.web.elements import CellValue, formula, standing
from fedgauge.show.web.writing import percent, shown
from fedgauge.values import Version

_LOOKS: dict[Version, tuple[int, Style]] = {
    "star": (2, "line"),
    "corrected": (4, "line"),
    "printed": (1, "dashed"),
    "sharp": (3, "line"),
    "prior": (5, "dashed"),
}
_WHY = {"not certified": "a condition of it fails"}
_TEMPLATE = """\
{{ standing_line(answer.standing) }}
<p>{{ found.locator }} bounds {{ answer.bound.quantity | quantity }}, an expectation. The run is one draw of it, and
its smallest value before the last round was {{ number(found.reached) }}.</p>
{{ notes([answer.verdict]) }}{{ notes(found.notes) }}
<div class="charts">{% for chart in charts %}{{ chart.html }}{% endfor %}</div>
<div class="charts"><div class="beside"><h3>Versions after {{ answer.values["R"] | shown }} rounds</h3>
{{ table(("version", "bound", "times what happened", "largest γ", "worth"), versions, "cards") }}
<h3>Conditions, {{ answer.bound.source.version }}</h3>
<ul class="conditions">{% for each in answer.bound.conditions %}{{ condition(each) }}{% endfor %}</ul></div>
<div class="beside"><h3>Terms, {{ answer.bound.source.version }}</h3>
{{ table(("term", "value", "share", "formula"), terms, "cards") }}</div></div>
<details><summary>Constants that entered the bound</summary>{{ constants }}</details>
"""


def words(found: Comparison) -> str:
    """The bound and what happened, and what the bound is worth, in a sentence."""
    total, standing = float(found.answer.bound.total), found.answer.standing
    if standing == "contradicted":
        return found.answer.verdict
    if not math.isfinite(total):
        return f"{found.locator} gives no bound for this run: {_WHY.get(standing, 'a constant is infinite')}."
    short = ", which the run exceeds: a constant is too small" if total < found.reached else ""
    worth = {"plug-in": f"a plug-in{short}", "not certified": f"not certified, because {_WHY['not certified']}"}
    times = f", {shown(total / found.reached)} times as much" if found.reached > 0 else ""
    return (
        f"The smallest squared gradient norm before the last round was {shown(found.reached)}, where"
        f" {found.locator} with the measured constants says at most {shown(total)}{times}"
        f" ({worth.get(standing, standing)})."
    )


def _show(given: ReportInput) -> Mapping[str, Any] | None:
    found = given.background.comparison
    if found is None:
        return None
    answer = found.answer
    versions: list[list[CellValue]] = [
        [
            version,
            float(one.bound.total),
            float(one.bound.total) / found.reached if found.reached > 0 else None,
            float(one.bound.gamma_max),
            standing(one.standing),
        ]
        for version, one in found.answers.items()
    ]
    is_finite = math.isfinite(float(answer.bound.total))
    terms: list[list[CellValue]] = [
        # Of an infinite whole there are no shares.
        [t.name, float(t.value), (share, percent(share)) if is_finite else None, formula(t.formula)]
        for t, share in zip(answer.bound.terms, answer.shares, strict=True)
    ]
    return {
        "found": found,
        "answer": answer,
        "versions": versions,
        "terms": terms,
        "constants": estimates_table(found.constants),
        "charts": [_against(found), _terms(found)],
    }


def _against(found: Comparison) -> Chart:
    series = [Series("measured, least so far", found.records, found.least, 0, "steps")]
    totals = dict(found.totals)
    same = totals.get("printed") == totals.get("corrected")
    if same:
        del totals["printed"]
    for version, heights in totals.items():
        colour, style = _LOOKS[version]
        name = "corrected, as printed" if same and version == "corrected" else version
        series.append(Series(f"{name} ({found.answers[version].standing})", found.rounds, heights, colour, style))
    return lines(
        "bound",
        series,
        title=f"{found.locator} and the run on one axis",
        x_label="rounds R",
        y_label="min ‖∇f‖² over the rounds",
        log_x=True,
        note="With the measured constants; a plug-in where one of them may be on the unsafe side.",
    )


def _terms(found: Comparison) -> Chart:
    layers = [
        (name, index % 8, heights)
        for index, (name, heights) in enumerate(found.terms.items())
        if any(height > 0 for height in heights)
    ]
    totals = [sum(heights) for heights in zip(*found.terms.values(), strict=True)]
    marks = [Mark(float(found.run_steps), "the run")]
    limit = found.admitted
    admitted = "The conditions admit none of these I at the run’s rates."
    if limit is not None:
        most = limit == found.local_steps[-1]
        admitted = "The conditions admit all of these I." if most else f"The conditions admit I up to {limit}."
        if not most:
            marks.append(Mark(limit, "admitted"))
    return stacked(
        "terms",
        found.local_steps,
        layers,
        title=f"Terms of the bound ({found.answer.bound.source.version}), over local steps",
        x_label="local steps I",
        y_label="bound",
        note=f"At the run’s rates and rounds. {admitted}",
        shares=max(totals) > 30 * min(totals),
        marks=marks,
    )


SECTION = Section("bound", "Bound against reality", ("run",), _show, _TEMPLATE)
