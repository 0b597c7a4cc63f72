"""The engine whose workers are Flower's nodes: the usual round loop, with the workers' part computed on the nodes.

Each worker's answer has weight one. The answers are weighted and added up here, in the same order in which the local
engine adds up chunks of one worker. A run therefore has the same bits as ``simulate`` with ``chunk=1``.

An exchange with the nodes takes seconds, however small the task. So one message carries everything that is already
known to be needed: the gradients at the last round's mean model, and the exact pass and local steps of the next round.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch

import fedgauge_flower.records as records
from fedgauge.algorithms.base import Algorithm, Tensors
from fedgauge.federation.participation import Cohort, Participation
from fedgauge.simulation.engines.local import Method
from fedgauge.simulation.runs.checkpoints import State
from fedgauge.simulation.workers import LANES, Lane, Remembering, Secants, Sums, Work, lanes
from fedgauge_flower.algorithms import described
from fedgauge_flower.answers import Expected, Like
from fedgauge_flower.fleet import Fleet, Question
from fedgauge_flower.noise import Noise


class Reply(NamedTuple):
    """A worker's answer to one part of a message."""

    numbers: dict[str, float]
    tensors: dict[str, torch.Tensor]


class Part(NamedTuple):
    """One part of a worker's task: a method of :class:`Work`, for one of the worker's copies in the round."""

    worker: int
    method: str
    copy: int

    @property
    def name(self) -> str:
        """The part's name in a message."""
        return f"{self.method}.{self.copy}"


Answers = Mapping[Part, Reply | None]


@dataclass(frozen=True)
class RunSchedule:
    """What the engine knows about a run, so that it can send the next round's tasks early.

    Attributes:
        participation: which workers take part in a round.
        local_steps: the number I of local steps, or one number per worker.
        rounds: the number R of rounds.
        seed: the seed of all randomness.
        record_every: the number of rounds from one record to the next.
        watch: whether the ratios of recorded rounds are measured.
        adapts: whether the number of local steps adapts during the run; then no task can be sent early.
        noise: whether to measure the variance of stochastic gradients at every recorded round.
        first: the round with which the run begins.
    """

    participation: Participation
    local_steps: tuple[int, ...]
    rounds: int
    seed: int
    record_every: int = 1
    watch: bool = True
    adapts: bool = False
    noise: bool = False
    first: int = 0

    def recorded(self, round: int) -> bool:
        """Whether a round has a record."""
        return round == self.rounds or round % self.record_every == 0


def plain_values(work: Work, schedule: RunSchedule) -> dict[str, Any]:
    """What every message of a run says to the workers about it."""
    return {
        **described(work.given),
        "local_steps": list(schedule.local_steps),
        "num_workers": work.federation.num_workers,
        "seed": schedule.seed,
        "noise": schedule.noise,
    }


