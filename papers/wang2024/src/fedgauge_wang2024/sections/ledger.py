"""The paper's claims with their verdicts, those that were not reproduced first."""

from __future__ import annotations

from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.views.view import Cell, Table, View
from fedgauge_wang2024.results import Ledger, LedgerRow

_ORDER = ("not reproduced", "reproduced in order but not in size", "reproduced", "not decided", "not run")
_HEADS = ("claim", "in", "paper", "ours", "scale", "seeds", "verdict", "command")


def _place(row: LedgerRow) -> int:
    kind = row.verdict.partition(":")[0]
    return _ORDER.index(kind) if kind in _ORDER else 0


def _explained(row: LedgerRow) -> str:
    return f"{row.verdict}, {row.reason}" if row.reason else row.verdict


def _show(given: ReportInput) -> View:
    rows: list[list[Cell]] = [
        [row.claim, row.where, row.paper, row.ours, row.scale, row.seeds, _explained(row), row.command]
        for row in sorted(given.result(Ledger).claims, key=_place)
    ]
    return View(tables=(Table(_HEADS, rows),))


SECTION = Section(
    "ledger",
    "The paper’s claims",
    ("ledger",),
    _show,
    heading=Heading("ledger", lambda given: given.result(Ledger).verdict, lambda _: {}),
)
