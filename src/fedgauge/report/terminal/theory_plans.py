"""Plans by theory, printed in a terminal and drawn as pictures."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from rich.padding import Padding
from rich.text import Text

from fedgauge.planning.theory_plan import TheoryPlan
from fedgauge.report.figures import COLOURS, INK, Target, figure, shade
from fedgauge.report.terminal.bounds import conditions_table, grid_of, terms_table
from fedgauge.report.terminal.console import number, out
from fedgauge.system.files import make_directories, write_json
from fedgauge.theory import find
from fedgauge.theory.search import Choice, Point
from fedgauge.values.text import lasting, short, whole


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
