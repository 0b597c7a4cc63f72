"""The frozen values that flow through the program, validated when made, with JSON both ways.

JSON is written as Python's ``json`` module writes it: an infinite number appears as ``Infinity``.
"""

from __future__ import annotations

from fedgauge.codec import Value
from fedgauge.values.bounds import Array, Bound, Condition, Number, Source, Term, Version
from fedgauge.values.estimates import Constants, Estimate, Kind, initial_gap, is_safe
from fedgauge.values.results import Result
from fedgauge.values.traces import Round, Status, Trace

__all__ = [
    "Array",
    "Bound",
    "Condition",
    "Constants",
    "Estimate",
    "Kind",
    "Number",
    "Result",
    "Round",
    "Source",
    "Status",
    "Term",
    "Trace",
    "Value",
    "Version",
    "initial_gap",
    "is_safe",
]
