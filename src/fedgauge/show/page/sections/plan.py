"""The plan: the choice, why it is what it is, and the race that found it."""

from __future__ import annotations

from collections.abc import Mapping

from fedgauge.planning.plan import Plan
from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.views.answers import view_of_answer
from fedgauge.show.views.plans import race_of
from fedgauge.show.views.view import View
from fedgauge.show.web.elements import CellValue


def _card(given: ReportInput) -> View | None:
    answer = given.result(Plan).answer
    return view_of_answer(answer) if answer else None


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    found = given.result(Plan)
    return {
        "goal": found.goal.words,
        "cost": found.cost.name,
        "I from": ", ".join(map(str, found.space.local_steps)),
        "γ from": ", ".join(f"{g:g}" for g in found.space.gammas),
        "η from": ", ".join(f"{e:g}" for e in found.space.etas),
        "M from": ", ".join(map(str, found.space.participants)),
    }


def _commands(given: ReportInput) -> list[str]:
    if not given.result(Plan).toml:
        return []
    return ["# what was planned, from plan.toml below", "fedgauge simulate plan.toml --out planned"]


SECTION = Section(
    "plan",
    "The plan and its race",
    ("plan",),
    lambda given: race_of(given.result(Plan)),
    heading=Heading("plan", lambda given: given.result(Plan).verdict, _settings, _commands, card=_card),
    is_last_beside_run=True,
)
