"""Samples that are read when they are needed: one torch data set per worker, of which only a block is in memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from fedgauge.base.errors import InputError
from fedgauge.federation.shards import Samples, ShardedData

_LOOKED_AT = 64
"""The largest number of workers whose samples are part of the fingerprint of lazily read data."""


class LazySource(NamedTuple):
    """A worker's data set, and how its items become a batch."""

    items: Any
    collate: Callable[[list[Any]], Any]


def is_source(value: Any) -> bool:
    """Whether something is data to be read lazily: a data set, a loader of one, or a function that makes either."""
    if isinstance(value, tuple | list | str | torch.Tensor | np.ndarray):
        return False
    return isinstance(value, DataLoader) or callable(value) or hasattr(value, "__getitem__")


def _opened(worker: int, given: Any, batch_size: int | None) -> LazySource:
    """A worker's data set, made if it was given as a function that makes it, and checked."""
    made = given() if callable(given) and not hasattr(given, "__getitem__") else given
    collate: Callable[[list[Any]], Any] = default_collate
    if isinstance(made, DataLoader):
        if batch_size is not None and made.batch_size not in (None, batch_size):
            raise InputError(
                f"The DataLoader of worker {worker} has batches of {made.batch_size}, but batch_size is {batch_size};"
                f" give batch_size={made.batch_size}: fedgauge draws the batches itself, so that runs can be repeated."
            )
        # Without a batch size of its own, a loader's collate function converts single items.
        collate = made.collate_fn if made.batch_size is not None else default_collate
        made = made.dataset
    if isinstance(made, IterableDataset) or not (hasattr(made, "__len__") and hasattr(made, "__getitem__")):
        raise InputError(
            f"Worker {worker} needs a data set with a length and numbered items, so that any mini-batch can be drawn"
            f" again, not a {type(made).__name__}; give a map-style torch Dataset."
        )
    return LazySource(made, collate)


def shape_of(shard: Any) -> tuple[int, ...]:
    """The shape of one input of a worker's data: of a pair of arrays, or of the first item of a data set."""
    if not is_source(shard):
        return tuple(shard[0].shape[1:])
    items, collate = _opened(0, shard, None)
    return tuple(collate([items[0]])[0].shape[1:])


