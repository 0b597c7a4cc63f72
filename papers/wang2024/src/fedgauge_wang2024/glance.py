"""The ledger at a glance: how many claims of each table and figure have which verdict."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

STANDINGS = ("reproduced", "reproduced in order but not in size", "not reproduced", "not decided", "not run")
"""The verdicts, without the reasons of some."""
COUNTS = ("reproduced", "in order only", "not reproduced", "not decided", "not run")
"""Heads of their columns."""
HEAD = ("in", "about", "scale", "seeds", *COUNTS)


class Line(NamedTuple):
    """The claims about one network in a table or figure.

    Attributes:
        where: the table or figure.
        about: the network and its data; empty where there is only one.
        scale: of the results, or several.
        seeds: the fewest.
        counts: how many claims have each verdict, in the order of :data:`STANDINGS`.
    """

    where: str
    about: str
    scale: str
    seeds: str
    counts: tuple[str, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        """All of it, under :data:`HEAD`."""
        return *self[:4], *self.counts


def standing(verdict: str) -> str:
    """A verdict without its reason.

    >>> standing("not decided: the reference did not train")
    'not decided'
    """
    return verdict.partition(":")[0]


def lines(made: Sequence[Mapping[str, Any]]) -> list[Line]:
    """One line for each network in each table or figure.

    Args:
        made: rows of the ledger.

    >>> row = {"where": "Figure 4(a)", "claim": "VGG-11, 50%: falls", "scale": "laptop", "seeds": 2}
    >>> lines([{**row, "verdict": "reproduced"}, {**row, "where": "Figure 4(b)", "verdict": "not reproduced"}])[0].cells
    ('Figure 4', 'VGG-11, 50%', 'laptop', '2', '1', '–', '1', '–', '–')
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in made:
        about, colon, _ = row["claim"].partition(": ")
        groups.setdefault((re.sub(r"\(\w\)$", "", row["where"]), about if colon else ""), []).append(row)
    return [_line(*names, rows) for names, rows in groups.items()]


def _line(where: str, about: str, rows: Sequence[Mapping[str, Any]]) -> Line:
    counted = Counter(standing(row["verdict"]) for row in rows)
    scales = dict.fromkeys(row["scale"] for row in rows)
    seeds = [row["seeds"] for row in rows if row["seeds"] is not None]
    numbers = tuple(str(counted[each]) if counted[each] else "–" for each in STANDINGS)
    return Line(where, about, ", ".join(scales), str(min(seeds)) if seeds else "–", numbers)


def summary(made: Sequence[Mapping[str, Any]]) -> str:
    """How many claims are decided, in a sentence.

    >>> summary([{"verdict": verdict} for verdict in ("reproduced", "not decided: no data", "not run")])
    '1 of the 2 claims that there is data for are decided.'
    """
    counted = Counter(standing(row["verdict"]) for row in made)
    seen = len(made) - counted["not run"]
    return f"{seen - counted['not decided']} of the {seen} claims that there is data for are decided."
