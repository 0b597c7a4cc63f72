"""One view for each kind of result: to add one, register a function with :func:`view` in a module listed here."""

from __future__ import annotations

from fedgauge.show.views import (
    answers,
    bounds,
    gauges,
    inspections,
    measurements,
    partitions,
    plans,
    probes,
    runs,
    sweeps,
)
from fedgauge.show.views.view import Table, View, view

__all__ = [
    "Table",
    "View",
    "answers",
    "bounds",
    "gauges",
    "inspections",
    "measurements",
    "partitions",
    "plans",
    "probes",
    "runs",
    "sweeps",
    "view",
]
