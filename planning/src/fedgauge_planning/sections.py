"""What a report says of plans, by pilot runs and by theory, and of sweeps."""

from __future__ import annotations

from collections.abc import Mapping

from fedgauge.show.page.section import Heading, ReportInput, Section, answer, shown
from fedgauge.show.views.answers import view_of_answer
from fedgauge.show.views.view import View
from fedgauge.show.web.elements import CellValue
from fedgauge_planning.plan_result import Plan
from fedgauge_planning.plan_views import race_of, view_of_theory
from fedgauge_planning.sweep import SweepResult
from fedgauge_planning.sweep import shown as plain_value
from fedgauge_planning.theory_result import TheoryPlan

# -- the plan ----------------------------------------------------------------------------------------------------------


def _plan_card(given: ReportInput) -> View | None:
    answer = given.result(Plan).answer
    return view_of_answer(answer) if answer else None


def _plan_settings(given: ReportInput) -> Mapping[str, CellValue]:
    plan = given.result(Plan)
    return {
        "goal": plan.goal.words,
        "cost": plan.cost.name,
        "I from": ", ".join(map(str, plan.space.local_steps)),
        "γ from": ", ".join(f"{g:g}" for g in plan.space.gammas),
        "η from": ", ".join(f"{e:g}" for e in plan.space.etas),
        "M from": ", ".join(map(str, plan.space.participants)),
    }


def _plan_commands(given: ReportInput) -> list[str]:
    if not given.result(Plan).toml:
        return []
    return ["# what was planned, from plan.toml below", "fedgauge simulate plan.toml --out planned"]


def _plan_files(given: ReportInput) -> Mapping[str, str]:
    toml = given.result(Plan).toml
    return {"plan.toml": toml} if toml else {}


PLAN = Section(
    "plan",
    "The plan and its race",
    (Plan.kind,),
    lambda given: race_of(given.result(Plan)),
    heading=Heading(
        "plan",
        lambda given: given.result(Plan).verdict,
        _plan_settings,
        _plan_commands,
        card=_plan_card,
        files=_plan_files,
    ),
    is_last_beside_run=True,
)


# -- the sweep ---------------------------------------------------------------------------------------------------------


def _sweep_settings(given: ReportInput) -> Mapping[str, CellValue]:
    swept = given.result(SweepResult)
    over = {key: ", ".join(map(plain_value, values)) for key, values in swept.over.items()}
    return {**over, "seeds": swept.seeds, "combinations": len(swept.combinations)}


def _sweep_commands(given: ReportInput) -> list[str]:
    command = given.result(SweepResult).command
    return ["# the sweep", command] if command else []


SWEEP = Section(
    "sweep",
    "The sweep",
    (SweepResult.kind,),
    shown(SweepResult),
    heading=Heading("sweep", answer(SweepResult), _sweep_settings, _sweep_commands),
)


# -- what a theorem certifies for the goal of a plan -------------------------------------------------------------------


def _certificate_view(given: ReportInput) -> View | None:
    held = given.results.by_kind
    certified = held[TheoryPlan.kind] if TheoryPlan.kind in held else given.result(Plan).theory
    return view_of_theory(certified) if certified else None


def _certificate_settings(given: ReportInput) -> Mapping[str, CellValue]:
    plan = given.result(TheoryPlan)
    return {"goal": plan.goal.words, "cost": plan.cost.name, "participants M": plan.M}


CERTIFICATE = Section(
    "certificate",
    "What the theory certifies",
    (TheoryPlan.kind, Plan.kind),
    _certificate_view,
    heading=Heading("plan by theory", answer(TheoryPlan), _certificate_settings),
    is_last_beside_run=True,
    after="bound",
)


SECTIONS = (PLAN, SWEEP, CERTIFICATE)
"""In the order in which a report shows them."""
