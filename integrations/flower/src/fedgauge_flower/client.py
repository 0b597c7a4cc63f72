"""The workers' part of a run on SuperNodes: a ClientApp that is worker i of a federation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

import fedgauge_flower.records as records
from fedgauge.base.errors import InputError
from fedgauge.base.threads import one_thread
from fedgauge.federation.participation import Cohort
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.simulation.workers import Lane, Work
from fedgauge_flower.algorithms import algorithm_of
from fedgauge_flower.shard import OwnWorker, Shard, experiment_of, shard_of

Load = Callable[[Context], Shard]
"""A function that loads a node's shard: the node's own data, and the model that all nodes share."""

_KEPT = "fedgauge.kept"
"""The record in which a node keeps its local models until the server sends their mean."""


def worker_number(context: Context) -> int:
    """The number of the worker that a node represents, from the node's start-up configuration."""
    number = context.node_config.get("partition-id")
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        shown = "none" if number is None else repr(number)
        raise InputError(
            f"A node needs its worker's number, a partition-id of 0 or above, not {shown}; start the SuperNode with"
            " --node-config 'partition-id=0'."
        )
    return number


def from_experiment(context: Context) -> Shard:
    """The worker's shard of the experiment that the run's configuration describes."""
    return shard_of(experiment_of(context.run_config), worker_number(context))


def form_of(federation: SupervisedFederation) -> str:
    """A fingerprint of what all workers must share: the model's form, the loss, the batch size and l2.

    What is not trained is never sent, so that its values have to be the same on every node.
    """
    parts = federation.identity.parts
    shared = [parts[name].digest for name in ("model", "loss", "batch size", "l2")]
    return hashlib.sha256("".join(shared).encode()).hexdigest()[:16]


class Node:
    """One worker, on its own node."""

    def __init__(self, shard: Shard, worker: int) -> None:
        self.federation, self.worker = shard.federation(), worker

    def lane(self, copy: int = 0, memory: Any = None) -> Lane:
        """A lane of this worker alone, with weight one."""
        return Lane(Cohort(np.array([self.worker]), np.array([copy]), np.ones(1)), memory or {})

    def own(self, num_workers: int) -> OwnWorker:
        """The worker as a member of a federation of ``num_workers``."""
        return OwnWorker(self.federation, self.worker, num_workers)

    def work(self, values: dict[str, Any]) -> Work:
        """The work of a round, for the algorithm, local steps and seed in a message."""
        steps = values["local_steps"]
        federation: Any = self.own(values["num_workers"])
        return Work(federation, algorithm_of(values), steps[0] if len(steps) == 1 else steps, values["seed"], 1)


def _session(values: Mapping[str, Any]) -> str:
    """The name of the server's session in which a question was asked; empty for secure sums, which have none."""
    return str(values.get("asked", "")).partition(".")[0]


Found = tuple[dict[str, torch.Tensor], dict[str, float]]
"""The tensors and numbers that answer one part of a message."""


@dataclass(frozen=True)
class WorkerTask:
    """The task that one message gives to a worker.

    Attributes:
        node: the worker.
        work: the run's algorithm, seed and local steps.
        values: the plain values in the message.
        tensors: the tensors in the message.
        state: the records that the node keeps from one message to the next.
    """

    node: Node
    work: Work
    values: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor]
    state: RecordDict

    def evaluate(self, copy: int) -> Found:
        """The loss and the exact gradient at the global model, and the gradient noise if the message wants it."""
        model = self.tensors["model"]
        loss, gradient = self.work.evaluate(self.node.lane(), model)
        numbers = {"loss": loss}
        if self.values["noise"]:
            numbers["noise2"] = self.node.own(self.values["num_workers"]).noise2(model)
        return {"gradient": gradient}, numbers

    def local_phase(self, copy: int) -> Found:
        """Take the local steps of a round."""
        model, server = self.tensors["model"], records.part(self.tensors, "server")
        memory = {name: row.unsqueeze(0) for name, row in records.part(self.tensors, "memory").items()}
        lane, ends = self.node.lane(copy, memory), self.values.get("ends")
        sums = self.work.local_phase(lane, self.values["round"], model, server, int(self.values["watch"]), ends)
        packed = records.pack(sums, model)
        if self.values["watch"]:
            kept = {"x": packed["x"], "gradient": packed["gradient"]}
            made = records.content(kept, round=self.values["round"], session=_session(self.values))
            self.state[f"{_KEPT}.{copy}"] = made.array_records[records.ARRAYS]
            self.state[f"{_KEPT}.{copy}.round"] = made.config_records[records.VALUES]
        return packed, {}

    def kept(self, copy: int) -> dict[str, torch.Tensor]:
        """The local model that this node kept from the last message, and the gradient there."""
        name, round = f"{_KEPT}.{copy}", self.values["seen_from"]
        kept_in: Any = self.state.config_records.get(f"{name}.round") or {}
        if (kept_in.get("round"), kept_in.get("session")) != (round, _session(self.values)):
            raise InputError(f"Worker {self.node.worker} has no local model of round {round}: it has been restarted.")
        return records.tensors_of(self.state, name)

    def secants(self, copy: int) -> Found:
        """The gradient at the mean model, and how fast gradients change from there to the worker's own model."""
        kept = {key: row.unsqueeze(0) for key, row in self.kept(copy).items()}
        mean = self.tensors["mean"]
        seen = self.work.secants(self.node.lane(copy, kept), mean)
        return {"gradient": seen.gradient.to(mean.dtype)}, {"squares": seen.squares, "steepest": seen.steepest}


