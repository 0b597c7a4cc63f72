"""The study for readers: tables on the terminal and in Markdown, and one picture."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgauge.base.terminal import say
from fedgauge.show import console, pictures
from fedgauge_wang2024.decisive.answers import MAIN, Grid, MeasureName, grid_of
from fedgauge_wang2024.decisive.cell import PLACES
from fedgauge_wang2024.decisive.regret import COSTS
from fedgauge_wang2024.lens_orders import medians, plain_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = ("zeta_rms", "L_h seen", "zeta_rms · L_h seen")
"""The lenses in the picture."""
_MARKS = "osD^vP*X"


def number(answer: Sequence[float | None] | None) -> str:
    """A number with its interval.

    >>> number((0.5, 0.25, 0.75)), number((0.5, None, None)), number(None)
    ('0.50 (0.25 to 0.75)', '0.50', '–')
    """
    if answer is None:
        return "–"
    value, low, high = answer
    ends = "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"
    return f"{value:.2f}{ends}"


def share(answer: Sequence[float | None]) -> str:
    """A regret with its interval, in percent.

    >>> share((0.123, 0.1, 0.2))
    '12% (10 to 20)'
    """
    value, low, high = answer
    ends = "" if low is None or high is None else f" ({100 * low:.0f} to {100 * high:.0f})"
    return f"{100 * (value or 0):.0f}%{ends}"


Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""A title, the heads of the columns, and the rows."""


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """All tables of a study, the most important first."""
    found, steps = result["answers"], tuple(f"I = {each}" for each in result["settings"]["local_steps"])
    yield _orders(result)
    along = [row for row in found["partial"] if row["place"] == MAIN[1]]
    yield (
        "What a lens adds to another one along the run: partial tau, all kinds mixed",
        ("lens", "given", *steps),
        list(_by_steps(along, ("lens", "given"), "tau")),
    )
    yield (
        "How much larger one tau is than another, all kinds mixed",
        ("lens", "less", "place", *steps),
        list(_by_steps(found["differences"], ("lens", "less", "place"), "difference")),
    )
    yield (
        "Regret: how much longer than with the best I",
        (
            "rule from",
            "place",
            *(f"a round costs {cost}" for cost in COSTS),
            *(f"new kinds, {cost}" for cost in COSTS),
        ),
        list(_regrets(result["regrets"])),
    )
    yield (
        f"Without one kind: tau of {MAIN[3]} less that of {MAIN[2]}, along the run",
        ("without", *steps),
        list(_by_steps(found["without a kind"], ("without",), "difference")),
    )
    yield _places(result)
    yield (
        "All kinds mixed, at every place and for every number of local steps",
        ("lens", "place", *steps),
        list(_by_steps(found["orders"], ("lens", "place"), "mixed")),
    )


def _orders(result: Mapping[str, Any]) -> Table:
    """How each lens orders federations, along the run: mixed for every I, and otherwise for the main one."""
    found, main = result["answers"], int(MAIN[0])
    by: dict[str, dict[int, Mapping[str, Any]]] = {}
    for row in found["orders"]:
        if row["place"] in ("", MAIN[1]):
            by.setdefault(row["lens"], {})[row["local_steps"]] = row
    steps = result["settings"]["local_steps"]
    keys = [key for key in ("within", "equal zeta", "pairs") if any(row[main].get(key) for row in by.values())]
    names = {"within": "within a kind"}
    return (
        f"How each lens orders federations along the run: Kendall's tau with the slowdown, and {found['pairs']} pairs",
        ("lens", *(f"mixed, I = {each}" for each in steps), *(f"{names.get(key, key)}, I = {main}" for key in keys)),
        [
            (lens, *(number(rows[each]["mixed"]) for each in steps), *(number(rows[main].get(key)) for key in keys))
            for lens, rows in sorted(by.items(), key=lambda item: -item[1][main]["mixed"][0])
        ],
    )


def _places(result: Mapping[str, Any]) -> Table:
    """How much a lens depends on where it looks, for the main number of local steps."""
    found, main = result["answers"], int(MAIN[0])
    taus = {(row["lens"], row["place"]): row["mixed"][0] for row in found["orders"] if row["local_steps"] == main}
    agree = {(row["lens"], row["from"], row["to"]): row["tau"][0] for row in found["places"]}
    lenses = dict.fromkeys(row["lens"] for row in found["places"])
    pairs = tuple(itertools.pairwise(PLACES))
    return (
        f"Tau at I = {main} by the place where a lens looks, and between its own values at two places",
        ("lens", *(f"tau {each}" for each in PLACES), *(f"{one} and {other} agree" for one, other in pairs)),
        [
            (lens, *(f"{taus[lens, place]:.2f}" for place in PLACES), *(f"{agree[lens, *pair]:.2f}" for pair in pairs))
            for lens in sorted(lenses, key=lambda lens: -taus[lens, MAIN[1]])
            if all((lens, place) in taus for place in PLACES) and all((lens, *pair) in agree for pair in pairs)
        ],
    )


