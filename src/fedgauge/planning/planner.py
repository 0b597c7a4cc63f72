"""Plan by trial: measure, propose candidates, race them, and explain who won."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedgauge.algorithms.base import Algorithm
from fedgauge.errors import InputError, count
from fedgauge.experiment.config import Experiment
from fedgauge.experiment.prepare import setup_of
from fedgauge.federation.participation import Participation
from fedgauge.federation.protocols import Federation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.measurement.measuring import MeasureOptions, measure
from fedgauge.pace.cost import Cost
from fedgauge.planning import explain
from fedgauge.planning.by_theory import check_cost, theory_plan
from fedgauge.planning.candidates import Candidate, Space, Trial, space_of
from fedgauge.planning.explain import Seen
from fedgauge.planning.forecast import Scale
from fedgauge.planning.goal import Goal
from fedgauge.planning.measured import at_start, floor_of, with_gap
from fedgauge.planning.pilots import Pilots
from fedgauge.planning.plan import Plan
from fedgauge.planning.race import Entry, Race, race
from fedgauge.planning.theory_plan import TheoryPlan
from fedgauge.simulation.loop import simulate
from fedgauge.simulation.options import Compute
from fedgauge.simulation.setup import Setup
from fedgauge.values import Constants, Round
from fedgauge.values.text import lasting, short

_FIELD = 45  # candidates that begin at the most: as many as the usual ladders have
_PATIENCE = 20.0  # a goal is given up after so many times what the user's own settings would take
_ROOM = 1.5  # rounds that the experiment gets beyond what its slowest seed took
_LOOKED = 3  # rounds that are looked at to explain the choice

Progress = Callable[[str, int, int | None], None]
"""Progress what is being done, how far it is, and how far it goes where that is known."""


@dataclass(frozen=True)
class PlanOptions:
    """How much planning may take.

    Attributes:
        seeds: of the finals.
        spend: seconds of this machine; None is until the winner is clear.
        limit: seconds of the cost model after which a candidate has failed; the usual is twenty times what the
            experiment takes at its own settings.
        jobs: pilots at once; one a core if not given.
    """

    seeds: int = 3
    spend: float | None = None
    limit: float | None = None
    jobs: int | None = None

    def __post_init__(self) -> None:
        count("seeds", self.seeds)
        if self.jobs is not None:
            count("jobs", self.jobs)
        for name in ("spend", "limit"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} must be above 0 seconds, not {value!r}.")


@dataclass(frozen=True)
class _Task:
    """What is planned, and what is known before the first pilot."""

    setup: Setup
    scale: Scale
    cost: Cost
    space: Space
    constants: Constants
    began: float

    @property
    def num_workers(self) -> int:
        return self.setup.num_workers


def plan(
    source: Federation | Experiment | Setup,
    algorithm: Algorithm | None = None,
    *,
    goal: Goal,
    cost: Cost,
    over: Mapping[str, Sequence[Any]] | None = None,
    setup: Mapping[str, Any] | None = None,
    options: PlanOptions | None = None,
    directory: str | Path | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Plan:
    """Plan the local steps, rates and participants of a federation, by pilot runs from its first model.

    Args:
        source: a federation; or an experiment, which says the algorithm and everything else by itself.
        algorithm: its rates are the middle of what is tried.
        goal: what to reach soonest, or what to have best within a budget.
        cost: of a round; what it leaves open is measured here.
        over: for some of ``local_steps``, ``gamma``, ``eta`` and ``participants``, the values to choose from.
        setup: further fields of :class:`~fedgauge.Setup`, such as ``local_steps``, ``participation``, ``evaluator``.
        options: how much planning may take.
        directory: keeps the pilots, so that planning can be interrupted and resumed; by default, a temporary one.
        progress: called with what is being done and how far it is.

    Returns:
        The plan. If no candidate reaches the goal, it says so, and how near the best one came.

    >>> from fedgauge import fedavg, random_quadratics
    >>> found = plan(
    ...     random_quadratics(4, 3, hessian_spread=0.0), fedavg(gamma=0.1), goal=Goal("grad2", 1e-6),
    ...     cost=Cost("given", fixed=1.0, step=0.001), over={"gamma": [0.1]}, options=PlanOptions(jobs=1))
    >>> found.choice.I, found.reached
    (128, True)
    """
    options, began = options or PlanOptions(), time.monotonic()
    if isinstance(source, Experiment):
        _refuse_other_targets(source, goal)
    progress("measuring", 0, None)
    shared = setup_of(source, algorithm, **(setup or {}))
    if goal.quantity == "accuracy" and shared.evaluator is None:
        raise InputError("The goal accuracy needs examples to test on, and there are none; choose a loss.")
    cost = cost.completed(shared.federation)
    check_cost(cost)
    floor = floor_of(shared)
    scale = Scale(goal, floor)
    space = space_of(shared, cost, over)
    measured = at_start(shared)
    quadratic = isinstance(shared.federation, QuadraticFederation)
    constants = with_gap(measured.constants, float(measured.point["loss"]), floor, quadratic)
    task = _Task(shared, scale, cost, space, constants, began)
    before = explain.from_constants(constants, constants["F"].value, float(measured.point["grad2"]))
    _refuse_small_budget(goal, cost, space)
    _refuse_met(goal, shared, measured.point)
    # Everyone's first run is a round of moderate local steps, or one of its own where that is longer.
    horizon = cost.round(math.sqrt(min(space.local_steps) * max(space.local_steps)), max(space.participants))
    fields = _candidates(space, before, cost, horizon)
    place = Path(directory) / "pilots" / goal.name if directory else None

    def time_is_up() -> bool:
        return options.spend is not None and time.monotonic() - began > options.spend

    leader = "pilots"

    def lead(who: str, spent: float) -> None:
        nonlocal leader
        leader = f"pilots, {who} ahead"

    def ran(done: int, total: int) -> None:
        progress(leader, done, total)

    with Pilots(shared, scale, cost, place, options.jobs, ran) as pilots:
        found = race(
            fields[:_FIELD],
            pilots.run,
            target=scale.target,
            budget=goal.budget,
            first=horizon,
            limit=options.limit or _PATIENCE * shared.rounds * space.own.seconds(cost),
            seeds=options.seeds,
            more=space.beside,
            time_is_up=time_is_up,
            progress=lead,
        )
        _refuse_divergence(found, pilots, before)
        progress("explaining", 0, None)
        model, records = pilots.model(Trial(found.winner, 0))
        if goal.budget is not None:
            # A run that is kept may be further than the budget goes.
            end = goal.budget / found.winner.seconds(cost) * (1 + 1e-9)
            records = tuple(record for record in records if record.round <= end)
    seen = _after(found.winner.applied(shared), torch.from_numpy(model), records, found.winner)
    theory, notes = _theory(task, records, found.winner)
    return _plan(task, found, records, seen, theory, [*_left_out(len(fields)), *notes])


# -- what is refused ---------------------------------------------------------------------------------------------


def _refuse_other_targets(experiment: Experiment, goal: Goal) -> None:
    for quantity in ("loss", "accuracy", "grad2"):
        name = f"target_{quantity}"
        given = getattr(experiment.run, name)
        if given is not None and (quantity, given) != (goal.quantity, goal.value):
            raise InputError(
                f"The experiment stops at {name} = {given:g}, which contradicts the goal of {goal.words}; leave out"
                f" {name}, or make it the goal."
            )


def _refuse_small_budget(goal: Goal, cost: Cost, space: Space) -> None:
    steps, people = min(space.local_steps), min(space.participants)
    least = cost.round(steps, people)
    if goal.budget is not None and goal.budget < least:
        raise InputError(
            f"The budget of {lasting(goal.budget)} is below one round, which takes at least {lasting(least)}"
            f" (I = {steps}, M = {people}); give more, or a cheaper cost."
        )


def _refuse_met(goal: Goal, setup: Setup, point: Mapping[str, Any]) -> None:
    start = setup.federation.start(setup.seed)
    accuracy = setup.evaluator.accuracy(start) if setup.evaluator else None
    first = Round(0, float(point["loss"]), float(point["grad2"]), accuracy=accuracy)
    if goal.value is not None and goal.reached(first):
        found = short(goal.best([first]))
        raise InputError(f"The first model already has {goal.words}, namely {found}; ask for more.")


def _refuse_divergence(found: Race, pilots: Pilots, before: Seen) -> None:
    def lost(entry: Entry) -> bool:
        """Whether it diverged, or f has risen: those that others leave behind are given up long before they diverge."""
        curve = entry.curve
        if curve.diverged or curve.errors[-1] <= curve.errors[0]:
            return curve.diverged
        # Accuracy and gradient may be worse than at first where f has fallen, so that f is asked.
        _, records = pilots.model(Trial(entry.candidate, 0))
        return records[-1].loss > records[0].loss

    if not all(map(lost, found.entries)):
        return
    gammas, steps = ({getattr(e.candidate, name) for e in found.entries} for name in ("gamma", "I"))
    least = min(gammas)
    following = min(least / 10, 1 / before.L_g if before.L_g > 0 else math.inf)
    raise InputError(
        f"Every candidate diverged: gamma from {short(least)} to {short(max(gammas))} with I from {min(steps)} to"
        f" {max(steps)}; try gamma = {short(following)} next."
    )


# -- what is measured before and after ---------------------------------------------------------------------------


def _after(setup: Setup, model: torch.Tensor, records: Sequence[Round], winner: Candidate) -> Seen:
    """What a few more rounds of the winner show, from where its pilot ended."""
    here = replace(setup, participation=Participation(weights=setup.participation.weights))
    trace = simulate(
        here.federation,
        here.algorithm,
        local_steps=winner.I,
        rounds=_LOOKED,
        participation=here.participation,
        start=model,
        seed=here.seed,
        compute=Compute(processes=1),
    )
    rounds = [record for record in trace.rounds if record.deviation2 is not None]
    measured = measure(here, model=model, options=MeasureOptions(("noise",)))

    def mean(name: str) -> float:
        values = [getattr(record, name) for record in rounds if getattr(record, name) is not None]
        return float(np.mean(values)) if values else 0.0

    return Seen(
        fall=records[0].loss - records[-1].loss,
        grad2=records[-1].grad2,
        sigma2=explain.from_constants(measured.constants, 0.0, 0.0).sigma2,
        zeta2=mean("zeta2"),
        L_g=mean("L_g_ratio"),
        L_h=mean("L_h_ratio"),
        deviation2=mean("deviation2"),
        local_steps=winner.I,
        gamma=winner.gamma,
    )


def _candidates(space: Space, before: Seen, cost: Cost, seconds: float) -> list[Candidate]:
    """The grid and the user's own, the most promising first by the constants."""
    own = space.own
    fits = own.I in space.local_steps and own.gamma in space.gammas
    fields = dict.fromkeys((*space.grid(), *([own] if fits else [])))
    return explain.order(list(fields), before, cost, seconds)


