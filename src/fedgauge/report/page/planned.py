"""A plan and its race, and a sweep, as parts of a report."""

from __future__ import annotations

from html import escape
from typing import Any

from fedgauge.experiment.sweep import shown as plain_value
from fedgauge.planning.plan import Plan
from fedgauge.planning.theory_plan import TheoryPlan
from fedgauge.report.page.chart import OTHERS, Chart, Mark, Series, lines, stacked
from fedgauge.report.page.grids import Interval, intervals
from fedgauge.report.page.sections import Section, estimates
from fedgauge.report.page.shapes import Combination, Curve, SweepResult
from fedgauge.report.page.tables import Cell, Markup, facts, notes, number, table
from fedgauge.theory import find
from fedgauge.values.text import lasting
from fedgauge.web.standings import STANDINGS

_NAMED = 5  # candidates with a colour of their own; the others are shown together


def plan(found: Plan, spoken: bool = True) -> Section:
    """The choice, why it is what it is, and how it was found.

    Args:
        found: the plan.
        spoken: whether the report has begun with its verdict.
    """
    chosen = found.choice
    entries: dict[str, Cell] = {
        "goal": found.goal.words,
        "local steps I": chosen.I,
        "γ": chosen.gamma,
        "η": chosen.eta,
        "participants M": chosen.M,
        "rounds": found.rounds,
        "time": Markup(f"{number(found.seconds)} s"),
        "interval, 95%": _seconds(found.low, found.high),
        "cost of a round": Markup(f"{number(chosen.seconds(found.cost))} s"),
        "reached": "yes" if found.reached else "no",
    }
    charts = [_race(found)]
    if len(found.race.standings) > 1 or found.high > found.low:
        charts.append(_finals(found))
    charts.append(_terms(found))
    cost: dict[str, Cell] = {"cost": found.cost.name, "fixed, s": found.cost.fixed, "bytes/s": found.cost.bandwidth}
    cost |= {"bytes of a participant": found.cost.bytes, "local step, s": found.cost.step}
    fates: list[list[Cell]] = [
        [e.candidate.I, e.candidate.gamma, e.candidate.eta, e.candidate.M, e.score, len(e.curve.seconds) - 1, e.fate]
        for e in found.race.entries
    ]
    html = (
        facts(entries)
        + notes([] if spoken else [found.verdict], "said")
        + notes([found.why], "said")
        + notes(found.notes)
        + f'<div class="charts">{"".join(chart.html for chart in charts)}</div>'
        + f"<details><summary>All {len(fates)} candidates</summary>"
        + table(("I", "γ", "η", "M", "score", "records", "what became of it"), fates)
        + "</details><details><summary>The cost model</summary>"
        + facts(
            {**cost, "planning took, s": found.wall, "pilots ran, s": found.race.spent, "pilots": found.race.trials}
        )
        + "</details><details><summary>Constants before the race</summary>"
        + estimates(found.constants)
        + "</details>"
    )
    return Section("plan", "The plan and its race", html, tuple(charts))


def _seconds(low: float, high: float) -> Cell:
    return Markup(f"{number(low)} to {number(high)} s") if high > low else ""


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
    # The legend begins with the winner, which is drawn last, on top.
    winner = next(one for one in series if one.colour == 4)
    ordered = [one for one in series if one.name == "others"] + [
        one for one in series if one.name != "others" and one is not winner
    ]
    series = [*ordered, winner]
    target = found.scale.target
    end = max(at for one in series for at in one.x)
    if target is not None:
        series.append(Series("goal", [0.0, end], [target, target], 7, "dashed"))
    error = {"loss": "f less its least", "accuracy": "1 − accuracy", "grad2": "‖∇f‖²"}[found.goal.quantity]
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
        Interval(
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
        note="Mean over seeds with its 95% interval, by the spread that all finalists show.",
        log=False,
    )


def _terms(found: Plan) -> Chart:
    steps = [terms.I for terms in found.terms]
    layers = [
        (label, colour, [float(getattr(terms, name)) for terms in found.terms])
        for name, label, colour in (
            ("progress", "way still to go", 0),
            ("noise", "gradient noise", 1),
            ("drift", "client drift", 4),
        )
    ]
    totals = [terms.total for terms in found.terms]
    return stacked(
        "plan-terms",
        steps,
        layers,
        title="What the error consists of, over local steps",
        x_label="local steps I",
        y_label="squared gradient norm",
        note="At the choice’s rates and time, from what was measured at the end of its run.",
        shares=max(totals) > 30 * min(totals),
        marks=[Mark(found.choice.I, "chosen")],
    )


