"""The settings that matter, of the result that the report is mainly about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedgauge.show.page.section import ReportInput, Section


def _show(given: ReportInput) -> Mapping[str, Any]:
    return {"entries": given.headings[0].settings(given)}


SECTION = Section("settings", "Settings", (), _show, "{{ facts(entries) }}")
