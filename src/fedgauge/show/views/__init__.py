"""One view for each kind of result: to add one, register a function with :func:`view` in a module listed here."""

from __future__ import annotations

from fedgauge.show.views import (
    answers,
    bounds,
    comparisons,
    gauges,
    measurements,
    partitions,
    probes,
    runs,
)
from fedgauge.show.views.view import Table, View, view

__all__ = [
    "Table",
    "View",
    "answers",
    "bounds",
    "comparisons",
    "gauges",
    "measurements",
    "partitions",
    "probes",
    "runs",
    "view",
]
