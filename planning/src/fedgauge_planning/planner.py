"""Plan by trial: measure, propose candidates, race them, and explain the winner."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedgauge.algorithms import is_plain
from fedgauge.algorithms.base import Algorithm
from fedgauge.algorithms.cost import Cost
from fedgauge.base.errors import MOST_RUNS, InputError, count
from fedgauge.base.progress import reported
from fedgauge.base.threads import undisturbed
from fedgauge.base.types import Progress, ProgressOption
from fedgauge.federation.participation import Participation
from fedgauge.federation.protocols import Federation
from fedgauge.measurement.gauge.gauge import gauge
from fedgauge.measurement.gauge.result import GaugeOptions
from fedgauge.measurement.session import MeasureOptions, measure
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import setup_of
from fedgauge.simulation.loop import simulate
from fedgauge.simulation.options import Compute, Recording
from fedgauge.simulation.setup import Setup
from fedgauge.values import Constants, Round
from fedgauge.values.display import short
from fedgauge_planning.by_theory import check_cost, theory_plan
from fedgauge_planning.candidates import Candidate, Space, Trial, space_of
from fedgauge_planning.course import Course, Race
from fedgauge_planning.forecast import Scale
from fedgauge_planning.gauge_start import Guided
from fedgauge_planning.goal import HELD, Goal
from fedgauge_planning.measured_constants import at_start, with_gap
from fedgauge_planning.pilots import Pilots, finals
from fedgauge_planning.plan_result import Plan, Seen, known_before, order, terms
from fedgauge_planning.race import search
from fedgauge_planning.refusals import refuse_divergence, refuse_met, refuse_other_targets, refuse_small_budget
from fedgauge_planning.theory_result import TheoryPlan

_FIELD = 45  # largest number of candidates at the start, which is the size of the default grid
_FEW = 6  # so few candidates are simply raced
_LONG = 2000  # steps to the goal from which on the gauge costs less than runs
_PATIENCE = 20.0  # a candidate has failed after this many times the time of the user's own experiment
_ROOM = 1.5  # the planned experiment gets this many times the rounds of its slowest seed
_LOOKED = 3  # number of rounds that are watched to explain the choice


@dataclass(frozen=True)
class PlanOptions:
    """How much effort to spend on planning.

    Attributes:
        seeds: largest number of seeds in the finals, which end sooner if the interval of the time is narrow.
        spend: seconds that planning may take on this machine; by default, until the winner is clear.
        limit: seconds of the cost model after which a candidate has failed; by default, twenty times what the
            experiment takes with its own settings.
        jobs: number of pilots at once; by default, one per core.
    """

    seeds: int = 3
    spend: float | None = None
    limit: float | None = None
    jobs: int | None = None

    def __post_init__(self) -> None:
        count("seeds", self.seeds, most=MOST_RUNS)
        if self.jobs is not None:
            count("jobs", self.jobs)
        for name in ("spend", "limit"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} must be above 0 seconds, not {value!r}.")


@dataclass(frozen=True)
class _Task:
    """What to plan, and what is known before the first pilot."""

    setup: Setup
    scale: Scale
    cost: Cost
    space: Space
    constants: Constants
    began: float

    @property
    def num_workers(self) -> int:
        return self.setup.num_workers


@undisturbed
def plan(
    source: Federation | Experiment | Setup,
    algorithm: Algorithm | None = None,
    *,
    goal: Goal | str,
    cost: Cost | str,
    over: Mapping[str, Sequence[Any]] | None = None,
    setup: Mapping[str, Any] | None = None,
    options: PlanOptions | None = None,
    directory: str | Path | None = None,
    progress: ProgressOption = "auto",
) -> Plan:
    """Plan the local steps, rates and participants of a federation, by pilot runs from its first model.

    Args:
        source: a federation; or an experiment or set-up, which already contains the algorithm and everything else.
        algorithm: the algorithm; rates around its own are tried.
        goal: a value to reach as soon as possible, as in ``"loss=0.1"``, or a quantity to make as good as possible
            within a budget.
        cost: the cost of a round, or its name, as in ``"cross-device"``; numbers that it leaves open are measured here.
        over: values to choose from, for some of ``local_steps``, ``gamma``, ``eta`` and ``participants``.
        setup: further fields of :class:`~fedgauge.Setup`, such as ``local_steps``, ``participation``, ``evaluator``.
        options: how much effort to spend on planning.
        directory: directory for the pilots, so that planning can be interrupted and resumed; by default, a temporary
            one.
        progress: called with what is being done and how much of it is done. By default, a bar is shown on a terminal
            and in a notebook; None shows nothing.

    Returns:
        The plan. If no candidate reaches the goal, it says so, and how close the best one got.

    >>> from fedgauge import fedavg, random_quadratics
    >>> chosen = plan(
    ...     random_quadratics(4, 3, hessian_spread=0.0), fedavg(gamma=0.1), goal=Goal("grad2", 1e-6),
    ...     cost=Cost("mine", fixed=1.0, step=0.001), over={"gamma": [0.1]}, options=PlanOptions(jobs=1))
    >>> chosen.choice.I, chosen.reached
    (128, True)
    """
    goal, cost = Goal.given(goal), Cost.of(cost)
    if isinstance(source, Experiment):
        refuse_other_targets(source, goal)
    if not (isinstance(options, PlanOptions | None) and isinstance(setup, Mapping | None)):
        raise InputError(
            "options must be PlanOptions, as in options=PlanOptions(jobs=2), and setup a mapping, as in"
            " setup={'local_steps': 10}."
        )
    with reported(progress) as tell:
        tell("measuring", 0, None)
        shared = setup_of(source, algorithm, **(setup or {}))
        return _planned(shared, goal, cost, over, options or PlanOptions(), directory, tell)


def _planned(
    shared: Setup,
    goal: Goal,
    cost: Cost,
    over: Mapping[str, Sequence[Any]] | None,
    options: PlanOptions,
    directory: str | Path | None,
    progress: Progress,
) -> Plan:
    """Measure, search, and explain what was found."""
    began = time.monotonic()
    if goal.quantity == "accuracy" and shared.evaluator is None:
        raise InputError("The goal accuracy needs test examples, but there are none; choose a loss.")
    cost.refuse_overlap("A plan")
    cost = cost.completed(shared.federation)
    check_cost(cost)
    floor = shared.floor
    scale = Scale(goal, floor)
    space = space_of(shared, cost, over)
    measured = at_start(shared)
    constants = with_gap(measured.constants, shared, float(measured.point["loss"]))
    task = _Task(shared, scale, cost, space, constants, began)
    before = known_before(constants, constants["F"].value, float(measured.point["grad2"]))
    refuse_small_budget(goal, cost, space)
    refuse_met(goal, shared, measured.point)
    # Every candidate first runs for the time of a round with a moderate number of local steps, or for one round.
    horizon = cost.round(math.sqrt(min(space.local_steps) * max(space.local_steps)), max(space.participants))
    fields = _candidates(space, before, cost, horizon)
    place = Path(directory) / "pilots" / goal.name if directory else None

    def time_is_up() -> bool:
        return options.spend is not None and time.monotonic() - began > options.spend

    leader = "pilots"

    def lead(who: str) -> None:
        nonlocal leader
        leader = f"pilots, {who} ahead"

    def count_pilots(done: int, total: int) -> None:
        progress(leader, done, total)

    with Pilots(shared, scale, cost, place, options.jobs, count_pilots) as pilots:
        course = Course(
            pilots.run,
            scale.target,
            goal.budget,
            options.limit or _PATIENCE * shared.rounds * space.own.seconds(cost),
            time_is_up=time_is_up,
            progress=lead,
        )
        left_out = []
        # Where a state is reset after every round, more local steps make more of it: efficiency need not fall with I.
        resets = shared.algorithm.parameters.get("optimiser_state") == "reset"
        if goal.budget is None and len(fields) > _FEW and not resets:
            gauged = _long_way(shared, course, place, progress)
            ended = Guided(course, space, cost, gauged=gauged).run()
        else:
            left_out = _left_out(len(fields))
            ended = search(course, fields[:_FIELD], first=horizon, more=space.beside)
        race = finals(course, options.seeds) if course.ready else course.unreached(ended)
        refuse_divergence(race, pilots, before)
        progress("explaining", 0, None)
        model, records = pilots.model(Trial(race.winner, 0))
        if goal.budget is not None:
            # A saved run may be longer than the budget allows.
            end = goal.budget / race.winner.seconds(cost) * (1 + 1e-9)
            records = tuple(record for record in records if record.round <= end)
    observed = _after(race.winner.applied(shared), torch.from_numpy(model), records, race.winner)
    theory, notes = _theory(task, records, race.winner)
    return _plan(task, race, records, observed, theory, [*left_out, *notes])


def _long_way(
    shared: Setup, course: Course, place: Path | None, progress: Progress
) -> Callable[[Candidate, int], dict[int, float]]:
    """Measure the steps to the goal with several I by the gauge, where they are so many that runs would cost more."""

    def measured(base: Candidate, steps: int) -> dict[int, float]:
        # The way of synchronous training says nothing about one local step of an algorithm with another server.
        if base.I != 1 or steps < _LONG or shared.algorithm.synchronous is not None:
            return {}
        directory = place / "gauge" / base.name if place else None
        try:
            gauged = gauge(
                base.applied(shared), options=GaugeOptions(steps=steps), directory=directory, progress=progress
            )
        except InputError:
            return {}  # f itself does not fall on this way, so that only runs can show how long it is
        course.gauge_steps += gauged.spent.gradient_steps * base.M
        return {each.local_steps: steps / each.value for each in gauged.efficiency}

    return measured


# -- measurements before and after the race ----------------------------------------------------------------------


def _after(setup: Setup, model: torch.Tensor, records: Sequence[Round], winner: Candidate) -> Seen:
    """Measure during a few more rounds of the winner, starting from the model of its pilot."""
    here = replace(setup, participation=Participation(weights=setup.participation.weights))
    trace = simulate(
        here.federation,
        here.algorithm,
        local_steps=winner.I,
        rounds=_LOOKED,
        participation=here.participation,
        start=model,
        seed=here.seed,
        record=Recording(every=1),
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
        sigma2=known_before(measured.constants, 0.0, 0.0).sigma2,
        zeta2=mean("zeta2"),
        L_g=mean("L_g_ratio"),
        L_h=mean("L_h_ratio"),
        deviation2=mean("deviation2"),
        local_steps=winner.I,
        gamma=winner.gamma,
    )


def _candidates(space: Space, before: Seen, cost: Cost, seconds: float) -> list[Candidate]:
    """The grid and the user's own candidate; those for which the constants predict the smallest error come first."""
    users_candidate = space.own
    fits = users_candidate.I in space.local_steps and users_candidate.gamma in space.gammas
    fields = dict.fromkeys((*space.grid(), *([users_candidate] if fits else [])))
    return order(list(fields), before, cost, seconds)


