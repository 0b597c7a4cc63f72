"""The nodes that are the workers of a run: how they are found and called, and what happens when they fail.

A worker that does not answer in time is lost for the rest of the run, because waiting for it again would delay every
round. An answer that cannot be used (an error, wrong shapes, numbers that are not finite, another round) is refused;
its worker is asked again in the next round. Both are recorded, with the worker, the round and the reason.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from safetensors import SafetensorError

import fedgauge.flower.records as records
from fedgauge.errors import InputError, MachineError

Key = TypeVar("Key", bound=Hashable)

_POLL = 0.1
"""Seconds between two checks for answers."""
_GONE = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)

NOT_FINITE = "is not finite"
EVENTS = "events.jsonl"
"""The file in a run's directory that lists the workers that were lost or refused."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Question:
    """A message to one worker, with the shape of the answer.

    Attributes:
        worker: the number of the worker.
        type: the message's type, by which Flower routes it.
        content: the content of the message.
        shapes: the shapes that the tensors in the answer must have, by name.
    """

    worker: int
    type: str
    content: RecordDict
    shapes: Mapping[str, tuple[int, ...]] | None = None


@dataclass
class Fleet:
    """The nodes of a run.

    Attributes:
        grid: Flower's connection to the nodes.
        timeout: the number of seconds to wait for an answer.
        events: the file to which losses and refusals are written, one per line.
        nodes: the node of each worker that is still there.
        incidents: the losses and refusals so far.
        round: the round of the last questions.
    """

    grid: Grid
    timeout: float
    events: Path | None = None
    nodes: dict[int, int] = field(default_factory=dict)
    incidents: list[dict[str, Any]] = field(default_factory=list)
    round: int = 0

    def gather(self, num_workers: int, wait: float) -> dict[int, dict[str, Any]]:
        """Find the node of each worker: ask every node that connects within ``wait`` seconds which worker it is."""
        hellos: dict[int, dict[str, Any]] = {}
        greeted: dict[str, int] = {}
        waiting: set[str] = set()
        end = time.monotonic() + wait
        while len(hellos) < num_workers:
            new = [node for node in self.grid.get_node_ids() if node not in greeted.values()]
            if new:
                hello = [
                    Message(records.content({}, method="hello"), node, "query.hello", ttl=wait + 60) for node in new
                ]
                sent = dict(zip(self.grid.push_messages(hello), new, strict=True))
                greeted |= sent
                waiting |= set(sent)
            for reply in self.grid.pull_messages(list(waiting)) if waiting else ():
                name = reply.metadata.reply_to_message_id
                waiting.discard(name)
                self._welcome(greeted[name], reply, num_workers, hellos)
            if len(hellos) < num_workers and time.monotonic() > end:
                there = ", ".join(map(str, sorted(hellos))) or "none"
                raise MachineError(
                    f"Of {num_workers} workers only these connected within {wait:g} s: {there}; start a SuperNode with"
                    " a partition-id for each of the others, or wait longer for them."
                )
            time.sleep(_POLL)
        return hellos

    def _welcome(self, node: int, reply: Message, num_workers: int, hellos: dict[int, dict[str, Any]]) -> None:
        """Accept a node that has said which worker it is, or raise an error that explains why it cannot take part."""
        if reply.has_error() and reply.error.code in _GONE:
            return  # a node of an earlier run, whose SuperNode has ended
        if reply.has_error():
            raise InputError(f"Node {node} cannot take part: {_reason(reply)}")
        hello = records.values_in(reply.content)
        worker = hello["worker"]
        if worker >= num_workers:
            raise InputError(
                f"A node says that it is worker {worker}, but workers are numbered from 0 to {num_workers - 1}; start"
                " it with another partition-id, or set workers in the run's configuration."
            )
        if worker in hellos:
            raise InputError(f"Two nodes say that they are worker {worker}; start one with another partition-id.")
        for other, theirs in hellos.items():
            if theirs["form"] != hello["form"]:
                pair = sorted([(other, theirs["dim"]), (worker, hello["dim"])])
                raise InputError(
                    f"Workers {pair[0][0]} and {pair[1][0]} have different models, losses or batch sizes (their models"
                    f" have {pair[0][1]} and {pair[1][1]} parameters); give all nodes the same code and configuration."
                )
        self.nodes[worker], hellos[worker] = node, hello

    def exchange(self, messages: Mapping[Key, Message]) -> dict[Key, Message | None]:
        """Send messages and wait for the answers; ``None`` for each that does not arrive in time."""
        if not messages:
            return {}
        for message in messages.values():
            message.metadata.ttl = self.timeout + 60
        ids = list(self.grid.push_messages(list(messages.values())))
        keys = dict(zip(ids, messages, strict=True))
        found: dict[Key, Message | None] = dict.fromkeys(messages)
        waiting = set(ids) - {None}
        end = time.monotonic() + self.timeout
        while waiting and time.monotonic() < end:
            for reply in self.grid.pull_messages(list(waiting)):
                answered = reply.metadata.reply_to_message_id
                if answered in waiting:
                    waiting.discard(answered)
                    found[keys[answered]] = reply
            if waiting:
                time.sleep(_POLL)
        return found

    def ask(self, round: int, questions: Sequence[Question]) -> list[RecordDict | None]:
        """Ask workers and check their answers; ``None`` for each worker that is lost or whose answer is refused."""
        self.round = round
        messages = {
            number: Message(question.content, self.nodes[question.worker], question.type)
            for number, question in enumerate(questions)
            if question.worker in self.nodes
        }
        answers: list[RecordDict | None] = [None] * len(questions)
        mistakes: dict[int, str] = {}
        for number, reply in self.exchange(messages).items():
            question = questions[number]
            if reply is None or (reply.has_error() and reply.error.code in _GONE):
                self._lose(question.worker, round, f"no answer within {self.timeout:g} s")
            elif reply.has_error():
                mistakes[number] = _reason(reply)
            else:
                answers[number] = reply.content
                mistakes[number] = _mistake(question, reply.content)
        # If no worker's numbers are finite, the run diverges; that is a result, not a worker's mistake.
        if not all(mistake.endswith(NOT_FINITE) for mistake in mistakes.values()):
            for number, mistake in mistakes.items():
                if mistake:
                    answers[number] = None
                    self.report("refused", questions[number].worker, round, mistake)
        return answers

    def nobody(self) -> MachineError:
        """The error to raise when no worker has answered."""
        where = self.events or "the log"
        return MachineError(
            f"No worker is left in round {self.round}; the rounds before it are kept, and {where} says why the workers"
            " were lost."
        )

    def _lose(self, worker: int, round: int, why: str) -> None:
        node = self.nodes.get(worker)
        self.report("lost", worker, round, why)
        if node is not None:
            del self.nodes[worker]

    def report(self, what: str, worker: int, round: int, why: str) -> None:
        """Record that a worker was lost or refused, and why."""
        event = {"round": round, "worker": worker, "node": str(self.nodes.get(worker, "")), "what": what, "why": why}
        self.incidents.append(event)
        logger.warning("Worker %d was %s in round %d: %s.", worker, what, round, why)
        if self.events:
            write_event(self.events, event)


