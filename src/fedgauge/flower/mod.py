"""The nodes' part of measuring around a strategy of the user's own: a mod that looks at the model before and after.

What a node is asked stands in a record of its own beside what the strategy sends, and so does its answer; the user's
own training function sees neither. Nothing is computed where no :class:`Gauge` asks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod

import fedgauge.flower.records as records
from fedgauge.algorithms import fedavg
from fedgauge.errors import InputError
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.flower.client import Load, Node, form_of
from fedgauge.simulation.workers import Lane, Secants, Work
from fedgauge.system.threads import one_thread

ASKED, MEAN, SEEN, SAID, MODEL = (f"fedgauge.gauge.{name}" for name in ("asked", "mean", "seen", "said", "model"))
"""The records of a message that are the gauge's own."""
_KEPT, _KEPT_ROUND = "fedgauge.gauge.kept", "fedgauge.gauge.kept-round"


def own_arrays(content: RecordDict) -> ArrayRecord:
    """The one record of arrays in a message that is not the gauge's."""
    found = [record for name, record in content.array_records.items() if not name.startswith("fedgauge.gauge.")]
    if len(found) != 1:
        raise InputError(f"A message must have one record of arrays, the model's, not {len(found)}; send them as one.")
    return found[0]


def flat(arrays: ArrayRecord, keys: list[str]) -> torch.Tensor:
    """The arrays of these keys as one vector, of the type of the first."""
    parts = [np.asarray(arrays[key].numpy()).reshape(-1) for key in keys]
    return torch.from_numpy(np.concatenate(parts))


def keys_of(federation: SupervisedFederation, arrays: ArrayRecord) -> list[str]:
    """The keys of the model's parameters among the arrays, in order: by name, or by place where names are others."""
    shapes = {name: tuple(value.shape) for name, value in federation.module.named_parameters()}
    keys = list(shapes) if set(shapes) <= set(arrays) else list(arrays)
    sent = [tuple(arrays[key].shape) for key in keys]
    if sent != list(shapes.values()):
        raise InputError(
            f"The gauge's model has parameters of shapes {list(shapes.values())}, but the message has {sent}; give"
            " gauge_mod the model that is trained."
        )
    return keys


class _Gauged(Node):
    """One worker, looked at around somebody else's training."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # The algorithm takes no part in exact passes.
        federation: Any = self.own(self.worker + 1)
        self.exact = Work(federation, fedavg(1.0), 1, 0, 1)

    def gradient(self, model: torch.Tensor) -> torch.Tensor:
        """The exact gradient at one model."""
        return self.own(self.worker + 1).gradients(model.unsqueeze(0), np.array([self.worker]))[0]

    def secants(self, kept: dict[str, torch.Tensor], mean: torch.Tensor) -> Secants:
        """What is seen from the mean model."""
        rows = {name: row.unsqueeze(0) for name, row in kept.items()}
        return self.exact.secants(Lane(self.lane().cohort, rows), mean)


def gauge_mod(load: Load, *, noise: bool = True) -> Mod:
    """A mod for a ClientApp whose server wraps its strategy in :class:`Gauge`.

    Args:
        load: gives the node's :class:`Shard` from its context: the model that is trained, its loss, and the examples
            that this node trains on.
        noise: whether to measure sigma too, a pass over single samples.
    """
    nodes: dict[int, _Gauged] = {}

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        asked: Any = message.content.config_records.get(ASKED)
        if asked is None:
            return call_next(message, context)
        if context.node_id not in nodes:
            number = context.node_config.get("partition-id", -1)
            nodes[context.node_id] = _Gauged(load(context), max(int(number), 0))
            nodes[context.node_id].worker = int(number)
        with one_thread():
            return _gauged(nodes[context.node_id], message, context, call_next, dict(asked), noise)

    return mod


def _gauged(
    node: _Gauged, message: Message, context: Context, call_next: ClientAppCallable, asked: dict[str, Any], noise: bool
) -> Message:
    seen: dict[str, torch.Tensor] = {}
    said: dict[str, Any] = {"worker": node.worker, "round": asked["round"], "form": form_of(node.federation)}
    mean = message.content.array_records.get(MEAN)
    if "look" in asked["parts"] and mean is not None:
        _look(node, context, mean, asked["seen_from"], seen, said)
    model = message.content.array_records.get(MODEL)
    arrays = own_arrays(message.content) if model is None else model
    keys = keys_of(node.federation, arrays)
    before = flat(arrays, keys).to(node.federation.start(0))
    said["loss"], seen["at_global"] = node.exact.evaluate(node.lane(), before)
    said["keys"] = keys
    if noise:
        said["noise2"] = node.own(node.worker + 1).noise2(before)
    if "train" in asked["parts"]:
        for name in (ASKED, MEAN):
            if name in message.content:
                del message.content[name]
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        after = flat(own_arrays(reply.content), keys).to(before)
        seen["gradient"] = node.gradient(after)
        made = records.content({"x": after, "gradient": seen["gradient"]}, round=asked["round"])
        context.state[_KEPT], context.state[_KEPT_ROUND] = made[records.ARRAYS], made[records.SAID]
        content = reply.content
    else:
        content = RecordDict()
        reply = Message(content, reply_to=message)
    content[SEEN] = ArrayRecord({name: Array(value.numpy()) for name, value in seen.items()})
    content[SAID] = ConfigRecord(said)
    return reply


def _look(
    node: _Gauged,
    context: Context,
    mean: ArrayRecord,
    round: int,
    seen: dict[str, torch.Tensor],
    said: dict[str, Any],
) -> None:
    kept_round: Any = context.state.config_records.get(_KEPT_ROUND) or {}
    if kept_round.get("round") != round:
        return  # this node was started anew since; the server sees that nothing was said
    at = torch.from_numpy(np.array(mean["mean"].numpy()))
    found = node.secants(records.tensors_of(context.state, _KEPT), at)
    seen["look"] = found.gradient.to(at.dtype)
    said |= {"squares": found.squares, "steepest": found.steepest}
