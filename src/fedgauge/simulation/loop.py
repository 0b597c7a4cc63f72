"""The one round loop: who takes part, their local steps, the server's update, what is recorded and kept."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from fedgauge.algorithms.base import Algorithm
from fedgauge.errors import InputError, count, non_negative
from fedgauge.federation.first_model import check_model
from fedgauge.federation.participation import Participation
from fedgauge.federation.protocols import Federation
from fedgauge.pace.adaptive import Pace
from fedgauge.randomness import check_seed
from fedgauge.runs.directory import RunDirectory, State, read_trace
from fedgauge.simulation.engines.choice import check_engine
from fedgauge.simulation.engines.local import Engine, make_engine
from fedgauge.simulation.workers import Lane, Secants, Sums, Work, lanes
from fedgauge.system.threads import one_thread
from fedgauge.values import Round, Status, Trace

Observer = Callable[[int, Round | None], None]
"""Called after every round with the number of rounds done and the record, where one was made; and with the record
that ends the run."""


Stop = Callable[[Sequence[Round]], bool]
"""Asked at every record, with all of them so far, whether to end the run there."""


class Evaluator(Protocol):
    """Says how good a global model is on data that no worker trains on."""

    @property
    def digest(self) -> str:
        """A fingerprint of that data, by which a resumed run knows it."""

    def accuracy(self, model: torch.Tensor) -> float:
        """The part of the examples that the model gets right, from 0 to 1."""


FULL = Participation()


class Seen(NamedTuple):
    """What a round adds to its record, as :class:`Round` names it."""

    spread: float | None = None
    deviation2: float | None = None
    zeta2: float | None = None
    L_tilde_ratio: float | None = None
    L_g_ratio: float | None = None


def compare(model: torch.Tensor, gradient: torch.Tensor | None, sums: Sums, seen: Secants) -> Seen:
    """What a round says of the constants.

    Args:
        model: the global model that it began with.
        gradient: f's gradient there, where all take part.
        sums: the participants' models after their local steps, and their gradients there.
        seen: their gradients at the mean of those models.
    """
    assert sums.spread.mean is not None
    assert sums.gradient is not None
    mean, weight = sums.spread.mean, sums.spread.weight
    at_mean = seen.gradient / weight
    gap = sums.gradient / weight - at_mean
    ratio = None
    if gradient is not None and not torch.equal(mean.to(model.dtype), model):
        ratio = float((at_mean - gradient).norm() / (mean - model).norm())
    return Seen(
        spread=sums.spread.squares / weight,
        deviation2=float(gap @ gap),
        # Rounding can take a difference of equal numbers below zero.
        zeta2=max(seen.squares / weight - float(at_mean @ at_mean), 0.0),
        L_tilde_ratio=seen.steepest or None,
        L_g_ratio=ratio,
    )


class _Loop:
    """The parts of a run that do not change from round to round."""

    def __init__(
        self, work: Work, engine: Engine, participation: Participation, seed: int, start: torch.Tensor | None = None
    ) -> None:
        self._work, self._engine, self._participation = work, engine, participation
        self._start = work.federation.start(seed) if start is None else start
        self.seed, self._chunk = seed, work.chunk
        self._num_workers = work.federation.num_workers
        # Everyone weighs in the objective, also where only some take part.
        self._everyone = Participation(weights=participation.weights).cohort(self._num_workers, seed, 0)

    def evaluate(self, model: torch.Tensor) -> tuple[float, torch.Tensor]:
        """f and its gradient at the global model."""
        losses, gradients = zip(*self._engine.map("evaluate", lanes(self._everyone, self._chunk), model), strict=True)
        return sum(losses), sum(gradients[1:], start=gradients[0])

    def round(
        self, state: State, gradient: torch.Tensor | None = None, ends: Sequence[int] | None = None
    ) -> tuple[list[State], Seen]:
        """One round: the next state, and where f's gradient is given to look from, what was seen on the way.

        With ``ends``, the states that would follow had everyone stopped after each of those numbers of steps.
        """
        N = self._num_workers
        full = self._participation.sampling == "full"
        cohort = self._everyone if full else self._participation.cohort(N, self.seed, state.round)
        dealt = lanes(cohort, self._chunk, state.memory)
        watch = 0 if gradient is None else self._work.keepable(state.model, len(dealt))
        parts = self._engine.map("local_phase", dealt, state.round, state.model, state.server, watch, ends)
        sums = Sums()
        for lane in parts:
            sums.add(lane)
        following = [self._following(state, each) for each in (*sums.path, sums)]
        if gradient is None or sums.spread.mean is None or sums.gradient is None:
            return following, Seen()
        kept = [Lane(lane.cohort, part.kept) for lane, part in zip(dealt, parts, strict=True)]
        foresee = getattr(self._engine, "foresee", None)
        if foresee is not None:
            foresee(following[-1])
        return following, self._look(state.model, gradient if full else None, sums, kept)

    def _following(self, state: State, sums: Sums) -> State:
        """The state after the server's update."""
        N = self._num_workers
        # A copy, so that a round that is interrupted leaves its state as it was.
        memory = {name: rows.clone() for name, rows in state.memory.items()}
        for workers, remembered in sums.memory:
            for name, rows in remembered.items():
                memory[name][workers] = rows
        fraction = self._participation.num_participants(N) / N
        model, server = self._work.algorithm.update(state.model, state.server, sums.message, fraction)
        return State(state.round + 1, model, server, memory)

    def _look(self, model: torch.Tensor, gradient: torch.Tensor | None, sums: Sums, kept: list[Lane]) -> Seen:
        """What the participants' models and gradients say of the constants, seen from their mean model."""
        mean = sums.spread.mean
        assert mean is not None
        parts: list[Secants | None] = self._engine.map("secants", kept, mean.to(model.dtype))
        seen = parts[0]
        for part in parts[1:]:
            if seen is not None and part is not None:
                seen.add(part)
        if seen is None or any(part is None for part in parts):
            # A worker was lost in this round: what the others say does not compare with what was said before.
            return Seen()
        return compare(model, gradient, sums, seen)

    def first_state(self) -> State:
        """The state before the first round."""
        model = self._start
        remembered = self._work.algorithm.worker_init(model)
        memory = {name: vector.expand(self._num_workers, -1).clone() for name, vector in remembered.items()}
        return State(0, model, self._work.algorithm.init(model), memory)


