"""The samples of a federation, who has which of them, and means over whole shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch

from fedgauge.base.errors import InputError, count
from fedgauge.base.randomness import Streams
from fedgauge.base.threads import seed_generators
from fedgauge.federation.modes import Augment, Mode
from fedgauge.federation.protocols import Indices, Weights

BLOCK = 2048
"""The most samples in one exact pass: enough to fill the machine, few enough to fit its caches."""

_FEW = 4

Samples = tuple[torch.Tensor, torch.Tensor]
"""Inputs and targets."""


@runtime_checkable
class Shards(Protocol):
    """Who has which samples, as two arrays: a :class:`fedgauge.Partition`, or anything of its form.

    Shards may share samples. As two arrays, a hundred thousand shards are made in less time than a list of arrays,
    which would take longer to make than a round takes to run.
    """

    @property
    def sizes(self) -> Indices:
        """How many samples each worker has."""

    @property
    def indices(self) -> Indices:
        """The samples of worker 0, then those of worker 1, and so on."""


def flat(shards: Shards | Sequence[Any]) -> tuple[Indices, Indices]:
    """Sizes of the shards, and their samples one after another."""
    if isinstance(shards, Shards):
        return np.asarray(shards.sizes, dtype=np.int64), np.asarray(shards.indices, dtype=np.int64)
    if not isinstance(shards, Sequence | np.ndarray):
        raise InputError(f"shards must list the samples of each worker, not be of type {type(shards).__name__}.")
    order = [_indices(worker, shard) for worker, shard in enumerate(shards)]
    sizes = np.array([len(shard) for shard in order], dtype=np.int64)
    return sizes, np.concatenate(order) if order else sizes


def _indices(worker: int, shard: Any) -> Indices:
    """A worker's samples as whole numbers."""
    try:
        indices = np.asarray(shard)
    except (TypeError, ValueError, RuntimeError):
        indices = np.empty((0, 0))
    if indices.ndim != 1 or (len(indices) and indices.dtype.kind not in "iu"):
        raise InputError(
            f"shards must hold the indices of each worker's samples, but those of worker {worker} are no list of whole"
            " numbers; to give each worker's own inputs and targets, use federate(model, loss, shards)."
        )
    return indices.astype(np.int64, copy=False)


