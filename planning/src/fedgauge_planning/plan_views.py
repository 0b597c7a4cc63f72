"""Plans: by pilot runs, and by theory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedgauge.show.charts import OTHERS, LineChart, Mark, Row, RowChart, Series, StackedChart, StackLayer, Style
from fedgauge.show.views.answers import below_answer
from fedgauge.show.views.view import (
    Cell,
    IntervalCell,
    Table,
    View,
    Written,
    conditions_table,
    estimates_table,
    terms_table,
    view,
)
from fedgauge.theory import find
from fedgauge.theory.search import Choice
from fedgauge.values.display import lasting, short, whole
from fedgauge_planning.candidates import Candidate
from fedgauge_planning.course import RaceEntry
from fedgauge_planning.curve import Point
from fedgauge_planning.plan_result import Plan
from fedgauge_planning.theory_result import TheoryPlan

_SIGHT = 20.0  # a forecast of more than this multiple of the choice's time is only a guess
_NAMED = 5  # candidates with a colour of their own; the others share one


def _time(seconds: float) -> Written:
    return Written(seconds, lasting(seconds))


# -- by pilot runs ---------------------------------------------------------------------------------------------------


@view.register
def view_of_plan(plan: Plan) -> View:
    """The choice and why it is what it is, the finals, the best candidate for each I, and the race."""
    return below_answer(plan.answer, race_of(plan))


def race_of(plan: Plan) -> View:
    """The same without the answer."""
    chosen, notes = plan.choice, [*filter(None, [plan.other_rate]), *plan.notes]
    users_entry = next((entry for entry in plan.race.entries if entry.candidate == plan.space.own), None)
    if users_entry and users_entry.candidate != chosen:
        rates = f"Your own I = {users_entry.candidate.I}, gamma = {short(users_entry.candidate.gamma)}"
        notes.append(f"{rates}: {_score(plan, users_entry.score)}.")
    if plan.theory:
        notes.append(f"By theory: {plan.theory.verdict}")
        notes += [plan.theory.practice.words] if plan.theory.practice else []
    notes.append(
        f"Planning took {plan.race.trials} pilot runs: {_steps(plan)}{lasting(plan.race.spent)} by the cost model,"
        f" {lasting(plan.wall)} on this machine."
    )
    cost = plan.cost
    facts: dict[str, Cell] = {
        "goal": plan.goal.words,
        "local steps I": chosen.I,
        "gamma": chosen.gamma,
        "eta": chosen.eta,
        "participants M": chosen.M,
        "rounds": plan.rounds,
        "time": _time(plan.seconds),
        "interval, 95%": IntervalCell(plan.low, plan.high, "s"),
        "cost of a round": _time(chosen.seconds(cost)),
        "of it, communication is": _time(cost.communication(chosen.M)),
        "reached": "yes" if plan.reached else "no",
    }
    prices: list[tuple[str, Cell]] = [
        ("cost", cost.name),
        ("fixed, s", cost.fixed),
        ("bytes/s", cost.bandwidth),
        ("bytes per participant", cost.bytes),
        ("local step, s", cost.step),
        ("planning took, s", plan.wall),
        ("pilots ran, s", plan.race.spent),
        ("gradient steps of all pilots", plan.race.gradient_steps or None),
        ("pilots", plan.race.trials),
    ]
    tables = [
        *_finals_table(plan),
        _best_of_each(plan),
        _candidates(plan),
        Table(("", ""), [row for row in prices if row[1] is not None], "The cost model", detail=True),
        estimates_table(plan.constants.values(), "Constants before the race", detail=True),
    ]
    return View(
        (plan.verdict, plan.why),
        title=f"Plan for {plan.goal.words}, {_cost(plan)}",
        facts=facts,
        tables=tables,
        charts=[chart for chart in (_race(plan), _scores(plan), _finals(plan), _terms(plan)) if chart],
        notes=notes,
        standing="reached" if plan.reached else "not reached",
        columns=2,
    )


def _score(plan: Plan, score: float) -> str:
    """A score as people read it: a time, or the quantity at the end of the budget."""
    if plan.goal.value is not None:
        return lasting(score) if score < _SIGHT * plan.seconds else "not in sight"
    return f"{plan.scale.value(score):.4g}" if math.isfinite(score) else "–"


def _steps(plan: Plan) -> str:
    """The gradient steps of planning, and how many runs of the choice that is."""
    steps, chosen = plan.race.gradient_steps, plan.choice
    if not steps:
        return ""
    run = plan.rounds * chosen.I * chosen.M
    return f"{steps:,} gradient steps, as many as {steps / run:.1f} runs of the choice; "


def _cost(plan: Plan) -> str:
    cost, chosen = plan.cost, plan.choice
    parts = f"{lasting(cost.communication(chosen.M))} of communication and {lasting(cost.step or 0.0)} per local step"
    return f"a round taking {parts} ({cost.name})"


def _what(plan: Plan) -> str:
    return "time to the goal" if plan.goal.value is not None else f"{plan.goal.quantity} at the end"


def _finals_table(plan: Plan) -> list[Table]:
    rows, timed = [], plan.goal.value is not None
    for each in plan.race.standings:
        c = each.candidate
        ends = sorted((each.low, each.high), key=lambda end: end if timed else plan.scale.value(end))
        spread = [_score(plan, end) if math.isfinite(each.high) else None for end in ends]
        rows.append((c.I, c.gamma, c.eta, c.M, _score(plan, each.score), *spread, len(each.scores)))
    heads = ("I", "gamma", "eta", "M", _what(plan), "from", "to", "seeds")
    return [Table(heads, rows, "The finals", "The first is the choice.", chosen=0)] if rows else []


def best_of_each(plan: Plan) -> list[RaceEntry]:
    """The most promising candidate for every number of local steps."""
    best: dict[int, RaceEntry] = {}
    for entry in plan.race.entries:
        best.setdefault(entry.candidate.I, entry)
    return [best[steps] for steps in sorted(best)]


def _best_of_each(plan: Plan) -> Table:
    rows, entries = [], best_of_each(plan)
    for entry in entries:
        c = entry.candidate
        share = plan.cost.communication(c.M) / c.seconds(plan.cost)
        rows.append(
            (c.I, c.gamma, _score(plan, entry.score), lasting(entry.curve.end), f"{share:.0%}", str(entry.outcome))
        )
    chosen = next((place for place, each in enumerate(entries) if each.candidate == plan.choice), None)
    heads = ("I", "gamma", _what(plan), "run for", "communication", "outcome")
    return Table(heads, rows, "The best for each I", chosen=chosen)


def _candidates(plan: Plan) -> Table:
    rows = [
        (e.candidate.I, e.candidate.gamma, e.candidate.eta, e.candidate.M, e.score, len(e.curve.seconds) - 1, e.outcome)
        for e in plan.race.entries
    ]
    heads = ("I", "gamma", "eta", "M", "score", "records", "outcome")
    return Table(heads, rows, f"All {len(rows)} candidates", detail=True)


def _race(plan: Plan) -> LineChart:
    """Every candidate's error over the time that it took."""
    best, series = plan.choice, []
    finalists = [standing.candidate for standing in plan.race.standings]
    for place, entry in reversed(list(enumerate(plan.race.entries))):
        candidate = entry.candidate
        known = candidate == best or place < _NAMED or candidate in finalists[:_NAMED]
        colour = 4 if candidate == best else (0, 1, 3, 5, 2, 6, 7)[place % 7] if known else OTHERS
        name = f"I={candidate.I}, γ={candidate.gamma:g}, η={candidate.eta:g}, M={candidate.M}" if known else "others"
        series.append(Series(name, entry.curve.seconds, entry.curve.errors, colour))
    # The winner is drawn last, on top of all others.
    series.sort(key=lambda one: (one.colour == 4, one.name != "others"))
    target = plan.scale.target
    if target is not None:
        end = max(at for one in series for at in one.x)
        series.append(Series("goal", [0.0, end], [target, target], 7, "dashed"))
    error = {"loss": "f minus its minimum", "accuracy": "1 − accuracy", "grad2": "‖∇f‖²"}[plan.goal.quantity]
    note = f"{plan.race.trials} pilot runs; {plan.race.ending}."
    return LineChart("race", series, "The race", "seconds of the cost model", error, note)


