"""What a plan refuses: goals that are met or contradicted, budgets below a round, and races in which all diverged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedgauge.algorithms.cost import Cost
from fedgauge.base.errors import InputError
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.setup import Setup
from fedgauge.values import Round
from fedgauge.values.display import lasting, short
from fedgauge_planning.candidates import Space, Trial
from fedgauge_planning.course import Race, RaceEntry
from fedgauge_planning.goal import Goal
from fedgauge_planning.pilots import Pilots
from fedgauge_planning.plan_result import Seen


def refuse_other_targets(experiment: Experiment, goal: Goal) -> None:
    """Refuse an experiment that stops at another value of the quantities of goals."""
    for quantity in ("loss", "accuracy", "grad2"):
        value = getattr(experiment.run.stop, quantity)
        if value is not None and (quantity, value) != (goal.quantity, goal.value):
            raise InputError(
                f"The experiment stops at {quantity}={value:g}, which contradicts the goal of {goal.words}; leave that"
                " out of the experiment, or make it the goal."
            )


def refuse_small_budget(goal: Goal, cost: Cost, space: Space) -> None:
    """Refuse a budget that one round exceeds."""
    steps, people = min(space.local_steps), min(space.participants)
    least = cost.round(steps, people)
    if goal.budget is not None and goal.budget < least:
        raise InputError(
            f"The budget of {lasting(goal.budget)} is below one round, which takes at least {lasting(least)}"
            f" (I = {steps}, M = {people}); choose a larger budget, or a cheaper cost."
        )


def refuse_met(goal: Goal, setup: Setup, point: Mapping[str, Any]) -> None:
    """Refuse a goal that the first model meets."""
    start = setup.federation.start(setup.seed)
    accuracy = setup.evaluator.accuracy(start) if setup.evaluator else None
    first = Round(0, float(point["loss"]), float(point["grad2"]), accuracy=accuracy)
    if goal.value is not None and goal.reached(first):
        value = short(goal.best([first]))
        raise InputError(f"The first model already has {goal.words}, namely {value}; choose a more ambitious goal.")


def refuse_divergence(race: Race, pilots: Pilots, before: Seen) -> None:
    """Refuse to name a candidate if all of them diverged."""

    def lost(entry: RaceEntry) -> bool:
        """Whether it diverged, or f rose: candidates that fall behind are given up long before they diverge."""
        curve = entry.curve
        if curve.diverged or curve.errors[-1] <= curve.errors[0]:
            return curve.diverged
        # Accuracy and gradient may be worse than at the start even if f has fallen, so look at f itself.
        _, records = pilots.model(Trial(entry.candidate, 0))
        return records[-1].loss > records[0].loss

    if not all(map(lost, race.entries)):
        return
    gammas, steps = ({getattr(e.candidate, name) for e in race.entries} for name in ("gamma", "I"))
    least = min(gammas)
    following = min(least / 10, 1 / before.L_g if before.L_g > 0 else math.inf)
    raise InputError(
        f"Every candidate diverged: gamma from {short(least)} to {short(max(gammas))} with I from {min(steps)} to"
        f" {max(steps)}; try gamma = {short(following)} next."
    )
