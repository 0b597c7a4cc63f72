"""Bound against reality: a theorem beside what was measured, its terms over local steps, its conditions."""

from __future__ import annotations

from fedgauge.show.page.section import ReportInput, Section
from fedgauge.show.views.bounds import view_of_comparison
from fedgauge.show.views.view import View


def _show(given: ReportInput) -> View | None:
    found = given.background.comparison
    return view_of_comparison(found) if found else None


SECTION = Section("bound", "Bound against reality", ("run",), _show)
