"""The content of messages: tensors and plain values in Flower's records, and how workers' sums become tensors.

All tensors of a message are packed into one array of bytes, in the safetensors format. Flower requests each array of a
message separately, six times on its way there and back, which would take longer than sending the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from safetensors.torch import load, save

from fedgauge.simulation.workers import Spread, Sums

Item = TypeVar("Item")

ARRAYS, VALUES = "fedgauge.arrays", "fedgauge.said"
"""The names of the two records of a message: its tensors, and its plain values."""
PACKED = "safetensors"
"""The name of the only array in the first of them."""


def content(tensors: Mapping[str, torch.Tensor], **values: Any) -> RecordDict:
    """Make the content of a message."""
    record = ArrayRecord()
    if tensors:
        held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        record[PACKED] = Array(np.frombuffer(save(held), dtype=np.uint8))
    return RecordDict({ARRAYS: record, VALUES: ConfigRecord(values)})


def tensors_of(record: RecordDict, name: str = ARRAYS) -> dict[str, torch.Tensor]:
    """The tensors of a message, each with its own memory."""
    arrays: Mapping[str, Array] = record.array_records.get(name) or {}
    return load(arrays[PACKED].numpy().tobytes()) if PACKED in arrays else {}


def values_in(record: RecordDict) -> dict[str, Any]:
    """The plain values of a message."""
    return dict(record.config_records.get(VALUES) or {})


def part(whole: Mapping[str, Item], prefix: str) -> dict[str, Item]:
    """The items whose names begin with a prefix and a dot; both are removed from the names."""
    return {name.removeprefix(f"{prefix}."): item for name, item in whole.items() if name.startswith(f"{prefix}.")}


def named(prefix: str, items: Mapping[str, Item]) -> dict[str, Item]:
    """The same items, with a prefix and a dot before each name."""
    return {f"{prefix}.{name}": item for name, item in items.items()}


def pack(sums: Sums, like: torch.Tensor) -> dict[str, torch.Tensor]:
    """One worker's sums, with weight one, as tensors.

    For a single worker, the sums of models and gradients have one term each. They are sent in the model's own type.
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
    """One worker's sums, multiplied by its weight."""
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
