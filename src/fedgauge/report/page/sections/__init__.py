"""The sections of a report, one file each.

To add one, write a file that makes a :class:`~fedgauge.report.page.section.Section` and list it here, at its place.
"""

from __future__ import annotations

from fedgauge.report.page.section import Section
from fedgauge.report.page.sections import (
    bound,
    certificate,
    certified_bounds,
    commands,
    constants,
    federation,
    figure,
    gauge,
    ledger,
    origins,
    plan,
    rounds,
    settings,
    sweep,
    table1,
    table2,
    workers,
)

SECTIONS: tuple[Section, ...] = (
    gauge.SECTION,
    settings.SECTION,
    plan.SECTION,
    certificate.SECTION,
    sweep.SECTION,
    certified_bounds.SECTION,
    figure.SECTION,
    table1.SECTION,
    table2.SECTION,
    ledger.SECTION,
    federation.SECTION,
    rounds.SECTION,
    workers.SECTION,
    constants.SECTION,
    bound.SECTION,
    origins.SECTION,
    commands.SECTION,
)
"""In the order in which the page shows them; the last one ends every report."""