class _Pacing:
    """A run's pace: what it knows, and the round as it is taken to have ended."""

    def __init__(self, pace: Pace, loop: _Loop, records: Sequence[Round]) -> None:
        self._pace, self._loop = pace, loop
        self._state = pace.init()
        for record in records:
            self._state, _ = pace.step(self._state, record)
        self._evaluated: tuple[torch.Tensor, float, torch.Tensor] | None = None

    def evaluate(self, model: torch.Tensor) -> tuple[float, torch.Tensor]:
        """f and its gradient, once for the model at which a round ended and the next begins."""
        if self._evaluated is None or self._evaluated[0] is not model:
            self._evaluated = (model, *self._loop.evaluate(model))
        return self._evaluated[1:]

    def elapsed(self, round: int) -> float:
        """Seconds of the cost model before a round."""
        return self._pace.elapsed(self._state, round)

    def ends(self, look: bool) -> tuple[int, ...]:
        """The round's local steps, after those at which it is looked at."""
        decision = self._state.decision
        return (*decision.look, decision.local_steps) if look else (decision.local_steps,)

    def decide(self, record: Round, before: State, ends: Sequence[State]) -> tuple[Round, State]:
        """The record with what the round looked at and what follows from it, and the state that is gone on with."""
        path = []
        for end in ends:
            loss, gradient = self.evaluate(end.model)
            path.append(loss if np.isfinite(loss) and torch.isfinite(gradient.sum()) else float("inf"))
        looked = self.ends(look=True)
        record = dataclasses.replace(record, looked=looked, path=tuple(path))
        taken = self._pace.take(self._state, record)
        record = dataclasses.replace(record, taken=taken)
        self._state, decision = self._pace.step(self._state, record)
        undone = dataclasses.replace(before, round=before.round + 1)
        states = dict(zip((0, *looked), (undone, *ends), strict=True))
        return dataclasses.replace(record, why=decision.why), states[taken]


def _check_steps(local_steps: int | Sequence[int] | Pace, num_workers: int) -> int | list[int]:
    if isinstance(local_steps, Pace):
        return 1  # until it has decided
    # Numbers of numpy's are numbers too, but not in JSON.
    given: Any = local_steps.tolist() if isinstance(local_steps, np.ndarray | np.generic) else local_steps
    if not isinstance(given, Sequence):
        return count("local_steps", given)
    if len(given) != num_workers:
        raise InputError(f"local_steps must be one number or {num_workers}, one a worker, not {len(given)}.")
    return [count("local_steps", int(steps) if isinstance(steps, np.integer) else steps) for steps in given]


class InterruptedRunError(KeyboardInterrupt):
    """Ctrl-C within a run: no caller takes what there is of it for the whole by mistake.

    Attributes:
        trace: up to there.
    """

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.trace = trace


