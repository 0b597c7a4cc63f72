"""The round loop: it draws the participants, runs their local steps, updates the server, and records and saves."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedgauge.algorithms import described
from fedgauge.algorithms.adaptive_pace import Pace
from fedgauge.algorithms.base import Algorithm
from fedgauge.algorithms.paces import Chosen, Live, Rule, named, rate_for
from fedgauge.base.errors import InputError, count
from fedgauge.base.progress import reported
from fedgauge.base.randomness import check_seed
from fedgauge.base.threads import one_thread, undisturbed
from fedgauge.base.types import Progress, ProgressOption
from fedgauge.federation.flat import load_flat
from fedgauge.federation.identity import digest_of
from fedgauge.federation.participation import Participation
from fedgauge.federation.protocols import Federation, HasDescription, HasModule, carries_statistics
from fedgauge.simulation.engines.local import make_engine
from fedgauge.simulation.options import (
    HERE,
    NEVER,
    USUAL,
    Compute,
    HasParts,
    Keep,
    Recording,
    StopAt,
    check_options,
)
from fedgauge.simulation.pacing import AdaptiveSteps, ChosenSteps, FixedSteps, Pacing, RuledSteps, StepChooser
from fedgauge.simulation.records import plan_records
from fedgauge.simulation.rounds import Rounds
from fedgauge.simulation.runs.checkpoints import Given, State, given_model
from fedgauge.simulation.runs.directory import RunDirectory
from fedgauge.simulation.settings import Settings
from fedgauge.simulation.setup import check_kinds, check_steps
from fedgauge.simulation.workers import Work
from fedgauge.values import Observer, Round, Status, Trace

FULL = Participation()


class InterruptedRunError(KeyboardInterrupt):
    """Ctrl-C during a run; an exception, so that no caller mistakes the partial trace for a whole one.

    Attributes:
        trace: the trace up to the interruption.
    """

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.trace = trace


@undisturbed
def simulate(
    federation: Federation,
    algorithm: Algorithm,
    *,
    local_steps: int | Sequence[int] | str | Pace | Chosen | StepChooser,
    rounds: int,
    participation: Participation | int = FULL,
    seed: int = 0,
    start: Given | None = None,
    stop: StopAt = NEVER,
    record: Recording = USUAL,
    compute: Compute = HERE,
    keep: Keep | str | Path | None = None,
    progress: ProgressOption = "auto",
) -> Trace:
    """Run an algorithm on a federation.

    Args:
        federation: the workers' losses and gradients.
        algorithm: the algorithm that workers and server run.
        local_steps: the number I of local steps per round; one number per worker; a pace that adapts I
            (:func:`fedgauge.adaptive_pace`); a published rule (:class:`fedgauge.QSR`, :class:`fedgauge.PostLocal`,
            :class:`fedgauge.AdaComm`, or text such as ``qsr,alpha=0.02,base=4``); or a :class:`fedgauge.LiveGauge`,
            which measures how many of them count (as text, ``live,cost=100``).
        rounds: the number R of rounds; with a live gauge, or a rule that has ``steps``, the run ends earlier when all
            of its steps have been taken.
        participation: who takes part in each round; a number M means M draws with replacement.
        seed: seed of all randomness in the run.
        start: the first global model: a flat tensor, a module, its ``state_dict``, or the name of a file or run; by
            default, the federation's own for this seed.
        stop: what ends the run before its last round.
        record: what is recorded, how often, and the observer that is called with it. By default, records take at most
            a quarter of the run's work; see :class:`Recording`.
        compute: where the workers' part of a round is computed.
        keep: the directory in which to save the run, or a :class:`Keep` with further options; by default, nothing is
            written.
        progress: called with what is being done, and how many rounds of how many are done. By default, a bar is shown
            on a terminal and in a notebook; None shows nothing.

    Returns:
        The trace. Its status is ``diverged`` if the loss or the model became infinite or NaN; it then has all rounds
        before that.

    Raises:
        InterruptedRunError: on Ctrl-C, with the trace so far; if the run has a directory, its state has been saved.

    >>> from fedgauge import fedavg, random_quadratics
    >>> trace = simulate(random_quadratics(4, 3), fedavg(gamma=0.1), local_steps=5, rounds=20)
    >>> trace.status, bool(trace.losses[-1] < trace.losses[0])
    ('finished', True)
    """
    check_kinds(federation, algorithm)
    check_options(stop, record, compute)
    participation = Participation.of(participation, federation.num_workers)
    pace: Pace | Rule | StepChooser | None = None
    steps: int | tuple[int, ...] = 1  # where there is a pace, its first decision replaces this
    chosen = local_steps if isinstance(local_steps, StepChooser) else check_steps(local_steps, federation.num_workers)
    if isinstance(chosen, Live):
        chosen = chosen.gauge(rounds)
    if isinstance(chosen, StepChooser):
        pace = chosen
        if algorithm.synchronous is not None:
            raise InputError(
                f"A live gauge cannot be used with {algorithm.name}, whose server or optimiser remembers rounds of"
                " another length after a change of local steps; use fedavg, or gauge it with fedgauge.gauge."
            )
        if chosen.begun:
            raise InputError(
                "This live gauge has been used in a run; make a new one, which a resumed run brings up to date."
            )
    elif isinstance(chosen, Pace | Rule):
        pace = chosen
        if isinstance(pace, Rule):
            rate_for(pace, algorithm.name, algorithm.parameters)
    else:
        steps = chosen
    keep = Keep.of(keep)
    _check(algorithm, participation, stop, record, keep)
    _check_numbers(federation, algorithm)
    if start is not None:
        start = given_model(federation, start)
    if carries_statistics(federation):
        # The distance of two models, statistics included, is not what L_h is about.
        record = dataclasses.replace(record, watch=False)
    known = named(pace) if isinstance(pace, Rule) else pace.settings if pace else steps
    settings = _settings(federation, algorithm, known, rounds, participation, seed, start)
    usual = pace.usual if isinstance(pace, Rule) else None if pace else steps
    planned = plan_records(record, federation, usual, participation, settings.rounds)
    settings = dataclasses.replace(
        settings,
        record_every=planned.every,
        record_sample=planned.sample,
        record_tests=planned.tests,
        target_loss=stop.loss,
        chunk=compute.chunk or settings.chunk,
        evaluator=record.evaluator.digest if record.evaluator else None,
        target_accuracy=stop.accuracy,
        target_grad2=stop.grad2,
        target_records=stop.records,
        watch=record.watch,
    )
    with ExitStack() as stack:
        stack.enter_context(one_thread())
        work = Work(federation, algorithm, steps, settings.seed, settings.chunk, planned.sample)
        directory = None
        if keep is not None:
            described_as = federation.description() if isinstance(federation, HasDescription) else None
            directory = stack.enter_context(
                RunDirectory.open(
                    keep.directory, settings.to_json(), keep.resume, keep.description, start, described_as
                )
            )
            if (ended := directory.ended()) is not None:
                return ended
        engine = stack.enter_context(make_engine(work, compute))
        rounds_of = Rounds(work, engine, participation, settings.seed, start)
        rounds_of.on_progress = record.on_progress if planned.long else None
        tell = stack.enter_context(reported(progress))
        watched = _observing(tell, algorithm.name, settings.rounds, record.observer)
        every = keep.checkpoint_every if keep else 1
        trace = _Run(rounds_of, settings, stop, record, watched, pace, directory, every).finish()
        if directory and trace.status != "stopped":
            directory.finish(trace, _named(federation, trace))
        return trace


def _check(
    algorithm: Algorithm, participation: Participation, stop: StopAt, record: Recording, keep: Keep | None
) -> None:
    """Refuse options that contradict each other."""
    if not algorithm.repeats and participation.sampling.startswith("with-replacement"):
        raise InputError(
            f"{algorithm.name} keeps a memory for each worker, so no worker may be drawn twice in a round;"
            " sample without-replacement or use full participation."
        )
    if stop.accuracy is not None and record.evaluator is None:
        raise InputError(
            "target_accuracy needs an evaluator, which has data to test on; pass one, or leave target_accuracy out."
        )
    if stop.when is not None and keep is not None:
        raise InputError(
            "stop.when cannot be combined with keep, because a resumed run would not know it; leave one of them out."
        )


def _check_numbers(federation: Federation, algorithm: Algorithm) -> None:
    """Refuse parameters that the numbers of the model cannot hold, such as gamma = 1e308 with float32."""
    for name, value in algorithm.parameters.items():
        # The first model is made only if there is reason to look at it.
        if isinstance(value, int | float) and abs(value) > torch.finfo(torch.float32).max:
            kind = federation.start(0).dtype
            if abs(value) > torch.finfo(kind).max:
                largest = f"{torch.finfo(kind).max:.2g}, the largest {str(kind).removeprefix('torch.')}"
                raise InputError(f"{name} must be at most {largest}, not {value!r}.")


def _settings(
    federation: Federation,
    algorithm: Algorithm,
    local_steps: Any,
    rounds: int,
    participation: Participation,
    seed: int,
    start: torch.Tensor | None,
) -> Settings:
    """The settings of a run with the default recording, stopping and computing."""
    N = federation.num_workers
    participation.check(N)
    return Settings(
        federation=federation.digest,
        algorithm=described(algorithm),
        local_steps=local_steps,
        rounds=count("rounds", rounds),
        participation=participation,
        seed=check_seed(seed),
        record_every=1,
        target_loss=None,
        chunk=count("chunk", federation.chunk(participation.num_participants(N))),
        start=None if start is None else digest_of(start),
    )


def _observing(tell: Progress, name: str, rounds: int, observer: Observer | None) -> Observer:
    """An observer that reports progress, and then calls the user's own."""

    def observe(done: int, record: Round | None) -> None:
        tell(name, done, rounds)
        if observer is not None:
            observer(done, record)

    return observe


