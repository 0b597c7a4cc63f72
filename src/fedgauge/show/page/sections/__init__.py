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
    rounds.SECTION,
    plan.SECTION,
    sweep.SECTION,
    *(section for added in plugins(ADDED).values() for section in added),
    workers.SECTION,
    gauge.SECTION,
    federation.SECTION,
    origins.SECTION,
    constants.SECTION,
    bound.SECTION,
    certificate.SECTION,
    settings.SECTION,
    commands.SECTION,
)
"""In the order in which the page shows them: what happened, how much of the work counts and why, the theory, and how to
make all of it again. The last one ends every report."""
