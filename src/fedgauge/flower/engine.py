"""The engine whose workers are Flower's nodes: the same loop as everywhere, with the workers' part asked of them.

Each worker answers for itself, at weight one; its answer is weighed and added up here in the order in which the local
engine adds up chunks of one worker, so that a run is the same bits as ``simulate`` with ``chunk=1``.

An exchange with nodes takes seconds, whatever is asked. So one message carries all that is known to come: what was
seen from the last round's mean model, and for the round that follows the exact pass and the local steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch

import fedgauge.flower.records as records
from fedgauge.algorithms.base import Algorithm, Tensors
from fedgauge.federation.participation import Cohort, Participation
from fedgauge.flower.algorithms import described
from fedgauge.flower.fleet import Fleet, Question
from fedgauge.flower.noise import Noise
from fedgauge.runs.directory import State
from fedgauge.simulation.workers import Lane, Secants, Sums, Work, lanes

Shapes = dict[str, tuple[int, ...]]


class Reply(NamedTuple):
    """A worker's answer to one part of a message."""

    said: dict[str, Any]
    tensors: dict[str, torch.Tensor]


class Part(NamedTuple):
    """What one worker is asked to do: a method of :class:`Work`, for its first run in the round or a further one."""

    worker: int
    method: str
    copy: int

    @property
    def name(self) -> str:
        """As the message has it."""
        return f"{self.method}.{self.copy}"


Answers = Mapping[Part, Reply | None]