class FlowerEngine:
    """Runs the methods of :class:`Work` on the workers' own nodes.

    If a worker is missing, the weights of the others are scaled up, so that sums remain averages. The ratios of a round
    compare answers from three exchanges; they are left out unless the same workers answered in all three.

    Args:
        work: the algorithm, with a federation that knows only the model's shapes.
        fleet: the nodes.
        schedule: the plan of the run.
        noise: keeps the variance of stochastic gradients at the model of each recorded round.
    """

    def __init__(self, work: Work, fleet: Fleet, schedule: RunSchedule, noise: Noise) -> None:
        self._work, self._fleet, self._schedule, self._noise = work, fleet, schedule, noise
        self._round = self._next = schedule.first
        self._coming: State | None = None
        self._foreseen: tuple[State, Answers] | None = None
        self._missing: dict[str, set[int]] = {}
        self._values = plain_values(work, schedule)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @property
    def width(self) -> int:
        """How many lanes are computed at once: all of them."""
        return LANES

    def map(self, method: Method, lanes: Sequence[Lane], *arguments: Any) -> list[Any]:
        """Send the task to the workers of all lanes at once, and combine their answers lane by lane."""
        tasks: Mapping[Method, Method] = {
            Work.evaluate: self._evaluate,
            Work.local_phase: self._local_phase,
            Work.secants: self._secants,
        }
        return list(tasks[method](lanes, *arguments))

    def foresee(self, state: State) -> None:
        """Remember the state that the next round will begin with."""
        self._coming = None if self._schedule.adapts else state

    # -- the tasks -------------------------------------------------------------------------------------------------

    def _evaluate(self, dealt: Sequence[Lane], model: torch.Tensor) -> Iterable[tuple[float, torch.Tensor]]:
        # An exact pass begins a new round: the one after the last round with local steps.
        self._round = self._next
        answers = self._known("evaluate", model)
        if answers is None:
            message = _Message(self._round, {"model": model})
            message.add("evaluate", dealt, self._evaluation(model))
            answers = self._insist(message)
        weighed = self._weigh("evaluate", dealt, answers)
        if self._schedule.noise:
            each = {str(row.worker): row.numbers["noise2"] for lane in weighed for row in lane}
            self._noise.add(self._round, each)
        for lane in weighed:
            loss, gradient = 0.0, torch.zeros(len(model), dtype=torch.float64)
            for row in lane:
                loss += row.weight * row.numbers["loss"]
                gradient += row.weight * row.tensors["gradient"]
            yield loss, gradient

    def _local_phase(
        self,
        dealt: Sequence[Lane],
        round: int,
        model: torch.Tensor,
        server: Mapping[str, torch.Tensor],
        watch: int,
        ends: Sequence[int] | None = None,
    ) -> Iterable[Sums]:
        self._round, self._next = round, round + 1
        answers = None if ends else self._known("local_phase", model)
        if answers is None:
            message = _Message(round, {"model": model})
            self._add_local_phase(message, dealt, model, server, bool(watch), ends)
            answers = self._insist(message)
        for lane in self._weigh("local_phase", dealt, answers):
            sums = Sums()
            for row in lane:
                sums.add(records.unpack(row.tensors, row.worker, row.weight))
            yield sums

    def _secants(self, dealt: Sequence[Lane], mean: torch.Tensor) -> Iterable[Secants | None]:
        message = _Message(self._round, {"mean": mean}, seen_from=self._round)
        # Workers whose local models are not part of the mean get no task here.
        secants = Expected(numbers={"squares": 0.0, "steepest": 0.0}, tensors={"gradient": Like.of(mean)})
        message.add("secants", dealt, secants, but=self._missing["local_phase"])
        coming, self._coming = self._coming, None
        if coming is not None:
            self._add_coming(message, coming)
        answers = self._ask(message)
        self._foreseen = None if coming is None else (coming, answers)
        if not _of("secants", answers) and self._fleet.nodes.keys() & _workers(dealt):
            return [None for _ in dealt]  # they are there, but none of their answers could be used
        weighed = self._weigh("secants", dealt, answers)
        if not self._same_answered(dealt):
            return [None for _ in weighed]
        return [self._secant(lane, mean) for lane in weighed]

    @staticmethod
    def _secant(lane: Sequence[_Row], mean: torch.Tensor) -> Secants:
        seen = Secants(torch.zeros(len(mean), dtype=torch.float64))
        for row in lane:
            gradient = row.weight * row.tensors["gradient"].double()
            seen.add(Secants(gradient, row.weight * row.numbers["squares"], row.numbers["steepest"]))
        return seen

    # -- messages --------------------------------------------------------------------------------------------------

    def _known(self, method: str, model: torch.Tensor) -> Answers | None:
        """The answers to a task that was sent early, if it was sent with this very model and any can be used."""
        if self._foreseen is None or self._foreseen[0].model is not model:
            return None
        return _of(method, self._foreseen[1]) or None

    def _add_coming(self, message: _Message, state: State) -> None:
        """Add the next round's tasks: an exact pass if it has a record, and local steps unless it is the last."""
        plan, N = self._schedule, self._work.federation.num_workers
        message.round, message.tensors["model"] = state.round, state.model
        if plan.recorded(state.round):
            everyone = Participation(weights=plan.participation.weights).cohort(N, plan.seed, 0)
            message.add("evaluate", lanes(everyone, 1), self._evaluation(state.model))
        if state.round < plan.rounds:
            cohort = plan.participation.cohort(N, plan.seed, state.round)
            watch = plan.watch and state.round % plan.record_every == 0
            self._add_local_phase(
                message, Remembering(lanes(cohort, 1), state.memory), state.model, state.server, watch, None
            )

    def _add_local_phase(
        self,
        message: _Message,
        dealt: Sequence[Lane],
        model: torch.Tensor,
        server: Mapping[str, torch.Tensor],
        watch: bool,
        ends: Sequence[int] | None,
    ) -> None:
        message.tensors |= records.named("server", server)
        message.values |= {"watch": watch, **({"ends": list(ends)} if ends else {})}
        for lane in dealt:
            message.add("local_phase", [lane], self._local_result(lane, model, watch, ends))
            for row, worker in enumerate(lane.cohort.workers.tolist()):
                memory = {name: rows[row] for name, rows in lane.memory.items()}
                message.memory[worker] = records.named("memory", memory)

    def _insist(self, message: _Message) -> Answers:
        """Ask, and if no answer can be used, ask once more: with few participants, that may be one node's mistake."""
        answers = self._ask(message)
        return answers if any(answers.values()) else self._ask(message)

    def _ask(self, message: _Message) -> Answers:
        """Send each worker its message, and split the answers into their parts."""
        answers = self._fleet.ask(message.round, message.questions(self._values))
        found: dict[Part, Reply | None] = {}
        for parts, answer in zip(message.parts.values(), answers, strict=True):
            for part in parts:
                found[part] = None
                if answer is not None:
                    found[part] = Reply(
                        records.part(answer.numbers, part.name), records.part(answer.tensors, part.name)
                    )
        return found

    def _weigh(self, method: str, dealt: Sequence[Lane], answers: Answers) -> list[list[_Row]]:
        """The answers and their weights, lane by lane; the weights of missing workers are shared among the others."""
        self._missing[method] = set()
        found: list[list[_Row]] = []
        total = there = 0.0
        for lane in dealt:
            found.append([])
            for worker, copy, weight in zip(*(column.tolist() for column in lane.cohort), strict=True):
                reply = answers.get(Part(worker, method, copy))
                total += weight
                if reply is None:
                    self._missing[method].add(worker)
                else:
                    there += weight
                    found[-1].append(_Row(worker, weight, reply.numbers, reply.tensors))
        if there == 0.0:
            raise self._fleet.nobody()
        if there == total:
            return found
        return [[row._replace(weight=row.weight * total / there) for row in lane] for lane in found]

    def _same_answered(self, dealt: Sequence[Lane]) -> bool:
        """Whether the same workers answered in all three exchanges from which a round's ratios are made."""
        own = _workers(dealt)
        missing = [self._missing.get(method, set()) & own for method in ("evaluate", "local_phase", "secants")]
        return missing[0] == missing[1] == missing[2]

    def _evaluation(self, model: torch.Tensor) -> Expected:
        """What a worker must send after an exact pass."""
        least = {"loss": -math.inf, **({"noise2": 0.0} if self._schedule.noise else {})}
        return Expected(numbers=least, tensors={"gradient": Like.of(model, torch.float64)})

    def _local_result(self, lane: Lane, model: torch.Tensor, watch: bool, ends: Sequence[int] | None) -> Expected:
        """What a worker must send after its local steps."""
        sent, remembered = answer_of(
            self._work.algorithm, model, {name: rows[:1] for name, rows in lane.memory.items()}
        )
        each = {f"message.{name}": Like.of(rows[0]) for name, rows in sent.items()}
        each |= {f"memory.{name}": Like.of(rows[0]) for name, rows in remembered.items()}
        whole = {**each, **({"x": Like.of(model), "gradient": Like.of(model)} if watch else {})}
        for number in range(len(ends or [0]) - 1):
            whole |= records.named(f"path.{number}", each)
        return Expected(tensors=whole)