def certificate(found: TheoryPlan) -> Section:
    """What a theorem certifies for the same end."""
    choice, answered = found.choice, found.answer
    mark, title, why = STANDINGS[answered.standing]
    entries: dict[str, Cell] = {
        "goal": found.goal.words,
        "by": f"{find(choice.theorem).locator}, {choice.version}",
        "local steps I": choice.I,
        "γ": choice.gamma,
        "η": choice.eta,
        "rounds": choice.R,
        "time": Markup(f"{number(choice.seconds)} s ({escape(lasting(choice.seconds))})"),
        "bound": choice.bound,
    }
    timed = found.target is not None
    charts = []
    if len(found.curve) > 1:
        what = "seconds to the goal" if timed else "bound within the budget"

        def series(name: str, points: Any, colour: int, style: Any) -> Series:
            return Series(name, [p.I for p in points], [p.seconds if timed else p.bound for p in points], colour, style)

        drawn = [series(choice.version, found.curve, 4, "line")]
        drawn += [series("prior", found.prior_curve, 5, "dashed")] if found.prior_curve else []
        charts.append(
            lines(
                "theory-curve",
                drawn,
                title="The best for each number of local steps",
                x_label="local steps I",
                y_label=what,
                log_x=True,
                marks=[Mark(choice.I, "chosen")],
            )
        )
        names = [term.name for term in answered.bound.terms]
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
    moved: list[list[Cell]] = [
        [name, found.values[name], found.kinds.get(name, ""), slope]
        for name, slope in sorted(found.sensitivity.items(), key=lambda item: -abs(item[1]))
    ]
    practice = [found.practice.words] if found.practice else []
    html = (
        f'<p class="standing big" data-standing="{answered.standing}"><b>{mark} {title}</b>: {why}.</p>'
        + facts(entries)
        + notes([found.verdict], "said")
        + notes(practice)
        + f'<div class="charts">{"".join(chart.html for chart in charts)}</div>'
        + notes(found.notes)
        + "<details><summary>What each constant moves</summary>"
        + table(("constant", "value", "kind", f"elasticity of the {'time' if timed else 'bound'}"), moved)
        + "</details>"
    )
    return Section("certificate", "What the theory certifies", html, tuple(charts))


# -- sweeps ------------------------------------------------------------------------------------------------------


def sweep(result: SweepResult, section: str = "sweep", heading: str = "The sweep") -> Section:
    """Mean and deviation over seeds: the curves, a chart for all keys but the first, and where each ended."""
    first, *others = result.over or [None]
    pictures: dict[str, list[Combination]] = {}
    for each in result.combinations:
        name = ", ".join(f"{key} = {plain_value(each.values[key])}" for key in others if key)
        pictures.setdefault(name, []).append(each)
    charts = []
    for place, (name, combinations) in enumerate(pictures.items()):
        for key, label, log in (("loss", "training loss f", True), ("accuracy", "test accuracy", False)):
            curves: list[Curve | None] = [getattr(each, key) for each in combinations]
            series = [
                _band(f"{first} = {plain_value(each.values[first])}" if first else "all", each, curve, number % 8)
                for number, (each, curve) in enumerate(zip(combinations, curves, strict=True))
                if curve and each.rounds
            ]
            if series:
                title = label[0].upper() + label[1:] + (f", {name}" if name else "")
                note = "Mean over seeds, with a standard deviation to either side." if result.seeds > 1 else ""
                chart = f"{section}-{place}-{key}"
                charts.append(lines(chart, series, title=title, x_label="round", y_label=label, log=log, note=note))
    html = f'<div class="charts">{"".join(chart.html for chart in charts)}</div>' + ending(result)
    return Section(section, heading, html, tuple(charts))


def _band(name: str, each: Combination, curve: Curve, colour: int) -> Series:
    low, high = (
        ([], [])
        if not any(curve.deviation)
        else (
            [mean - spread for mean, spread in zip(curve.mean, curve.deviation, strict=True)],
            [mean + spread for mean, spread in zip(curve.mean, curve.deviation, strict=True)],
        )
    )
    return Series(name, each.rounds, curve.mean, colour, "line", low, high)


def ending(result: SweepResult) -> str:
    """A table of where every combination ended."""
    rows: list[list[Cell]] = []
    for each in result.combinations:
        loss, accuracy = ((curve.mean[-1] if curve and curve.mean else None) for curve in (each.loss, each.accuracy))
        rows.append(
            [
                ", ".join(f"{key} = {plain_value(value)}" for key, value in each.values.items()) or "all",
                each.rounds[-1] if each.rounds else None,
                loss,
                each.loss.deviation[-1] if each.loss and each.rounds and result.seeds > 1 else None,
                None if accuracy is None else (accuracy, f"{accuracy:.2%}"),
                each.diverged,
                each.seconds,
            ]
        )
    heads = ("", "last round of all", "loss f", "± over seeds", "test accuracy", "diverged", "seconds")
    return f"<h3>Where they ended</h3>{table(heads, rows, 'cards')}"
