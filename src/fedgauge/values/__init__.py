"""The frozen values that flow through the program; they are checked when made, and read and write themselves as JSON.

The JSON is that of Python's ``json`` module: an infinite number appears as ``Infinity``.
"""

from __future__ import annotations

from fedgauge.base.codec import Value
from fedgauge.base.types import Array
from fedgauge.values.bounds import Bound, Condition, Inequality, Number, Source, Term, Version
from fedgauge.values.estimates import SETTINGS, Constants, Estimate, Kind, Scope, Subject, initial_gap, is_safe
from fedgauge.values.results import Origin, Result
from fedgauge.values.traces import Observer, Round, Status, Trace

__all__ = [
    "SETTINGS",
    "Array",
    "Bound",
    "Condition",
    "Constants",
    "Estimate",
    "Inequality",
    "Kind",
    "Number",
    "Observer",
    "Origin",
    "Result",
    "Round",
    "Scope",
    "Source",
    "Status",
    "Subject",
    "Term",
    "Trace",
    "Value",
    "Version",
    "initial_gap",
    "is_safe",
]
