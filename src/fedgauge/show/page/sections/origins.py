"""Where heterogeneity comes from: the workers and the parameters that contribute most to zeta and L_h."""

from __future__ import annotations

from dataclasses import replace

from fedgauge.show.page.section import ReportInput, Section
from fedgauge.show.views.measurements import parts_of, view_of_parts
from fedgauge.show.views.view import View


def _show(given: ReportInput) -> View | None:
    measurement = given.found.measurement
    parts = parts_of(measurement) if measurement else None
    if measurement is None or parts is None:
        return None
    reading, shown = measurement.reading("parts"), view_of_parts(parts)
    return replace(shown, tables=shown.tables[:1], notes=reading.notes if reading else ())


SECTION = Section("origins", "Where heterogeneity comes from", ("measurement",), _show)
