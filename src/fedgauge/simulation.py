"""The one round loop: who takes part, their local steps, the server's update, what is recorded and kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedgauge.algorithms.base import Algorithm, Tensors
from fedgauge.errors import InputError, count
from fedgauge.federation.base import Federation
from fedgauge.participation import Cohort, Participation
from fedgauge.randomness import Purpose, Streams, check_seed
from fedgauge.runs import RunDirectory, State, read_trace
from fedgauge.values import Round, Status, Trace

Observer = Callable[[int, Round | None], None]
"""Called after every round with the number of rounds done and the record, where one was made."""

FULL = Participation()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: the sums are then the same on every machine, and rows are too small to share.

    Two threads that wait for each other on a busy machine were seen to take fifty times as long as one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass
class _Spread:
    """Mean of rows and their weighted squared distance from it, merged chunk by chunk without cancellation."""

    weight: float = 0.0
    mean: torch.Tensor | None = None
    squares: float = 0.0

    def add(self, rows: torch.Tensor, weights: torch.Tensor) -> None:
        weight = float(weights.sum())
        # Counted from the first row, so that equal rows have exactly that mean and no spread.
        mean = rows[0] + weights @ (rows - rows[0]) / weight
        self.squares += float(weights @ (rows - mean).square().sum(dim=1))
        if self.mean is None:
            self.mean = mean
        else:
            gap = mean - self.mean
            total = self.weight + weight
            self.squares += float(gap @ gap) * self.weight * weight / total
            self.mean = self.mean + gap * (weight / total)
        self.weight += weight


@dataclass(frozen=True)
class _Phase:
    """What a round's local phase gives the server, and what was seen of it."""

    message: dict[str, torch.Tensor]
    memory: dict[str, torch.Tensor]
    spread: float | None = None
    deviation2: float | None = None


class _Loop:
    """The parts of a run that do not change from round to round."""

    def __init__(
        self,
        federation: Federation,
        algorithm: Algorithm,
        local_steps: int | Sequence[int],
        participation: Participation,
        seed: int,
        chunk: int,
    ) -> None:
        N = federation.num_workers
        self.federation, self.algorithm, self.participation = federation, algorithm, participation
        self.seed, self.chunk = seed, chunk
        self.steps = np.broadcast_to(np.asarray(local_steps), (N,))
        self.equal_steps = bool((self.steps == self.steps[0]).all())
        self.noise = Streams(seed, Purpose.NOISE)
        # Everyone weighs in the objective, also where only some take part.
        self.everyone = Participation(weights=participation.weights).cohort(N, seed, 0)

    def evaluate(self, model: torch.Tensor) -> tuple[float, float]:
        """f and the squared norm of its gradient at the global model."""
        loss, gradient = 0.0, torch.zeros_like(model, dtype=torch.float64)
        for part in self.everyone.chunks(self.chunk):
            weights = torch.from_numpy(part.weights)
            losses, gradients = self.federation.evaluate(model.expand(len(weights), -1), part.workers)
            loss += float(weights @ losses.double())
            gradient += weights @ gradients.double()
        return loss, float(gradient @ gradient)

    def local_steps(self, state: State, part: Cohort) -> tuple[Tensors, torch.Tensor]:
        """Run the local steps of one chunk of participants; return their final local states and step counts."""
        rows, steps = len(part.workers), self.steps[part.workers]
        memory = {name: tensor[part.workers] for name, tensor in state.memory.items()}
        begun = self.algorithm.begin(state.model, state.server, memory)
        local: Tensors = {name: tensor.expand(rows, tensor.shape[-1]) for name, tensor in begun.items()}
        draws = self.federation.draws(self.noise, state.round, part.workers, part.copies, int(steps.max()))
        for k, draw in enumerate(draws):
            gradients = self.federation.stochastic_gradients(local["x"], part.workers, draw)
            moved = self.algorithm.step(local, gradients)
            if self.equal_steps:
                local = moved
            else:
                still = torch.from_numpy(k < steps).unsqueeze(1)
                local = {name: torch.where(still, moved[name], local[name]) for name in moved}
        return local, torch.as_tensor(steps, dtype=state.model.dtype).unsqueeze(1)

    def local_phase(self, state: State, cohort: Cohort, watch: bool) -> _Phase:
        """Run all participants of a round, a chunk at a time, and stream their weighted sums."""
        message: dict[str, torch.Tensor] = {}
        # A copy, so that a round that is interrupted leaves its state as it was.
        memory = {name: rows.clone() for name, rows in state.memory.items()}
        spread, own_gradient = _Spread(), torch.zeros_like(state.model, dtype=torch.float64)
        for part in cohort.chunks(self.chunk):
            local, steps = self.local_steps(state, part)
            sent, remembered = self.algorithm.finish(state.model, local, steps)
            weights = torch.from_numpy(part.weights).to(state.model.dtype)
            for name, rows in sent.items():
                total = weights @ rows
                message[name] = message[name] + total if name in message else total
            for name, rows in remembered.items():
                memory[name][part.workers] = rows
            if watch:
                spread.add(local["x"].double(), weights.double())
                own_gradient += weights.double() @ self.federation.gradients(local["x"], part.workers).double()
        if not watch or spread.mean is None:
            return _Phase(message, memory)
        mean_model = spread.mean.to(state.model.dtype)
        gap = own_gradient
        for part in cohort.chunks(self.chunk):
            gradients = self.federation.gradients(mean_model.expand(len(part.workers), -1), part.workers)
            gap -= torch.from_numpy(part.weights) @ gradients.double()
        gap /= spread.weight
        return _Phase(message, memory, spread.squares / spread.weight, float(gap @ gap))

    def round(self, state: State, watch: bool) -> tuple[State, _Phase]:
        """One round: from a state to the next."""
        N = self.federation.num_workers
        full = self.participation.sampling == "full"
        cohort = self.everyone if full else self.participation.cohort(N, self.seed, state.round)
        phase = self.local_phase(state, cohort, watch)
        fraction = self.participation.num_participants(N) / N
        model, server = self.algorithm.update(state.model, state.server, phase.message, fraction)
        return State(state.round + 1, model, server, phase.memory), phase

    def first_state(self, model: torch.Tensor) -> State:
        remembered = self.algorithm.worker_init(model)
        N = self.federation.num_workers
        memory = {name: vector.expand(N, -1).clone() for name, vector in remembered.items()}
        return State(0, model, self.algorithm.init(model), memory)


