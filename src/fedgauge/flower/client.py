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

import fedgauge.flower.records as records
from fedgauge.errors import InputError
from fedgauge.federation.participation import Cohort
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.flower.algorithms import algorithm_of
from fedgauge.flower.shard import OwnWorker, Shard, experiment_of, shard_of
from fedgauge.simulation.workers import Lane, Work
from fedgauge.system.threads import one_thread

Load = Callable[[Context], Shard]
"""What gives a node its shard: its own data, and the model that all share."""

_KEPT = "fedgauge.kept"
"""Where a node keeps its local models until the mean model comes."""


def worker_number(context: Context) -> int:
    """Which worker a node is, as it was started with."""
    number = context.node_config.get("partition-id")
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        given = "none" if number is None else repr(number)
        raise InputError(
            f"A node needs its worker's number, a partition-id of 0 or above, not {given}; start the SuperNode with"
            " --node-config 'partition-id=0'."
        )
    return number


def from_experiment(context: Context) -> Shard:
    """The worker's shard of the experiment that the run's configuration describes."""
    return shard_of(experiment_of(context.run_config), worker_number(context))


def form_of(federation: SupervisedFederation) -> str:
    """A fingerprint of what all workers must share: the model's form, the loss, the batch size and the l2 term."""
    shapes = [(name, tuple(value.shape), str(value.dtype)) for name, value in federation.module.named_parameters()]
    loss = getattr(federation.loss, "__qualname__", str(federation.loss))
    return hashlib.sha256(f"{shapes} {loss} {federation.batch_size} {federation.l2}".encode()).hexdigest()[:16]


class Node:
    """One worker, at its own node."""

    def __init__(self, shard: Shard, worker: int) -> None:
        self.federation, self.worker = shard.federation(), worker

    def lane(self, copy: int = 0, memory: Any = None) -> Lane:
        """The worker's own lane, at weight one."""
        return Lane(Cohort(np.array([self.worker]), np.array([copy]), np.ones(1)), memory or {})

    def own(self, num_workers: int) -> OwnWorker:
        """The worker as one of so many."""
        return OwnWorker(self.federation, self.worker, num_workers)

    def work(self, said: dict[str, Any]) -> Work:
        """What the worker is asked to do, for the run's algorithm and seed."""
        steps = said["local_steps"]
        federation: Any = self.own(said["num_workers"])
        return Work(federation, algorithm_of(said), steps[0] if len(steps) == 1 else steps, said["seed"], 1)


Found = tuple[dict[str, torch.Tensor], dict[str, float]]
"""Tensors and numbers that answer one part of a message."""


@dataclass(frozen=True)
class Asked:
    """What one message asks of a worker.

    Attributes:
        node: the worker.
        work: the run's algorithm, seed and local steps.
        said: the message's plain values.
        tensors: the message's tensors.
        state: what the node keeps from one message to the next.
    """

    node: Node
    work: Work
    said: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor]
    state: RecordDict

    def evaluate(self, copy: int) -> Found:
        """Loss and exact gradient at the global model, and the noise where it is asked for."""
        model = self.tensors["model"]
        loss, gradient = self.work.evaluate(self.node.lane(), model)
        told = {"loss": loss}
        if self.said["noise"]:
            told["noise2"] = self.node.own(self.said["num_workers"]).noise2(model)
        return {"gradient": gradient}, told

    def local_phase(self, copy: int) -> Found:
        """The local steps of a round."""
        model, server = self.tensors["model"], records.part(self.tensors, "server")
        memory = {name: row.unsqueeze(0) for name, row in records.part(self.tensors, "memory").items()}
        lane, ends = self.node.lane(copy, memory), self.said.get("ends")
        sums = self.work.local_phase(lane, self.said["round"], model, server, int(self.said["watch"]), ends)
        packed = records.pack(sums, model)
        if self.said["watch"]:
            kept = {"x": packed["x"], "gradient": packed["gradient"]}
            made = records.content(kept, round=self.said["round"])
            self.state[f"{_KEPT}.{copy}"] = made.array_records[records.ARRAYS]
            self.state[f"{_KEPT}.{copy}.round"] = made.config_records[records.SAID]
        return packed, {}

    def kept(self, copy: int) -> dict[str, torch.Tensor]:
        """The local model that the last message left here, and the gradient at it."""
        name, round = f"{_KEPT}.{copy}", self.said["seen_from"]
        kept_in: Any = self.state.config_records.get(f"{name}.round") or {}
        if kept_in.get("round") != round:
            raise InputError(f"Worker {self.node.worker} has no local model of round {round}: it was started anew.")
        return records.tensors_of(self.state, name)

    def secants(self, copy: int) -> Found:
        """The gradient at the mean model, and the ratio seen between it and the worker's own model."""
        kept = {key: row.unsqueeze(0) for key, row in self.kept(copy).items()}
        mean = self.tensors["mean"]
        seen = self.work.secants(self.node.lane(copy, kept), mean)
        return {"gradient": seen.gradient.to(mean.dtype)}, {"squares": seen.squares, "steepest": seen.steepest}


def client_app(load: Load = from_experiment, *, mods: Sequence[Any] | None = None, secure: bool = False) -> ClientApp:
    """A ClientApp whose node is one worker of the federation, for :func:`server_app`.

    Args:
        load: gives the node's shard from its context; if not given, the worker's part of the experiment that the run's
            configuration describes. The node's ``partition-id`` says which worker it is.
        mods: Flower's mods, which see every message.
        secure: answer only with what Flower's secure aggregation has masked, for ``server_app(secure=True)``.
    """
    app = ClientApp(mods=list(mods or []))

    @cache
    def node(worker: int, context: int) -> Node:
        return Node(load(contexts[context]), worker)

    contexts: dict[int, Context] = {}

    def of(context: Context) -> Node:
        # Once for each node, also where one process serves several messages or several nodes.
        contexts[context.node_id] = context
        return node(worker_number(context), context.node_id)

    def answered(message: Message, tensors: dict[str, torch.Tensor], **said: Any) -> Message:
        asked = records.said_in(message.content)
        echo = {name: asked[name] for name in ("method", "round") if name in asked}
        return Message(records.content(tensors, **echo, **said), reply_to=message)

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        """Say who this is."""
        me = of(context)
        size = int(me.federation.sizes(np.zeros(1, dtype=np.int64))[0])
        said = {"worker": me.worker, "examples": size, "dim": me.federation.dim}
        return answered(message, {}, form=form_of(me.federation), digest=me.federation.digest, **said)

    if secure:
        from flwr.client.mod import secaggplus_mod

        from fedgauge.flower.secure import summand

        @app.train(mods=[secaggplus_mod])
        def masked(message: Message, context: Context) -> Message:
            """Answer with what is masked before it leaves this node."""
            me = of(context)
            with one_thread():
                return summand(message, lambda said, tensors: Asked(me, me.work(said), said, tensors, context.state))

        return app

    @app.train("work")
    def work(message: Message, context: Context) -> Message:
        """Do what is asked, in order, and answer all of it at once: an exchange costs more than most of the work."""
        me, said = of(context), records.said_in(message.content)
        asked = Asked(me, me.work(said), said, records.tensors_of(message.content), context.state)
        tensors: dict[str, torch.Tensor] = {}
        told: dict[str, Any] = {}
        with one_thread():
            for part in said["parts"]:
                method, _, copy = part.partition(".")
                found, numbers = getattr(asked, method)(int(copy))
                tensors |= records.named(part, found)
                told |= {f"{part}.{name}": number for name, number in numbers.items()}
        return answered(message, tensors, **told)

    return app
