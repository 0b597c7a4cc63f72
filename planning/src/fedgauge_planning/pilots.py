"""The pilot runs of a plan, the last of which decide it.

A pilot is a run in its own directory, which is paused and resumed, so nothing is run twice: not in the next turn of a
race, not after an interruption, and not when planning with another cost, because the run does not depend on the cost.

Only those run again whose time could be the shortest, as far as the leader's own seeds differ. They end as soon as the
intervals of the candidates' times separate one from the others, when one is a tenth ahead with two seeds or more, or
when the difference does not matter.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import cloudpickle
import numpy as np
import torch
from scipy import stats

from fedgauge.algorithms.cost import Cost
from fedgauge.base.errors import InputError
from fedgauge.federation.protocols import HasSamples
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import prepare
from fedgauge.simulation.loop import simulate
from fedgauge.simulation.options import HERE, Compute, Keep, Recording, StopAt
from fedgauge.simulation.setup import Setup
from fedgauge.values import Round, Status, Trace
from fedgauge_planning.candidates import Candidate, Trial
from fedgauge_planning.course import Course, Race, Standing
from fedgauge_planning.forecast import Curve, Scale
from fedgauge_planning.goal import HELD, Goal
from fedgauge_planning.jobs import make_pool

_OFTEN = 16  # largest number of local steps between records
_FOREVER = 10**9  # number of rounds of a pilot, which is paused or reaches its goal long before


class Shipped(NamedTuple):
    """A set-up that was made in Python, and its first model, pickled for another process."""

    content: bytes
    digest: str

    @classmethod
    def of(cls, setup: Setup) -> Self:
        """Pickle a set-up; refuse one that cannot be sent to another process."""
        try:
            # The function that makes the first model is not pickled, so the model itself is sent too.
            content = cloudpickle.dumps((torch.get_default_dtype(), setup, setup.first_model))
        except Exception as error:  # the user's own classes may raise anything
            raise InputError(
                f"The federation cannot be sent to other processes ({type(error).__name__}: {error});"
                " plan with jobs = 1."
            ) from error
        return cls(content, hashlib.sha256(content).hexdigest())


class PilotJob(NamedTuple):
    """A trial that can be run in another process.

    Attributes:
        source: the experiment, a pickled set-up or, if the job runs in this process, the set-up itself.
        trial: the candidate, and the number that is added to the seed.
        goal: the goal at which the run stops.
        record_every: every how many rounds a record is made.
        rounds: the round at which the run pauses.
    """

    source: Experiment | Shipped | Setup
    trial: Trial
    goal: Goal
    record_every: int
    rounds: int


@lru_cache(maxsize=1)
def _prepared(experiment: Experiment) -> tuple[Setup, torch.Tensor]:
    """The set-up and the first model of an experiment, made once for all candidates."""
    setup = prepare(experiment)
    return setup, setup.federation.start(setup.seed)


_unpacked: dict[str, tuple[Setup, torch.Tensor]] = {}


def _setup(source: Experiment | Shipped | Setup) -> tuple[Setup, torch.Tensor]:
    if isinstance(source, Setup):
        return source, source.first_model
    if isinstance(source, Experiment):
        return _prepared(source)
    if source.digest not in _unpacked:
        _unpacked.clear()
        number_type, *parts = cloudpickle.loads(source.content)
        torch.set_default_dtype(number_type)  # as in the process that the set-up is from
        _unpacked[source.digest] = parts[0], parts[1]
    return _unpacked[source.digest]


def run_pilot(job: PilotJob, directory: str) -> tuple[Sequence[Round], Status]:
    """Run a trial up to a round or to its goal, and return its records so far and its status."""
    trace = _run(job, directory)
    return trace.rounds, trace.status


def _run(job: PilotJob, directory: str) -> Trace:
    shared, start = _setup(job.source)
    setup, goal = job.trial.candidate.applied(shared), job.goal
    description = job_experiment(job, shared).to_toml() if shared.experiment else None
    target: dict[str, Any] = {} if goal.value is None else {goal.quantity: goal.value, "records": HELD}
    return simulate(
        setup.federation,
        setup.algorithm,
        local_steps=setup.local_steps,
        rounds=_FOREVER,
        participation=setup.participation,
        seed=shared.seed + job.trial.seed,
        start=start,
        stop=StopAt(**target, round=job.rounds),
        record=Recording(job.record_every, watch=False, evaluator=setup.evaluator),
        compute=Compute(processes=1, chunk=shared.compute.chunk),
        # The state is saved whenever the pilot pauses.
        keep=Keep(directory, resume=True, checkpoint_every=_FOREVER, description=description),
    )


def job_experiment(job: PilotJob, shared: Setup) -> Experiment:
    """The experiment that a trial runs, to be saved in its directory."""
    experiment = Experiment.from_json(shared.experiment)
    run, data = experiment.run, experiment.data
    changes: dict[str, Any] = {
        **job.trial.candidate.changes(experiment, shared.num_workers),
        "rounds": _FOREVER,
        "seed": run.seed + job.trial.seed,
        "record_every": job.record_every,
        "watch": False,
        "processes": 1,
        "checkpoint_every": _FOREVER,
    }
    if job.goal.value is not None:
        changes |= {"goal": f"{job.goal.quantity}={job.goal.value!r}", "goal_records": HELD}
    if not data.is_quadratic:
        changes["partition_seed"] = run.seed if data.partition_seed is None else data.partition_seed
    experiment = experiment.changed(changes)
    return replace(experiment, run=experiment.run.here)


class Pilots:
    """Runs trials and returns their curves.

    Args:
        setup: the set-up that all trials share; its seed determines the common first model.
        scale: turns the goal's quantity into an error.
        cost: the cost of a round, with nothing left open.
        directory: where the runs are saved; by default, in a temporary directory.
        jobs: number of runs at once; by default, one per core. With 1, they run in this process.
        progress: called with the number of trials that have run in this turn, and the number of all in it.
    """

    def __init__(
        self,
        setup: Setup,
        scale: Scale,
        cost: Cost,
        directory: Path | None = None,
        jobs: int | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self._setup, self._scale, self._cost, self._progress = setup, scale, cost, progress
        self._directory = directory
        # If the workers run on nodes of their own, the pilots are still simulated here.
        place = setup.compute if isinstance(setup.compute.engine, str) else HERE
        self._pool = make_pool(place.with_processes(jobs))
        self._source: Experiment | Shipped | Setup
        if place.engine == "local" and (jobs or os.cpu_count() or 1) == 1:
            self._source = setup  # in this process, there is no need to make it again
        else:
            self._source = Experiment.from_json(setup.experiment) if setup.experiment else Shipped.of(setup)
        # A record takes a pass over all samples. Records are made so rarely that they take at most about as long as the
        # local steps between them.
        self._samples, self._batch = 0, 20
        federation = setup.federation
        if isinstance(federation, HasSamples):
            self._samples = int(federation.sizes(np.arange(setup.num_workers)).sum())
            self._batch = federation.batch_size
        self._place: Path
        self._known: dict[Trial, Curve] = {}

    def __enter__(self) -> Self:
        self._place = self._directory or Path(tempfile.mkdtemp(prefix="fedgauge-plan-"))
        self._pool.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._pool.__exit__(*failure)
        if self._directory is None:
            shutil.rmtree(self._place, ignore_errors=True)

    def _job(self, trial: Trial, rounds: int) -> PilotJob:
        candidate = trial.candidate
        every = max(1, min(_OFTEN // candidate.I, round(self._samples / (self._batch * candidate.I * candidate.M))))
        return PilotJob(self._source, trial, self._scale.goal, every, rounds)

    def run(self, trials: Sequence[Trial], seconds: Sequence[float]) -> list[Curve]:
        """Run each trial for its seconds of the cost model, or to its goal, and return the curves."""
        jobs: dict[Trial, PilotJob] = {}
        for trial, wanted in zip(trials, seconds, strict=True):
            each = trial.candidate.seconds(self._cost)
            known = self._known.get(trial)
            if known is None or (known.status == "stopped" and known.end < wanted * (1 - 1e-9)):
                jobs[trial] = self._job(trial, max(1, math.ceil(wanted / each * (1 - 1e-9))))
        for trial, (records, status) in self._results(jobs).items():
            self._known[trial] = self._scale.curve(records, trial.candidate.seconds(self._cost), status)
        # A saved run may already be longer than requested, which must not influence the race.
        return [self._known[trial].until(wanted) for trial, wanted in zip(trials, seconds, strict=True)]

    def model(self, trial: Trial) -> tuple[Any, Sequence[Round]]:
        """The model that a trial reached, and its records."""
        trace = _run(self._job(trial, 1), str(self._place / trial.name))
        return trace.model, trace.rounds

    def _results(self, jobs: Mapping[Trial, PilotJob]) -> dict[Trial, tuple[Sequence[Round], Status]]:
        # The longest first, so that no process has to wait for a long run that began late.
        order = sorted(jobs, key=lambda trial: -jobs[trial].rounds * trial.candidate.I * trial.candidate.M)
        places = {trial: self._place / trial.name for trial in order}
        results: dict[Trial, tuple[Sequence[Round], Status]] = {}
        for trial, result in self._pool.map(run_pilot, {trial: (jobs[trial],) for trial in order}, places):
            results[trial] = result
            self._progress(len(results), len(jobs))
        return {trial: results[trial] for trial in jobs}


NEAR = 1.25
"""A finalist's score is at most this many times the best one."""
_LEVEL = 0.95  # confidence level of the intervals
_SAME = 0.05  # relative difference that does not matter
_CLOSE = 1.1  # finalists are at least within this factor of the best, however little its own seeds differ
_CONTENDERS = 2  # largest number of finalists


