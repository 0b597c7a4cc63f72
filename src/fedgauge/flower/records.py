"""What goes over the wire: tensors by name in Flower's records, and what the workers' sums are made of.

All tensors of a message are one array of bytes, in the form of safetensors: Flower asks for every array of a message by
itself, six times on its way there and back, which costs more than the numbers do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from safetensors.torch import load, save

from fedgauge.simulation.workers import Spread, Sums

ARRAYS, SAID = "fedgauge.arrays", "fedgauge.said"
"""The records of a message: tensors, and plain values."""
_PACKED = "safetensors"


def content(tensors: Mapping[str, torch.Tensor], **said: Any) -> RecordDict:
    """The content of a message."""
    record = ArrayRecord()
    if tensors:
        held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        record[_PACKED] = Array(np.frombuffer(save(held), dtype=np.uint8))
    return RecordDict({ARRAYS: record, SAID: ConfigRecord(said)})


def tensors_of(record: RecordDict, name: str = ARRAYS) -> dict[str, torch.Tensor]:
    """The tensors of a message, each with memory of its own."""
    arrays: Mapping[str, Array] = record.array_records.get(name) or {}
    return load(arrays[_PACKED].numpy().tobytes()) if _PACKED in arrays else {}


def said_in(record: RecordDict) -> dict[str, Any]:
    """The plain values of a message."""
    return dict(record.config_records.get(SAID) or {})


def part(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Those whose names begin with a prefix and a dot, without it."""
    return {
        name.removeprefix(f"{prefix}."): tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")
    }


def named(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same tensors with a prefix and a dot before each name."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def pack(sums: Sums, like: torch.Tensor) -> dict[str, torch.Tensor]:
    """One worker's sums, at weight one, as tensors.

    Of one worker, models and gradients are sums of one summand: numbers of the model's own type, sent as such.
    """
    packed = named("message", sums.message)
    for _, remembered in sums.memory:
        packed |= named("memory", {name: rows[0] for name, rows in remembered.items()})
    if sums.spread.mean is not None and sums.gradient is not None:
        packed |= {"x": sums.spread.mean.to(like.dtype), "gradient": sums.gradient.to(like.dtype)}
    for number, earlier in enumerate(sums.path):
        packed |= named(f"path.{number}", pack(earlier, like))
    return packed


def unpack(tensors: Mapping[str, torch.Tensor], worker: int, weight: float) -> Sums:
    """The sums of one worker at its weight."""
    message = {name: tensor * weight for name, tensor in part(tensors, "message").items()}
    memory = {name: tensor.unsqueeze(0) for name, tensor in part(tensors, "memory").items()}
    sums = Sums(message, [(np.array([worker]), memory)] if memory else [])
    if "x" in tensors:
        sums.spread = Spread(weight, tensors["x"].double(), 0.0)
        sums.gradient = tensors["gradient"].double() * weight
    earlier = part(tensors, "path")
    count = len({name.split(".")[0] for name in earlier})
    sums.path = [unpack(part(earlier, str(number)), worker, weight) for number in range(count)]
    return sums