def _left_out(number: int) -> list[str]:
    """A note if more candidates were named than are tried."""
    if number <= _FIELD:
        return []
    return [
        f"Of {number} combinations of I and gamma, only the {_FIELD} that the constants favour were tried, and later"
        " the neighbours of the best; name fewer values to have every combination tried."
    ]


def _theory(task: _Task, records: Sequence[Round], winner: Candidate) -> tuple[TheoryPlan | None, list[str]]:
    """The plan that a theorem certifies for a comparable goal: the squared gradient norm that the winner reached."""
    algorithm = task.setup.algorithm.name
    if algorithm != "fedavg":
        return None, [f"The theory plans FedAvg, not {algorithm}."]
    if not is_plain(task.setup.algorithm.parameters):
        return None, ["The theory plans FedAvg with plain local SGD, not with a local optimiser or a schedule."]
    goal, notes = task.scale.goal, []
    if goal.budget is None and goal.quantity != "grad2":
        goal = Goal("grad2", records[-1].grad2)
        notes.append(
            f"The theory is about |grad f|^2, so its plan is for {short(records[-1].grad2)}, the value at which the"
            " chosen run ended."
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
    race: Race,
    records: Sequence[Round],
    observed: Seen,
    theory: TheoryPlan | None,
    notes: Sequence[str],
) -> Plan:
    winner, goal, cost, space = race.winner, task.scale.goal, task.cost, task.space
    each = winner.seconds(cost)
    ran = race.entries[0].curve.end
    seconds, low, high, slowest = ran, ran, ran, ran
    if goal.budget is not None:
        seconds = low = high = slowest = math.floor(goal.budget / each * (1 + 1e-9)) * each
    elif race.standings:
        best = race.standings[0]
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
        race=race,
        rounds=rounds,
        seconds=seconds,
        low=low,
        high=high,
        value=goal.best(records),
        terms=tuple(terms(observed, replace(winner, I=number), cost, max(seconds, each)) for number in steps),
        seen=observed,
        constants=task.constants,
        theory=theory,
        notes=(*_remarks(space, observed, winner, cost), *notes),
        wall=time.monotonic() - task.began,
    )