class ShardedData:
    """Inputs and targets of all workers, and where each worker's own are.

    Attributes:
        lazy: whether samples are read when they are needed; ``inputs`` and ``targets`` are then only a few of them.
        block: how many samples are passed over at once, if fewer than :data:`BLOCK`.
    """

    lazy = False
    block: int | None = None

    def __init__(self, inputs: torch.Tensor, targets: torch.Tensor, sizes: Indices, order: Indices) -> None:
        if not len(sizes) or sizes.min() <= 0:
            raise InputError("Every worker must have at least one sample; use fewer workers or another partition.")
        self.offsets: Indices = np.concatenate([[0], np.cumsum(sizes)])
        if self.offsets[-1] != len(order):
            raise InputError(f"The shards' sizes add up to {self.offsets[-1]}, but {len(order)} samples are listed.")
        if order.min() < 0 or order.max() >= len(inputs):
            raise InputError(f"shards must name samples 0 to {len(inputs) - 1}, not {order.min()} to {order.max()}.")
        self.inputs, self.targets = inputs, targets
        self.samples: torch.Tensor | None = torch.from_numpy(order.copy()).to(inputs.device)
        if len(order) == len(inputs) and np.bincount(order).max() == 1:
            # A partition is laid out worker by worker, so that a shard is a view.
            if not bool((order[:-1] < order[1:]).all()):
                self.inputs, self.targets = inputs[self.samples], targets[self.samples]
            self.samples = None

    @property
    def _block(self) -> int:
        return min(self.block or BLOCK, BLOCK)

    def sizes(self, workers: Indices) -> Indices:
        """How many samples each of the workers has."""
        sizes: Indices = self.offsets[workers + 1] - self.offsets[workers]
        return sizes

    def numbers(self, places: Indices) -> torch.Tensor:
        """The numbers of the samples at these places of the concatenated shards."""
        numbers = torch.from_numpy(places).to(self.inputs.device)
        return numbers if self.samples is None else self.samples[numbers]

    def inputs_of(self, numbers: torch.Tensor) -> torch.Tensor:
        """Inputs of the samples with these numbers, in the shape of the numbers."""
        # A quarter of the time of indexing with brackets.
        return self.inputs.index_select(0, numbers.reshape(-1)).view(*numbers.shape, *self.inputs.shape[1:])

    def targets_of(self, numbers: torch.Tensor) -> torch.Tensor:
        """Targets of the samples with these numbers, in the shape of the numbers."""
        return self.targets.index_select(0, numbers.reshape(-1)).view(*numbers.shape, *self.targets.shape[1:])

    def held(self, places: slice) -> Samples:
        """The samples at these places of the concatenated shards."""
        if self.samples is None:
            return self.inputs[places], self.targets[places]
        numbers = self.samples[places]
        return self.inputs_of(numbers), self.targets_of(numbers)

    def few(self) -> Samples:
        """A few samples from all over the data, two at least, to try a model on."""
        total = int(self.offsets[-1])
        chosen = self.numbers(np.linspace(0, total - 1, max(2, min(_FEW, total))).astype(np.int64))
        return self.inputs_of(chosen), self.targets_of(chosen)

    def shard(self, worker: int) -> Samples:
        """A worker's own samples."""
        return self.held(slice(*self.offsets[worker : worker + 2].tolist()))

    def part(self, sizes: Indices, places: Indices) -> ShardedData:
        """The same data with other shards: the samples at these places of the present ones, ``sizes`` per worker."""
        other = copy(self)
        other.offsets, other.samples = np.concatenate([[0], np.cumsum(sizes)]), self.numbers(places)
        return other

    def in_blocks(self, size: int) -> ShardedData:
        """The same data, of which so many samples are passed over at once."""
        other = copy(self)
        other.block = size
        return other

    def subset_sizes(self, size: int | float, workers: Indices) -> Indices:
        """How many samples :meth:`subset` takes of each of the workers, at least one."""
        sizes = self.sizes(workers)
        if isinstance(size, int) and not isinstance(size, bool):
            return np.minimum(sizes, count("size", size))
        if not (isinstance(size, float) and 0 < size <= 1):
            raise InputError(
                f"size must be a whole number of samples per worker, or a fraction of them above 0.0 and up to 1.0, not"
                f" {size!r}."
            )
        taken: Indices = np.maximum(np.rint(size * sizes), 1).astype(np.int64)
        return taken

    def subset(self, size: int | float, streams: Streams, round: int, copy: int, workers: Indices) -> ShardedData:
        """The same data with uniformly random parts of these workers' shards, drawn at (round, worker, copy)."""
        taken, sizes = self.subset_sizes(size, workers), self.sizes(workers)
        places = [
            first + streams.at(round, worker, copy).choice(held, wanted, replace=False)
            for worker, first, held, wanted in zip(
                workers.tolist(), self.offsets[workers].tolist(), sizes.tolist(), taken.tolist(), strict=True
            )
        ]
        return self.part(taken, np.concatenate(places))

    def every(self, number: int, first: int) -> ShardedData:
        """The same data with each worker's every ``number``-th sample, beginning with ``first``; at least one each."""
        sizes = np.diff(self.offsets)
        taken = np.maximum(sizes // number, 1)
        places = [
            begin + (first + number * np.arange(wanted)) % held
            for begin, held, wanted in zip(self.offsets[:-1].tolist(), sizes.tolist(), taken.tolist(), strict=True)
        ]
        return self.part(taken, np.concatenate(places))

    def firsts(self, number: int, workers: Indices) -> ShardedData:
        """The same data with the first ``number`` samples of each of these workers, or all where there are fewer."""
        taken = np.minimum(self.sizes(workers), number)
        places = [first + np.arange(size) for first, size in zip(self.offsets[workers], taken.tolist(), strict=True)]
        return self.part(taken, np.concatenate(places))

    def collating(self) -> tuple[Any, ...]:
        """The code by which samples become batches; data that are not read lazily have none."""
        return ()

    def update_digest(self, sha: Any) -> None:
        """Add all samples, and who has which of them, to a fingerprint."""
        for tensor in (self.inputs, self.targets, self.samples):
            if tensor is not None:
                # The array's own memory, not a copy of the data.
                sha.update(tensor.cpu().contiguous().numpy().data)

    def blocks(self, first: int, last: int) -> Iterator[Samples]:
        """The samples at places ``first`` to ``last``, a block at a time."""
        for begin in range(first, last, self._block):
            yield self.held(slice(begin, min(begin + self._block, last)))

    def stacked(self, workers: Indices) -> Samples | None:
        """The workers' whole shards as (workers, size, ...), where they are of one size and small enough together."""
        numbers = workers.tolist()
        sizes = set(self.sizes(workers).tolist())
        size = sizes.pop()
        if sizes or size * len(numbers) > self._block:
            return None
        if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
            first = int(self.offsets[numbers[0]])
            x, y = self.held(slice(first, first + size * len(numbers)))
            return x.view(-1, size, *x.shape[1:]), y.view(-1, size, *y.shape[1:])
        chosen = self.numbers(self.offsets[workers][:, None] + np.arange(size))
        return self.inputs_of(chosen), self.targets_of(chosen)


OnRows = Callable[[slice, torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]
"""Means over a batch of samples for these rows, from its inputs and targets of (rows, batch, ...)."""


def per_row(data: ShardedData, models: torch.Tensor, workers: Indices, compute: OnRows) -> tuple[torch.Tensor, ...]:
    """Means over the workers' whole shards, one row each."""
    stacked = data.stacked(workers)
    if stacked is not None:
        return compute(slice(None), *stacked)
    rows: tuple[torch.Tensor, ...] = ()
    for row, worker in enumerate(workers.tolist()):
        mean = _mean(data, slice(row, row + 1), compute, *data.offsets[worker : worker + 2].tolist())
        if not rows:
            # Losses stay in float64; vectors have the models' type.
            rows = tuple(
                part.new_empty(len(workers), *part.shape[1:], dtype=None if part.ndim == 1 else models.dtype)
                for part in mean
            )
        for into, part in zip(rows, mean, strict=True):
            into[row] = part[0]
    return rows


def _mean(data: ShardedData, row: slice, compute: OnRows, first: int, last: int) -> tuple[torch.Tensor, ...]:
    """Means over the samples at these places, for one row; several blocks are added up in float64."""
    totals: tuple[torch.Tensor, ...] = ()
    for x, y in data.blocks(first, last):
        value = compute(row, x.unsqueeze(0), y.unsqueeze(0))
        if len(x) == last - first:
            return value
        totals = totals or tuple(torch.zeros_like(part, dtype=torch.float64) for part in value)
        for total, part in zip(totals, value, strict=True):
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


_OF_FORWARD = 2**63
"""Added to the copy in the address of a worker's mini-batches, this gives that of what the model draws itself."""


class MiniBatches(NamedTuple):
    """Mini-batches, drawn uniformly with replacement, and looked up one row or all rows at a time.

    Attributes:
        data: the samples.
        mode: how the module is called in local steps.
        augment: changes the inputs of a mini-batch at random, if anything does.
    """

    data: ShardedData
    mode: Mode
    augment: Augment | None

    @property
    def apart(self) -> bool:
        """Whether rows are looked up one at a time, each just before its forward pass."""
        return self.mode.seeded or self.data.lazy

    def draws(
        self, batch_size: int, streams: Streams, round: int, workers: Indices, copies: Indices, steps: int
    ) -> Sequence[torch.Tensor]:
        """Numbers of the mini-batches' samples, one matrix of (rows, batch size) for each step.

        Where the model or the augmentation draws at random itself, a seed for it follows as one more column.
        """
        places = np.empty((len(workers), steps, batch_size), dtype=np.int64)
        sizes = self.data.sizes(workers).tolist()
        addresses = list(zip(workers.tolist(), copies.tolist(), strict=True))
        for row, (worker, again) in enumerate(addresses):
            places[row] = streams.at(round, worker, again).integers(sizes[row], size=places.shape[1:])
        places += self.data.offsets[workers][:, None, None]
        numbers = self.data.numbers(places)
        if self.mode.seeded:
            seeds = np.empty((len(workers), steps, 1), dtype=np.int64)
            for row, (worker, copy) in enumerate(addresses):
                seeds[row, :, 0] = streams.at(round, worker, copy + _OF_FORWARD).integers(2**63 - 1, size=steps)
            numbers = torch.cat([numbers, torch.from_numpy(seeds).to(numbers.device)], dim=2)
        return numbers.unbind(dim=1)

    def inputs(self, numbers: torch.Tensor) -> torch.Tensor:
        """The inputs of mini-batches; with a seed, those of one, for the forward pass that follows at once."""
        if not self.mode.seeded:
            return self.data.inputs_of(numbers)
        seed_generators(int(numbers[-1]), self.data.inputs.device)
        x = self.data.inputs_of(numbers[:-1])
        return x if self.augment is None else self.augment(x)

    def targets(self, numbers: torch.Tensor) -> torch.Tensor:
        """The targets of mini-batches."""
        return self.data.targets_of(numbers[:-1] if self.mode.seeded else numbers)
