"""What a theorem certifies for the goal of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from fedgauge.planning.theory_plan import TheoryPlan
from fedgauge.show.page.chart import Chart, Mark, Series, Style, lines, stacked
from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.web.elements import CellValue, number
from fedgauge.values.display import lasting

_TEMPLATE = """\
{{ standing_line(found.answer.standing) }}{{ facts(entries) }}{{ notes([found.verdict], "said") }}{{ notes(practice) }}
<div class="charts">{% for chart in charts %}{{ chart.html }}{% endfor %}</div>
{{ notes(found.notes) }}
<details><summary>How much each constant matters</summary>{{ table(heads, moved) }}</details>
"""


def _theory(given: ReportInput) -> TheoryPlan | None:
    found: TheoryPlan | None = given.found.by_kind.get(TheoryPlan.kind)
    return found or (given.found.plan.theory if given.found.plan else None)


def _alone(given: ReportInput) -> TheoryPlan:
    found: TheoryPlan = given.found.by_kind[TheoryPlan.kind]
    return found


def _show(given: ReportInput) -> Mapping[str, Any] | None:
    found = _theory(given)
    if found is None:
        return None
    choice = found.choice
    time = Markup("{} s ({})").format(number(choice.seconds), lasting(choice.seconds))
    entries: dict[str, CellValue] = {
        "goal": found.goal.words,
        "by": f"{found.answer.bound.source.locator}, {choice.version}",
        "local steps I": choice.I,
        "γ": choice.gamma,
        "η": choice.eta,
        "rounds": choice.R,
        "time": time,
        "bound": choice.bound,
    }
    moved: list[list[CellValue]] = [
        [name, found.values[name], found.kinds.get(name, ""), slope]
        for name, slope in sorted(found.sensitivity.items(), key=lambda item: -abs(item[1]))
    ]
    return {
        "found": found,
        "entries": entries,
        "practice": [found.practice.words] if found.practice else [],
        "charts": _charts(found) if len(found.curve) > 1 else [],
        "heads": ("constant", "value", "kind", f"elasticity of the {'time' if _timed(found) else 'bound'}"),
        "moved": moved,
    }


def _timed(found: TheoryPlan) -> bool:
    return found.target is not None


def _charts(found: TheoryPlan) -> list[Chart]:
    timed, choice = _timed(found), found.choice

    def series(name: str, points: Any, colour: int, style: Style) -> Series:
        return Series(name, [p.I for p in points], [p.seconds if timed else p.bound for p in points], colour, style)

    drawn = [series(choice.version, found.curve, 4, "line")]
    drawn += [series("prior", found.prior_curve, 5, "dashed")] if found.prior_curve else []
    charts = [
        lines(
            "theory-curve",
            drawn,
            title="The best for each number of local steps",
            x_label="local steps I",
            y_label="seconds to the goal" if timed else "bound within the budget",
            log_x=True,
            marks=[Mark(choice.I, "chosen")],
        )
    ]
    names = [term.name for term in found.answer.bound.terms]
    layers = [
        (name, index % 8, [point.terms[index] for point in found.curve])
        for index, name in enumerate(names)
        if any(point.terms[index] > 0 for point in found.curve)
    ]
    if layers:
        charts.append(
            stacked(
                "theory-terms",
                [point.I for point in found.curve],
                layers,
                title="Terms of the bound at the best γ for each I",
                x_label="local steps I",
                y_label="bound",
                marks=[Mark(choice.I, "chosen")],
            )
        )
    return charts


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    found = _alone(given)
    return {"goal": found.goal.words, "cost": found.cost.name, "participants M": found.M}


SECTION = Section(
    "certificate",
    "What the theory certifies",
    ("theory-plan", "plan"),
    _show,
    _TEMPLATE,
    Heading("plan by theory", lambda given: _alone(given).verdict, _settings),
    is_last_beside_run=True,
)
