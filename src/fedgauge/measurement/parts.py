"""The values of a decomposition: a constant's square, divided among workers and blocks of parameters.

A worker is an outlier if its own distance |∇F_i - ∇f|, or |(H_i - H) u|, exceeds the median of all workers by more than
3 · 1.4826 · MAD, where MAD is the median absolute deviation from that median. For normally distributed values, this is
three standard deviations.

These values do not need torch, so that a report can read them without loading it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauge.base.errors import InputError
from fedgauge.base.symbols import symbol
from fedgauge.base.types import Floats
from fedgauge.values import Value
from fedgauge.values.display import Displayed

OUTLIERS = "distance above median + 3 * 1.4826 * MAD of all workers' distances"


def find_outliers(distances: Floats) -> tuple[float, list[int]]:
    """The limit of the rule :data:`OUTLIERS`, and the workers beyond it.

    >>> find_outliers(np.array([1.0, 1.1, 0.9, 1.0, 5.0]))[1]
    [4]
    """
    median = float(np.median(distances))
    spread = 1.4826 * float(np.median(np.abs(distances - median)))
    # If most workers are equal, the spread is 0, and rounding must not turn them into outliers.
    limit = median + 3 * spread + 1e-6 * median
    return limit, np.flatnonzero(distances > limit).tolist()


@dataclass(frozen=True, eq=False)
class Parts(Value):
    """A constant's square, divided among workers and blocks of parameters.

    Attributes:
        symbol: the symbol of the constant, ``zeta_rms`` or ``L_h``.
        blocks: the names of the blocks of parameters.
        weights: the weights w_i of the workers.
        squares: the squared norms, with one row per worker and one column per block, before the weights are applied.

    >>> parts = Parts("zeta_rms", ("weight", "bias"), np.full(2, 0.5), np.array([[3.0, 1.0], [0.0, 0.0]]))
    >>> parts.total, parts.by_block, parts.by_worker
    (2.0, array([0.75, 0.25]), array([1., 0.]))
    """

    symbol: str
    blocks: tuple[str, ...]
    weights: Floats
    squares: Floats

    def __post_init__(self) -> None:
        symbol(self.symbol)
        expected = (len(self.weights), len(self.blocks))
        if self.squares.shape != expected:
            raise InputError(
                f"squares must have a row for each of {expected[0]} workers and a column for each of {expected[1]}"
                f" blocks, not the shape {self.squares.shape}; pass matching weights, blocks and squares."
            )

    @property
    def total(self) -> float:
        """The constant's square."""
        return float((self.weights @ self.squares).sum())

    @property
    def shares(self) -> Floats:
        """The fraction of the total that each worker and block contributes; zero if the total is zero."""
        parts: Floats = self.weights[:, None] * self.squares
        return parts / parts.sum() if parts.any() else parts

    @property
    def by_block(self) -> Floats:
        """Each block's fraction of the total."""
        return np.asarray(self.shares.sum(axis=0))

    @property
    def by_worker(self) -> Floats:
        """Each worker's fraction of the total."""
        return np.asarray(self.shares.sum(axis=1))

    @property
    def distances(self) -> Floats:
        """Each worker's own distance, whatever its weight."""
        return np.asarray(np.sqrt(self.squares.sum(axis=1)))

    @property
    def threshold(self) -> float:
        """The distance beyond which a worker is an outlier."""
        return find_outliers(self.distances)[0]

    @property
    def outliers(self) -> tuple[int, ...]:
        """The workers that are outliers, the farthest first."""
        far = np.flatnonzero(self.distances > self.threshold)
        return tuple(far[np.argsort(-self.distances[far], kind="stable")].tolist())

    def to_json(self) -> dict[str, Any]:
        """Return the parts as an object, together with the values derived from them."""
        return {
            **super().to_json(),
            "total": self.total,
            "by_block": self.by_block.tolist(),
            "by_worker": self.by_worker.tolist(),
            "threshold": self.threshold,
            "outliers": list(self.outliers),
        }

    @classmethod
    def from_json(cls, data: Any) -> Parts:
        """Make the parts from what :meth:`to_json` returned."""
        if not isinstance(data, Mapping):
            return super().from_json(data)
        kept = {name: data[name] for name in ("symbol", "blocks", "weights", "squares") if name in data}
        return super().from_json(kept)


@dataclass(frozen=True, eq=False)
class Decomposition(Value, Displayed):
    """Where zeta_rms and L_h come from at one model.

    Attributes:
        parts: the parts of each constant.
        method: how the direction of L_h was found.
    """

    parts: tuple[Parts, ...]
    method: str

    def __getitem__(self, name: str) -> Parts:
        for part in self.parts:
            if part.symbol == name:
                return part
        raise InputError(f"{name} was not decomposed; choose one of {', '.join(part.symbol for part in self.parts)}.")
