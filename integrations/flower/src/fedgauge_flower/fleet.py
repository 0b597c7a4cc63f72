"""The nodes that are the workers of a run: how they are found and called, and what happens when they fail.

A worker that does not answer in time is lost for the rest of the run, because waiting for it again would delay every
round. An answer that cannot be used (see :mod:`fedgauge_flower.answers`) is refused; its worker is asked again in the
next round. Both are recorded, with the worker, the round and the reason.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

import fedgauge_flower.records as records
from fedgauge.base.errors import MachineError
from fedgauge.base.files import open_file
from fedgauge_flower.answers import (
    Expected,
    Greeting,
    Received,
    RefusedError,
    far_from_others,
    read_greeting,
    read_work,
)

Key = TypeVar("Key", bound=Hashable)

_POLL = 0.1
"""Seconds between two checks for answers."""
_AGAIN = 2.0
"""Seconds until a node whose greeting cannot be used is asked again."""
_GONE = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)

EVENTS = "events.jsonl"
"""The file in a run's directory that lists the workers that were lost or refused."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Question:
    """A message to one worker, with what its answer must have.

    Attributes:
        worker: the number of the worker.
        type: the message's type, by which Flower routes it.
        content: the content of the message.
        expected: the numbers and tensors of the answer.
    """

    worker: int
    type: str
    content: RecordDict
    expected: Expected