def _left_out(number: int) -> list[str]:
    """What must be said where more was named than is tried."""
    if number <= _FIELD:
        return []
    return [
        f"Of {number} combinations of I and gamma the {_FIELD} that promise most by the constants began, and others"
        " joined only beside the best; name fewer to have each of them tried."
    ]


def _theory(task: _Task, records: Sequence[Round], winner: Candidate) -> tuple[TheoryPlan | None, list[str]]:
    """What a theorem certifies for the same end: the squared gradient norm that the winner came to."""
    algorithm = task.setup.algorithm.name
    if algorithm != "fedavg":
        return None, [f"Theory plans FedAvg, and not {algorithm}."]
    goal, notes = task.scale.goal, []
    if goal.budget is None and goal.quantity != "grad2":
        goal = Goal("grad2", records[-1].grad2)
        notes.append(
            f"The theory speaks of |grad f|^2, so that its plan is for {short(records[-1].grad2)}, where the run that"
            " was chosen came to its goal."
        )
    elif goal.quantity != "grad2":
        goal = Goal("grad2", None, goal.budget)
    try:
        return theory_plan(
            task.constants,
            goal=goal,
            cost=task.cost,
            num_workers=task.num_workers,
            participants=winner.applied(task.setup).participation,
            eta=winner.eta,
            practice=(winner.I, winner.gamma, winner.eta),
        ), notes
    except InputError as error:
        return None, [f"The theory has no plan: {error}"]


