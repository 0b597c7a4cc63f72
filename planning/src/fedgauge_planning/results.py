"""The results that reports can read, with their views."""

from __future__ import annotations

from fedgauge_planning import plan_views, sweep_views
from fedgauge_planning.plan_result import Plan
from fedgauge_planning.sweep import SweepResult
from fedgauge_planning.theory_result import TheoryPlan

__all__ = ["RESULTS", "plan_views", "sweep_views"]

RESULTS = (Plan, SweepResult, TheoryPlan)
"""What reports can read."""
