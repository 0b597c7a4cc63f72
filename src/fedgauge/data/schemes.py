"""How examples are divided among workers; each scheme is a function of labels, a number of workers and a seed.

Every scheme gives disjoint sets, and the same seed gives the same sets. ``paper`` leaves out what does not divide
evenly; the others give every example to a worker.
"""

from __future__ import annotations

import heapq
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fedgauge.base.errors import InputError, count, nearest, positive
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.data.dataset import Dataset, Labels, check_dataset
from fedgauge.data.mixture import paper
from fedgauge.data.partition import Indices, Partition, check, from_groups, group
from fedgauge.data.similarity import similar

GROUPINGS = ("random", "similar")
"""How the scheme ``id`` deals ids to fewer workers."""
_BY_NUMBER = ("iid", "quantity")
"""The schemes for which only the number of examples matters."""

# Beyond this, the parts of a Dirichlet draw differ by far less than one example.
_LARGEST_ALPHA = 1e15


def iid(labels: Labels, num_workers: int, *, seed: int = 0) -> Partition:
    """Shuffle the examples and cut them into equal parts, whose sizes differ by at most one.

    >>> iid(np.zeros(10, int), 3).sizes
    array([4, 3, 3])
    """
    labels = check(labels, num_workers)
    order = Streams(seed, Purpose.PARTITION).at().permutation(len(labels))
    return from_groups("iid", {}, seed, len(labels), np.array_split(order, num_workers))


def dirichlet(labels: Labels, num_workers: int, *, alpha: float = 0.5, least: int = 1, seed: int = 0) -> Partition:
    """Divide the examples of each label by a Dirichlet(alpha, ..., alpha) draw over workers (Yurochkin et al. 2019).

    A small alpha gives each label to few workers. There is one draw per label and never a second one: a worker with
    fewer than ``least`` examples receives random ones from whichever worker has the most, so that the scheme ends for
    every alpha and N.

    Args:
        labels: the label of each example.
        num_workers: N.
        alpha: above 0; it may be as small or large as a float allows.
        least: minimum number of examples per worker; 0 allows workers without any.
        seed: of the random draws.

    >>> int(dirichlet(np.arange(1000) % 10, 50, alpha=1e-300).sizes.min())
    1
    """
    labels = check(labels, num_workers, least)
    alpha = positive("alpha", alpha)
    streams = Streams(seed, Purpose.PARTITION)
    owners = np.empty(len(labels), np.int64)
    for number, examples in enumerate(group(labels)):
        generator = streams.at(worker=number)
        parts = _dirichlet(alpha, num_workers, generator)
        owners[generator.permutation(examples)] = np.repeat(np.arange(num_workers), _cut(parts, len(examples)))
    groups = _raise(group(owners, num_workers), least, streams.at(round=1))
    return from_groups("dirichlet", {"alpha": alpha, "least": least}, seed, len(labels), groups)


def quantity(labels: Labels, num_workers: int, *, alpha: float = 1.0, least: int = 1, seed: int = 0) -> Partition:
    """Shuffle, then cut into parts whose sizes are a Dirichlet(alpha, ..., alpha) draw: same data, different sizes.

    Args:
        labels: the label of each example; only their number matters.
        num_workers: N.
        alpha: above 0; a small alpha gives a few workers nearly everything.
        least: minimum number of examples per worker; 0 allows workers without any.
        seed: of the random draws.

    >>> len(quantity(np.zeros(100, int), 4, alpha=1.0).indices)
    100
    """
    labels = check(labels, num_workers, least)
    alpha = positive("alpha", alpha)
    generator = Streams(seed, Purpose.PARTITION).at()
    order = generator.permutation(len(labels))
    sizes = _cut(_dirichlet(alpha, num_workers, generator), len(labels))
    groups = _raise(np.split(order, np.cumsum(sizes)[:-1]), least, generator)
    return from_groups("quantity", {"alpha": alpha, "least": least}, seed, len(labels), groups)


def shards(labels: Labels, num_workers: int, *, shards: int = 2, seed: int = 0) -> Partition:
    """Sort by label, cut into N times ``shards`` pieces and deal each worker that many at random (McMahan et al. 2017).

    Pieces differ in size by at most one example. Within a label the order is shuffled first.

    >>> labels = np.arange(100) % 10
    >>> shards(labels, 10, shards=1).label_counts(labels).max(axis=1)
    array([10, 10, 10, 10, 10, 10, 10, 10, 10, 10])
    """
    labels = check(labels, num_workers)
    pieces = num_workers * count("shards", shards)
    if pieces > len(labels):
        raise InputError(
            f"{num_workers} workers with {shards} shards each need {pieces} examples, not {len(labels)};"
            " use fewer workers or shards."
        )
    streams = Streams(seed, Purpose.PARTITION)
    shuffled = streams.at().permutation(len(labels))
    cut = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], pieces)
    dealt = streams.at(round=1).permutation(pieces).reshape(num_workers, shards)
    groups = [np.concatenate([cut[piece] for piece in row]) for row in dealt]
    return from_groups("shards", {"shards": shards}, seed, len(labels), groups)


def by_id(labels: Labels, num_workers: int | None = None, *, grouping: str = "random", seed: int = 0) -> Partition:
    """Give each worker the examples of one id, such as the digits of one writer, in the order of the ids.

    With ``num_workers``, the ids are dealt at random to that many workers, as evenly as possible. With the grouping
    ``similar``, those with similar data share a worker, as :mod:`fedgauge.data.similarity` says; that takes the data,
    and so :func:`make_partition`.

    >>> by_id(np.array([7, 9, 7, 7])).sizes
    array([3, 1])
    """
    labels = check(labels, 1)
    groups = group(labels)
    if num_workers is not None:
        if count("workers", num_workers) > len(groups):
            raise InputError(f"workers must be at most {len(groups)}, the number of different ids, not {num_workers}.")
        order = Streams(seed, Purpose.PARTITION).at().permutation(len(groups))
        groups = [np.concatenate([groups[i] for i in part]) for part in np.array_split(order, num_workers)]
    return from_groups("id", {} if grouping == "random" else {"grouping": grouping}, seed, len(labels), groups)


