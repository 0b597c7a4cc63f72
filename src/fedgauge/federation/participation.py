"""Who takes part in a round, and with what weight."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Self, get_args

import numpy as np

from fedgauge.base.errors import InputError, count, nearest
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.types import Floats
from fedgauge.federation.protocols import Indices
from fedgauge.values import Value

Sampling = Literal["full", "with-replacement", "with-replacement-shared", "without-replacement"]


class Cohort(NamedTuple):
    """The local runs of one round, in order of worker.

    Attributes:
        workers: which worker each run belongs to.
        copies: 0 for a worker's first run in the round, 1 for its second, and so on.
        weights: what each run's message counts for in the server's sum.
    """

    workers: Indices
    copies: Indices
    weights: Floats

    def chunks(self, size: int) -> Iterator[Cohort]:
        """Split into consecutive cohorts of at most ``size`` runs."""
        for first in range(0, len(self.workers), size):
            part = slice(first, first + size)
            yield Cohort(self.workers[part], self.copies[part], self.weights[part])


@dataclass(frozen=True)
class Participation(Value):
    """How participants are chosen, and how the objective weighs the workers.

    The objective is f = sum_i w_i F_i. A run of worker i counts N w_i / M, which makes every round's sum an unbiased
    estimate of the full one; with equal weights it is the plain average over the M participants.

    Attributes:
        sampling: ``full``: all workers. ``with-replacement``: M independent uniform draws, each with a local run of
            its own. ``with-replacement-shared``: the same draws, but a worker drawn twice runs once and counts
            twice. ``without-replacement``: M distinct workers, uniformly.
        participants: M; not with ``full``.
        weights: w_i, scaled to sum to one; equal if not given.

    >>> Participation("without-replacement", participants=2).cohort(num_workers=4, seed=0, round=0).weights
    array([0.5, 0.5])
    """

    sampling: Sampling = "full"
    participants: int | None = None
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.sampling not in get_args(Sampling):
            raise InputError(f"There is no sampling {self.sampling!r}; {nearest(self.sampling, get_args(Sampling))}")
        if self.sampling != "full" and self.participants is None:
            raise InputError(f"sampling {self.sampling} needs participants, the number M of workers in a round.")
        if self.participants is not None:
            count("participants", self.participants)
        if self.weights is not None:
            array = np.asarray(self.weights, dtype=float)
            with np.errstate(over="ignore"):
                total = float(array.sum())
            if not (np.isfinite(array).all() and (array >= 0).all() and total > 0):
                listed = ", ".join(f"{weight:g}" for weight in array)
                raise InputError(f"weights must be finite numbers of at least 0 that are not all 0, not {listed}.")
            if not np.isfinite(total):
                raise InputError("weights are too large to be added up; divide all of them by the largest.")
            object.__setattr__(self, "weights", tuple(array.tolist()))

    @classmethod
    def of(cls, given: Self | int | None, num_workers: int) -> Self:
        """A participation that fits this many workers; a number M means M draws with replacement, as it does elsewhere.

        >>> Participation.of(2, num_workers=4).sampling
        'with-replacement'
        """
        if given is None:
            return cls()
        if isinstance(given, cls):
            given.check(num_workers)
            return given
        if isinstance(given, bool) or not isinstance(given, numbers.Integral):
            raise InputError(f"participation must be a Participation or a number of participants, not {given!r}.")
        participants = count("participation", int(given))
        check_draws(participants, None, num_workers)
        return cls("with-replacement", participants)

    def check(self, num_workers: int) -> None:
        """Refuse what does not fit a federation of ``num_workers``."""
        M = self.participants
        if self.sampling == "full" and M not in (None, num_workers):
            raise InputError(
                f"participants = {M} contradicts full participation of {num_workers} workers; choose a sampling."
            )
        if self.sampling == "without-replacement" and M is not None and num_workers < M:
            raise InputError(f"participants must be at most the {num_workers} workers without replacement, not {M}.")
        if self.weights is not None and len(self.weights) != num_workers:
            raise InputError(f"weights must have one entry for each of {num_workers} workers, not {len(self.weights)}.")

    def num_participants(self, num_workers: int) -> int:
        """M; N where all take part."""
        return num_workers if self.sampling == "full" or self.participants is None else self.participants

    def objective(self, num_workers: int) -> Floats:
        """The weights w_i of f = sum_i w_i F_i."""
        if self.weights is None:
            return np.full(num_workers, 1.0 / num_workers)
        return self._scaled.copy()

    def effective_workers(self, num_workers: int) -> float:
        """1/sum w_i^2, by which a mean over workers reduces noise: N if weights are equal, otherwise less.

        >>> Participation(weights=(2.0, 1.0, 1.0)).effective_workers(3)
        2.6666666666666665
        """
        if self.shares is None:
            return float(num_workers)
        self.check(num_workers)
        return min(1 / float(np.sum(self._scaled**2)), float(num_workers))

    @property
    def shares(self) -> tuple[float, ...] | None:
        """The weights w_i, which sum to one; None where all workers have the same weight."""
        if self.weights is None or len(set(self.weights)) == 1:
            return None
        return tuple(self._scaled.tolist())

    def cohort(self, num_workers: int, seed: int, round: int) -> Cohort:
        """The participants of a round: the same for the same seed and round wherever it is computed."""
        self.check(num_workers)
        M = self.num_participants(num_workers)
        if self.sampling == "full":
            drawn = np.arange(num_workers)
        else:
            generator = Streams(seed, Purpose.SAMPLING).at(round)
            replace = self.sampling != "without-replacement"
            drawn = np.sort(generator.choice(num_workers, M, replace=replace))
        workers, first, times = np.unique(drawn, return_index=True, return_counts=True)
        if self.sampling == "with-replacement-shared":
            return Cohort(workers, np.zeros_like(workers), times * self._share(num_workers, workers))
        copies = np.arange(len(drawn)) - np.repeat(first, times)
        return Cohort(drawn, copies, self._share(num_workers, drawn))

    def _share(self, num_workers: int, workers: Indices) -> Floats:
        """N w_i / M of these workers, computed without the others."""
        scale = num_workers / self.num_participants(num_workers)
        if self.weights is None:
            return np.full(len(workers), scale * (1.0 / num_workers))
        share: Floats = scale * self._scaled[workers]
        return share

    @cached_property
    def _scaled(self) -> Floats:
        """The weights as an array that sums to one, made only once, as there may be a hundred thousand of them."""
        weights = np.array(self.weights)
        scaled: Floats = weights / weights.sum()
        return scaled


def check_draws(participants: int | None, sampling: str | None, num_workers: int) -> None:
    """Refuse more participants than workers, unless a sampling with replacement was chosen, which allows it."""
    if sampling is None and participants is not None and participants > num_workers:
        raise InputError(
            f"participants must be at most {num_workers}, the number of workers, not {participants}; to draw the same"
            " worker several times in a round, choose sampling='with-replacement' too."
        )