@dataclass(frozen=True)
class Schedule:
    """What the engine knows of a run: enough to foresee what will be asked.

    Attributes:
        participation: who takes part.
        local_steps: I, or one number a worker.
        rounds: R.
        seed: of all randomness.
        record_every: which rounds are recorded.
        watch: whether they are looked at.
        adapts: whether local steps adapt themselves, so that nothing is foreseen.
        noise: whether to ask for the variance of stochastic gradients at every recorded round.
        first: the round that the run begins with.
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


class FlowerEngine:
    """Runs the methods of :class:`Work` on the workers' own nodes.

    Where a worker is missing, the others weigh as much more, so that sums remain averages. The ratios of a round
    compare what was said at three moments, so they are left out where not the same workers answered at all of them.

    Args:
        work: the algorithm, with a federation that knows the model's form only.
        fleet: the nodes.
        schedule: what else the run will ask.
        noise: where the variance at the model of each recorded round is kept.
    """

    def __init__(self, work: Work, fleet: Fleet, schedule: Schedule, noise: Noise) -> None:
        self._work, self._fleet, self._schedule, self._noise = work, fleet, schedule, noise
        self._round = self._next = schedule.first
        self._coming: State | None = None
        self._foreseen: tuple[State, Answers] | None = None
        self._missing: dict[str, set[int]] = {}
        self._said: dict[str, Any] = {
            **described(work.algorithm),
            "local_steps": list(schedule.local_steps),
            "num_workers": work.federation.num_workers,
            "seed": schedule.seed,
            "noise": schedule.noise,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def map(self, method: str, lanes: Sequence[Lane], *arguments: Any) -> list[Any]:
        """Ask the workers of all lanes at once, and put their answers together lane by lane."""
        return list(getattr(self, f"_{method}")(lanes, *arguments))

    def foresee(self, state: State) -> None:
        """Take note of the state that the round's end will lead to."""
        self._coming = None if self._schedule.adapts else state

    # -- what is asked ---------------------------------------------------------------------------------------------

    def _evaluate(self, dealt: Sequence[Lane], model: torch.Tensor) -> Iterable[tuple[float, torch.Tensor]]:
        # It opens a round: the one after the last whose local steps were taken.
        self._round = self._next
        answers = self._known("evaluate", model)
        if answers is None:
            message = _Message(self._round, {"model": model})
            message.add("evaluate", dealt, {"gradient": tuple(model.shape)})
            answers = self._ask(message)
        weighed = self._weigh("evaluate", dealt, answers)
        if self._schedule.noise:
            each = {str(row.worker): row.said["noise2"] for lane in weighed for row in lane}
            self._noise.add(self._round, each)
        for lane in weighed:
            loss, gradient = 0.0, torch.zeros(len(model), dtype=torch.float64)
            for row in lane:
                loss += row.weight * row.said["loss"]
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
            answers = self._ask(message)
        for lane in self._weigh("local_phase", dealt, answers):
            sums = Sums()
            for row in lane:
                sums.add(records.unpack(row.tensors, row.worker, row.weight))
            yield sums

    def _secants(self, dealt: Sequence[Lane], mean: torch.Tensor) -> Iterable[Secants | None]:
        message = _Message(self._round, {"mean": mean}, seen_from=self._round)
        # Whose local model took no part in the mean is not asked about it.
        message.add("secants", dealt, {"gradient": tuple(mean.shape)}, but=self._missing["local_phase"])
        coming, self._coming = self._coming, None
        if coming is not None:
            self._add_coming(message, coming)
        answers = self._ask(message)
        self._foreseen = None if coming is None else (coming, answers)
        weighed = self._weigh("secants", dealt, answers)
        if not self._same_answered(dealt):
            return [None for _ in weighed]
        return [self._secant(lane, mean) for lane in weighed]

    @staticmethod
    def _secant(lane: Sequence[_Row], mean: torch.Tensor) -> Secants:
        seen = Secants(torch.zeros(len(mean), dtype=torch.float64))
        for row in lane:
            gradient = row.weight * row.tensors["gradient"].double()
            seen.add(Secants(gradient, row.weight * row.said["squares"], row.said["steepest"]))
        return seen

    # -- messages --------------------------------------------------------------------------------------------------

    def _known(self, method: str, model: torch.Tensor) -> Answers | None:
        """What was asked ahead of time, for this very model."""
        if self._foreseen is None or self._foreseen[0].model is not model:
            return None
        answers = {part: reply for part, reply in self._foreseen[1].items() if part.method == method}
        return answers or None

    def _add_coming(self, message: _Message, state: State) -> None:
        """What the next round will ask: an exact pass where it has a record, and local steps unless it is the last."""
        plan, N = self._schedule, self._work.federation.num_workers
        message.round, message.tensors["model"] = state.round, state.model
        if plan.recorded(state.round):
            everyone = Participation(weights=plan.participation.weights).cohort(N, plan.seed, 0)
            message.add("evaluate", lanes(everyone, 1), {"gradient": tuple(state.model.shape)})
        if state.round < plan.rounds:
            cohort = plan.participation.cohort(N, plan.seed, state.round)
            watch = plan.watch and state.round % plan.record_every == 0
            self._add_local_phase(message, lanes(cohort, 1, state.memory), state.model, state.server, watch, None)

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
        message.said |= {"watch": watch, **({"ends": list(ends)} if ends else {})}
        for lane in dealt:
            message.add("local_phase", [lane], self._shapes(lane, model, watch, ends))
            for row, worker in enumerate(lane.cohort.workers.tolist()):
                memory = {name: rows[row] for name, rows in lane.memory.items()}
                message.memory[worker] = records.named("memory", memory)

    def _ask(self, message: _Message) -> Answers:
        """Send a message to each worker that it is for, and take the answers apart."""
        answers = self._fleet.ask(message.round, message.questions(self._said))
        found: dict[Part, Reply | None] = {}
        for parts, answer in zip(message.parts.values(), answers, strict=True):
            said = {} if answer is None else records.said_in(answer)
            tensors = {} if answer is None else records.tensors_of(answer)
            for part in parts:
                own = {key.removeprefix(f"{part.name}."): value for key, value in said.items()}
                found[part] = None if answer is None else Reply(own, records.part(tensors, part.name))
        return found

    def _weigh(self, method: str, dealt: Sequence[Lane], answers: Answers) -> list[list[_Row]]:
        """The answers lane by lane with their weights; those who answered weigh more for those who did not."""
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
                    found[-1].append(_Row(worker, weight, reply.said, reply.tensors))
        if there == 0.0:
            raise self._fleet.nobody()
        if there == total:
            return found
        return [[row._replace(weight=row.weight * total / there) for row in lane] for lane in found]

    def _same_answered(self, dealt: Sequence[Lane]) -> bool:
        """Whether the same of these workers were there for all that a round's ratios are made of."""
        own = {worker for lane in dealt for worker in lane.cohort.workers.tolist()}
        missing = [self._missing.get(method, set()) & own for method in ("evaluate", "local_phase", "secants")]
        return missing[0] == missing[1] == missing[2]

    def _shapes(self, lane: Lane, model: torch.Tensor, watch: bool, ends: Sequence[int] | None) -> Shapes:
        """The tensors that a worker must send after its local steps, as the algorithm makes them of a step."""
        sent, remembered = answer_of(
            self._work.algorithm, model, {name: rows[:1] for name, rows in lane.memory.items()}
        )
        shapes = {f"message.{name}": tuple(rows.shape[1:]) for name, rows in sent.items()}
        shapes |= {f"memory.{name}": tuple(rows.shape[1:]) for name, rows in remembered.items()}
        whole = {**shapes, **({"x": tuple(model.shape), "gradient": tuple(model.shape)} if watch else {})}
        for number in range(len(ends or [0]) - 1):
            whole |= {f"path.{number}.{name}": shape for name, shape in shapes.items()}
        return whole