_TASKS: Mapping[str, Callable[[WorkerTask, int], Found]] = {
    "evaluate": WorkerTask.evaluate,
    "local_phase": WorkerTask.local_phase,
    "secants": WorkerTask.secants,
}
"""The parts of which a message may consist."""


def client_app(load: Load = from_experiment, *, mods: Sequence[Any] | None = None, secure: bool = False) -> ClientApp:
    """Make a ClientApp whose node is one worker of the federation, for a server with :func:`server_app`.

    Args:
        load: a function that loads the node's shard from its context. By default, it is this worker's part of the
            experiment in the run's configuration; the node's ``partition-id`` is the worker's number.
        mods: Flower mods, which see every message.
        secure: send only answers that Flower's secure aggregation has masked, for ``server_app(secure=True)``.
    """
    app = ClientApp(mods=list(mods or []))

    @cache
    def node(worker: int, context: int) -> Node:
        return Node(load(contexts[context]), worker)

    contexts: dict[int, Context] = {}

    def of(context: Context) -> Node:
        # Load each node once, even if one process serves several messages or several nodes.
        contexts[context.node_id] = context
        return node(worker_number(context), context.node_id)

    def reply_with(message: Message, tensors: dict[str, torch.Tensor], **values: Any) -> Message:
        # By these the server sees that this is the answer to its question.
        question = records.values_in(message.content)
        echo = {name: question[name] for name in ("method", "round", "asked") if name in question}
        return Message(records.content(tensors, **echo, **values), reply_to=message)

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        """Tell the server which worker this node is."""
        me = of(context)
        size = int(me.federation.sizes(np.zeros(1, dtype=np.int64))[0])
        values = {"worker": me.worker, "examples": size, "dim": me.federation.dim}
        return reply_with(message, {}, form=form_of(me.federation), digest=me.federation.digest, **values)

    if secure:
        from flwr.client.mod import secaggplus_mod

        from fedgauge_flower.secure import summand

        @app.train(mods=[secaggplus_mod])
        def masked(message: Message, context: Context) -> Message:
            """Do the task; Flower's mod masks the answer before it leaves this node."""
            me = of(context)
            with one_thread():
                return summand(
                    message, lambda values, tensors: WorkerTask(me, me.work(values), values, tensors, context.state)
                )

        return app

    @app.train("work")
    def work(message: Message, context: Context) -> Message:
        """Do the parts of a task in order, and answer them together: an exchange costs more than most of the work."""
        me, values = of(context), records.values_in(message.content)
        task = WorkerTask(me, me.work(values), values, records.tensors_of(message.content), context.state)
        tensors: dict[str, torch.Tensor] = {}
        answer: dict[str, Any] = {}
        with one_thread():
            for part in values["parts"]:
                method, _, copy = part.partition(".")
                found, numbers = _TASKS[method](task, int(copy))
                tensors |= records.named(part, found)
                answer |= {f"{part}.{name}": number for name, number in numbers.items()}
        return reply_with(message, tensors, worker=me.worker, **answer)

    return app