def _scores(plan: Plan) -> LineChart | None:
    """The time to the goal, or the error, over local steps."""
    timed = plan.goal.value is not None
    entries = [entry for entry in best_of_each(plan) if math.isfinite(entry.score)]
    if not entries:
        return None

    def points(name: str, held: Sequence[RaceEntry], colour: int, style: Style) -> Series:
        heights = [each.score if timed else plan.scale.value(each.score) for each in held]
        return Series(name, [float(each.candidate.I) for each in held], heights, colour, style)

    arrived = [entry for entry in entries if not timed or entry.curve.status == "target"]
    waiting = [entry for entry in entries if entry not in arrived]
    series = [points("best for each I", entries, OTHERS, "line")]
    series += [points("run to the end", arrived, 0, "dots")] if arrived else []
    series += [points("forecast", waiting, 1, "dots")] if waiting else []
    return LineChart(
        "scores",
        series,
        title="The best for each number of local steps",
        x_label="local steps I",
        y_label="seconds to the goal" if timed else plan.goal.quantity,
        log=timed,
        log_x=True,
        marks=[Mark(plan.choice.I, "chosen")],
    )


def _finals(plan: Plan) -> RowChart | None:
    timed, standings = plan.goal.value is not None, plan.race.standings
    if len(standings) <= 1 and not plan.high > plan.low:
        return None

    def label(c: Candidate) -> str:
        return f"I={c.I}, γ={c.gamma:g}"

    return RowChart(
        "finals",
        [
            Row(label(s.candidate), "finalists", s.score, s.low, s.high, 0 if place else 4, f"{len(s.scores)} seeds")
            for place, s in enumerate(standings)
        ],
        title="The finals",
        x_label="seconds to the goal" if timed else "error at the end of the budget",
        note="Mean over seeds with its 95% interval, from the spread over all finalists.",
        log=False,
    )


