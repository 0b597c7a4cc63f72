"""The paper's partition: X% of each worker's data from one label, the rest spread uniformly."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedgauge.base.errors import InputError, count
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.terminal import notify
from fedgauge.data.dataset import Labels
from fedgauge.data.partition import Indices, Partition, check, from_groups, group


def paper(
    labels: Labels,
    num_workers: int,
    *,
    percent: float | None = None,
    labels_per_worker: int = 1,
    per_worker: int | None = None,
    fill: bool | None = None,
    seed: int = 0,
) -> Partition:
    """X% of a worker's examples come from its own label, the rest from all labels; all workers have equally many.

    The paper says no more than that (section 6), so this is what it means here. With n examples per worker, by default
    floor(examples / N), and C labels that occur:

    1. Worker i's own labels are number i k, ..., i k + k - 1 modulo C, where k is ``labels_per_worker``: for k = 1,
       label i mod C. It draws n X / 100 of its n examples, rounded to the nearest, from them, evenly.
    2. The remaining examples are shuffled, and each worker takes from them what it still needs. Examples of its own
       labels may be among them, so with 10 equal labels and 10 workers at 50%, its label makes up about 55%.
    3. What is left after that, at most N - 1 examples unless ``per_worker`` is given, is dropped, so that all workers
       count equally and f is the plain average over the examples that the workers hold.

    Where labels have different numbers of examples (MNIST: 5,421 to 6,742), a worker may need more examples of its
    label than there are (100% of 6,000 fives). With ``fill`` it takes the missing ones from the other labels. Without
    it, the partition is refused with a list of remedies, unless the percentage is the default, which nobody chose: then
    it is filled up, and a message says so.

    Args:
        labels: the label of each example.
        num_workers: N; if it is a multiple of the number of labels, every label belongs to equally many workers.
        percent: X, from 0 to 100; 50 by default.
        labels_per_worker: k, how many labels of its own each worker has.
        per_worker: n, how many examples each worker gets.
        fill: let workers whose own label runs out share it evenly and take the rest from the other labels; by default
            only where ``percent`` is not given.
        seed: of the random draws.

    >>> labels = np.arange(1000) % 10
    >>> paper(labels, 10, percent=100.0).label_counts(labels).diagonal()
    array([100, 100, 100, 100, 100, 100, 100, 100, 100, 100])
    """
    labels = check(labels, num_workers)
    examples = group(labels)
    supply = np.array([len(part) for part in examples])
    fill_up = percent is None if fill is None else fill
    percent = _percent(50.0 if percent is None else percent)
    if count("labels_per_worker", labels_per_worker) > len(supply):
        raise InputError(
            f"labels_per_worker must be at most {len(supply)}, the number of labels, not {labels_per_worker}."
        )
    n = len(labels) // num_workers if per_worker is None else count("per_worker", per_worker)
    if n * num_workers > len(labels):
        raise InputError(
            f"per_worker must be at most {len(labels) // num_workers}, so that {num_workers} workers can share"
            f" {len(labels)} examples, not {n}."
        )
    own_labels, wanted, demand = _wanted(len(supply), num_workers, n, percent, labels_per_worker)
    if (demand > supply).any():
        if not fill_up:
            raise _impossible(np.unique(labels), supply, demand, num_workers, n, percent, labels_per_worker)
        if not fill:
            notify(
                f"Some labels have fewer examples than {percent:g}% of the {n} per worker, so workers take the missing"
                " ones from other labels (fill=True); a smaller percentage avoids it."
            )
        fill = True
    streams = Streams(seed, Purpose.PARTITION)
    parts: list[list[Indices]] = [[] for _ in range(num_workers)]
    left = []
    for label, pool in enumerate(examples):
        shuffled = streams.at(worker=label).permutation(pool)
        workers, places = np.nonzero(own_labels == label)
        ends = np.cumsum(wanted[workers, places])
        if demand[label] > supply[label]:
            # Each worker gets its part of what there is; rounding down gives nobody more than it wanted.
            ends = ends * supply[label] // demand[label]
        *taken, rest = np.split(shuffled, ends)
        for worker, part in zip(workers, taken, strict=True):
            parts[worker].append(part)
        left.append(rest)
    rest = streams.at(round=1).permutation(np.concatenate(left))
    needs = n - np.array([sum(map(len, held)) for held in parts])
    for held, part in zip(parts, np.split(rest, np.cumsum(needs))[:num_workers], strict=True):
        held.append(part)
    parameters: dict[str, Any] = {"percent": percent, "labels_per_worker": labels_per_worker, "per_worker": n}
    if fill:
        parameters["fill"] = True
    return from_groups("paper", parameters, seed, len(labels), [np.concatenate(held) for held in parts])


def _percent(given: float) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 100:
        raise InputError(f"percent must be a number from 0 to 100, not {given!r}.")
    return float(given)


def _wanted(num_labels: int, num_workers: int, n: int, percent: float, k: int) -> tuple[Indices, Indices, Indices]:
    """Each worker's own labels, how many examples of each it takes, and how many of each label all of them take."""
    own_labels = np.arange(num_workers * k).reshape(num_workers, -1) % num_labels
    total = int(np.floor(n * percent / 100 + 0.5))
    wanted = np.broadcast_to(total // k + (np.arange(k) < total % k), own_labels.shape).astype(np.int64)
    return own_labels, wanted, np.bincount(own_labels.ravel(), wanted.ravel(), minlength=num_labels).astype(np.int64)


def _fits(supply: Indices, num_workers: int, n: int, percent: float, k: int) -> bool:
    return bool((_wanted(len(supply), num_workers, n, percent, k)[2] <= supply).all())


def _impossible(
    names: Labels, supply: Indices, demand: Indices, num_workers: int, n: int, percent: float, k: int
) -> InputError:
    """Say which label has too few examples, and what would work."""
    worst = int(np.argmax(demand - supply))
    low, high = 0, n  # bisection for the largest number of examples per worker that fits
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(supply, num_workers, middle, percent, k) else (low, middle)
    ways = [f"fewer examples per worker (per_worker={low})"] if low else []
    more = next((m for m in range(k + 1, len(supply) + 1) if _fits(supply, num_workers, n, percent, m)), None)
    if more:
        ways.append(f"several labels per worker (labels_per_worker={more})")
    ways.append("coarser labels (divide_by='coarse', where the data set has them)")
    ways.append("let workers take the missing examples from other labels (fill=True)")
    return InputError(
        f"percent={percent:g} of {n} examples per worker needs {demand[worst]} examples of label {names[worst]}, which"
        f" has {supply[worst]}; use {', '.join(ways[:-1])}, or {ways[-1]}."
    )