def write_event(path: Path, event: Mapping[str, Any]) -> None:
    """Record that a worker was lost or refused, in the file that ``runs show`` and ``report`` read."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")


class PromptGrid(Grid):
    """A grid that checks for answers every 0.1 s; Flower's own checks every 3 s."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def set_run(self, run: Any) -> None:
        """The same as in Flower's own grid."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The same as in Flower's own grid."""
        return self._grid.run

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        """The same as in Flower's own grid."""
        return self._grid.create_message(*arguments, **named)

    def get_node_ids(self) -> Iterable[int]:
        """The same as in Flower's own grid."""
        return self._grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """The same as in Flower's own grid."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The same as in Flower's own grid."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and wait for the answers."""
        found = Fleet(self._grid, 3600.0 if timeout is None else timeout).exchange(dict(enumerate(messages)))
        return [reply for reply in found.values() if reply is not None]


def _reason(reply: Message) -> str:
    """A node's error message, in one line."""
    text = " ".join(str(reply.error.reason).split())
    # Flower writes "<class 'X'>:<'what it says'>".
    return text.partition(":<'")[2].removesuffix("'>") or text or f"error {reply.error.code}"


def _mistake(question: Question, answer: RecordDict) -> str:
    """What is wrong with an answer, in a few words; empty if it can be used."""
    sent, values = records.values_in(question.content), records.values_in(answer)
    for name in ("method", "round"):
        if name in sent and values.get(name) != sent[name]:
            return f"it answers {name} {values.get(name)!r}, not {sent[name]!r}"
    try:
        tensors = records.tensors_of(answer)
    except (SafetensorError, ValueError, TypeError, OSError, EOFError) as error:
        return f"its tensors cannot be read ({error})"
    if question.shapes is not None:
        if set(tensors) != set(question.shapes):
            return f"it sends {', '.join(sorted(tensors)) or 'nothing'}, not {', '.join(sorted(question.shapes))}"
        for name, shape in question.shapes.items():
            if tuple(tensors[name].shape) != shape:
                return f"its {name} has shape {tuple(tensors[name].shape)}, not {shape}"
    return _not_finite(values, tensors)


def _not_finite(values: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> str:
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            return f"its {name} holds {tensor.dtype}, not floating-point numbers"
        if not torch.isfinite(tensor).all():
            return f"its {name} {NOT_FINITE}"
    for name, value in values.items():
        if isinstance(value, float) and not torch.isfinite(torch.tensor(value)):
            return f"its {name} {NOT_FINITE}"
    return ""
