"""A federation from what a user has: a model, a loss and each worker's own data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch.utils.data import TensorDataset

from fedgauge.base.devices import choose_device
from fedgauge.base.errors import count
from fedgauge.base.threads import separate_generator, undisturbed
from fedgauge.federation.checks import check_data, check_module, joined, made_by
from fedgauge.federation.flat import number_type
from fedgauge.federation.kernels.base import Loss
from fedgauge.federation.lazy import LazyData, is_source
from fedgauge.federation.modes import Augment, BatchNorm
from fedgauge.federation.shards import ShardedData, flat
from fedgauge.federation.supervised import SupervisedFederation


@undisturbed
def federate(
    model: nn.Module | Callable[[], nn.Module],
    loss: Loss,
    shards: Sequence[Any],
    *,
    batch_size: int = 20,
    l2: float = 0.0,
    augment: Augment | None = None,
    batch_norm: BatchNorm = "frozen",
    path: str = "auto",
    device: str = "cpu",
) -> SupervisedFederation:
    """Make a federation from a model, a loss and each worker's own data.

    Args:
        model: a torch module, or a function that makes one.
        loss: mean loss from (outputs, targets).
        shards: one (inputs, targets) pair per worker, tensors or numpy arrays; fractions of numpy arrays take the
            model's number type. Or, to be read lazily, one map-style torch Dataset per worker, a DataLoader over one
            (whose data set and collate function are used), or a function without arguments that makes either.
        batch_size: samples in a mini-batch.
        l2: weight of the squared norm in the objective.
        augment: as for :class:`SupervisedFederation`.
        batch_norm: as for :class:`SupervisedFederation`.
        path: as for :class:`SupervisedFederation`.
        device: as for :class:`SupervisedFederation`.

    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> shards = [(generator.normal(size=(size, 3)), generator.integers(2, size=size)) for size in (40, 60)]
    >>> made = federate(lambda: nn.Linear(3, 2), nn.functional.cross_entropy, shards)
    >>> made.num_workers, made.sizes(np.arange(2))
    (2, array([40, 60]))
    """
    device = str(choose_device(device))
    with separate_generator():
        module = check_module(made_by(model))
    how: dict[str, Any] = {"batch_size": batch_size, "l2": l2, "augment": augment, "path": path, "device": device}
    how["batch_norm"] = batch_norm
    number = number_type(module)
    if isinstance(shards, Sequence) and shards and all(map(is_source, shards)):
        if not all(isinstance(shard, TensorDataset) and len(shard.tensors) == 2 for shard in shards):
            data = LazyData(shards, number, count("batch_size", batch_size), device)
            return SupervisedFederation(model, loss, data, **how)
        shards = [shard.tensors for shard in shards]
    inputs, targets, places = joined(shards, number)
    x, y = check_data(inputs, targets)
    return SupervisedFederation(model, loss, ShardedData(x.to(device), y.to(device), *flat(places)), **how)
