"""The sections of a report, in the order in which a page shows them.

To add one, write a file that makes a :class:`~fedgauge.show.page.section.Section` and list it here, at its place.
"""

from __future__ import annotations

from fedgauge.base.user_code import SECTIONS as ADDED
from fedgauge.base.user_code import plugins
from fedgauge.show.page.section import Section
from fedgauge.show.page.sections import results, runs

_OWN = (
    runs.ROUNDS,
    runs.WORKERS,
    results.GAUGE,
    runs.FEDERATION,
    results.ORIGINS,
    results.CONSTANTS,
    results.BOUND,
    runs.SETTINGS,
    runs.COMMANDS,
)
_ADDED: tuple[Section, ...] = tuple(section for added in plugins(ADDED).values() for section in added)
SECTIONS = tuple(each for own in _OWN for each in (own, *(one for one in _ADDED if one.after == own.name)))
"""In the order in which the page shows them: what happened, how much of the work counts and why, the theory, and how to
make all of it again. The last one ends every report."""
