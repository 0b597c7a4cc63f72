"""The sections of a report on the paper's tables, figures, claims and bounds."""

from __future__ import annotations

from fedgauge_wang2024.sections import certified_bounds, figure, ledger, table1, table2

SECTIONS = (
    certified_bounds.SECTION,
    figure.SECTION,
    table1.SECTION,
    table2.SECTION,
    ledger.SECTION,
)
"""In the order in which a report shows them."""