class LazyData(ShardedData):
    """The data sets of all workers, read a mini-batch or a block at a time.

    A function that makes a data set is called in every process that reads it, so that open files need not be sent.

    Args:
        sources: one per worker: a map-style torch Dataset of (input, target), a DataLoader over one, or a function
            without arguments that makes either. Of a loader, the data set and the collate function are used.
        number: the type that fractions take.
        batch_size: what the loaders' batch size has to be.
        device: where to put the samples.
    """

    lazy = True

    def __init__(self, sources: Sequence[Any], number: torch.dtype, batch_size: int, device: str = "cpu") -> None:
        if not sources:
            raise InputError("shards must hold one data set per worker, but is empty.")
        self._sources, self._number, self._device = list(sources), number, torch.device(device)
        self._open: dict[int, LazySource] = {}
        self._reader = os.getpid()
        sizes = [len(self._source(worker, batch_size).items) for worker in range(len(self._sources))]
        if min(sizes) < 1:
            raise InputError(f"Worker {int(np.argmin(sizes))} has no samples; every worker must have at least one.")
        self.offsets = np.concatenate([[0], np.cumsum(np.array(sizes, dtype=np.int64))])
        self.samples = None
        self._last: tuple[torch.Tensor, torch.Tensor] | None = None
        self._begins = np.asarray(self.offsets)
        self.inputs, self.targets = self.few()
        self._last = None
        for name, before, now in zip(("inputs", "targets"), (self.inputs, self.targets), self.few(), strict=True):
            if not torch.allclose(before, now, rtol=0.0, atol=0.0, equal_nan=True):
                raise InputError(
                    f"The {name} of a data set differ from one reading to the next, so that its loss cannot be"
                    " measured; leave random transforms out, and pass them as augment, which only local steps use."
                )

    def __getstate__(self) -> dict[str, Any]:
        """Other processes open what a function makes themselves."""
        return {**self.__dict__, "_open": {}, "_last": None}

    def _source(self, worker: int, batch_size: int | None = None) -> LazySource:
        if self._reader != os.getpid():
            # A forked process must not share open files with the one that it was forked from.
            self._open, self._reader = {}, os.getpid()
        if worker not in self._open:
            self._open[worker] = _opened(worker, self._sources[worker], batch_size)
        return self._open[worker]

    def _read(self, numbers: torch.Tensor) -> Samples:
        """The samples with these numbers, which are those of their places in the concatenated shards."""
        places = numbers.cpu().numpy()
        workers = np.searchsorted(self._begins, places, side="right") - 1
        chosen = [
            self._source(worker).items[place - int(self._begins[worker])]
            for worker, place in zip(workers.tolist(), places.tolist(), strict=True)
        ]
        batch = self._batch(int(workers[0]), chosen)
        if not (isinstance(batch, tuple | list) and len(batch) == 2 and all(map(torch.is_tensor, batch))):
            raise InputError(
                f"An item of a data set must be a pair (input, target) of tensors or numbers, not {_form(chosen[0])};"
                " wrap the data set, or give its DataLoader a collate_fn."
            )
        x, y = (part.to(self._number) if part.is_floating_point() else part for part in batch)
        pair = x.to(self._device), (y if y.is_floating_point() else y.to(torch.int64)).to(self._device)
        if x.is_floating_point() and not bool(torch.isfinite(pair[0]).all()):
            raise InputError(
                f"inputs must be finite, but among samples of worker {int(workers[0])} there is NaN or infinity; clean"
                " the data."
            )
        return pair

    def _batch(self, worker: int, chosen: list[Any]) -> Any:
        source = self._source(worker)
        try:
            return source.collate(chosen)
        except (RuntimeError, TypeError, ValueError, KeyError) as error:
            reason = str(error).split("\n")[0].rstrip(".")
            raise InputError(
                f"Items of the data set of worker {worker} do not fit into one batch ({reason}); give its DataLoader a"
                " collate_fn, for example one that pads them to one length."
            ) from None

    def numbers(self, places: Any) -> torch.Tensor:
        """The numbers of the samples at these places of the concatenated shards."""
        numbers = torch.from_numpy(places)
        return numbers if self.samples is None else self.samples[numbers]

    def inputs_of(self, numbers: torch.Tensor) -> torch.Tensor:
        """Inputs of the samples with these numbers."""
        inputs, targets = self._read(numbers)
        self._last = numbers, targets
        return inputs

    def targets_of(self, numbers: torch.Tensor) -> torch.Tensor:
        """Targets of the samples with these numbers, which are mostly looked up right after their inputs."""
        last = self._last
        return last[1] if last is not None and torch.equal(last[0], numbers) else self._read(numbers)[1]

    def held(self, places: slice) -> Samples:
        """The samples at these places of the concatenated shards."""
        return self._read(self.numbers(np.arange(places.start, places.stop)))

    def stacked(self, workers: Any) -> Samples | None:
        """Nothing: batches may differ in shape, so that every worker's samples are read for themselves."""
        return None

    def collating(self) -> tuple[Any, ...]:
        """The workers' collate functions and the classes of their data sets, each once."""
        sources = [self._source(worker) for worker in _spread(len(self._sources))]
        return tuple(dict.fromkeys(part for items, collate in sources for part in (collate, type(items))))

    def update_digest(self, sha: Any) -> None:
        """Add the workers' sizes, and the first, middle and last sample of at most 64 of them, to a fingerprint."""
        for worker in _spread(len(self.offsets) - 1):
            first, last = int(self.offsets[worker]), int(self.offsets[worker + 1]) - 1
            for place in dict.fromkeys((first, (first + last) // 2, last)):
                for part in self._read(self.numbers(np.array([place]))):
                    sha.update(hashlib.sha256(part.cpu().contiguous().numpy().data).digest())


def _spread(workers: int) -> list[int]:
    """A few workers from the first to the last, or all."""
    return list(dict.fromkeys(np.linspace(0, workers - 1, min(workers, _LOOKED_AT)).astype(np.int64).tolist()))


def _form(item: Any) -> str:
    if isinstance(item, tuple | list):
        return f"({', '.join(type(part).__name__ for part in item)})"
    return f"a {type(item).__name__}"
