"""How far each worker's label distribution is from that of the federation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedgauge.base.errors import InputError
from fedgauge.base.types import Floats
from fedgauge.data.dataset import Labels
from fedgauge.data.partition import Partition
from fedgauge.federation.participation import Participation


def jensen_shannon(rows: Floats, whole: Floats) -> Floats:
    """The Jensen-Shannon distance of each row from ``whole``.

    >>> jensen_shannon(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([0.5, 0.5])).round(3)
    array([0.558, 0.   ])
    """
    from scipy.spatial.distance import jensenshannon

    distances: Floats = np.atleast_1d(jensenshannon(rows, np.broadcast_to(whole, rows.shape), base=2, axis=1))
    # Rounding can make the divergence of equal distributions negative; its square root is then NaN.
    return np.nan_to_num(distances, nan=0.0)


def hellinger(rows: Floats, whole: Floats) -> Floats:
    """The Hellinger distance of each row from ``whole``.

    >>> hellinger(np.array([[1.0, 0.0]]), np.array([0.0, 1.0]))
    array([1.])
    """
    distances: Floats = np.linalg.norm(np.sqrt(rows) - np.sqrt(whole), axis=1) / np.sqrt(2.0)
    return distances


def earth_mover(rows: Floats, whole: Floats) -> Floats:
    """The earth mover's distance of each row from ``whole``, where every move costs 1.

    >>> earth_mover(np.array([[1.0, 0.0]]), np.array([0.5, 0.5]))
    array([0.5])
    """
    distances: Floats = np.abs(rows - whole).sum(axis=1) / 2
    return distances


DISTANCES: Mapping[str, Callable[[Floats, Floats], Floats]] = {
    "label_js": jensen_shannon,
    "label_hellinger": hellinger,
    "label_emd": earth_mover,
}


def label_distances(
    partition: Partition, labels: Labels, weights: Sequence[float] | None = None
) -> dict[str, tuple[Floats, float, float]]:
    """Measure how far each worker's label distribution is from that of the federation.

    Args:
        partition: which worker has which examples.
        labels: the labels of all examples.
        weights: the weights w_i of the workers; equal by default.

    Returns:
        For each of :data:`DISTANCES`, the workers' distances, their weighted mean and the largest of them.

    >>> apart = Partition("iid", {}, 0, 4, [2, 2], [0, 1, 2, 3])
    >>> label_distances(apart, np.array([0, 0, 1, 1]))["label_emd"]
    (array([0.5, 0.5]), 0.5, 0.5)
    """
    counts = partition.label_counts(labels).astype(np.float64)
    sizes = counts.sum(axis=1, keepdims=True)
    if (sizes == 0).any():
        empty = int(np.flatnonzero(sizes[:, 0] == 0)[0])
        raise InputError(f"Worker {empty} has no examples and so no label distribution; use fewer workers.")
    rows = counts / sizes
    shares_given = None if weights is None else tuple(float(weight) for weight in weights)
    participation = Participation(weights=shares_given)
    participation.check(partition.num_workers)
    shares = participation.objective(partition.num_workers)
    whole = shares @ rows
    distances = {}
    for name, distance in DISTANCES.items():
        each = distance(rows, whole)
        distances[name] = (each, float(shares @ each), float(each.max()))
    return distances
