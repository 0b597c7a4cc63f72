"""Means over workers' whole shards, computed a block of samples at a time and added up in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from fedgauge.federation.protocols import Indices, Weights
from fedgauge.federation.shards import ShardedData

OnRows = Callable[[slice, torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]
"""Means over a batch of samples for these rows, from its inputs and targets of (rows, batch, ...)."""


def per_row(data: ShardedData, models: torch.Tensor, workers: Indices, compute: OnRows) -> tuple[torch.Tensor, ...]:
    """Means over the workers' whole shards, one row each."""
    stacked = data.stacked(workers)
    if stacked is not None:
        return compute(slice(None), *stacked)
    rows: tuple[torch.Tensor, ...] = ()
    for row, worker in enumerate(workers.tolist()):
        found = _mean(data, slice(row, row + 1), compute, *data.offsets[worker : worker + 2].tolist())
        if not rows:
            # Losses stay in float64; vectors have the models' type.
            rows = tuple(
                part.new_empty(len(workers), *part.shape[1:], dtype=None if part.ndim == 1 else models.dtype)
                for part in found
            )
        for into, part in zip(rows, found, strict=True):
            into[row] = part[0]
    return rows


def _mean(data: ShardedData, row: slice, compute: OnRows, first: int, last: int) -> tuple[torch.Tensor, ...]:
    """Means over the samples at these places, for one row; several blocks are added up in float64."""
    totals: tuple[torch.Tensor, ...] = ()
    for x, y in data.blocks(first, last):
        found = compute(row, x.unsqueeze(0), y.unsqueeze(0))
        if len(x) == last - first:
            return found
        totals = totals or tuple(torch.zeros_like(part, dtype=torch.float64) for part in found)
        for total, part in zip(totals, found, strict=True):
            total.add_(part, alpha=len(x) / (last - first))
    return totals


def pooled(
    data: ShardedData, workers: Indices, weights: Weights, compute: OnRows
) -> Iterator[tuple[float, tuple[torch.Tensor, ...]]]:
    """Weights and means that sum up to the weighted sum over the workers, at one model.

    Neighbours whose samples all weigh the same are one body of data: big blocks whatever the size of a shard.
    """
    share, offsets = weights / data.sizes(workers), data.offsets
    ends = np.flatnonzero((np.diff(workers) != 1) | (np.diff(share) != 0)) + 1
    for run in np.split(np.arange(len(workers)), ends):
        first, last = int(offsets[workers[run[0]]]), int(offsets[workers[run[-1]] + 1])
        yield float(share[run[0]]) * (last - first), _mean(data, slice(0, 1), compute, first, last)
