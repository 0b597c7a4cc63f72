"""The ledger: claim by claim, what the paper says, what we find, and the verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedgauge.base.errors import InputError
from fedgauge.show import console
from fedgauge_wang2024 import glance
from fedgauge_wang2024.claims import CLAIMS
from fedgauge_wang2024.ledger_page import Kept
from fedgauge_wang2024.notes import Notes, read_notes
from fedgauge_wang2024.places import places, scale_of, spelling
from fedgauge_wang2024.studies import SCALES
from fedgauge_wang2024.verdicts import Claim, ResultCost, ResultData


def read(directory: Path) -> dict[str, list[ResultData]]:
    """The results that the claims are about, by name, those of the largest scale first."""
    if not directory.is_dir():
        raise InputError(f"There is no directory {directory}; name the one that 'fedgauge paper all' wrote.")
    results: dict[str, list[ResultData]] = {}
    for name in dict.fromkeys(claim.result for claim in CLAIMS):
        found = [_load(path) for place in places(name) if (path := directory / place / "result.json").exists()]
        if found:
            results[name] = sorted(found, key=_size, reverse=True)
    if not results:
        raise InputError(
            f"There is no result in {directory}; 'fedgauge paper all --out {directory}' writes them, each to a"
            " directory of its own."
        )
    return results


def _load(path: Path) -> ResultData:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError
    except (OSError, ValueError):
        raise InputError(f"{path} is not a JSON result; run its command again, or move the file away.") from None
    return found


def _size(result: ResultData) -> int:
    """How large the scale of a result is; results without a scale are alone."""
    scale = scale_of(result)
    return SCALES.index(scale) if scale in SCALES else len(SCALES)


def rows(results: Mapping[str, Sequence[ResultData]], notes: Notes | None = None) -> list[dict[str, Any]]:
    """One row per claim."""
    notes = notes or Notes()
    made = []
    for claim in CLAIMS:
        try:
            found, cost = claim.judged(results)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise InputError(
                f"The result {claim.result} is damaged, or another version wrote it; write it again with"
                f" 'fedgauge paper {spelling(claim.result)}'."
            ) from None
        remark = notes.remark(claim.text) if found.verdict != "not run" else ""
        made.append(
            {
                "claim": claim.text,
                "short": claim.short,
                "where": claim.where,
                "result": claim.result,
                "paper": claim.paper,
                "ours": f"{found.ours} ({remark})" if remark else found.ours,
                **cost._asdict(),
                "verdict": found.verdict,
                "command": command(claim, cost),
                "reason": notes.reason(claim.text, cost.scale, found.verdict),
            }
        )
    return made


def notes_in(directory: Path) -> Notes:
    """What was written down by hand beside the results in a directory."""
    return read_notes(directory, [claim.text for claim in CLAIMS])


def command(claim: Claim, cost: ResultCost) -> str:
    """The command that computes the result again."""
    # Table 2 has one size.
    scale = f"--effort {cost.scale}" if cost.scale in SCALES and claim.result != "table2" else ""
    return " ".join(part for part in ("fedgauge paper", spelling(claim.result), claim.options, scale) if part)


def counts(made: list[dict[str, Any]]) -> dict[str, int]:
    """How many claims have each verdict."""
    return dict(Counter(row["verdict"] for row in made))


def kept_in(directory: Path) -> dict[str, list[Kept]]:
    """The results in a directory, by the name of the table or figure."""
    found: dict[str, list[Kept]] = {}
    for name in dict.fromkeys(claim.result for claim in CLAIMS):
        for place in places(name):
            if (path := directory / place / "result.json").exists():
                picture = f"{name.partition('-')[0]}.png"
                drawn = picture if (directory / place / picture).exists() else ""
                found.setdefault(name, []).append(Kept(place, scale_of(_load(path)), drawn))
    return found


def show(made: list[dict[str, Any]]) -> None:
    """Print the ledger: what was not reproduced with its reasons, and at last every claim at a glance."""
    cells = [
        (
            row["where"],
            row["claim"],
            row["paper"],
            row["ours"],
            ", ".join(filter(None, (row["verdict"], row["reason"]))),
        )
        for row in made
    ]
    console.table("The paper's claims", ("in", "claim", "paper", "ours", "verdict"), cells)
    for block in glance.blocks(made):
        said = f"{block.title}. The paper: {block.statement}. Here: {glance.tally(block.rows)}."
        (first, *_) = block.lines
        if len(block.rows) == 1:
            console.out.print(f"{first.signs[0]} {said}")
            continue
        console.out.print(said)
        lines = [(line.where, line.about, *line.signs) for line in block.lines]
        heads = (head.replace(" ", "\n") for head in block.heads)  # no wider than a word
        console.table("", ("in", "about", *heads), lines, padding=0)
    signs = ", ".join(f"{glance.SIGNS[name]} {number} {name}" for name, number in glance.counted(made).items())
    console.out.print(f"{signs}. {glance.summary(made)}")
