"""Bounds and theorems for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rich import box
from rich.bar import Bar
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedgauge.show import figures
from fedgauge.show.terminal.console import number, out
from fedgauge.theory.answer import Answer, Other
from fedgauge.theory.base import Theorem
from fedgauge.theory.worst_case import WorstCase
from fedgauge.values import Condition

_BAR = 12


def grid_of(labels: str, numbers: str, formula: str = "") -> Table:
    """A table of labels (to the left), numbers (to the right) and a formula, which alone may fold."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for name in labels.split(","):
        grid.add_column(name, no_wrap=True)
    for name in numbers.split(","):
        grid.add_column(name, justify="right", no_wrap=True)
    if formula:
        grid.add_column(formula, overflow="fold")
    return grid


def _percent(share: float) -> str:
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def terms_table(answer: Answer) -> Table:
    """Each term with its share and its formula."""
    grid = grid_of("term", "value,share,", "formula")
    for term, share in zip(answer.bound.terms, answer.shares, strict=True):
        top = term is answer.dominant
        style = "bold" if top else ""
        bar = Bar(1.0, 0.0, share, width=_BAR, color="cyan" if top else "blue")
        value = Text(number(float(term.value)), style)
        grid.add_row(Text(term.name, style), value, _percent(share), bar, Text(term.formula, "" if top else "dim"))
    return grid


def conditions_table(conditions: Iterable[Condition]) -> Table:
    """Each condition with its value, its limit and how far apart they are."""
    grid = grid_of("", "value,limit,margin", "condition")
    for condition in conditions:
        style = "green" if condition.holds else "bold red"
        mark = "✓" if condition.holds else "✗"
        grid.add_row(
            Text(mark, style),
            number(float(condition.value)),
            number(float(condition.limit)),
            Text(_margin(condition), style),
            Text(f"{condition.name} <= {condition.formula}", style),
        )
    return grid


def _margin(condition: Condition) -> str:
    margin = float(condition.margin)
    return f"{margin:.3g}×" if margin == margin else "–"  # 0 <= 0 has none


def _versions(answer: Answer) -> Table:
    shown = answer.bound.source.version
    grid = grid_of("version", ",".join(answer.versions))
    for index, column in enumerate(grid.columns[1:]):
        column.header_style = "bold cyan" if list(answer.versions)[index] == shown else "dim"

    def row(label: str, cells: Iterable[tuple[str, str]]) -> None:
        grid.add_row(label, *(Text(text, style) for text, style in cells))

    versions = answer.versions.items()
    row("bound", ((number(other.total), "bold" if name == shown else "") for name, other in versions))
    row("conditions", (_holding(other) for _, other in versions))
    row("largest gamma", ((number(other.gamma_max), "") for _, other in versions))
    return grid


def _holding(other: Other) -> tuple[str, str]:
    if other.missing:
        return f"needs {', '.join(other.missing)}", "yellow"
    return ("hold", "green") if other.admissible else ("fail", "red")


def show_answer(answer: Answer, title: str, caveat: str = "") -> None:
    """Print a bound: its terms with their shares, its conditions, its versions side by side and the verdict.

    A certificate ends with the ``caveat``: what it takes for granted, or what it is about.
    """
    bound = answer.bound
    chosen = ", ".join(f"{name} = {number(answer.values[name])}" for name in answer.chosen)
    source = f"{bound.source.locator}, {bound.source.version}"
    out.print(Text.assemble((answer.theorem, "bold"), f" ({source}): {title}"))
    if answer.chosen:
        out.print(Text.assemble("Smallest within the conditions at ", (chosen, "bold cyan")))
    out.print(Text.assemble(f"{bound.quantity} <= ", (number(float(bound.total)), "bold")))
    for part in (terms_table(answer), conditions_table(bound.conditions), _versions(answer)):
        out.print(Padding(part, (1, 0, 0, 2)))
    out.print()
    for deviation in bound.source.deviations:
        out.print(Padding(Text(deviation, "dim"), (0, 0, 0, 2)))
    style = {"certified": "green", "not certified": "red"}.get(answer.standing, "yellow")
    ending = [caveat] if caveat and answer.standing == "certified" else []
    out.print(Text(" ".join([answer.verdict, *ending, *answer.notes]), style))


def show_theorems(theorems: Iterable[Theorem]) -> None:
    """Print every theorem with what it needs."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for theorem in theorems:
        spare = f" [{' '.join(theorem.optional)}]" if theorem.optional else ""
        needs = f"{' '.join(theorem.needs)}{spare}"
        about = Text.assemble(theorem.title, "\n", (needs, "cyan"), "\n", (" ".join(theorem.versions), "dim"))
        grid.add_row(Text(theorem.name, "bold"), theorem.locator, about)
    out.print(grid)
    out.print(Text("In brackets: what may be left out. prior uses L_tilde in place of L_g and L_h.", "dim"))


_LOOKS = {"sdp": (figures.INK, "-"), "star": (figures.COLOURS[2], "-"), "sharp": (figures.COLOURS[3], "--")}
_LOOKS |= {"corrected": (figures.COLOURS[4], ":")}


def draw_worst_case(found: WorstCase, path: figures.Target) -> None:
    """Draw the bounds against gamma; each ends where its theorem admits no larger rate."""
    with figures.figure(path, width=6.6, height=4.2) as (axes,):
        for name, heights in (found.curves or {}).items():
            colour, style = _LOOKS[name]
            shown = [math.nan if height is None else height for height in heights]
            axes.plot(found.gammas, shown, color=colour, linestyle=style, linewidth=2.0, label=name)
        axes.plot([found.values["gamma"]], [found.found.grad2], "o", color=figures.COLOURS[0], label="a federation")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("gamma")
        axes.set_ylabel(r"bound on the average of $E|\nabla f|^2$")
        axes.set_title(f"I = {found.values['I']:g}, R = {found.values['R']:g}", loc="left")
        axes.legend(frameon=False)
