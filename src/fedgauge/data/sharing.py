"""What all schemes share: checking the input, grouping examples by label, and making the partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauge.data.dataset import Labels
from fedgauge.data.partition import Indices, Partition
from fedgauge.errors import InputError, count


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