@dataclass
class Fleet:
    """The nodes of a run.

    Attributes:
        grid: Flower's connection to the nodes.
        timeout: the number of seconds to wait for an answer.
        nodes: the node of each worker that is still there.
        incidents: the losses and refusals so far.
        round: the round of the last questions.
        session: a name for this server's questions. A server that is killed and started again has another one, so that
            late answers to the questions of the first are recognised.
    """

    grid: Grid
    timeout: float
    nodes: dict[int, int] = field(default_factory=dict)
    incidents: list[dict[str, Any]] = field(default_factory=list)
    round: int = 0
    session: str = field(default_factory=lambda: secrets.token_hex(8))
    _events: Path | None = None
    _asked: int = 0

    def gather(self, num_workers: int, wait: float, form: str) -> dict[int, Greeting]:
        """Find the node of each worker: ask every node that connects within ``wait`` seconds which worker it is.

        A node that cannot take part, or is one too many, is refused and asked again, and the others go on without it.

        Args:
            num_workers: the number N of workers, all of which are needed.
            wait: the number of seconds.
            form: the fingerprint of the server's model, loss and batch size, which a node must have too.
        """
        hellos: dict[int, Greeting] = {}
        greeted: dict[str, int] = {}
        waiting: dict[str, None] = {}  # in the order of the nodes, so that of two with one number the first is taken
        refused: dict[int, str] = {}
        again: dict[int, float] = {}  # when to ask a refused node again
        end = time.monotonic() + wait
        while len(hellos) < num_workers:
            due = {node for node, at in again.items() if time.monotonic() > at}
            new = [node for node in self.grid.get_node_ids() if node not in greeted.values() or node in due]
            if new:
                hello = [
                    Message(records.content({}, method="hello"), node, "query.hello", ttl=wait + 60) for node in new
                ]
                sent = dict(zip(self.grid.push_messages(hello), new, strict=True))
                greeted |= sent
                waiting |= dict.fromkeys(sent)
                again = {node: at for node, at in again.items() if node not in due}
            replies = list(self.grid.pull_messages(list(waiting))) if waiting else []
            order = {name: place for place, name in enumerate(waiting)}
            for reply in sorted(replies, key=lambda reply: order[reply.metadata.reply_to_message_id]):
                name = reply.metadata.reply_to_message_id
                del waiting[name]
                node = greeted[name]
                try:
                    self._welcome(node, reply, num_workers, form, hellos)
                except RefusedError as mistake:
                    if node not in refused:
                        self._report("refused", None, node, 0, str(mistake))
                    refused[node], again[node] = str(mistake), time.monotonic() + _AGAIN
            hopeless = not hellos and len(refused) >= num_workers  # one mistake of all, and nobody to wait for
            if len(hellos) < num_workers and (hopeless or time.monotonic() > end):
                there = ", ".join(map(str, sorted(hellos))) or "none"
                why = "".join(f"; node {node} was refused: {why}" for node, why in refused.items())
                raise MachineError(
                    f"Of {num_workers} workers only these connected within {wait:g} s: {there}{why}; start a SuperNode"
                    " with a partition-id for each of the others, or wait longer for them."
                )
            time.sleep(_POLL)
        return hellos

    def _welcome(self, node: int, reply: Message, num_workers: int, form: str, hellos: dict[int, Greeting]) -> None:
        """Accept a node that has said which worker it is, or raise an error that explains why it cannot take part."""
        if reply.has_error() and reply.error.code in _GONE:
            return  # a node of an earlier run, whose SuperNode has ended
        if reply.has_error():
            raise RefusedError(f"it cannot take part: {reason_of(reply)}")
        hello = read_greeting(reply.content)
        worker = hello.worker
        if worker >= num_workers:
            raise RefusedError(
                f"it says that it is worker {worker}, but workers are numbered from 0 to {num_workers - 1}; start it"
                " with another partition-id, or set workers in the run's configuration"
            )
        if worker in hellos:
            raise RefusedError(f"another node is worker {worker} already; start one with another partition-id")
        if form != hello.form:
            raise RefusedError(
                f"its model ({hello.dim} parameters), loss or batch size differs from the server's; give the server and"
                " all nodes the same code and configuration"
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

    def ask(self, round: int, questions: Sequence[Question]) -> list[Received | None]:
        """Ask workers and check their answers; ``None`` for each worker that is lost or whose answer is refused."""
        self.round, self._asked = round, self._asked + 1
        echo: dict[str, Any] = {"asked": f"{self.session}.{self._asked}", "round": round}
        messages = {}
        for number, question in enumerate(questions):
            if question.worker in self.nodes:
                question.content.config_records[records.VALUES].update(echo)
                messages[number] = Message(question.content, self.nodes[question.worker], question.type)
        answers: list[Received | None] = [None] * len(questions)
        mistakes: dict[int, str] = {}
        for number, reply in self.exchange(messages).items():
            question = questions[number]
            worker = question.worker
            if reply is None or (reply.has_error() and reply.error.code in _GONE):
                self.report("lost", worker, round, f"no answer within {self.timeout:g} s")
                del self.nodes[worker]
            elif reply.has_error():
                mistakes[number] = reason_of(reply)
            else:
                expected = replace(question.expected, echo={**echo, "worker": worker})
                try:
                    answers[number] = read_work(reply.content, expected)
                except RefusedError as mistake:
                    mistakes[number] = str(mistake)
        received = [answer for answer in answers if answer is not None]
        if len(received) == 1 and received[0].not_finite:
            # Alone in its round, a node may be wrong, or the run may diverge; whoever reads the run has to know.
            alone = answers.index(received[0])
            self.report("not finite", questions[alone].worker, round, received[0].not_finite)
        # If no worker's numbers are finite, the run diverges; that is a result, not a worker's mistake.
        if not all(answer.not_finite for answer in received):
            for number, answer in enumerate(answers):
                if answer is not None and answer.not_finite:
                    answers[number], mistakes[number] = None, answer.not_finite
        usable: dict[int, dict[str, float | torch.Tensor]] = {
            number: {**answer.numbers, **answer.tensors}
            for number, answer in enumerate(answers)
            if answer is not None and not answer.not_finite
        }
        for number, why in far_from_others(usable).items():
            answers[number], mistakes[number] = None, why
        for number, why in sorted(mistakes.items()):
            self.report("refused", questions[number].worker, round, why)
        return answers

    def nobody(self) -> MachineError:
        """The error to raise when no worker has answered."""
        where = self._events or "the log"
        return MachineError(
            f"No worker is left in round {self.round}; the rounds before it are kept, and {where} says why the workers"
            " were lost or refused."
        )

    def report(self, what: str, worker: int, round: int, why: str) -> None:
        """Record that a worker was lost or refused, and why."""
        self._report(what, worker, self.nodes.get(worker), round, why)

    def _report(self, what: str, worker: int | None, node: int | None, round: int, why: str) -> None:
        shown = "" if node is None else str(node)
        event = {"round": round, "worker": worker, "node": shown, "what": what, "why": why}
        self.incidents.append(event)
        who = f"Node {shown}" if worker is None else f"Worker {worker}"
        logger.warning("%s was %s in round %d: %s.", who, what, round, why)
        if self._events:
            write_event(self._events, event)

    def record_in(self, place: Path | None) -> None:
        """Write losses and refusals, those so far and those to come, into a run's directory, which is open by now."""
        if place is not None and self._events is None:
            self._events = place / EVENTS
            for event in self.incidents:
                write_event(self._events, event)


def write_event(path: Path, event: Mapping[str, Any]) -> None:
    """Record that a worker was lost or refused, in the file that ``runs show`` and ``report`` read."""
    with open_file(path, "a") as file:
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


def reason_of(reply: Message) -> str:
    """A node's error message, in one line."""
    text = " ".join(str(reply.error.reason).split())
    text = "".join(letter if letter.isprintable() else "?" for letter in text[:400])
    # Flower writes "<class 'X'>:<'what it says'>".
    return text.partition(":<'")[2].removesuffix("'>") or text or f"error {reply.error.code}"