SCHEMES: Mapping[str, Callable[..., Partition]] = {
    "paper": paper,
    "iid": iid,
    "dirichlet": dirichlet,
    "shards": shards,
    "quantity": quantity,
    "id": by_id,
}


def parameters_of(scheme: str) -> list[str]:
    """The parameters of a scheme other than the labels, the number of workers and the seed.

    >>> parameters_of("dirichlet")
    ['alpha', 'least']
    """
    if scheme not in SCHEMES:
        raise InputError(f"There is no scheme {scheme!r}; {nearest(scheme, SCHEMES)}")
    names = inspect.signature(SCHEMES[scheme]).parameters
    return [name for name in names if name not in ("labels", "num_workers", "seed")]


def make_partition(
    dataset: Dataset,
    scheme: str = "paper",
    num_workers: int | None = None,
    *,
    divide_by: str | None = None,
    seed: int = 0,
    **parameters: Any,
) -> Partition:
    """Divide the training examples of a data set among workers.

    Args:
        dataset: the data set.
        scheme: one of :data:`SCHEMES`.
        num_workers: N; the scheme ``id`` may do without it, and then has one worker per id.
        divide_by: the name of the data set's ``ids`` to use instead of its labels, such as ``coarse`` or ``writer``.
        seed: of the random draws.
        parameters: the parameters of the scheme.

    >>> from fedgauge.data.loader import load_dataset
    >>> make_partition(load_dataset("digits"), "paper", 10, percent=50.0).sizes
    array([143, 143, 143, 143, 143, 143, 143, 143, 143, 143])
    """
    check_dataset(dataset)
    if divide_by is not None and not isinstance(divide_by, str):
        raise InputError(
            f"divide_by must be the name of one of the data set's ids, such as 'writer', not"
            f" {type(divide_by).__name__}; to divide by an array, put it into the ids of the Dataset."
        )
    allowed = parameters_of(scheme)
    for name in parameters:
        if name not in allowed:
            takes = ", ".join(allowed) or "none"
            raise InputError(f"The scheme {scheme} has no parameter {name} (it takes: {takes}); leave it out.")
    if num_workers is None and scheme != "id":
        raise InputError(f"The scheme {scheme} needs the number of workers; give a whole number of at least 1.")
    if scheme == "id" and divide_by is None:
        if len(dataset.ids) != 1 and dataset.usual_id is None:
            known = ", ".join(dataset.ids) or "none"
            raise InputError(
                f"The scheme id needs divide_by, the name of the ids to divide by; {dataset.name} has: {known} (qmnist"
                " has writer)."
            )
        divide_by = dataset.usual_id or next(iter(dataset.ids))
    by_number = divide_by is None and scheme in _BY_NUMBER
    labels = dataset.counted()[0] if by_number else dataset.labels_by(divide_by)
    if parameters.get("grouping", "random") not in GROUPINGS:
        raise InputError(
            f"There is no grouping {parameters['grouping']!r}; {nearest(parameters['grouping'], GROUPINGS)}"
        )
    if "grouping" in parameters and num_workers is None:
        raise InputError("grouping says how ids share workers, so it needs their number; give workers or leave it out.")
    if parameters.get("grouping") == "similar":
        made = replace(by_id(similar(dataset, labels, cast("int", num_workers))), parameters=parameters)
    else:
        made = SCHEMES[scheme](labels, num_workers, seed=seed, **parameters)
    by = {} if divide_by is None else {"divide_by": divide_by}
    return Partition(scheme, {**by, **made.parameters}, seed, made.num_examples, made.sizes, made.indices)


def _dirichlet(alpha: float, length: int, generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """One draw from the symmetric Dirichlet distribution, for every alpha above 0.

    A Gamma(alpha) variable is Gamma(alpha + 1) U^(1/alpha); kept as logarithms relative to the largest U, it cannot
    become 0 everywhere, however small alpha is.
    """
    alpha = min(alpha, _LARGEST_ALPHA)
    exponential = generator.standard_exponential(length)  # -log U
    with np.errstate(over="ignore"):
        logs = np.log(generator.standard_gamma(alpha + 1.0, length)) - (exponential - exponential.min()) / alpha
    parts = np.exp(logs - logs.max())
    scaled: npt.NDArray[np.float64] = parts / parts.sum()
    return scaled


def _cut(parts: npt.NDArray[np.float64], total: int) -> Indices:
    """Whole numbers that add up to ``total`` and are nearest to its parts, cumulatively."""
    ends = np.rint(np.cumsum(parts) * total).astype(np.int64)
    ends[-1] = total
    return np.diff(np.minimum(ends, total), prepend=0)


def _raise(groups: Sequence[Indices], least: int, generator: np.random.Generator) -> list[Indices]:
    """Give groups below ``least`` random examples of whichever group is the largest at the time."""
    held = [generator.permutation(group).tolist() for group in groups]
    donors = [(-len(examples), worker) for worker, examples in enumerate(held)]
    heapq.heapify(donors)
    for examples in held:
        while len(examples) < least:
            size, donor = heapq.heappop(donors)
            if -size == len(held[donor]):
                examples.append(held[donor].pop())
            heapq.heappush(donors, (-len(held[donor]), donor))
    return [np.array(examples, np.int64) for examples in held]