def answer_of(algorithm: Algorithm, model: torch.Tensor, memory: Tensors) -> tuple[Tensors, Tensors]:
    """What a worker sends and what it remembers, by name and of the shapes that it has, made of one step at zero."""
    begun = algorithm.begin(model, algorithm.init(model), memory)
    local = {name: value.expand(1, value.shape[-1]) for name, value in begun.items()}
    local = dict(algorithm.step(local, torch.zeros(1, len(model), dtype=model.dtype)))
    return algorithm.finish(model, local, torch.ones(1, 1, dtype=model.dtype))


class _Row(NamedTuple):
    """A worker's answer with its weight."""

    worker: int
    weight: float
    said: dict[str, Any]
    tensors: dict[str, torch.Tensor]


class _Message:
    """What is to be asked of the workers in one exchange."""

    def __init__(self, round: int, tensors: Mapping[str, torch.Tensor], **said: Any) -> None:
        self.round, self.tensors, self.said = round, dict(tensors), said
        self.memory: dict[int, dict[str, torch.Tensor]] = {}
        self.parts: dict[int, list[Part]] = {}
        self._shapes: dict[int, Shapes] = {}

    def add(self, method: str, dealt: Sequence[Lane], shapes: Shapes, but: Collection[int] = ()) -> None:
        """Ask each of these workers, ``but`` some, for a method whose answer has tensors of these shapes."""
        for lane in dealt:
            cohort: Cohort = lane.cohort
            for worker, copy in zip(cohort.workers.tolist(), cohort.copies.tolist(), strict=True):
                if worker in but:
                    continue
                part = Part(worker, method, copy)
                self.parts.setdefault(worker, []).append(part)
                own = self._shapes.setdefault(worker, {})
                own |= {f"{part.name}.{name}": shape for name, shape in shapes.items()}

    def questions(self, said: Mapping[str, Any]) -> list[Question]:
        """One for each worker."""
        asked = {**said, **self.said, "round": self.round, "method": "work"}
        return [
            Question(
                worker,
                "train.work",
                records.content(
                    {**self.tensors, **self.memory.get(worker, {})}, parts=[part.name for part in parts], **asked
                ),
                self._shapes[worker],
            )
            for worker, parts in self.parts.items()
        ]