def _by_steps(rows: Sequence[Mapping[str, Any]], names: tuple[str, ...], value: str) -> Iterator[tuple[str, ...]]:
    """One row for several numbers of local steps."""
    together: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        together.setdefault(tuple(str(row[name]) for name in names), []).append(number(row[value]))
    for key, cells in together.items():
        yield (*(part or "–" for part in key), *cells)


def _regrets(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    together: dict[tuple[str, str], dict[tuple[bool, int], Any]] = {}
    for row in rows:
        if row["place"] in ("", "first", MAIN[1]):
            together.setdefault((row["lens"], row["place"]), {})[row["new kinds"], row["cost"]] = row["regret"]
    for (lens, place), found in sorted(together.items(), key=lambda item: sum(each[0] for each in item[1].values())):
        cells = [share(found[key]) if (key := (new, cost)) in found else "–" for new in (False, True) for cost in COSTS]
        yield (lens, place or "–", *cells)


def federations_table(result: Mapping[str, Any]) -> Table:
    """The federations with medians over seeds: strength, slowdowns, the main lenses and the gauge."""
    grid = grid_of(result["cells"])
    local = list(grid.slowdowns)
    strengths = {
        name: np.median([cell["strength"] for cell in result["cells"] if cell["federation"] == name])
        for name in grid.names
    }
    lenses = [
        lens
        for name in ("zeta_rms", "L_h seen", "L_h", "L_tilde")
        if (lens := MeasureName(name, "along")) in grid.lenses
    ]
    columns = [medians(grid.slowdowns[each]) for each in local] + [medians(grid.lenses[each]) for each in lenses]
    columns += [medians(grid.lenses[MeasureName(f"gauge {each}")]) for each in local]
    head = ("federation", "strength", *(f"I = {each}" for each in local), *(lens.name for lens in lenses))
    rows = [
        (name, f"{strengths[name]:.2g}", *(_plain(column[index]) for column in columns))
        for index, name in enumerate(grid.names)
    ]
    return (
        "Slowdowns, lenses along the run and the gauge; medians over seeds",
        (*head, *(f"gauge {each}" for each in local)),
        rows,
    )


def _plain(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else "> 5"


def show(result: Mapping[str, Any]) -> None:
    """Print the outcome, and the tables that it rests on."""
    for title, head, rows in (federations_table(result), *list(tables(result))[:4]):
        console.table(title, head, rows)
    say(f"By the rules that were fixed beforehand: {result['answers']['verdict']['words']}.")


def markdown(result: Mapping[str, Any]) -> str:
    """All tables as Markdown."""
    parts = []
    for title, head, rows in (federations_table(result), *tables(result)):
        lines = [f"**{title}**", "", f"| {' | '.join(head)} |", f"| {' | '.join(['---'] * len(head))} |"]
        parts.append("\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]))
    return "\n\n".join(parts) + "\n"


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw the slowdown against zeta, L_h and their product, for the main and for the most local steps.

    The colour and the mark are the kind. Runs that were given up are drawn above all others.
    """
    grid, place, cap = grid_of(result["cells"]), MAIN[1], result["settings"]["cap"]
    rows = tuple(dict.fromkeys((MAIN[0], list(grid.slowdowns)[-1])))
    orders = {(row["lens"], row["place"], str(row["local_steps"])): row["mixed"] for row in result["answers"]["orders"]}
    with pictures.figure(path, panels=len(_SHOWN), rows=len(rows), width=3.9, height=3.4) as panels:
        for axes, (local, name) in zip(panels, itertools.product(rows, _SHOWN), strict=True):
            harm = medians(grid.slowdowns[local])
            height = np.where(np.isfinite(harm), harm, 1.2 * cap)
            _scatter(axes, grid, medians(grid.lenses[MeasureName(name, place)]), height)
            axes.axhline(cap, color=pictures.INK, linewidth=0.8, linestyle=":")
            title = f"I = {local}: tau {number(orders[name, place, local])}"
            axes.set(xlabel=name, ylabel=f"slowdown, I = {local}", title=title)
        panels[0].legend(fontsize=7, ncols=2)


def _scatter(axes: Axes, grid: Grid, shown: Any, height: Any) -> None:
    kinds = list(dict.fromkeys(grid.kinds))
    for index, kind in enumerate(kinds):
        mine = [number for number, each in enumerate(grid.kinds) if each == kind]
        axes.plot(
            shown[mine], height[mine], _MARKS[index % len(_MARKS)], markersize=4.5, alpha=0.85, label=kind or "iid"
        )
    axes.set(xscale="log", yscale="log")
    plain_ticks(axes, shown, "x")
    plain_ticks(axes, height, "y")
