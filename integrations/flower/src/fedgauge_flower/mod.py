"""The nodes' part of measuring around any Flower strategy: a mod that measures at the model before and after training.

The gauge's request is a separate record beside what the strategy sends, and so is the answer to it. The user's training
function sees neither. Nothing is computed unless a :class:`Gauge` on the server asks for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod

import fedgauge_flower.records as records
from fedgauge.algorithms import fedavg
from fedgauge.base.errors import InputError
from fedgauge.base.threads import one_thread
from fedgauge.federation.flat import trainable
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.simulation.workers import Lane, Secants, Work
from fedgauge_flower.client import Load, Node

REQUEST, MEAN, SEEN, VALUES, MODEL = (f"fedgauge.gauge.{name}" for name in ("asked", "mean", "seen", "said", "model"))
"""The names of the gauge's own records in a message."""
_KEPT, _KEPT_ROUND = "fedgauge.gauge.kept", "fedgauge.gauge.kept-round"


def own_arrays(content: RecordDict) -> ArrayRecord:
    """The only array record in a message that is not the gauge's."""
    found = [record for name, record in content.array_records.items() if not name.startswith("fedgauge.gauge.")]
    if len(found) != 1:
        raise InputError(
            f"A message must have one array record, the model's, not {len(found)}; send the model as one record."
        )
    return found[0]


def flat(arrays: ArrayRecord, keys: list[str]) -> torch.Tensor:
    """The arrays with these keys as one vector."""
    parts = [np.asarray(arrays[key].numpy()).reshape(-1) for key in keys]
    return torch.from_numpy(np.concatenate(parts))


def keys_of(federation: SupervisedFederation, arrays: ArrayRecord) -> list[str]:
    """The keys of the model's parameters among the arrays, in order: by name, or by position if the names differ."""
    shapes = {name: tuple(value.shape) for name, value in trainable(federation.module).items()}
    keys = list(shapes) if set(shapes) <= set(arrays) else list(arrays)
    sent = [tuple(arrays[key].shape) for key in keys]
    if sent != list(shapes.values()):
        raise InputError(
            f"The gauge's model has parameters of shapes {list(shapes.values())}, but the message has {sent}; pass"
            " gauge_mod the model that is trained."
        )
    return keys


class _Gauged(Node):
    """One worker that is measured before and after the user's training function runs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Exact passes do not use the algorithm.
        federation: Any = self.own(self.worker + 1)
        self.exact = Work(federation, fedavg(1.0), 1, 0, 1)

    def gradient(self, model: torch.Tensor) -> torch.Tensor:
        """The exact gradient at a model."""
        return self.own(self.worker + 1).gradients(model.unsqueeze(0), np.array([self.worker]))[0]

    def secants(self, kept: dict[str, torch.Tensor], mean: torch.Tensor) -> Secants:
        """The gradient at the mean model, and how fast gradients change from there to the worker's own model."""
        rows = {name: row.unsqueeze(0) for name, row in kept.items()}
        return self.exact.secants(Lane(self.lane().cohort, rows), mean)


def gauge_mod(load: Load, *, noise: bool = True) -> Mod:
    """Make a mod for a ClientApp whose server wraps its strategy in :class:`Gauge`.

    Args:
        load: a function that loads the node's :class:`Shard` from its context: the model that is trained, its loss,
            and the examples on which this node trains.
        noise: whether to measure sigma as well, which takes a pass over single samples.
    """
    nodes: dict[int, _Gauged] = {}

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        request: Any = message.content.config_records.get(REQUEST)
        if request is None:
            return call_next(message, context)
        if context.node_id not in nodes:
            number = context.node_config.get("partition-id", -1)
            nodes[context.node_id] = _Gauged(load(context), max(int(number), 0))
            nodes[context.node_id].worker = int(number)
        with one_thread():
            return _gauged(nodes[context.node_id], message, context, call_next, dict(request), noise)

    return mod


def _gauged(
    node: _Gauged,
    message: Message,
    context: Context,
    call_next: ClientAppCallable,
    request: dict[str, Any],
    noise: bool,
) -> Message:
    seen: dict[str, torch.Tensor] = {}
    values: dict[str, Any] = {"worker": node.worker, "round": request["round"], "asked": request["asked"]}
    mean = message.content.array_records.get(MEAN)
    if "look" in request["parts"] and mean is not None:
        _look(node, context, mean, request["seen_from"], seen, values)
    model = message.content.array_records.get(MODEL)
    arrays = own_arrays(message.content) if model is None else model
    keys = keys_of(node.federation, arrays)
    before = flat(arrays, keys).to(node.federation.start(0))
    values["loss"], seen["at_global"] = node.exact.evaluate(node.lane(), before)
    values["keys"] = keys
    if noise:
        values["noise2"] = node.own(node.worker + 1).noise2(before)
    if "train" in request["parts"]:
        for name in (REQUEST, MEAN):
            if name in message.content:
                del message.content[name]
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        after = flat(own_arrays(reply.content), keys).to(before)
        seen["gradient"] = node.gradient(after)
        made = records.content({"x": after, "gradient": seen["gradient"]}, round=request["round"])
        context.state[_KEPT], context.state[_KEPT_ROUND] = made[records.ARRAYS], made[records.VALUES]
        content = reply.content
    else:
        content = RecordDict()
        reply = Message(content, reply_to=message)
    content[SEEN] = ArrayRecord({name: Array(value.numpy()) for name, value in seen.items()})
    content[VALUES] = ConfigRecord(values)
    return reply


def _look(
    node: _Gauged,
    context: Context,
    mean: ArrayRecord,
    round: int,
    seen: dict[str, torch.Tensor],
    values: dict[str, Any],
) -> None:
    kept_round: Any = context.state.config_records.get(_KEPT_ROUND) or {}
    if kept_round.get("round") != round:
        return  # this node has been restarted since; the server sees that its answer is missing
    kept = records.tensors_of(context.state, _KEPT)
    at = torch.from_numpy(np.array(mean["mean"].numpy())).to(kept["x"].dtype)
    found = node.secants(kept, at)
    seen["look"] = found.gradient.to(at.dtype)
    values |= {"squares": found.squares, "steepest": found.steepest}