def _terms(plan: Plan) -> StackedChart:
    totals = [terms.total for terms in plan.terms]
    names = (("progress", "progress still to make", 0), ("noise", "gradient noise", 1), ("drift", "client drift", 4))
    return StackedChart(
        "plan-terms",
        [terms.I for terms in plan.terms],
        [
            StackLayer(label, colour, [float(getattr(terms, name)) for terms in plan.terms])
            for name, label, colour in names
        ],
        title="What the error consists of, over local steps",
        x_label="local steps I",
        y_label="squared gradient norm",
        note="At the chosen rates and time, from what was measured at the end of the chosen run.",
        shares=max(totals) > 30 * min(totals),
        marks=[Mark(plan.choice.I, "chosen")],
    )


# -- by theory -------------------------------------------------------------------------------------------------------


@view.register
def view_of_theory(plan: TheoryPlan) -> View:
    """What a theorem certifies: the choice and its alternatives, its terms and conditions, and the settings in use."""
    choice, answer = plan.choice, plan.answer
    rows = [_row("chosen", choice)]
    if (plan.best.choice, plan.worst.choice) != (choice, choice):
        rows += [_row("constants at best", plan.best.choice), _row("constants at worst", plan.worst.choice)]
    rows += [_row("prior bound", plan.prior)] if plan.prior else []
    rows += [_row("mini-batch SGD", plan.minibatch)] if plan.minibatch else []
    moved = [
        (name, plan.values[name], slope, plan.kinds.get(name, ""))
        for name, slope in sorted(plan.sensitivity.items(), key=lambda item: -abs(item[1]))
    ]
    heads = ("constant", "value", f"elasticity of the {'time' if _timed(plan) else 'bound'}", "kind")
    tables = [
        Table(("", "I", "gamma", "R", "bound", "time", "by"), rows, "The choice and its alternatives", chosen=0),
        terms_table(answer.bound, answer.shares),
        conditions_table(answer.bound.conditions),
        Table(heads, moved, "How much each constant matters"),
    ]
    practice = plan.practice
    if practice:
        tables.append(conditions_table(practice.conditions, "Conditions at the rates in use"))
    ends = ((end.why, name) for end, name in ((plan.best, "best"), (plan.worst, "worst")) if end.why)
    facts: dict[str, Cell] = {
        "goal": plan.goal.words,
        "by": f"{answer.bound.source.locator}, {choice.version}",
        "local steps I": choice.I,
        "gamma": choice.gamma,
        "eta": choice.eta,
        "rounds": choice.R,
        "time": _time(choice.seconds),
        "bound": choice.bound,
    }
    eta = short(plan.eta)
    return View(
        (plan.verdict, *([practice.words] if practice else ())),
        title=f"What the theory certifies for {plan.goal.words}, {plan.M} participants, eta {eta}",
        facts=facts,
        tables=tables,
        charts=_theory_charts(plan),
        notes=[*plan.notes, *(f"Constants at {name}: {why.rstrip('.')}." for why, name in ends)],
        standing=answer.standing,
    )


def _timed(plan: TheoryPlan) -> bool:
    return plan.target is not None


def _row(label: str, choice: Choice | None) -> list[Cell]:
    if choice is None:
        return [label, None, None, None, None, "unbounded", ""]
    source = f"{find(choice.theorem).locator}, {choice.version}"
    rounds = Written(choice.R, whole(choice.R))
    return [label, choice.I, choice.gamma, rounds, choice.bound, _time(choice.seconds), source]


def _theory_charts(plan: TheoryPlan) -> list[LineChart | StackedChart]:
    timed, choice = _timed(plan), plan.choice

    def series(name: str, points: Sequence[Point | Choice], colour: int, style: Style) -> Series:
        heights = [point.seconds if timed else point.bound for point in points]
        return Series(name, [float(point.I) for point in points], heights, colour, style)

    drawn = [series(choice.version, plan.curve or [choice], 4, "line")]
    drawn += [series("prior", plan.prior_curve, 5, "dashed")] if plan.prior_curve else []
    drawn += [series("mini-batch SGD", [plan.minibatch], 1, "dots")] if plan.minibatch else []
    marks = [Mark(choice.I, "chosen")]
    curve = LineChart(
        "theory-curve",
        drawn,
        title="The best for each number of local steps",
        x_label="local steps I",
        y_label="seconds to the goal" if timed else "bound within the budget",
        log_x=True,
        marks=marks,
    )
    layers = [
        StackLayer(term.name, index % 8, [point.terms[index] for point in plan.curve])
        for index, term in enumerate(plan.answer.bound.terms)
        if any(point.terms[index] > 0 for point in plan.curve)
    ]
    if not layers:
        return [curve]
    title, steps = "Terms of the bound at the best gamma for each I", [float(point.I) for point in plan.curve]
    return [curve, StackedChart("theory-terms", steps, layers, title, "local steps I", "bound", marks=marks)]