def _experiment(task: _Task, winner: Candidate, rounds: int) -> dict[str, Any]:
    """The sections of the experiment to run; empty if the federation was made in Python."""
    if not task.setup.experiment:
        return {}
    experiment, goal = Experiment.from_json(task.setup.experiment), task.scale.goal
    changes = {**winner.changes(experiment, task.num_workers), "rounds": rounds}
    if goal.value is not None:
        changes |= {"goal": f"{goal.quantity}={goal.value!r}", "goal_records": HELD}
    return experiment.changed(changes).to_json()


def _remarks(space: Space, observed: Seen, winner: Candidate, cost: Cost) -> list[str]:
    notes = []
    if observed.identical:
        notes.append("The workers are identical: their gradients agree, and averaging them only divides the noise.")
    if winner.I == max(space.local_steps) > 1:
        notes.append(f"I is the largest that was tried; to try larger ones, name {2 * winner.I} among the local steps.")
    if winner.gamma in (min(space.gammas), max(space.gammas)) and len(space.gammas) > 1 and "gamma" not in space.open:
        notes.append("gamma is the smallest or largest that was tried; name rates beyond it.")
    if len(space.participants) == 1:
        share = cost.messages(winner.M) / winner.seconds(cost)
        notes.append(f"M was not varied: messages take {share:.0%} of a round.")
    return notes