def _workers(dealt: Sequence[Lane]) -> set[int]:
    """The workers of all lanes."""
    return {worker for lane in dealt for worker in lane.cohort.workers.tolist()}


def _of(method: str, answers: Answers) -> Answers:
    """The answers to one method; empty if none of them can be used."""
    own = {part: reply for part, reply in answers.items() if part.method == method}
    return own if any(own.values()) else {}


def answer_of(algorithm: Algorithm, model: torch.Tensor, memory: Tensors) -> tuple[Tensors, Tensors]:
    """Examples of the tensors that a worker sends and of those that it remembers, from a step with zero gradient."""
    begun = algorithm.begin(model, algorithm.init(model), memory)
    local = {name: value.expand(1, value.shape[-1]) for name, value in begun.items()}
    local = dict(algorithm.step(local, torch.zeros(1, len(model), dtype=model.dtype)))
    return algorithm.finish(model, local, torch.ones(1, 1, dtype=model.dtype))


class _Row(NamedTuple):
    """A worker's answer and its weight."""

    worker: int
    weight: float
    numbers: dict[str, float]
    tensors: dict[str, torch.Tensor]


class _Message:
    """The tasks of all workers in one exchange."""

    def __init__(self, round: int, tensors: Mapping[str, torch.Tensor], **values: Any) -> None:
        self.round, self.tensors, self.values = round, dict(tensors), values
        self.memory: dict[int, dict[str, torch.Tensor]] = {}
        self.parts: dict[int, list[Part]] = {}
        self._expected: dict[int, Expected] = {}

    def add(self, method: str, dealt: Sequence[Lane], expected: Expected, but: Collection[int] = ()) -> None:
        """Add a method to the task of each of these workers except ``but``, and what they must answer to it."""
        for lane in dealt:
            cohort: Cohort = lane.cohort
            for worker, copy in zip(cohort.workers.tolist(), cohort.copies.tolist(), strict=True):
                if worker in but:
                    continue
                part = Part(worker, method, copy)
                self.parts.setdefault(worker, []).append(part)
                own = self._expected.setdefault(worker, Expected())
                own.numbers |= records.named(part.name, expected.numbers)
                own.tensors |= records.named(part.name, expected.tensors)

    def questions(self, values: Mapping[str, Any]) -> list[Question]:
        """The questions to send, one per worker."""
        sent = {**values, **self.values}
        return [
            Question(
                worker,
                "train.work",
                records.content(
                    {**self.tensors, **self.memory.get(worker, {})}, parts=[part.name for part in parts], **sent
                ),
                self._expected[worker],
            )
            for worker, parts in self.parts.items()
        ]
