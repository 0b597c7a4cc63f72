"""Every kind of result that fedgauge writes, and how the kind of a file is recognised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedgauge.errors import InputError, nearest
from fedgauge.experiment.sweep_result import SweepResult
from fedgauge.measurement.designed import Design
from fedgauge.measurement.gauge.result import GaugeResult
from fedgauge.measurement.reading import Measurement
from fedgauge.measurement.worker_evaluation import WorkerEvaluation
from fedgauge.planning.plan import Plan
from fedgauge.planning.theory_plan import TheoryPlan
from fedgauge.results.certified_bounds import CertifiedBounds
from fedgauge.results.paper import (
    CurvesFigure,
    DecisiveStudy,
    Ledger,
    LensStudy,
    SamplingResult,
    Sketch,
    Table1,
    Table2,
)
from fedgauge.results.searches import DemoResult, Falsification
from fedgauge.values import Result

RESULTS: Mapping[str, type[Result]] = {
    result.kind: result
    for result in (
        GaugeResult,
        Plan,
        SweepResult,
        CertifiedBounds,
        TheoryPlan,
        Table1,
        Table2,
        Ledger,
        CurvesFigure,
        Measurement,
        Sketch,
        SamplingResult,
        LensStudy,
        DecisiveStudy,
        Design,
        WorkerEvaluation,
        Falsification,
        DemoResult,
    )
}
"""Kinds by name. A report on several results is named after the first of them in this order."""

# Files from before results named their kind: any one of the first entries, or all of the second, tells it.
_ANY: Mapping[str, tuple[str, ...]] = {
    "measurement": ("readings", "point"),
    "plan": ("race", "space"),
    "sweep": ("combinations", "over"),
    "certified-bounds": ("constants",),
    "theory-plan": ("sensitivity", "prior_curve"),
    "figure": ("studies",),
    "table1": ("paper",),
    "table2": ("columns",),
    "ledger": ("claims",),
}
_ALL: Mapping[str, set[str]] = {
    "sketch": {"panels"},
    "sampling": {"settings", "lines"},
    "lens-study": {"orders", "cells"},
    "falsification": {"rows", "cases"},
    "demo": {"digits", "federations"},
}


def kind_of(data: Mapping[str, Any]) -> type[Result] | None:
    """The kind of a file's content: as it says itself, or by the shape of a file that is older than kinds.

    >>> kind_of({"kind": "table2"}).__name__, kind_of({"readings": [], "point": {}}).__name__, kind_of({"a": 1})
    ('Table2', 'Measurement', None)
    """
    if "kind" in data:
        kind = data["kind"]
        if not isinstance(kind, str) or kind not in RESULTS:
            raise InputError(f"There is no result of kind {kind!r}; {nearest(str(kind), RESULTS)}")
        return RESULTS[kind]
    for kind, entries in _ANY.items():
        if any(entry in data for entry in entries):
            return RESULTS[kind]
    return next((RESULTS[kind] for kind, entries in _ALL.items() if entries <= set(data)), None)
