"""The public names; ``__init__.py`` imports each from here when it is first used."""

from .by_theory import theory_plan as theory_plan
from .goal import Goal as Goal
from .plan_result import Plan as Plan
from .planner import PlanOptions as PlanOptions
from .planner import plan as plan
from .sweep import Sweep as Sweep
from .sweep import run_sweep as run_sweep
from .theory_result import TheoryPlan as TheoryPlan

__all__: list[str]
