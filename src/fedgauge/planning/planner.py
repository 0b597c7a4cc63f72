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

from fedgauge.algorithms import make_algorithm
from fedgauge.errors import InputError, count
from fedgauge.experiment.config import Experiment
from fedgauge.experiment.prepare import Prepared, participation_of, prepare
from fedgauge.federation.participation import Participation
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.measurement.measuring import Asked, measure
from fedgauge.pace.cost import Cost
from fedgauge.planning import explain
from fedgauge.planning.by_theory import check_cost, theory_plan
from fedgauge.planning.candidates import Candidate, Space, space_of
from fedgauge.planning.explain import Seen
from fedgauge.planning.forecast import Scale
from fedgauge.planning.goal import Goal
from fedgauge.planning.measured import at_start, floor_of, with_gap
from fedgauge.planning.pilots import Pilots, Trial
from fedgauge.planning.plan import Plan
from fedgauge.planning.race import Entry, Race, race
from fedgauge.planning.theory_plan import TheoryPlan
from fedgauge.simulation.loop import simulate
from fedgauge.values import Constants, Round
from fedgauge.values.text import lasting, short

_FIELD = 45  # candidates that begin at the most: as many as the usual ladders have
_PATIENCE = 20.0  # a goal is given up after so many times what the user's own settings would take
_ROOM = 1.5  # rounds that the experiment gets beyond what its slowest seed took
_LOOKED = 3  # rounds that are looked at to explain the choice

Told = Callable[[str, int, int | None], None]
"""Told what is being done, how far it is, and how far it goes where that is known."""


@dataclass(frozen=True)
class Effort:
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

    experiment: Experiment
    prepared: Prepared
    scale: Scale
    cost: Cost
    space: Space
    constants: Constants
    began: float

    @property
    def num_workers(self) -> int:
        return self.prepared.federation.num_workers


def plan(
    experiment: Experiment,
    *,
    goal: Goal,
    cost: Cost,
    over: Mapping[str, Sequence[Any]] | None = None,
    effort: Effort | None = None,
    directory: str | Path | None = None,
    told: Told = lambda what, done, total: None,
) -> Plan:
    """Plan the local steps, rates and participants of an experiment, by pilot runs from its first model.

    Args:
        experiment: data, model and algorithm; its own values are the middle of what is tried.
        goal: what to reach soonest, or to have best within a budget.
        cost: of a round; what it leaves open is measured here.
        over: for some of ``local_steps``, ``gamma``, ``eta`` and ``participants`` the values to choose from.
        effort: how much planning may take.
        directory: keeps the pilots, so that planning goes on where it was interrupted; a temporary one if not given.
        told: is told of the progress.

    Returns:
        The plan; where no candidate reaches the goal one that says so, and how near it came.

    >>> from fedgauge.federation.generate import random_quadratics
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     random_quadratics(4, 3, hessian_spread=0.0).write(f"{place}/equal.json")
    ...     found = plan(
    ...         Experiment.of({"source": f"{place}/equal.json", "gamma": 0.1}), goal=Goal("grad2", 1e-6),
    ...         cost=Cost("given", fixed=1.0, step=0.001), over={"gamma": [0.1]}, effort=Effort(jobs=1))
    >>> found.choice.I, found.reached
    (128, True)
    """
    effort, began = effort or Effort(), time.monotonic()
    _refuse_other_targets(experiment, goal)
    told("measuring", 0, None)
    prepared = prepare(experiment)
    federation = prepared.federation
    if goal.quantity == "accuracy" and prepared.evaluator is None:
        raise InputError("The goal accuracy needs examples to test on, and there are none; choose a loss.")
    N = federation.num_workers
    cost = cost.completed(federation)
    check_cost(cost)
    floor = floor_of(prepared)
    scale = Scale(goal, floor)
    space = space_of(experiment, N, cost, over)
    measured = at_start(experiment, prepared)
    constants = with_gap(measured.constants, float(measured.point["loss"]), floor, experiment.data.is_quadratic)
    task = _Task(experiment, prepared, scale, cost, space, constants, began)
    before = explain.from_constants(constants, constants["F"].value, float(measured.point["grad2"]))
    _refuse_small_budget(goal, cost, space)
    _refuse_met(goal, prepared, experiment.run.seed, measured.point)
    # Everyone's first run is a round of moderate local steps, or one of its own where that is longer.
    horizon = cost.round(math.sqrt(min(space.local_steps) * max(space.local_steps)), max(space.participants))
    fields = _candidates(space, before, cost, horizon)
    samples = int(federation.sizes(np.arange(N)).sum()) if isinstance(federation, SupervisedFederation) else 0
    place = Path(directory) / "pilots" / goal.name if directory else None

    def time_is_up() -> bool:
        return effort.spend is not None and time.monotonic() - began > effort.spend

    leader = "pilots"

    def say(who: str, spent: float) -> None:
        nonlocal leader
        leader = f"pilots, {who} ahead"

    def ran(done: int, total: int) -> None:
        told(leader, done, total)

    with Pilots(experiment, scale, cost, N, samples, place, effort.jobs, ran) as pilots:
        found = race(
            fields[:_FIELD],
            pilots.run,
            target=scale.target,
            budget=goal.budget,
            first=horizon,
            limit=effort.limit or _PATIENCE * experiment.run.rounds * space.own.seconds(cost),
            seeds=effort.seeds,
            more=space.beside,
            time_is_up=time_is_up,
            told=say,
        )
        _refuse_divergence(found, pilots, before)
        told("explaining", 0, None)
        trial = Trial(found.winner, 0)
        model, records = pilots.model(trial)
        if goal.budget is not None:
            # A run that is kept may be further than the budget goes.
            end = goal.budget / found.winner.seconds(cost) * (1 + 1e-9)
            records = tuple(record for record in records if record.round <= end)
        made = pilots.experiment(trial)
    seen = _after(made, prepared, torch.from_numpy(model), records, found.winner)
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


