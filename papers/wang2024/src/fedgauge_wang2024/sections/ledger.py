"""The paper's claims with their verdicts, those that were not reproduced first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.web.elements import CellValue
from fedgauge_wang2024.results import Ledger, LedgerRow

_ORDER = ("not reproduced", "reproduced in order but not in size", "reproduced", "not decided", "not run")
_HEADS = ("claim", "in", "paper", "ours", "scale", "seeds", "verdict", "command")


def _ledger(given: ReportInput) -> Ledger:
    found: Ledger = given.found.by_kind[Ledger.kind]
    return found


def _place(row: LedgerRow) -> int:
    kind = row.verdict.partition(":")[0]
    return _ORDER.index(kind) if kind in _ORDER else 0


def _explained(row: LedgerRow) -> str:
    return f"{row.verdict}, {row.reason}" if row.reason else row.verdict


def _show(given: ReportInput) -> Mapping[str, Any]:
    rows: list[list[CellValue]] = [
        [row.claim, row.where, row.paper, row.ours, row.scale, row.seeds, _explained(row), row.command]
        for row in sorted(_ledger(given).claims, key=_place)
    ]
    return {"heads": _HEADS, "rows": rows}


SECTION = Section(
    "ledger",
    "The paper’s claims",
    ("ledger",),
    _show,
    '{{ table(heads, rows, "cards") }}',
    Heading("ledger", lambda given: _ledger(given).verdict, lambda _: {}),
)