def simulate(
    federation: Federation,
    algorithm: Algorithm,
    *,
    local_steps: int | Sequence[int] | Pace,
    rounds: int,
    participation: Participation = FULL,
    seed: int = 0,
    record_every: int = 1,
    target_loss: float | None = None,
    target_accuracy: float | None = None,
    target_grad2: float | None = None,
    evaluator: Evaluator | None = None,
    watch: bool = True,
    start: torch.Tensor | None = None,
    stop: Stop | None = None,
    chunk: int | None = None,
    processes: int | None = None,
    engine: str | Callable[[Work], Engine] = "local",
    address: str | None = None,
    run: str | Path | None = None,
    resume: bool = False,
    pause: int | None = None,
    checkpoint_every: int = 100,
    observer: Observer | None = None,
    description: str | None = None,
) -> Trace:
    """Run an algorithm on a federation.

    Args:
        federation: what the workers compute.
        algorithm: what workers and server do with it.
        local_steps: I, one number a worker, or a pace that adapts it (:func:`fedgauge.auto`).
        rounds: R.
        participation: who takes part.
        seed: of all randomness in the run.
        record_every: record every so many rounds (and the last); recording takes three exact gradient passes.
        target_loss: stop at the first recorded loss at or below it.
        target_accuracy: stop at the first recorded test accuracy at or above it.
        target_grad2: stop at the first recorded ‖∇f‖² at or below it.
        evaluator: gives the test accuracy of each record.
        watch: record also how far the local models spread, and the ratios seen that bound L_h, L_tilde and L_g from
            below; it takes two of the three passes.
        start: the first global model; the federation's own for the seed if not given.
        stop: asked at every record, with all of them so far, whether to stop there; the status is then ``target``. Not
            for runs that are kept, which could not be resumed without it.
        chunk: how many workers' rows are held at once; what the federation computes fastest if not given. It groups the
            sums, so other values agree to rounding only.
        processes: how many share the workers' part of a round; if not given, one a core for networks and none but
            this one for quadratics. The results are the same bits.
        engine: where that part is computed: ``local``, or ``ray`` for a cluster of Ray's (``fedgauge[ray]``), where
            ``processes`` are tasks at once, one a core of the cluster if not given. The results are the same bits. Or
            a function that makes another engine for the work.
        address: of the cluster, HOST:PORT; if not given, one is started here for the run and stopped after it.
        run: directory for the run; nothing is written without it.
        resume: go on with the run in that directory.
        pause: stop at the first record that is made after so many rounds, with the state kept to go on from.
        checkpoint_every: save the state every so many rounds.
        observer: told of every round.
        description: TOML text that is kept with the run as experiment.toml.

    Returns:
        The trace; ``diverged`` where the loss or the model was no longer finite, with all rounds before that.

    Raises:
        InterruptedRunError: on Ctrl-C, with the trace up to there; the state of a run that is kept is saved.

    >>> from fedgauge import fedavg, random_quadratics
    >>> trace = simulate(random_quadratics(4, 3), fedavg(gamma=0.1), local_steps=5, rounds=20)
    >>> trace.status, bool(trace.losses[-1] < trace.losses[0])
    ('finished', True)
    """
    N = federation.num_workers
    steps = _check_steps(local_steps, N)
    pace = local_steps if isinstance(local_steps, Pace) else None
    count("rounds", rounds)
    count("record_every", record_every)
    participation.check(N)
    chunk = count("chunk", federation.chunk(participation.num_participants(N)) if chunk is None else chunk)
    if processes is not None:
        count("processes", processes)
    if isinstance(engine, str):
        check_engine(engine, address)
    count("checkpoint_every", checkpoint_every)
    if not algorithm.repeats and participation.sampling.startswith("with-replacement"):
        raise InputError(
            f"{algorithm.name} keeps a memory for each worker, so none may be drawn twice;"
            " sample without-replacement or use full participation."
        )
    if target_loss is not None and not np.isfinite(target_loss):
        raise InputError(f"target_loss must be a finite number, not {target_loss!r}.")
    if target_grad2 is not None:
        non_negative("target_grad2", target_grad2)
    if target_accuracy is not None and evaluator is None:
        raise InputError("target_accuracy needs an evaluator, which has data to test on; give one or leave it out.")
    settings: dict[str, Any] = {
        "federation": federation.digest,
        "algorithm": {"name": algorithm.name, **algorithm.parameters},
        "local_steps": pace.settings if pace else steps,
        "rounds": rounds,
        "participation": participation.to_json(),
        "seed": check_seed(seed),
        "record_every": record_every,
        "target_loss": target_loss,
        "chunk": chunk,
    }
    # Only where they are asked for, so that runs without them are what they always were.
    if evaluator is not None:
        settings |= {"evaluator": evaluator.digest, "target_accuracy": target_accuracy}
    if target_grad2 is not None:
        settings["target_grad2"] = target_grad2
    if not watch:
        settings["watch"] = False
    if start is not None:
        start = check_model(federation, start)
        settings["start"] = hashlib.sha256(start.cpu().numpy().tobytes()).hexdigest()
    if stop is not None and run is not None:
        raise InputError("stop cannot be kept with a run, which could then not be resumed; leave out one of them.")
    with ExitStack() as stack:
        stack.enter_context(one_thread())
        work = Work(federation, algorithm, steps, seed, chunk)
        directory = None
        if run is not None:
            directory = stack.enter_context(RunDirectory.open(run, settings, resume, description, start))
            if directory.finished:
                return read_trace(run)
        running = stack.enter_context(
            make_engine(work, processes, engine, address) if isinstance(engine, str) else engine(work)
        )
        loop = _Loop(work, running, participation, seed, start)
        told = observer or (lambda done, record: None)
        trace = _run(loop, settings, directory, checkpoint_every, told, evaluator, stop, pause, pace)
        if directory and trace.status != "stopped":
            directory.finish(trace, _named(federation, trace))
        return trace


