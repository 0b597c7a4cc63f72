"""The losses of a run, as the live gauge holds them: no more than a few hundred, however long the run is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedgauge.algorithms.live.fit import LEFT_OUT, Observations

MOST = 512
"""The most records that are held; when there are more, every other one of a block is dropped."""
_LEAST = 2
"""Records of a candidate from which its efficiency can be told."""


@dataclass
class Records:
    """Losses, with the local steps that were taken under each candidate before them.

    Attributes:
        taken: the local steps before each record, one number a candidate.
        under: the place of the candidate of the round before it.
        losses: f at the averaged model.
    """

    taken: list[list[float]] = field(default_factory=list)
    under: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def add(self, taken: Sequence[float], under: int, loss: float) -> None:
        """Add a record."""
        self.taken.append(list(taken))
        self.under.append(under)
        self.losses.append(loss)
        if len(self.losses) > MOST:
            self._thin()

    def widen(self) -> None:
        """Make room for one more candidate, of which nothing was taken yet."""
        for row in self.taken:
            row.append(0.0)

    def _thin(self) -> None:
        """Drop every other record, but none that ends a block."""
        last = len(self.under) - 1
        kept = [k for k in range(last + 1) if k % 2 or k == last or self.under[k] != self.under[k + 1]]
        self.taken, self.under = [self.taken[k] for k in kept], [self.under[k] for k in kept]
        self.losses = [self.losses[k] for k in kept]

    def columns(self) -> list[int]:
        """The candidates whose efficiency the records tell: the fit leaves the first records of a run out."""
        begin = LEFT_OUT * sum(self.taken[-1]) if self.taken else 0.0
        late = Counter(under for under, taken in zip(self.under, self.taken, strict=True) if sum(taken) >= begin)
        return sorted(under for under, number in late.items() if number >= _LEAST)

    def observations(self) -> Observations:
        """The records of these candidates; steps under others, all early, count as if under the smallest of them."""
        columns = self.columns()
        kept = [k for k, under in enumerate(self.under) if under in columns]
        taken = np.array([self.taken[k] for k in kept]).reshape(len(kept), -1)
        chosen = taken[:, columns]
        chosen[:, 0] += taken.sum(axis=1) - chosen.sum(axis=1)
        under = np.searchsorted(columns, [self.under[k] for k in kept])
        return Observations(chosen, under, np.array([self.losses[k] for k in kept]))

    def part(self, begin: float, end: float) -> Observations:
        """The records of a part of the run, as if it began there."""
        seen = self.observations()
        inside = (seen.times > begin) & (seen.times <= end)
        before = np.flatnonzero(seen.times <= begin)
        start = seen.taken[before[-1]] if len(before) else np.zeros(seen.taken.shape[1])
        return Observations(seen.taken[inside] - start, seen.under[inside], seen.losses[inside])
