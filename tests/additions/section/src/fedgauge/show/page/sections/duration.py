"""How long a run took, by its own clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedgauge.show.page.section import ReportInput, Section


def _show(given: ReportInput) -> Mapping[str, Any] | None:
    run = given.results.run
    if run is None or len(run.seconds) < 2 or not run.stopped_at:
        return None
    return {"entries": {"seconds": run.seconds[-1], "seconds per round": run.seconds[-1] / run.stopped_at}}


DURATION = Section("duration", "How long it took", ("run",), _show, "{{ facts(entries) }}")
