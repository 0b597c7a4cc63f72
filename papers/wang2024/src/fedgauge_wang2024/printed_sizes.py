"""The sizes that Table 1 prints, read as constants and read as their squares.

The paper's appendix averages L_h^2 over ten rounds and defines L_tilde and L_g without squares; which of them the table
prints it does not say. Both readings are put beside what is measured here. A misfit is the factor by which printed and
measured numbers typically differ (root mean square of the logarithm of their ratio). Beside it stands how many of the
printed sizes are above 2/gamma: steps with rate gamma blow up along a direction that is steeper than that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedgauge.show import console
from fedgauge_wang2024.exhibits import table1_of
from fedgauge_wang2024.results import Misfit, PrintedSizes
from fedgauge_wang2024.studies import STUDIES
from fedgauge_wang2024.table1 import PAPER, SYMBOLS
from fedgauge_wang2024.verdicts import ResultData

RATIO = "L_h / L_tilde"
COLUMNS = ("L_tilde", "L_g", "L_h", RATIO)
HEADS = ("network", "read as", *COLUMNS, "beyond 2/gamma")


def compared(results: Mapping[str, Sequence[ResultData]]) -> list[PrintedSizes]:
    """Each network that was measured, by its largest result, and, if there are several, all together at the end."""
    measured = {study: held[0]["rows"] for study in PAPER if (held := results.get(table1_of(study)))}
    made = [_sizes(study, {study: rows}) for study, rows in measured.items()]
    return [*made, _sizes(None, measured)] if len(made) > 1 else made


def _sizes(label: str | None, measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> PrintedSizes:
    # There is one L_g for a network, and the MLP's rows for 25% and 50% are the same.
    printed = sum(len(_distinct(study)) for study in measured)
    return PrintedSizes(label, _misfit(measured, 1.0), _misfit(measured, 0.5), printed)


def _distinct(study: str) -> set[float]:
    return {size for symbol in ("L_tilde", "L_g") for size, _ in PAPER[study][symbol].values()}


def _misfit(measured: Mapping[str, Sequence[Mapping[str, Any]]], power: float) -> Misfit:
    """How the numbers agree if a printed one to this power is the constant."""
    logs: dict[str, list[float]] = {name: [] for name in COLUMNS}
    for study, rows in measured.items():
        for row in rows:
            for name, ratio in _logs(PAPER[study], row, power):
                logs[name].append(ratio)
    factors = {name: math.exp(math.hypot(*each) / math.sqrt(len(each))) for name, each in logs.items()}
    beyond = sum(size**power > 2 / STUDIES[study].keys["gamma"] for study in measured for size in _distinct(study))
    return Misfit(factors, beyond)


def _logs(
    printed: Mapping[str, Mapping[int, tuple[float, float]]], row: Mapping[str, Any], power: float
) -> Iterable[tuple[str, float]]:
    """For each column, the logarithm of the printed number over the one that was measured at an X."""
    seen = row["readings"]["trajectory"]
    of = {symbol: math.log(printed[symbol][row["percent"]][0] ** power / seen[symbol][0]) for symbol in SYMBOLS}
    yield from of.items()
    yield RATIO, of["L_h"] - of["L_tilde"]


def lines(sizes: Sequence[PrintedSizes]) -> list[tuple[str, ...]]:
    """The cells of a table: the network, the reading, the factors and how many sizes are beyond 2/gamma."""
    return [
        (
            STUDIES[each.study].title if each.study else "all together",
            name,
            *(_factor(misfit.factors[column]) for column in COLUMNS),
            f"{misfit.beyond} of {each.printed}",
        )
        for each in sizes
        for name, misfit in (("constants", each.constants), ("squares", each.squares))
    ]


def _factor(factor: float) -> str:
    return f"{factor:.1f}" if factor < 10 else f"{factor:.0f}"


def show(sizes: Sequence[PrintedSizes]) -> None:
    """Print the comparison and what it says."""
    title = "Typical factors between what Table 1 prints and what is measured"
    console.table(title, HEADS, lines(sizes))
    console.out.print(conclusion(sizes))


def conclusion(sizes: Sequence[PrintedSizes]) -> str:
    """What the comparison says of all networks together, or of the only one."""
    last = sizes[-1]
    if not all(last.squares.factors[name] < last.constants.factors[name] for name in COLUMNS):
        return "Reading the printed numbers as squares does not bring all of them closer to what is measured."
    as_squares, as_constants = (
        ", ".join(f"{_factor(misfit.factors[name])} for {name}" for name in COLUMNS)
        for misfit in (last.squares, last.constants)
    )
    others = [
        STUDIES[each.study].title
        for each in sizes
        if each.study and each.constants.factors["L_tilde"] < each.squares.factors["L_tilde"]
    ]
    exception = f" The exception is {', '.join(others)}, whose L_tilde is closer as it stands." if others else ""
    return (
        "By its caption the table prints constants. Read as their squares, its numbers agree better with what is"
        f" measured here: they are typically off by a factor of {as_squares}, and as they stand by {as_constants}. Of"
        f" {last.printed} different printed L_tilde and L_g, {last.constants.beyond} are beyond 2/gamma as they stand,"
        f" and {last.squares.beyond} as squares.{exception} That is a guess about how the table was made, which its"
        " numbers suggest and the paper does not say."
    )
