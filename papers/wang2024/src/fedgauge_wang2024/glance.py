"""The ledger at a glance: a sign for the verdict on each claim, table by table and figure by figure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Row = Mapping[str, Any]
"""A row of the ledger."""
SIGNS = {
    "reproduced": "✓",
    "reproduced in order but not in size": "≈",
    "not reproduced": "✗",
    "not decided": "?",
    "not run": "–",
}
"""The sign of each verdict, of which some have a reason too."""
BRIEF = {"reproduced in order but not in size": "in order but not in size"}
"""Verdicts that have a shorter name beside the others."""


class Line(NamedTuple):
    """The claims about one network, or about one table or figure.

    Attributes:
        where: the tables or figures.
        about: the network and its data; empty where there is only one claim.
        rows: of the ledger, one for each claim.
    """

    where: str
    about: str
    rows: tuple[Row, ...]

    @property
    def signs(self) -> tuple[str, ...]:
        """A sign for each claim."""
        return tuple(SIGNS[standing(row["verdict"])] for row in self.rows)


class Block(NamedTuple):
    """Tables or figures that make the same claims.

    Attributes:
        title: which tables or figures.
        statement: what the paper says there, as the end of a sentence.
        heads: the claims in short, in the order of each line's rows.
        lines: one for each network.
    """

    title: str
    statement: str
    heads: tuple[str, ...]
    lines: tuple[Line, ...]

    @property
    def rows(self) -> list[Row]:
        """All rows of the ledger in it."""
        return [row for line in self.lines for row in line.rows]


class _Kind(NamedTuple):
    title: str
    where: str
    statement: str
    about: str = ""


_KINDS = (
    _Kind(
        "Figures 2 to 9",
        r"Figure [2-9]",
        "after the same number of rounds, more local steps are better",
    ),
    _Kind("Table 1", r"Table 1", "L_h is far below L_tilde; with heterogeneity both grow, and L_g stays"),
    _Kind("Table 2", r"Table 2", "with one Hessian for all, I local steps take 1/I of the rounds", "quadratics"),
    _Kind("Figure 1", r"Figure 1", "workers drift apart, and their average hardly does"),
    _Kind("Theorem 4.5", r"Theorem 4\.5", "partial participation adds an error of its own"),
)


def standing(verdict: str) -> str:
    """A verdict without its reason.

    >>> standing("not decided: the reference did not train")
    'not decided'
    """
    return verdict.partition(":")[0]


def exhibit(row: Row) -> str:
    """The table or figure of a claim, without the letter of its panel.

    >>> exhibit({"where": "Figure 4(a)"})
    'Figure 4'
    """
    return re.sub(r"\(\w\)$", "", row["where"])


def blocks(made: Sequence[Row]) -> list[Block]:
    """The rows of a ledger, block by block.

    >>> row = {"claim": "VGG-11, 50%: falls", "short": "lower loss", "verdict": "reproduced"}
    >>> (block,) = blocks([{**row, "where": "Figure 4(a)"}, {**row, "where": "Figure 4(b)", "verdict": "not run"}])
    >>> block.lines[0].where, block.lines[0].about, block.lines[0].signs
    ('Figure 4', 'VGG-11, 50%', ('✓', '–'))
    """
    found = [(kind, [row for row in made if re.fullmatch(kind.where, exhibit(row))]) for kind in _KINDS]
    return [_block(kind, rows) for kind, rows in found if rows]


def _block(kind: _Kind, rows: Sequence[Row]) -> Block:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        about, colon, _ = row["claim"].partition(": ")
        groups.setdefault(about if colon else kind.about, []).append(row)
    lines = tuple(Line(_together([exhibit(row) for row in mine]), about, tuple(mine)) for about, mine in groups.items())
    longest = max(lines, key=lambda line: len(line.rows))
    return Block(kind.title, kind.statement, tuple(row["short"] for row in longest.rows), lines)


def _together(names: Sequence[str]) -> str:
    """Several tables or figures in a phrase.

    >>> _together(["Figure 2", "Figure 2", "Figure 3"])
    'Figures 2, 3'
    """
    first, *others = dict.fromkeys(names)
    kind, _, number = first.partition(" ")
    return ", ".join([f"{kind}s {number}", *(name.partition(" ")[2] for name in others)]) if others else first


def counted(made: Sequence[Row]) -> dict[str, int]:
    """How many rows have each verdict, without those that none has.

    >>> counted([{"verdict": "not run"}, {"verdict": "reproduced"}])
    {'reproduced': 1, 'not run': 1}
    """
    found = Counter(standing(row["verdict"]) for row in made)
    return {name: found[name] for name in SIGNS if found[name]}


def tally(made: Sequence[Row]) -> str:
    """How many rows have each verdict, in words.

    >>> tally([{"verdict": "not run"}, {"verdict": "not reproduced"}])
    '0 of 2 reproduced, 1 not reproduced, 1 not run'
    """
    found = counted(made)
    others = [f"{number} {BRIEF.get(name, name)}" for name, number in found.items() if name != "reproduced"]
    return ", ".join([f"{found.get('reproduced', 0)} of {len(made)} reproduced", *others])


def summary(made: Sequence[Row]) -> str:
    """How many claims are decided, in a sentence.

    >>> summary([{"verdict": verdict} for verdict in ("reproduced", "not decided: no data", "not run")])
    '1 of the 2 claims that there is data for are decided.'
    """
    found = counted(made)
    seen = len(made) - found.get("not run", 0)
    return f"{seen - found.get('not decided', 0)} of the {seen} claims that there is data for are decided."
