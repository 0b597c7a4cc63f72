"""The plan: the choice, why it is what it is, and the race that found it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from fedgauge.planning.plan import Plan
from fedgauge.show.page.chart import OTHERS, Chart, Mark, Series, lines, stacked
from fedgauge.show.page.estimates import estimates_table
from fedgauge.show.page.grids import IntervalRow, intervals
from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.web.elements import CellValue, number

_NAMED = 5  # candidates with a colour of their own; the others share one
_TEMPLATE = """\
{{ facts(entries) }}{{ notes(verdict, "said") }}{{ notes([found.why], "said") }}{{ notes(found.notes) }}
<div class="charts">{% for chart in charts %}{{ chart.html }}{% endfor %}</div>
<details><summary>All {{ fates | length }} candidates</summary>
{{ table(("I", "γ", "η", "M", "score", "records", "outcome"), fates) }}</details>
<details><summary>The cost model</summary>{{ facts(cost) }}</details>
<details><summary>Constants before the race</summary>{{ constants }}</details>
"""


def _plan(given: ReportInput) -> Plan:
    assert given.found.plan is not None
    return given.found.plan


def _show(given: ReportInput) -> Mapping[str, Any]:
    found = _plan(given)
    charts = [_race(found)]
    if len(found.race.standings) > 1 or found.high > found.low:
        charts.append(_finals(found))
    cost: dict[str, CellValue] = {
        "cost": found.cost.name,
        "fixed, s": found.cost.fixed,
        "bytes/s": found.cost.bandwidth,
        "bytes per participant": found.cost.bytes,
        "local step, s": found.cost.step,
        "planning took, s": found.wall,
        "pilots ran, s": found.race.spent,
        "gradient steps of all pilots": found.race.gradient_steps or None,
        "pilots": found.race.trials,
    }
    fates: list[list[CellValue]] = [
        [e.candidate.I, e.candidate.gamma, e.candidate.eta, e.candidate.M, e.score, len(e.curve.seconds) - 1, e.outcome]
        for e in found.race.entries
    ]
    return {
        "found": found,
        "entries": _entries(found),
        # A report on a plan alone begins with its verdict.
        "verdict": [found.verdict] if given.found.run else [],
        "charts": [*charts, _terms(found)],
        "fates": fates,
        "cost": cost,
        "constants": estimates_table(found.constants),
    }


def _entries(found: Plan) -> dict[str, CellValue]:
    chosen, seconds = found.choice, Markup("{} s")
    interval = Markup("{} to {} s").format(number(found.low), number(found.high)) if found.high > found.low else ""
    return {
        "goal": found.goal.words,
        "local steps I": chosen.I,
        "γ": chosen.gamma,
        "η": chosen.eta,
        "participants M": chosen.M,
        "rounds": found.rounds,
        "time": seconds.format(number(found.seconds)),
        "interval, 95%": interval,
        "cost of a round": seconds.format(number(chosen.seconds(found.cost))),
        "reached": "yes" if found.reached else "no",
    }


def _race(found: Plan) -> Chart:
    """Every candidate's error over the time that it took."""
    best, series = found.choice, []
    finalists = [standing.candidate for standing in found.race.standings]
    for entry in reversed(found.race.entries):
        place = found.race.entries.index(entry)
        known = entry.candidate == best or place < _NAMED or entry.candidate in finalists[:_NAMED]
        name, colour = ("others", OTHERS)
        if known:
            own = entry.candidate
            name = f"I={own.I}, γ={own.gamma:g}, η={own.eta:g}, M={own.M}"
            colour = 4 if own == best else (0, 1, 3, 5, 2, 6, 7)[place % 7]
        series.append(Series(name, entry.curve.seconds, entry.curve.errors, colour))
    # The winner is drawn last, on top of all others.
    winner = next(one for one in series if one.colour == 4)
    others = [one for one in series if one is not winner]
    series = [*sorted(others, key=lambda one: one.name != "others"), winner]
    target = found.scale.target
    end = max(at for one in series for at in one.x)
    if target is not None:
        series.append(Series("goal", [0.0, end], [target, target], 7, "dashed"))
    error = {"loss": "f minus its minimum", "accuracy": "1 − accuracy", "grad2": "‖∇f‖²"}[found.goal.quantity]
    return lines(
        "race",
        series,
        title="The race",
        x_label="seconds of the cost model",
        y_label=error,
        note=f"{found.race.trials} pilot runs; {found.race.ending}.",
    )


def _finals(found: Plan) -> Chart:
    timed = found.goal.value is not None
    items = [
        IntervalRow(
            f"I={s.candidate.I}, γ={s.candidate.gamma:g}",
            "finalists",
            s.score,
            s.low,
            s.high,
            4 if place == 0 else 0,
            f"{len(s.scores)} seeds",
        )
        for place, s in enumerate(found.race.standings)
    ]
    return intervals(
        "finals",
        items,
        title="The finals",
        x_label="seconds to the goal" if timed else "error at the end of the budget",
        note="Mean over seeds with its 95% interval, from the spread over all finalists.",
        log=False,
    )


def _terms(found: Plan) -> Chart:
    layers = [
        (label, colour, [float(getattr(terms, name)) for terms in found.terms])
        for name, label, colour in (
            ("progress", "progress still to make", 0),
            ("noise", "gradient noise", 1),
            ("drift", "client drift", 4),
        )
    ]
    totals = [terms.total for terms in found.terms]
    return stacked(
        "plan-terms",
        [terms.I for terms in found.terms],
        layers,
        title="What the error consists of, over local steps",
        x_label="local steps I",
        y_label="squared gradient norm",
        note="At the chosen rates and time, from what was measured at the end of the chosen run.",
        shares=max(totals) > 30 * min(totals),
        marks=[Mark(found.choice.I, "chosen")],
    )


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    found = _plan(given)
    return {
        "goal": found.goal.words,
        "cost": found.cost.name,
        "I from": ", ".join(map(str, found.space.local_steps)),
        "γ from": ", ".join(f"{g:g}" for g in found.space.gammas),
        "η from": ", ".join(f"{e:g}" for e in found.space.etas),
        "M from": ", ".join(map(str, found.space.participants)),
    }


def _commands(given: ReportInput) -> list[str]:
    if not _plan(given).toml:
        return []
    return ["# what was planned, from plan.toml below", "fedgauge simulate plan.toml --out planned"]


SECTION = Section(
    "plan",
    "The plan and its race",
    ("plan",),
    _show,
    _TEMPLATE,
    Heading("plan", lambda given: _plan(given).verdict, _settings, _commands),
    is_last_beside_run=True,
)
