"""Pilot runs: candidates from a common start, each with several seeds, run as far as asked and no further.

A pilot is a run in a directory of its own that pauses and goes on, so that nothing is run twice: not by the next rung
of a race, not by a plan that was interrupted, and not by a plan for another cost of a round, which the run itself does
not depend on.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from fedgauge.experiment.config import Experiment
from fedgauge.experiment.jobs import make_pool
from fedgauge.pace.cost import Cost
from fedgauge.planning.candidates import Candidate
from fedgauge.planning.forecast import Curve, Scale
from fedgauge.values import Round, Status, Trace

_OFTEN = 16  # local steps between records at the most
_FOREVER = 10**9  # rounds of a pilot: it is paused, or reaches its goal, long before


class Trial(NamedTuple):
    """A candidate with a seed."""

    candidate: Candidate
    seed: int

    @property
    def name(self) -> str:
        """Of its directory."""
        return f"{self.candidate.name},seed={self.seed}"


class Job(NamedTuple):
    """A trial as another process runs it: the experiment, the seed of its start, and how far."""

    experiment: Experiment
    start: int
    rounds: int


@lru_cache(maxsize=1)
def _prepared(experiment: Experiment) -> Any:
    """The federation, made once for all candidates on the same data."""
    from fedgauge.experiment.prepare import prepare

    return prepare(experiment)


def _shared(experiment: Experiment) -> Experiment:
    """The experiment without what candidates differ in."""
    return Experiment(
        data=experiment.data,
        model=experiment.model,
        algorithm=replace(experiment.algorithm, gamma=1.0, eta=None),
        run=replace(
            experiment.run,
            participants=None,
            sampling=None,
            seed=0,
            local_steps=1,
            record_every=1,
            target_accuracy=None,
        ),
    )


def run_pilot(job: Job, directory: str) -> tuple[list[dict[str, Any]], Status]:
    """Run a trial up to a round, or to its goal; its records so far and how it stands."""
    trace = _execute(job, directory)
    return [record.to_json() for record in trace.rounds], trace.status


def _execute(job: Job, directory: str) -> Trace:
    from fedgauge.experiment.prepare import execute, participation_of

    experiment = job.experiment
    prepared = _prepared(_shared(experiment))
    prepared = replace(prepared, participation=participation_of(experiment, prepared.partition))
    return execute(
        experiment,
        run=directory,
        resume=True,
        pause=job.rounds,
        start=prepared.federation.start(job.start),
        prepared=prepared,
    )


class Pilots:
    """Runs trials and gives their curves.

    Args:
        experiment: what all trials share; its seed is that of the common start and of the partition.
        scale: the goal, as an error.
        cost: of a round, complete.
        num_workers: N.
        samples: of all workers; a record takes a pass over them, and records as much time as the steps between them.
        directory: where the runs are kept; a temporary one if not given.
        jobs: how many run at once; one a core if not given, and all in this process if it is one.
        told: is told the number of trials run so far and in all of this rung.
    """

    def __init__(
        self,
        experiment: Experiment,
        scale: Scale,
        cost: Cost,
        num_workers: int,
        samples: int = 0,
        directory: Path | None = None,
        jobs: int | None = None,
        told: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self._experiment, self._scale, self._cost, self._told = experiment, scale, cost, told
        self._num_workers, self._samples, self._directory = num_workers, samples, directory
        self._crew = make_pool(jobs, experiment.run.engine, experiment.run.address)
        self._place: Path
        self._known: dict[Trial, Curve] = {}

    def __enter__(self) -> Self:
        self._place = self._directory or Path(tempfile.mkdtemp(prefix="fedgauge-plan-"))
        self._crew.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._crew.__exit__(*failure)
        if self._directory is None:
            shutil.rmtree(self._place, ignore_errors=True)

    def experiment(self, trial: Trial) -> Experiment:
        """The experiment that a trial is."""
        run, goal = self._experiment.run, self._scale.goal
        partition = run.seed if self._experiment.data.partition_seed is None else self._experiment.data.partition_seed
        changes: dict[str, Any] = {
            **trial.candidate.changes(self._experiment, self._num_workers),
            "rounds": _FOREVER,
            "seed": run.seed + trial.seed,
            "record_every": self._record_every(trial.candidate),
            "watch": False,
            "processes": 1,
            "checkpoint_every": _FOREVER,  # it is saved when it pauses
        }
        if goal.value is not None:
            changes[f"target_{goal.quantity}"] = goal.value
        if not self._experiment.data.is_quadratic:
            changes["partition_seed"] = partition
        experiment = self._experiment.changed(changes)
        return replace(experiment, run=experiment.run.here)

    def _record_every(self, candidate: Candidate) -> int:
        drawn = (self._experiment.run.batch_size or 20) * candidate.I * candidate.M
        return max(1, min(_OFTEN // candidate.I, round(self._samples / drawn)))

    def run(self, trials: Sequence[Trial], seconds: Sequence[float]) -> list[Curve]:
        """Run each trial for so many seconds of the cost model, or to its goal, and give what is known of it then."""
        jobs: dict[Trial, Job] = {}
        for trial, wanted in zip(trials, seconds, strict=True):
            each = trial.candidate.seconds(self._cost)
            known = self._known.get(trial)
            if known is None or (known.status == "stopped" and known.end < wanted * (1 - 1e-9)):
                rounds = max(1, math.ceil(wanted / each * (1 - 1e-9)))
                jobs[trial] = Job(self.experiment(trial), self._experiment.run.seed, rounds)
        for trial, (records, status) in self._results(jobs).items():
            rounds_ = [Round.from_json(record) for record in records]
            self._known[trial] = self._scale.curve(rounds_, trial.candidate.seconds(self._cost), status)
        # A run that is kept may be further than was asked for now, which the one who asks is not to know.
        return [self._known[trial].until(wanted) for trial, wanted in zip(trials, seconds, strict=True)]

    def model(self, trial: Trial) -> tuple[Any, tuple[Round, ...]]:
        """The model that a trial which has run came to, and its records."""
        trace = _execute(Job(self.experiment(trial), self._experiment.run.seed, 1), str(self._place / trial.name))
        return trace.model, trace.rounds

    def _results(self, jobs: Mapping[Trial, Job]) -> dict[Trial, tuple[list[dict[str, Any]], Status]]:
        # The longest first, so that no process waits for one that began late.
        order = sorted(jobs, key=lambda trial: -jobs[trial].rounds * trial.candidate.I * trial.candidate.M)
        asked, places = {trial: (jobs[trial],) for trial in order}, {trial: self._place / trial.name for trial in order}
        found: dict[Trial, tuple[list[dict[str, Any]], Status]] = {}
        for trial, result in self._crew.map(run_pilot, asked, places):
            found[trial] = result
            self._told(len(found), len(jobs))
        return {trial: found[trial] for trial in jobs}
