"""The sections of a report, one file each.

To add one, write a file that makes a :class:`~fedgauge.show.page.section.Section` and list it here, at its place.
"""

from __future__ import annotations

from fedgauge.base.user_code import SECTIONS as ADDED
from fedgauge.base.user_code import plugins
from fedgauge.show.page.section import Section
from fedgauge.show.page.sections import (
    bound,
    certificate,
    commands,
    constants,
    federation,
    gauge,
    origins,
    plan,
    rounds,
    settings,
    sweep,
    workers,
)

SECTIONS: tuple[Section, ...] = (
    gauge.SECTION,
    settings.SECTION,
    plan.SECTION,
    certificate.SECTION,
    sweep.SECTION,
    *(section for added in plugins(ADDED).values() for section in added),
    federation.SECTION,
    rounds.SECTION,
    workers.SECTION,
    constants.SECTION,
    bound.SECTION,
    origins.SECTION,
    commands.SECTION,
)
"""In the order in which the page shows them; the last one ends every report."""