# -- the plan ----------------------------------------------------------------------------------------------------


def _plan(
    task: _Task,
    found: Race,
    records: Sequence[Round],
    seen: Seen,
    theory: TheoryPlan | None,
    notes: Sequence[str],
) -> Plan:
    winner, goal, cost, space = found.winner, task.scale.goal, task.cost, task.space
    each = winner.seconds(cost)
    ran = found.entries[0].curve.end
    seconds, low, high, slowest = ran, ran, ran, ran
    if goal.budget is not None:
        seconds = low = high = slowest = math.floor(goal.budget / each * (1 + 1e-9)) * each
    elif found.standings:
        best = found.standings[0]
        seconds, low, high = best.score, best.low, best.high
        slowest = max(best.scores)
    rounds = max(1, round(seconds / each))
    most = max(1, math.ceil(slowest / each - 1e-9)) if goal.value is None else math.ceil(_ROOM * slowest / each)
    steps = sorted({*space.local_steps, winner.I})
    return Plan(
        experiment=_experiment(task, winner, most),
        scale=task.scale,
        cost=cost,
        space=space,
        race=found,
        rounds=rounds,
        seconds=seconds,
        low=low,
        high=high,
        value=goal.best(records),
        terms=tuple(explain.terms(seen, replace(winner, I=number), cost, max(seconds, each)) for number in steps),
        seen=seen,
        constants=task.constants,
        theory=theory,
        notes=(*_remarks(space, seen, winner, cost), *notes),
        wall=time.monotonic() - task.began,
    )


def _experiment(task: _Task, winner: Candidate, rounds: int) -> dict[str, Any]:
    """The sections of the experiment to run; none where the federation comes from Python."""
    if not task.setup.experiment:
        return {}
    experiment, goal = Experiment.from_json(task.setup.experiment), task.scale.goal
    changes = {**winner.changes(experiment, task.num_workers), "rounds": rounds}
    if goal.value is not None:
        changes[f"target_{goal.quantity}"] = goal.value
    return experiment.changed(changes).to_json()


def _remarks(space: Space, seen: Seen, winner: Candidate, cost: Cost) -> list[str]:
    notes = []
    if seen.identical:
        notes.append("The workers are identical: their gradients agree, and averaging them only divides the noise.")
    if winner.I == max(space.local_steps) > 1:
        notes.append(f"I is the largest that was tried; larger ones are tried with --over local_steps={2 * winner.I}.")
    if winner.gamma in (min(space.gammas), max(space.gammas)) and len(space.gammas) > 1 and "gamma" not in space.open:
        notes.append("gamma is at the end of what was tried; name rates beyond it.")
    if len(space.participants) == 1:
        share = cost.per_participant * winner.M / winner.seconds(cost)
        notes.append(f"M was not varied: messages are {share:.0%} of a round.")
    return notes
