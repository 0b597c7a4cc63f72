"""Which ids have similar data: groups of ids, such as roles of a play, for as many workers.

Each id has a profile. With tokens, it is how often each pair of neighbours occurs, or each token where there are more
than a hundred; with classes, how often each class does; otherwise it is the mean input. Frequencies are mixed with
those of all ids in the proportion of one example, so that ids with little data are near the middle, and their roots are
taken, whose distance is Hellinger's.

All ids are one group at first. Groups are halved along the direction in which their profiles differ most, as in Boley's
"Principal Direction Divisive Partitioning" (1998), but about where both sides have their part of the examples, so that
workers have as much data each as whole ids allow, give or take a little where a gap is wider.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedgauge.base.errors import InputError, count
from fedgauge.base.types import Array
from fedgauge.data.dataset import Dataset, Labels

_TURNS = 50
"""Steps of the power iteration that finds a direction."""
_PAIRED = 100
"""With more tokens than this, pairs of them would be too many to count."""
_SLACK = 0.05
"""How much farther from its part of the examples a group may be cut, for a wider gap."""
_DIGITS = 9
"""Places along a direction are rounded to so many digits, so that their order is the same on every machine."""


def similar(dataset: Dataset, ids: Labels, num_workers: int) -> Labels:
    """The number of the worker that has each example, where workers have the examples of similar ids.

    >>> x, writer = np.repeat([[0.0], [9.0], [0.1], [9.1]], 3, axis=0), np.repeat([4, 5, 6, 7], 3)
    >>> similar(Dataset("tiny", x, x[:, 0], x[:0], x[:0, 0]), writer, 2).tolist()
    [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]
    """
    values, numbers = np.unique(ids, return_inverse=True)
    if count("workers", num_workers) > len(values):
        raise InputError(f"workers must be at most {len(values)}, the number of different ids, not {num_workers}.")
    sizes = np.bincount(numbers).astype(np.float64)
    profiles = _profiles(dataset, numbers, sizes)
    groups = sorted(_halved(profiles, sizes, np.arange(len(values)), num_workers), key=min)
    worker = np.empty(len(values), np.int64)
    for number, group in enumerate(groups):
        worker[group] = number
    return worker[numbers]


def _profiles(dataset: Dataset, numbers: Labels, sizes: npt.NDArray[np.float64]) -> Array:
    """One row for each id."""
    x, N = dataset.train_inputs, len(sizes)
    if not dataset.has_labels and (x.ndim != 2 or x.dtype.kind not in "iu" or x.dtype == np.uint8):
        sums = np.zeros((N, int(np.prod(x.shape[1:]))))
        np.add.at(sums, numbers, x.reshape(len(x), -1))
        means: Array = sums / sizes[:, None]
        return means
    if dataset.has_labels:
        cells, kinds, each = dataset.train_labels[:, None], dataset.num_classes, 1
    elif (tokens := int(x.max()) + 1) > _PAIRED:
        cells, kinds, each = x.astype(np.int64), tokens, x.shape[1]
    else:
        cells, kinds, each = x[:, :-1].astype(np.int64) * tokens + x[:, 1:], tokens**2, max(x.shape[1] - 1, 1)
    counts = np.zeros((N, kinds))
    np.add.at(counts, (numbers[:, None], cells), 1.0 / each)
    roots: Array = np.sqrt((counts + counts.sum(axis=0) / sizes.sum()) / (sizes[:, None] + 1.0))
    return roots


def _halved(profiles: Array, sizes: npt.NDArray[np.float64], ids: Labels, parts: int) -> list[Labels]:
    """The ids in so many groups."""
    if parts == 1:
        return [ids]
    places = _places(profiles[ids], sizes[ids])
    sorting = np.argsort(places, kind="stable")
    order, places, first = ids[sorting], places[sorting], parts // 2
    shares = np.cumsum(sizes[order]) / sizes[order].sum()
    cuts = np.arange(first, len(order) - (parts - first) + 1)  # every worker has an id
    away = np.abs(shares[cuts - 1] - first / parts)
    cuts = cuts[away <= away.min() + _SLACK]
    cut = int(cuts[np.argmax(places[cuts] - places[cuts - 1])])
    halves = ((order[:cut], first), (order[cut:], parts - first))
    return [group for half, number in halves for group in _halved(profiles, sizes, np.sort(half), number)]


def _places(profiles: Array, sizes: npt.NDArray[np.float64]) -> Array:
    """Where profiles lie along the direction in which they differ most, those with more examples counting more."""
    weights = sizes / sizes.sum()
    centred = profiles - (weights[:, None] * profiles).sum(axis=0)
    direction = centred[np.argmax(weights * (centred**2).sum(axis=1))]
    for _ in range(_TURNS):
        direction = (weights * (centred * direction).sum(axis=1)) @ centred
        length = np.sqrt((direction**2).sum())
        if length == 0.0:
            break
        direction = direction / length
    places: Array = np.round((centred * direction).sum(axis=1), _DIGITS)
    return places