def _refuse_met(goal: Goal, prepared: Prepared, seed: int, point: Mapping[str, Any]) -> None:
    start = prepared.federation.start(seed)
    accuracy = prepared.evaluator.accuracy(start) if prepared.evaluator else None
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


def _after(
    made: Experiment, prepared: Prepared, model: torch.Tensor, records: Sequence[Round], winner: Candidate
) -> Seen:
    """What a few rounds more of the winner show, from where its pilot came to."""
    algorithm = make_algorithm(made.algorithm.name, **made.algorithm.parameters)
    trace = simulate(
        prepared.federation,
        algorithm,
        local_steps=winner.I,
        rounds=_LOOKED,
        participation=Participation(weights=prepared.participation.weights),
        start=model,
        seed=made.run.seed,
        processes=1,
    )
    rounds = [record for record in trace.rounds if record.deviation2 is not None]
    measured = measure(made, model=model, asked=Asked(("noise",)), prepared=prepared)

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


def _who(task: _Task, winner: Candidate) -> Participation:
    """Who takes part in the winner's rounds."""
    made = task.experiment.changed(winner.changes(task.experiment, task.num_workers))
    return participation_of(made, task.prepared.partition)


def _theory(task: _Task, records: Sequence[Round], winner: Candidate) -> tuple[TheoryPlan | None, list[str]]:
    """What a theorem certifies for the same end: the squared gradient norm that the winner came to."""
    algorithm = task.experiment.algorithm.name
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
            participants=_who(task, winner),
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
    changes = {**winner.changes(task.experiment, task.num_workers), "rounds": max(1, math.ceil(slowest / each - 1e-9))}
    if goal.value is not None:
        changes |= {"rounds": math.ceil(_ROOM * slowest / each), f"target_{goal.quantity}": goal.value}
    steps = sorted({*space.local_steps, winner.I})
    return Plan(
        experiment=task.experiment.changed(changes).to_json(),
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
