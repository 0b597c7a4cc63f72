"""A partition: which training examples each worker holds, and what all ways to make one share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fedgauge.base.errors import InputError, count
from fedgauge.base.files import read_json_input, write_atomically
from fedgauge.base.randomness import check_seed
from fedgauge.data.dataset import MOST_CLASSES, Labels
from fedgauge.values import Value
from fedgauge.values.display import Displayed

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Partition(Value, Displayed):
    """Disjoint sets of examples, one per worker, as one array of indices and the size of each set.

    Attributes:
        scheme: how it was made, one of :data:`fedgauge.data.schemes.SCHEMES`.
        parameters: the parameters of the scheme.
        seed: the seed of its random draws.
        num_examples: how many examples there are to divide.
        sizes: how many examples each worker has.
        indices: the examples of worker 0, then those of worker 1, and so on.

    >>> halves = Partition("iid", {}, 0, 5, [2, 2], [0, 3, 1, 4])
    >>> halves.worker(1), halves.dropped
    (array([1, 4]), 1)
    >>> Partition.from_json(halves.to_json()) == halves
    True
    """

    scheme: str
    parameters: Mapping[str, Any]
    seed: int
    num_examples: int
    sizes: Indices
    indices: Indices

    def __post_init__(self) -> None:
        count("num_examples", self.num_examples)
        check_seed(self.seed)
        for name in ("sizes", "indices"):
            object.__setattr__(self, name, _whole(name, getattr(self, name)))
        if len(self.sizes) == 0 or self.sizes.min() < 0 or self.sizes.sum() != len(self.indices):
            raise InputError(
                f"sizes must be numbers of at least 0, one per worker, that add up to the {len(self.indices)} indices,"
                f" not to {self.sizes.sum()}; read the partition from an unchanged file."
            )
        if len(self.indices) and not 0 <= self.indices.min() <= self.indices.max() < self.num_examples:
            raise InputError(
                f"indices must lie in 0 to {self.num_examples - 1}, not in {self.indices.min()} to"
                f" {self.indices.max()}; make the partition from the data set that it is for."
            )
        times = np.bincount(self.indices, minlength=self.num_examples)
        if times.max() > 1:
            raise InputError(f"indices must differ, and {times.argmax()} occurs {times.max()} times; keep one of them.")

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Make the partition from what :meth:`to_json` returned."""
        try:
            return super().from_json(data)
        except InputError:
            raise
        except (TypeError, ValueError):
            raise InputError(
                "sizes and indices of a partition must each be a list of whole numbers; write the file again."
            ) from None

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a partition from a JSON file."""
        what = "a file that 'fedgauge data partition NAME --out FILE' wrote"
        return cls.from_json(read_json_input(path, what))

    def write(self, path: str | Path) -> None:
        """Write the partition to a JSON file, whole or not at all."""
        write_atomically(Path(path), (json.dumps(self.to_json()) + "\n").encode())

    def __eq__(self, other: object) -> bool:
        """Compare everything."""
        return (
            isinstance(other, Partition)
            and (self.scheme, self.parameters, self.seed, self.num_examples)
            == (other.scheme, other.parameters, other.seed, other.num_examples)
            and np.array_equal(self.sizes, other.sizes)
            and np.array_equal(self.indices, other.indices)
        )

    def __hash__(self) -> int:
        return hash((self.scheme, self.seed, self.num_examples, self.indices.tobytes()))

    @property
    def num_workers(self) -> int:
        """N."""
        return len(self.sizes)

    @property
    def dropped(self) -> int:
        """The number of examples that no worker has."""
        return self.num_examples - len(self.indices)

    @property
    def weights(self) -> tuple[float, ...]:
        """Each worker's fraction of the examples: with these weights, f is the average over all examples."""
        return tuple((self.sizes / self.sizes.sum()).tolist())

    @cached_property
    def _ends(self) -> Indices:
        return np.cumsum(self.sizes)

    def worker(self, number: int) -> Indices:
        """The examples of a worker; in increasing order if a scheme made the partition."""
        if not 0 <= number < self.num_workers:
            raise InputError(f"worker must lie in 0 to {self.num_workers - 1}, not {number}.")
        end = int(self._ends[number])
        return self.indices[end - int(self.sizes[number]) : end]

    def label_counts(self, labels: Labels, num_classes: int | None = None) -> Indices:
        """How many examples of each label each worker has: one row per worker, one column per label.

        >>> Partition("iid", {}, 0, 4, [2, 2], [0, 1, 2, 3]).label_counts(np.array([0, 0, 0, 1]))
        array([[2, 0],
               [1, 1]])
        """
        if len(labels) != self.num_examples:
            raise InputError(
                f"labels must have one entry for each of the {self.num_examples} examples, not {len(labels)}."
            )
        classes = max(int(labels.max()) + 1, num_classes or 0)
        if classes > MOST_CLASSES:
            raise InputError(
                f"labels must be below {MOST_CLASSES:,} to be counted, not {classes - 1}; number them 0, 1, ..."
            )
        owners = np.repeat(np.arange(self.num_workers), self.sizes)
        cells = np.bincount(owners * classes + labels[self.indices], minlength=self.num_workers * classes)
        return cells.reshape(self.num_workers, classes)


def _whole(name: str, given: npt.ArrayLike) -> Indices:
    array = np.asarray(given)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.number)):
        raise InputError(f"{name} must be a list of whole numbers, not {array.dtype} of shape {array.shape}.")
    whole = array.astype(np.int64)
    if (whole != array).any():
        raise InputError(f"{name} must be whole numbers, not {array[whole != array][0]!r}.")
    whole.flags.writeable = False
    return whole


def check(labels: npt.ArrayLike, num_workers: int, least: int = 1) -> Labels:
    """Return the labels if they can be divided among this many workers with at least ``least`` examples each."""
    given = np.asarray(labels)
    if given.ndim != 1 or not given.size or not np.issubdtype(given.dtype, np.integer) or given.min() < 0:
        raise InputError(
            f"labels must be whole numbers of at least 0, one per example, not {given.dtype} of shape {given.shape};"
            " number the classes 0, 1, ..."
        )
    count("workers", num_workers)
    count("least", least, 0)
    if num_workers > len(given) and least > 0:
        raise InputError(f"workers must be at most {len(given)}, the number of examples, not {num_workers}.")
    if num_workers * least > len(given):
        raise InputError(
            f"{num_workers} workers with at least {least} examples each need {num_workers * least}, and there are"
            f" {len(given)}; use fewer workers or a smaller least."
        )
    return given.astype(np.int64)


def group(labels: Labels, num_groups: int | None = None) -> list[Indices]:
    """The examples of each label that occurs, in order; or those of each label below ``num_groups``.

    >>> [part.tolist() for part in group(np.array([5, 2, 5]))]
    [[1], [0, 2]]
    >>> [part.tolist() for part in group(np.array([0, 2]), 3)]
    [[0], [], [1]]
    """
    if num_groups is None:
        labels = np.unique(labels, return_inverse=True)[1]
        num_groups = int(labels.max()) + 1
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.cumsum(np.bincount(labels, minlength=num_groups))[:-1])


def from_groups(
    scheme: str, parameters: Mapping[str, Any], seed: int, num_examples: int, groups: Sequence[Indices]
) -> Partition:
    """Make the partition that gives group i to worker i, each in increasing order."""
    sizes = np.array([len(examples) for examples in groups], np.int64)
    indices = np.concatenate([np.sort(examples) for examples in groups])
    return Partition(scheme, parameters, seed, num_examples, sizes, indices)
