"""The result that reports can read, with its view."""

from __future__ import annotations

from fedgauge_inspection import views
from fedgauge_inspection.inspection_result import Inspection

__all__ = ["RESULTS", "views"]

RESULTS = (Inspection,)
"""What reports can read."""