def _check_steps(local_steps: int | Sequence[int], num_workers: int) -> int | list[int]:
    if isinstance(local_steps, int):
        return count("local_steps", local_steps)
    if len(local_steps) != num_workers:
        raise InputError(f"local_steps must be one number or {num_workers}, one a worker, not {len(local_steps)}.")
    return [count("local_steps", steps) for steps in local_steps]


def simulate(
    federation: Federation,
    algorithm: Algorithm,
    *,
    local_steps: int | Sequence[int],
    rounds: int,
    participation: Participation = FULL,
    seed: int = 0,
    record_every: int = 1,
    target_loss: float | None = None,
    chunk: int = 32,
    run: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int = 100,
    observer: Observer | None = None,
) -> Trace:
    """Run an algorithm on a federation.

    Args:
        federation: what the workers compute.
        algorithm: what workers and server do with it.
        local_steps: I, or one number a worker.
        rounds: R.
        participation: who takes part.
        seed: of all randomness in the run.
        record_every: record every so many rounds (and the last); recording takes three exact gradient passes.
        target_loss: stop at the first recorded loss at or below it.
        chunk: how many workers' rows are held at once. It groups the sums, so other values agree to rounding only.
        run: directory for the run; nothing is written without it.
        resume: go on with the run in that directory.
        checkpoint_every: save the state every so many rounds.
        observer: told of every round.

    Returns:
        The trace; ``diverged`` where the loss or the model was no longer finite, with all rounds before that.

    >>> from fedgauge import fedavg, random_quadratics
    >>> trace = simulate(random_quadratics(4, 3), fedavg(gamma=0.1), local_steps=5, rounds=20)
    >>> trace.status, bool(trace.losses[-1] < trace.losses[0])
    ('finished', True)
    """
    N = federation.num_workers
    steps = _check_steps(local_steps, N)
    count("rounds", rounds)
    count("record_every", record_every)
    count("chunk", chunk)
    count("checkpoint_every", checkpoint_every)
    participation.check(N)
    if not algorithm.repeats and participation.sampling.startswith("with-replacement"):
        raise InputError(
            f"{algorithm.name} keeps a memory for each worker, so none may be drawn twice;"
            " sample without-replacement or use full participation."
        )
    if target_loss is not None and not np.isfinite(target_loss):
        raise InputError(f"target_loss must be a finite number, not {target_loss!r}.")
    settings: dict[str, Any] = {
        "federation": federation.digest,
        "algorithm": {"name": algorithm.name, **algorithm.parameters},
        "local_steps": steps,
        "rounds": rounds,
        "participation": participation.to_json(),
        "seed": check_seed(seed),
        "record_every": record_every,
        "target_loss": target_loss,
        "chunk": chunk,
    }
    loop = _Loop(federation, algorithm, steps, participation, seed, chunk)
    with ExitStack() as stack:
        stack.enter_context(one_thread())
        directory = None
        if run is not None:
            directory = stack.enter_context(RunDirectory.open(run, settings, resume))
            if directory.finished:
                return read_trace(run)
        return _run(loop, settings, directory, checkpoint_every, observer or (lambda done, record: None))


def _run(
    loop: _Loop,
    settings: Mapping[str, Any],
    directory: RunDirectory | None,
    checkpoint_every: int,
    observer: Observer,
) -> Trace:
    rounds, record_every, target_loss = settings["rounds"], settings["record_every"], settings["target_loss"]
    restored, records, seconds = directory.restore(record_every) if directory else (None, [], [])
    state = restored or loop.first_state(loop.federation.start(loop.seed))
    began = time.perf_counter() - (seconds[-1] if seconds else 0.0)
    status: Status = "finished"
    previous = state

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
                loss, grad2 = loop.evaluate(state.model)
                if not np.isfinite(loss + grad2):
                    status = "diverged"
                    break
                record = Round(state.round, loss, grad2)
                if target_loss is not None and loss <= target_loss:
                    status = "target"
                if last or status == "target":
                    keep(record)
                    break
            following, phase = loop.round(state, watch=due)
            if record is not None:
                record = Round(state.round, record.loss, record.grad2, phase.spread, phase.deviation2)
                keep(record)
            previous, state = state, following
            if not torch.isfinite(state.model).all():
                status = "diverged"
                break
            observer(state.round, record)
            if directory and state.round % checkpoint_every == 0:
                directory.checkpoint(state)
    except KeyboardInterrupt:
        status = "stopped"
    model = (previous if status == "diverged" else state).model
    trace = Trace(settings, status, state.round, tuple(records), model.detach().numpy().copy(), tuple(seconds))
    if directory and status == "stopped":
        directory.checkpoint(state)
    elif directory:
        directory.finish(trace)
    return trace
