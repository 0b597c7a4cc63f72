"""What a report says of other results: plans, sweeps, gauges, measured constants, and what the theory makes of them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedgauge.measurement.gauge.result import GaugeResult
from fedgauge.measurement.values import Measurement
from fedgauge.planning.plan import Plan
from fedgauge.planning.theory_plan import TheoryPlan
from fedgauge.show.page.section import Heading, ReportInput, Section, answer, shown
from fedgauge.show.results.reading import RUN
from fedgauge.show.views.answers import view_of_answer
from fedgauge.show.views.bounds import view_of_comparison
from fedgauge.show.views.gauges import view_of_gauge
from fedgauge.show.views.measurements import parts_of, view_of_measurement, view_of_parts
from fedgauge.show.views.plans import race_of, view_of_theory
from fedgauge.show.views.view import View
from fedgauge.show.web.elements import CellValue
from fedgauge.simulation.experiment.sweep import SweepResult
from fedgauge.simulation.experiment.sweep import shown as plain_value

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


PLAN = Section(
    "plan",
    "The plan and its race",
    ("plan",),
    lambda given: race_of(given.result(Plan)),
    heading=Heading("plan", lambda given: given.result(Plan).verdict, _plan_settings, _plan_commands, card=_plan_card),
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
    ("sweep",),
    shown(SweepResult),
    heading=Heading("sweep", answer(SweepResult), _sweep_settings, _sweep_commands),
)


# -- how the answer was measured ---------------------------------------------------------------------------------------


def _gauge_card(given: ReportInput) -> View:
    taken = given.results.run.settings.get("local_steps") if given.results.run else None
    return view_of_gauge(given.result(GaugeResult), taken if isinstance(taken, int) else None)


def _gauge_view(given: ReportInput) -> View | None:
    # The rest is at the beginning of the page.
    return replace(given.card, tables=given.card.tables[1:], charts=given.card.charts[1:]) if given.card else None


def _gauge_settings(given: ReportInput) -> Mapping[str, CellValue]:
    gauged = given.result(GaugeResult)
    algorithm = gauged.settings.get("algorithm") or {}
    rates = {name: str(value) if isinstance(value, bool) else value for name, value in algorithm.items()}
    rates.pop("name", None)
    return {"algorithm": str(algorithm.get("name", "–")), **rates, "seed": gauged.settings.get("seed")}


GAUGE = Section(
    "gauge",
    "How the answer was measured",
    (GaugeResult.kind, RUN, Plan.kind),
    _gauge_view,
    heading=Heading("gauge", answer(GaugeResult), _gauge_settings, card=_gauge_card, goes_first=True),
)


# -- the constants -----------------------------------------------------------------------------------------------------


def _constants_view(given: ReportInput) -> View:
    content = view_of_measurement(given.result(Measurement), parts=False)
    # What each reading found is in the numbers of the chart.
    return replace(content, tables=[table for table in content.tables if not table.splits])


def _constants_options(measurement: Measurement) -> Mapping[str, Any]:
    options = measurement.settings.get("asked")
    return options if isinstance(options, Mapping) else {}


def _joined(values: Any) -> str:
    return ",".join(map(str, values)) if isinstance(values, list | tuple) else str(values)


def _constants_settings(given: ReportInput) -> Mapping[str, CellValue]:
    return {
        name: _joined(value)
        for name, value in _constants_options(given.result(Measurement)).items()
        if value is not None
    }


def _constants_commands(given: ReportInput) -> list[str]:
    measurement, run = given.result(Measurement), given.results.run
    options = _constants_options(measurement)
    if not measurement.settings.get("experiment"):
        return []  # fedgauge.measure measured a federation that no command knows
    names = {"rounds": "--trajectory-rounds", "seeds": "--seeds", "fall": "--near", "most": "--most"}
    source = shlex.quote(run.path) if run else "experiment.toml"
    parts = ["fedgauge measure", source, "--readings", _joined(options.get("readings"))]
    origin = str(measurement.point.get("origin", ""))
    if origin.endswith(".safetensors") and run is None:
        parts += ["--at", shlex.quote(origin)]
    parts += [f"{option} {options[name]}" for name, option in names.items() if name in options]
    return ["# the constants", " ".join(parts)]


CONSTANTS = Section(
    "constants",
    "The constants",
    ("measurement",),
    _constants_view,
    heading=Heading("measurement", answer(Measurement), _constants_settings, _constants_commands),
)


# -- where heterogeneity comes from ------------------------------------------------------------------------------------


def _origins_view(given: ReportInput) -> View | None:
    measurement = given.results.measurement
    parts = parts_of(measurement) if measurement else None
    if measurement is None or parts is None:
        return None
    reading, shown = measurement.reading("parts"), view_of_parts(parts)
    return replace(shown, tables=shown.tables[:1], notes=reading.notes if reading else ())


ORIGINS = Section("origins", "Where heterogeneity comes from", ("measurement",), _origins_view)


# -- the bound and what was measured -----------------------------------------------------------------------------------


def _bound_view(given: ReportInput) -> View | None:
    comparison = given.background.comparison
    return view_of_comparison(comparison) if comparison else None


BOUND = Section("bound", "Bound against reality", ("run",), _bound_view)


# -- what a theorem certifies for the goal of a plan -------------------------------------------------------------------


def _certificate_view(given: ReportInput) -> View | None:
    plan = given.results.by_kind.get(TheoryPlan.kind) or (given.results.plan.theory if given.results.plan else None)
    return view_of_theory(plan) if plan else None


def _certificate_settings(given: ReportInput) -> Mapping[str, CellValue]:
    plan = given.result(TheoryPlan)
    return {"goal": plan.goal.words, "cost": plan.cost.name, "participants M": plan.M}


CERTIFICATE = Section(
    "certificate",
    "What the theory certifies",
    ("theory-plan", "plan"),
    _certificate_view,
    heading=Heading("plan by theory", answer(TheoryPlan), _certificate_settings),
    is_last_beside_run=True,
)