def finals(course: Course, seeds: int) -> Race:
    """Run the best candidates to the goal with one more seed after another."""
    order = sorted(course.ready, key=course.score)
    best = course.score(order[0])
    left = [c for c in order if course.score(c) <= _near(course.scores(order[0])) * best][:_CONTENDERS]
    scores = {c: course.scores(c) for c in left}
    standings = _standings(scores)
    if len(left) == 1 and seeds == 1:
        return course.result(standings, "no other candidate came close", True)
    for seed in range(1, seeds):
        if course.time_is_up():
            return course.result(standings, "the time for planning is up", False)
        # A run that takes longer than this cannot win.
        most = math.inf if course.budget is not None else 2 * NEAR * standings[0].score
        trials = [Trial(c, seed) for c in left if Trial(c, seed) not in course.curves]
        course.run(trials, [most] * len(trials))
        scores |= {c: course.scores(c) for c in left}
        standings = _standings(scores)
        left = [s.candidate for s in standings if s.candidate in left and s.low <= standings[0].high]
        if len(left) == 1 and len(scores) > 1:
            return course.result(standings, "the winner is clear", True)
        # With two seeds or more each, one that is a tenth behind may still be faster, but hardly by enough to pay for
        # more runs of both.
        left = [s.candidate for s in standings if s.candidate in left and s.score <= _CLOSE * standings[0].score]
        if len(left) == 1 and len(scores) > 1:
            return course.result(standings, "the other finalist is more than a tenth behind", False)
        if _alike(standings, left) and standings[0].high <= NEAR * standings[0].score:
            break
    if len(scores) == 1:
        return course.result(standings, "no other candidate came close", True)
    near = _alike(standings, left)
    ending = "the difference between the best does not matter" if near else "the best cannot be told apart"
    return course.result(standings, ending, near)


