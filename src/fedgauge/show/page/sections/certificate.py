"""What a theorem certifies for the goal of a plan."""

from __future__ import annotations

from collections.abc import Mapping

from fedgauge.planning.theory_plan import TheoryPlan
from fedgauge.show.page.section import Heading, ReportInput, Section, answer
from fedgauge.show.views.plans import view_of_theory
from fedgauge.show.views.view import View
from fedgauge.show.web.elements import CellValue


def _show(given: ReportInput) -> View | None:
    found = given.found.by_kind.get(TheoryPlan.kind) or (given.found.plan.theory if given.found.plan else None)
    return view_of_theory(found) if found else None


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    found = given.result(TheoryPlan)
    return {"goal": found.goal.words, "cost": found.cost.name, "participants M": found.M}


SECTION = Section(
    "certificate",
    "What the theory certifies",
    ("theory-plan", "plan"),
    _show,
    heading=Heading("plan by theory", answer(TheoryPlan), _settings),
    is_last_beside_run=True,
)
