"""The sizes that Table 1 prints, read as constants and read as their squares.

The paper's appendix averages L_h^2 over ten rounds and defines L_tilde and L_g without squares; which of them the table
prints it does not say. Both readings are put beside what is measured here. A misfit is the factor by which printed and
measured numbers differ (root mean square of the logarithm of their ratio). The other instrument needs no measurement:
where f is steeper than 2/gamma in some direction, steps with rate gamma blow up in that direction, and runs that train
have constants along their way that are not above it for long.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedgauge.show import console
from fedgauge_wang2024.results import PrintedSizes
from fedgauge_wang2024.studies import STUDIES
from fedgauge_wang2024.table1 import PAPER, SYMBOLS
from fedgauge_wang2024.verdicts import ResultData

AS_CONSTANTS, AS_SQUARES = 1.0, 0.5
"""The powers of a printed number that are the constant, if the table prints constants, or their squares."""
POWERS = {AS_CONSTANTS: "constants", AS_SQUARES: "squares"}
RATIO = "L_h / L_tilde"
COLUMNS = ("L_tilde", "L_g", "L_h", RATIO)


def compared(results: Mapping[str, Sequence[ResultData]]) -> list[PrintedSizes]:
    """Both readings for each network that was measured, by its largest result, and for all together."""
    measured = {study: held[0] for study in PAPER if (held := results.get(_name(study)))}
    made = []
    together = [(tuple(measured), None)] if len(measured) > 1 else []
    for studies, label in [*(((study,), study) for study in measured), *together]:
        for power in POWERS:
            logs: dict[str, list[float]] = {name: [] for name in COLUMNS}
            beyond = printed = 0
            for study in studies:
                for name, ratio in _logs(study, measured[study]["rows"], power):
                    logs[name].append(ratio)
                limit = 2 / STUDIES[study].keys["gamma"]
                # There is one L_g for a network.
                sizes = {size**power for symbol in ("L_tilde", "L_g") for size, _ in PAPER[study][symbol].values()}
                beyond += sum(size > limit for size in sizes)
                printed += len(sizes)
            misfits = {name: math.exp(math.hypot(*each) / math.sqrt(len(each))) for name, each in logs.items() if each}
            made.append(PrintedSizes(label, power, misfits, beyond, printed))
    return made


def _name(study: str) -> str:
    return "table1" if study == "mlp" else f"table1-{study}"


def _logs(study: str, rows: Sequence[Mapping[str, Any]], power: float) -> Iterable[tuple[str, float]]:
    """For each column and X, the logarithm of the printed number over the measured one."""
    for row in rows:
        of = {
            symbol: math.log(
                PAPER[study][symbol][row["percent"]][0] ** power / row["readings"]["trajectory"][symbol][0]
            )
            for symbol in SYMBOLS
        }
        yield from of.items()
        yield RATIO, of["L_h"] - of["L_tilde"]


def lines(sizes: Sequence[PrintedSizes]) -> list[tuple[str, ...]]:
    """The cells of a table: the network, the reading, the misfits and how many sizes are beyond 2/gamma."""
    return [
        (
            STUDIES[each.study].title if each.study else "all together",
            POWERS[each.power],
            *(_factor(each.misfits[name]) for name in COLUMNS),
            f"{each.beyond} of {each.printed}",
        )
        for each in sizes
    ]


def _factor(factor: float) -> str:
    return f"{factor:.1f}" if factor < 10 else f"{factor:.0f}"


HEADS = ("network", "read as", *COLUMNS, "beyond 2/gamma")


def show(sizes: Sequence[PrintedSizes]) -> None:
    """Print the comparison and what it says."""
    title = "Typical factors between what Table 1 prints and what is measured"
    console.table(title, HEADS, lines(sizes))
    console.out.print(conclusion(sizes))


def conclusion(sizes: Sequence[PrintedSizes]) -> str:
    """What the comparison says,, by its last two: those of all together, or of the only network."""
    plain, squares = sizes[-2:]
    better = all(squares.misfits[name] < plain.misfits[name] for name in COLUMNS)
    closer = [STUDIES[each.study].title for each in sizes if each.study and _closer(each, sizes)]
    if not better:
        return "Reading the printed numbers as squares does not bring all of them closer to what is measured."
    factors = [", ".join(f"{_factor(each.misfits[name])} for {name}" for name in COLUMNS) for each in (squares, plain)]
    exception = f" The exception is {', '.join(closer)}, whose L_tilde is closer as it stands." if closer else ""
    return (
        "By its caption the table prints constants. Read as their squares, its numbers agree better with what is"
        f" measured here: they are typically off by a factor of {factors[0]}, and as they stand by {factors[1]}. Of"
        f" {plain.printed} different printed L_tilde and L_g, {plain.beyond} are beyond 2/gamma as they stand, and"
        f" {squares.beyond} as squares.{exception} That is a guess about how the table was made, which its numbers"
        " suggest and the paper does not say."
    )


def _closer(each: PrintedSizes, sizes: Sequence[PrintedSizes]) -> bool:
    """Whether a network's L_tilde agrees better as it stands."""
    if each.power != AS_CONSTANTS:
        return False
    other = next(sized for sized in sizes if sized.study == each.study and sized.power == AS_SQUARES)
    return each.misfits["L_tilde"] < other.misfits["L_tilde"]
