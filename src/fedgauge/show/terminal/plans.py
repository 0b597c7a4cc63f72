"""Plans from pilot runs, printed in a terminal and drawn as pictures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.padding import Padding
from rich.text import Text

from fedgauge.base.files import make_directories, write_atomically, write_json
from fedgauge.planning.course import RaceEntry
from fedgauge.planning.plan import Plan
from fedgauge.planning.theory_plan import TheoryPlan
from fedgauge.show.figures import COLOURS, INK, Target, figure, shade
from fedgauge.show.terminal.bounds import conditions_table, grid_of, terms_table
from fedgauge.show.terminal.console import number, out
from fedgauge.theory import find
from fedgauge.theory.search import Choice, Point
from fedgauge.values.display import lasting, short, whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _row(label: str, choice: Choice | None) -> tuple[str, ...]:
    if choice is None:
        return (label, "–", "–", "–", "–", "unbounded", "")
    source = f"{find(choice.theorem).locator}, {choice.version}"
    return (
        label,
        str(choice.I),
        number(choice.gamma),
        whole(choice.R),
        number(choice.bound),
        lasting(choice.seconds),
        source,
    )


def show_theory(plan: TheoryPlan) -> None:
    """Print a plan by theory: the choice and its alternatives, its terms and conditions, and the settings in use."""
    choice, found = plan.choice, plan.answer
    out.print(
        Text.assemble(
            ("What the theory certifies", "bold"),
            f" for {plan.goal.words}, {plan.M} participants, eta {short(plan.eta)}",
        )
    )
    grid = grid_of("", "I,gamma,R,bound,time", "by")
    rows = [_row("chosen", choice)]
    if (plan.best.choice, plan.worst.choice) != (choice, choice):
        rows += [_row("constants at best", plan.best.choice), _row("constants at worst", plan.worst.choice)]
    rows += [_row("prior bound", plan.prior)] if plan.prior else []
    rows += [_row("mini-batch SGD", plan.minibatch)] if plan.minibatch else []
    for index, row in enumerate(rows):
        grid.add_row(*(Text(cell, "bold cyan" if index == 0 else "") for cell in row))
    moved = grid_of("constant", f"value,elasticity of the {'time' if plan.target is not None else 'bound'}", "kind")
    for name, slope in sorted(plan.sensitivity.items(), key=lambda item: -abs(item[1])):
        moved.add_row(name, number(plan.values[name]), f"{slope:.2f}", plan.kinds[name])
    for part in (grid, terms_table(found), conditions_table(found.bound.conditions), moved):
        out.print(Padding(part, (1, 0, 0, 2)))
    out.print()
    if plan.practice:
        out.print(Text(plan.practice.words, "yellow" if plan.practice.times > 1 else "green"))
        out.print(Padding(conditions_table(plan.practice.conditions), (1, 0, 1, 2)))
    ends = ((end.why, name) for end, name in ((plan.best, "best"), (plan.worst, "worst")) if end.why)
    for note in (*plan.notes, *(f"Constants at {name}: {why.rstrip('.')}." for why, name in ends)):
        out.print(Padding(Text(note, "dim"), (0, 0, 0, 2)))
    out.print(Text(plan.verdict, "green" if plan.certified else "yellow"))


def save_theory(plan: TheoryPlan, place: Path) -> None:
    """Write theory.json and theory.png."""
    make_directories(place)
    write_json(place / "theory.json", plan.to_json())
    draw_theory(plan, place / "theory.png")


def draw_theory(plan: TheoryPlan, path: Target) -> None:
    """Draw the time to the goal (or the bound within the budget) against I, and the terms of the bound at each I."""
    timed = plan.target is not None

    def heights(points: tuple[Point, ...]) -> list[float]:
        return [point.seconds if timed else point.bound for point in points]

    steps = [point.I for point in plan.curve]
    names = [term.name for term in plan.answer.bound.terms]
    with figure(path, panels=2, width=4.8, height=3.6) as (left, right):
        left.plot(steps, heights(plan.curve), color=shade(2, 3), label=plan.choice.version)
        left.plot(plan.I, plan.height(plan.choice), "o", color=shade(2, 3), label=f"chosen: I = {plan.I}")
        if plan.prior is not None:
            left.plot([p.I for p in plan.prior_curve], heights(plan.prior_curve), "--", color=INK, label="prior bound")
            label = f"its choice: I = {plan.prior.I}"
            left.plot(plan.prior.I, plan.height(plan.prior), "s", color=INK, label=label)
        if plan.minibatch is not None:
            label = f"mini-batch SGD, I = {plan.minibatch.I}"
            left.plot(plan.minibatch.I, plan.height(plan.minibatch), "^", color=COLOURS[1], label=label)
        quantity = plan.answer.bound.quantity.split(", ")[0]
        what = "seconds to the goal" if timed else f"bound on {quantity}"
        left.set(xscale="log", yscale="log", xlabel="local steps I", ylabel=what, title=plan.goal.words)
        left.legend()
        terms = np.array([point.terms for point in plan.curve]).T
        shown = [index for index, row in enumerate(terms) if row.max() > 0]
        colours = [shade(index, max(len(names), 2)) for index in shown]
        if len(steps) > 1:
            right.stackplot(steps, terms[shown], labels=[names[index] for index in shown], colors=colours, linewidth=0)
        else:
            right.bar([names[index] for index in shown], terms[shown, 0], color=colours)
        right.axvline(plan.I, color=INK, linewidth=1, linestyle=":")
        right.set(xscale="log" if len(steps) > 1 else "linear", xlabel="local steps I", ylabel=f"bound on {quantity}")
        right.set(title="its terms, at the best gamma for each I", ylim=(0, None))
        if len(steps) > 1 and shown and math.isfinite(terms.max()):
            right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))  # inside, it would lie on the areas


_SIGHT = 20.0  # a forecast of more than this multiple of the choice's time is only a guess
_TERMS = {"progress": "distance still to go", "noise": "gradient noise", "drift": "client drift"}


def save(plan: Plan, place: Path) -> None:
    """Write plan.json and, if there is something to run, plan.toml."""
    make_directories(place)
    write_json(place / "plan.json", plan.to_json())
    if plan.toml:
        write_atomically(place / "plan.toml", plan.toml.encode())
    else:
        # One from an earlier plan would not be this one's.
        (place / "plan.toml").unlink(missing_ok=True)


def draw_all(plan: Plan, place: Path) -> list[Path]:
    """Draw plan.png and, if there is a plan by theory, theory.png."""
    written = [place / "plan.png"]
    draw(plan, written[0])
    if plan.theory:
        from fedgauge.show.terminal.plans import draw_theory

        written.append(place / "theory.png")
        draw_theory(plan.theory, written[1])
    return written


def _score(plan: Plan, score: float) -> str:
    """A score as people read it: a time, or the quantity at the end of the budget."""
    if plan.goal.value is not None:
        return lasting(score) if score < _SIGHT * plan.seconds else "not in sight"
    return number(plan.scale.value(score)) if math.isfinite(score) else "–"


def best_of_each(plan: Plan) -> list[RaceEntry]:
    """The most promising candidate for every number of local steps."""
    found: dict[int, RaceEntry] = {}
    for entry in plan.race.entries:
        found.setdefault(entry.candidate.I, entry)
    return [found[steps] for steps in sorted(found)]


def show(plan: Plan) -> None:
    """Print a plan: the finals, the best candidate for each I, the plan by theory, the cost, the choice and why."""
    timed, chosen = plan.goal.value is not None, plan.choice
    out.print(Text.assemble(("Plan", "bold"), f" for {plan.goal.words}, {_cost(plan)}"))
    what = "time to the goal" if timed else f"{plan.goal.quantity} at the end"
    if plan.race.standings:
        finals = grid_of("finals", f"I,gamma,eta,M,{what},from,to,seeds", "")
        for index, standing in enumerate(plan.race.standings):
            c = standing.candidate
            row = (str(c.I), short(c.gamma), short(c.eta), str(c.M), _score(plan, standing.score))
            ends = sorted((standing.low, standing.high), key=lambda end: plan.scale.value(end) if not timed else end)
            spread = [_score(plan, end) if math.isfinite(standing.high) else "–" for end in ends]
            cells = ("chosen" if index == 0 else "", *row, *spread, str(len(standing.scores)))
            finals.add_row(*(Text(cell, "bold cyan" if index == 0 else "") for cell in (*cells, "")))
        out.print(Padding(finals, (1, 0, 0, 2)))
    each = grid_of("", f"I,gamma,{what},run for,communication", "fate")
    for entry in best_of_each(plan):
        c = entry.candidate
        share = plan.cost.communication(c.M) / c.seconds(plan.cost)
        row = (str(c.I), short(c.gamma), _score(plan, entry.score), lasting(entry.curve.end), f"{share:.0%}")
        each.add_row(*(Text(cell, "bold cyan" if c == chosen else "") for cell in ("", *row, entry.outcome)))
    out.print(Padding(each, (1, 0, 1, 2)))
    own = next((entry for entry in plan.race.entries if entry.candidate == plan.space.own), None)
    if own and own.candidate != chosen:
        out.print(f"Your own I = {own.candidate.I}, gamma = {short(own.candidate.gamma)}: {_score(plan, own.score)}.")
    if plan.theory:
        practice = plan.theory.practice
        out.print(Text(f"By theory: {plan.theory.verdict}", "dim"))
        if practice:
            out.print(Text(practice.words, "dim"))
    for note in plan.notes:
        out.print(Padding(Text(note, "dim"), (0, 0, 0, 2)))
    out.print(
        f"Planning took {plan.race.trials} pilot runs: {_steps(plan)}{lasting(plan.race.spent)} by the cost model,"
        f" {lasting(plan.wall)} on this machine."
    )
    out.print(plan.why)
    out.print(Text(plan.verdict, "green" if plan.reached else "yellow"))


def _steps(plan: Plan) -> str:
    """The gradient steps of planning, and how many runs of the choice that is."""
    steps, chosen = plan.race.gradient_steps, plan.choice
    if not steps:
        return ""
    own = plan.rounds * chosen.I * chosen.M
    return f"{steps:,} gradient steps, as many as {steps / own:.1f} runs of the choice; "


def _cost(plan: Plan) -> str:
    cost, chosen = plan.cost, plan.choice
    parts = f"{lasting(cost.communication(chosen.M))} of communication and {lasting(cost.step or 0.0)} per local step"
    return f"a round taking {parts} ({cost.name})"


def draw(plan: Plan, path: Target) -> None:
    """Draw the terms of the error against I, the time to the goal (or the error) against I, and the race."""
    with figure(path, panels=3, width=4.4, height=3.6) as (left, middle, right):
        _draw_terms(plan, left)
        _draw_scores(plan, middle)
        _draw_race(plan, right)


def _doubling(axes: Axes, steps: list[int]) -> None:
    """Give an axis of local steps a base-2 logarithmic scale, with plain numbers at the values that were tried."""
    axes.set_xscale("log", base=2)
    shown = [number for number in steps if number & (number - 1) == 0] or steps
    axes.set_xticks(shown, [str(number) for number in shown])
    axes.minorticks_off()


def _draw_terms(plan: Plan, axes: Axes) -> None:
    steps = [terms.I for terms in plan.terms]
    rows = {label: [getattr(terms, name) for terms in plan.terms] for name, label in _TERMS.items()}
    colours = [shade(index, len(rows)) for index in range(len(rows))]
    if len(steps) > 1:
        axes.stackplot(steps, list(rows.values()), labels=list(rows), colors=colours, linewidth=0)
        _doubling(axes, steps)
        axes.legend()
    else:
        axes.bar(list(rows), [values[0] for values in rows.values()], color=colours)
    axes.axvline(plan.choice.I, color=INK, linewidth=1, linestyle=":")
    top = sorted(terms.total for terms in plan.terms)[len(plan.terms) // 2]
    chosen = next(terms.total for terms in plan.terms if terms.I == plan.choice.I)
    axes.set(xlabel="local steps I", ylabel="remaining |grad f|^2", ylim=(0, 3 * max(top, chosen) or 1))
    axes.set_title("terms of the remaining error, as measured")


def _draw_scores(plan: Plan, axes: Axes) -> None:
    timed = plan.goal.value is not None
    entries = [entry for entry in best_of_each(plan) if math.isfinite(entry.score)]

    axes.set_title(plan.goal.words)
    if not entries:
        axes.text(0.5, 0.5, "no candidate is on course for the goal", ha="center", transform=axes.transAxes)
        axes.set_axis_off()
        return

    def height(score: float) -> float:
        return score if timed else plan.scale.value(score)

    arrived = [entry for entry in entries if not timed or entry.curve.status == "target"]
    axes.plot([e.candidate.I for e in entries], [height(e.score) for e in entries], "-", color=INK, alpha=0.4, zorder=1)
    waiting = [entry for entry in entries if entry not in arrived]
    for shown, face, label in ((arrived, shade(1, 3), "run to the end"), (waiting, "none", "forecast")):
        if shown:
            axes.plot(
                [e.candidate.I for e in shown],
                [height(e.score) for e in shown],
                "o",
                color=shade(1, 3),
                markerfacecolor=face,
                label=label,
            )
    if plan.race.standings:
        best = plan.race.standings[0]
        low, middle, high = (height(value) for value in (best.low, best.score, best.high))
        if all(map(math.isfinite, (low, high))):
            axes.errorbar(
                best.candidate.I, middle, [[abs(middle - low)], [abs(high - middle)]], color=COLOURS[4], capsize=4
            )
        axes.plot(
            best.candidate.I, middle, "*", color=COLOURS[4], markersize=11, label=f"chosen: I = {best.candidate.I}"
        )
    _doubling(axes, [entry.candidate.I for entry in entries])
    if timed:
        axes.set_yscale("log")
    axes.set(xlabel="local steps I", ylabel="seconds to the goal" if timed else plan.goal.quantity)
    axes.legend()


def _draw_race(plan: Plan, axes: Axes) -> None:
    finalists = {standing.candidate for standing in plan.race.standings[1:]}
    last = max(entry.curve.end for entry in plan.race.entries[: 1 + len(finalists)])
    for entry in reversed(plan.race.entries):
        curve, who = entry.curve, entry.candidate
        colour, width, label, alpha = INK, 0.8, None, 0.4
        if who in finalists:
            colour, width, label, alpha = COLOURS[0], 1.4, f"I = {who.I}, gamma = {short(who.gamma)}", 1.0
        if who == plan.choice:
            colour, width, label, alpha = COLOURS[4], 2.0, f"chosen: I = {who.I}, gamma = {short(who.gamma)}", 1.0
        values = [plan.scale.value(error) for error in curve.errors]
        axes.plot(curve.seconds, values, color=colour, linewidth=width, label=label, alpha=alpha)
        if curve.diverged:
            axes.plot(curve.end, values[-1], "x", color=COLOURS[4], markersize=4)
        elif who not in finalists and who != plan.choice:
            axes.plot(curve.end, values[-1], ".", color=INK, markersize=3)
    if plan.goal.value is not None:
        axes.axhline(plan.goal.value, color=COLOURS[3], linewidth=1, linestyle="--")
    if not plan.goal.rising and all(plan.scale.value(error) > 0 for e in plan.race.entries for error in e.curve.errors):
        axes.set_yscale("log")
    axes.set(xlim=(0, 1.03 * last), xlabel="seconds by the cost model", ylabel=plan.goal.quantity, title="the race")
    axes.legend(loc="best")