def _named(federation: Federation, trace: Trace) -> dict[str, torch.Tensor]:
    """The final model as its module's ``state_dict``; nothing where the federation has no module."""
    module, unflatten = getattr(federation, "module", None), getattr(federation, "unflatten", None)
    if module is None or unflatten is None:
        return {}
    module = copy.deepcopy(module).cpu()
    values = unflatten(torch.from_numpy(trace.model))
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(values[name])
    return {name: tensor.detach().clone().contiguous() for name, tensor in module.state_dict().items()}


def _run(
    loop: _Loop,
    settings: Mapping[str, Any],
    directory: RunDirectory | None,
    checkpoint_every: int,
    observer: Observer,
    evaluator: Evaluator | None,
    stop: Stop | None,
    pause: int | None,
    pace: Pace | None,
) -> Trace:
    watch, target_accuracy, target_grad2 = (
        settings.get(name, default)
        for name, default in (("watch", True), ("target_accuracy", None), ("target_grad2", None))
    )
    rounds, record_every, target_loss = settings["rounds"], settings["record_every"], settings["target_loss"]
    restored, records, seconds = directory.restore(record_every) if directory else (None, [], [])
    state = restored or loop.first_state()
    began = time.perf_counter() - (seconds[-1] if seconds else 0.0)
    status: Status = "finished"
    interrupted = False
    sound = state.model if state.sound is None else state.sound
    gradient: torch.Tensor | None = None
    pacing = _Pacing(pace, loop, records) if pace else None

    def keep(record: Round) -> None:
        records.append(record)
        seconds.append(time.perf_counter() - began)
        if directory:
            directory.append(record, seconds[-1])

    try:
        while True:
            last, due = state.round == rounds, state.round % record_every == 0
            record = None
            if last or due:
                loss, gradient = pacing.evaluate(state.model) if pacing else loop.evaluate(state.model)
                grad2 = float(gradient @ gradient)
                if not np.isfinite(loss + grad2):
                    status = "diverged"
                    break
                sound = state.model
                accuracy = evaluator.accuracy(state.model) if evaluator else None
                elapsed = pacing.elapsed(state.round) if pacing else None
                record = Round(state.round, loss, grad2, accuracy=accuracy, elapsed=elapsed)
                if target_loss is not None and loss <= target_loss:
                    status = "target"
                if target_accuracy is not None and accuracy is not None and accuracy >= target_accuracy:
                    status = "target"
                if target_grad2 is not None and grad2 <= target_grad2:
                    status = "target"
                if stop is not None and stop([*records, record]):
                    status = "target"
                if pause is not None and state.round >= pause and not last and status == "finished":
                    status = "stopped"
                if last or status != "finished":
                    keep(record)
                    observer(state.round, record)
                    break
            ends = pacing.ends(record is not None) if pacing else None
            (*others, following), seen = loop.round(state, gradient if due and watch else None, ends)
            if record is not None:
                record = dataclasses.replace(record, **seen._asdict())
                if pacing:
                    record, following = pacing.decide(record, state, [*others, following])
                keep(record)
            state = following
            # One number tells of all: infinities and NaN survive a sum, which takes a twentieth of looking at each.
            if not torch.isfinite(state.model.sum()):
                status = "diverged"
                break
            observer(state.round, record)
            if directory and state.round % checkpoint_every == 0:
                directory.checkpoint(dataclasses.replace(state, sound=sound))
    except KeyboardInterrupt:
        status, interrupted = "stopped", True
    model = sound if status == "diverged" else state.model
    trace = Trace(settings, status, state.round, tuple(records), model.detach().cpu().numpy().copy(), tuple(seconds))
    if directory and status == "stopped":
        directory.checkpoint(dataclasses.replace(state, sound=sound))
    if interrupted:
        raise InterruptedRunError(trace)
    return trace