def _near(scores: Sequence[float]) -> float:
    """The factor within which others may be faster than the best, whose scores with different seeds these are.

    >>> _near([10.0]), _near([10.0, 10.2]), round(_near([10.0, 12.0]), 2), _near([10.0, 20.0])
    (1.25, 1.1, 1.2, 1.25)
    """
    return NEAR if len(scores) < 2 else min(max(max(scores) / min(scores), _CLOSE), NEAR)


def _alike(standings: Sequence[Standing], left: Sequence[Candidate]) -> bool:
    """Whether the differences between the remaining candidates do not matter."""
    return all(s.score <= (1 + _SAME) * standings[0].score for s in standings if s.candidate in left)


def _standings(scores: dict[Candidate, list[float]]) -> tuple[Standing, ...]:
    """The finalists' means and intervals, computed with logarithms and one standard deviation for all; best first."""
    logs = {c: np.log(np.maximum(s, 1e-300)) for c, s in scores.items()}
    finite = [group for group in logs.values() if len(group) > 1 and np.isfinite(group).all()]
    freedom = sum(len(group) - 1 for group in finite)
    width = math.inf
    if freedom:
        variance = sum(float(((group - group.mean()) ** 2).sum()) for group in finite) / freedom
        width = float(stats.t.ppf((1 + _LEVEL) / 2, freedom)) * math.sqrt(variance)
    standings = []
    for candidate, group in logs.items():
        middle, half = float(group.mean()), width / math.sqrt(len(group))
        high = math.exp(middle + half) if middle + half < 700 else math.inf
        low = math.exp(middle - half) if math.isfinite(middle) else float(min(scores[candidate]))
        score = math.exp(middle) if math.isfinite(middle) else math.inf
        standings.append(Standing(candidate, tuple(scores[candidate]), score, low, high))
    return tuple(sorted(standings, key=lambda standing: standing.score))