def _named(federation: Federation, trace: Trace) -> dict[str, torch.Tensor]:
    """The final model as its module's ``state_dict``; empty if the federation has no module."""
    if not isinstance(federation, HasModule):
        return {}
    module = copy.deepcopy(federation.module).cpu()
    load_flat(module, torch.from_numpy(trace.model), getattr(federation, "statistics", ()))
    return {name: tensor.detach().clone().contiguous() for name, tensor in module.state_dict().items()}


class _Run:
    """One run while it goes on: its state, its records, and how it ends."""

    def __init__(
        self,
        rounds: Rounds,
        settings: Settings,
        stop: StopAt,
        recording: Recording,
        observer: Observer,
        pace: Pace | Rule | StepChooser | None,
        directory: RunDirectory | None,
        checkpoint_every: int,
    ) -> None:
        self._rounds, self._settings, self._stop, self._watch = rounds, settings, stop, recording.watch
        self._observer, self._directory, self._checkpoint_every = observer, directory, checkpoint_every
        self._evaluator = recording.evaluator
        if settings.record_tests is not None and isinstance(self._evaluator, HasParts):
            self._evaluator = self._evaluator.part(settings.record_tests)
        every = settings.record_every
        restored, self._records, self._seconds = directory.restore(every) if directory else (None, [], [])
        self._state = rounds.first_state() if restored is None else restored.on(rounds.device)
        self._last_finite_model = self._state.model if self._state.last_finite is None else self._state.last_finite
        self._began = time.perf_counter() - (self._seconds[-1] if self._seconds else 0.0)
        self._pacing: Pacing = FixedSteps(rounds)
        if isinstance(pace, Pace):
            self._pacing = AdaptiveSteps(pace, rounds, self._records)
        elif isinstance(pace, Rule):
            rate = rate_for(pace, settings.algorithm["name"], settings.algorithm)
            self._pacing = RuledSteps(pace, rate, rounds, self._records, self._state.round)
        elif pace is not None:
            self._pacing = ChosenSteps(pace, rounds, self._records, self._state.round)

    def finish(self) -> Trace:
        """Run round after round until something ends the run, and save what it came to."""
        interrupted = False
        try:
            while (status := self._round()) is None:
                pass
        except KeyboardInterrupt:
            status, interrupted = "stopped", True
        state, model = self._state, self._last_finite_model if status == "diverged" else self._state.model
        settings, final = self._settings.to_json(), model.detach().cpu().numpy().copy()
        trace = Trace(settings, status, state.round, tuple(self._records), final, tuple(self._seconds))
        if self._directory and status == "stopped":
            self._checkpoint(self._directory)
        if interrupted:
            raise InterruptedRunError(trace)
        return trace

    def _round(self) -> Status | None:
        """Record the state if a record is due, and run one round; how the run ends, if it ends here."""
        state, record, gradient = self._state, None, None
        last = state.round == self._settings.rounds or self._pacing.is_over()
        due = state.round % self._settings.record_every == 0
        if last or due:
            record, gradient = self._measure(state)
            if record is None:
                return "diverged"
            if status := self._ending(record, last):
                self._keep(record)
                self._observer(state.round, record)
                return status
        watched = gradient if due and self._watch else None
        ends, observed = self._rounds.round(state, watched, self._pacing.ends(record))
        following = ends[-1]
        if record is not None:
            record, following = self._pacing.decide(dataclasses.replace(record, **observed._asdict()), state, ends)
            self._keep(record)
        # Only now, so that no interruption separates a state from the records before it.
        self._state = following
        # Infinities and NaN survive a sum, and checking the sum takes a twentieth of the time of checking each.
        if not torch.isfinite(self._state.model.sum()):
            return "diverged"
        self._observer(self._state.round, record)
        if self._directory and self._state.round % self._checkpoint_every == 0:
            self._checkpoint(self._directory)
        return None

    def _measure(self, state: State) -> tuple[Round | None, torch.Tensor]:
        """The record of a state and the gradient there; no record if f or the gradient is not finite."""
        sampled, error = self._settings.record_sample is not None, None
        if sampled:
            loss, gradient, error = self._rounds.estimate(state.model)
        else:
            loss, gradient = self._pacing.evaluate(state.model)
        grad2 = float(gradient @ gradient)
        if not np.isfinite(loss + grad2):
            return None, gradient
        self._last_finite_model = state.model
        accuracy = self._evaluator.accuracy(state.model) if self._evaluator else None
        record = Round(state.round, loss, grad2, accuracy=accuracy, elapsed=self._pacing.elapsed(state.round))
        if sampled:
            tests = self._settings.record_tests if accuracy is not None else None
            record = dataclasses.replace(record, sample=self._rounds.sampled, loss_error=error, tests=tests)
        return record, gradient

    def _ending(self, record: Round, last: bool) -> Status | None:
        """How the run ends with this record, if it does."""
        if self._stop.reached([*self._records, record]):
            return "target"
        if last:
            return "finished"
        return "stopped" if self._stop.round is not None and record.round >= self._stop.round else None

    def _keep(self, record: Round) -> None:
        self._records.append(record)
        self._seconds.append(time.perf_counter() - self._began)
        if self._directory:
            self._directory.append(record, self._seconds[-1])

    def _checkpoint(self, directory: RunDirectory) -> None:
        directory.checkpoint(dataclasses.replace(self._state, last_finite=self._last_finite_model))
