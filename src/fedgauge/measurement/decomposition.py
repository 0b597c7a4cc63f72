"""Where heterogeneity comes from: zeta_rms^2 and L_h^2, shared out exactly over workers and blocks of parameters.

Both are sums over workers and coordinates. With u the direction in which L_h is attained at the model,

    zeta_rms^2 = sum_i w_i |∇F_i - ∇f|^2,    L_h^2 = sum_i w_i |(H_i - H) u|^2,

so that what worker i and block b contribute is w_i times the squared norm of that block, and all contributions add up.

A worker stands out where its own distance |∇F_i - ∇f|, or |(H_i - H) u|, exceeds the median of all by more than
3 · 1.4826 · MAD, the median absolute deviation from that median; for normal values this is three standard deviations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedgauge.errors import InputError
from fedgauge.federation.protocols import HasModule, Rows
from fedgauge.measurement.divergence import find_outliers
from fedgauge.measurement.lanczos import largest
from fedgauge.measurement.passes import Meter
from fedgauge.randomness import Purpose, Streams
from fedgauge.symbols import symbol
from fedgauge.values import Value

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Parts(Value):
    """A constant's square, shared out.

    Attributes:
        symbol: of the constant, ``zeta_rms`` or ``L_h``.
        blocks: names of the blocks of parameters.
        weights: w_i of the workers.
        squares: squared norms, one row per worker and one column per block, not yet times w_i.

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
                f" blocks, not the shape {self.squares.shape}; give both alike."
            )

    @property
    def total(self) -> float:
        """The constant's square."""
        return float((self.weights @ self.squares).sum())

    @property
    def shares(self) -> Floats:
        """The part of the total that each worker and block contributes; zero where the total is."""
        parts: Floats = self.weights[:, None] * self.squares
        return parts / parts.sum() if parts.any() else parts

    @property
    def by_block(self) -> Floats:
        """Each block's part of the total."""
        return np.asarray(self.shares.sum(axis=0))

    @property
    def by_worker(self) -> Floats:
        """Each worker's part of the total."""
        return np.asarray(self.shares.sum(axis=1))

    @property
    def distances(self) -> Floats:
        """Each worker's own distance, whatever its weight."""
        return np.asarray(np.sqrt(self.squares.sum(axis=1)))

    @property
    def threshold(self) -> float:
        """The distance beyond which a worker stands out."""
        return find_outliers(self.distances)[0]

    @property
    def outliers(self) -> tuple[int, ...]:
        """The workers that stand out, the farthest first."""
        far = np.flatnonzero(self.distances > self.threshold)
        return tuple(far[np.argsort(-self.distances[far], kind="stable")].tolist())

    def to_json(self) -> dict[str, Any]:
        """Return the parts as an object, with what follows from them."""
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
        kept = {name: data[name] for name in ("symbol", "blocks", "weights", "squares") if name in data}
        return super().from_json(kept)


@dataclass(frozen=True, eq=False)
class Decomposition(Value):
    """Where zeta_rms and L_h come from at one model.

    Attributes:
        parts: of each constant.
        method: how the direction of L_h was found.
    """

    parts: tuple[Parts, ...]
    method: str

    def __getitem__(self, name: str) -> Parts:
        for part in self.parts:
            if part.symbol == name:
                return part
        raise InputError(f"{name} was not decomposed; choose one of {', '.join(part.symbol for part in self.parts)}.")


def blocks(federation: Rows) -> list[tuple[str, int]]:
    """The blocks of a federation's parameters, each with where it starts: a module's named parameters, or one block.

    >>> from fedgauge import random_quadratics
    >>> blocks(random_quadratics(2, 3))
    [('model', 0)]
    """
    if not isinstance(federation, HasModule):
        return [("model", 0)]
    named = federation.unflatten(torch.arange(federation.dim))
    return [(name, int(part.reshape(-1)[0])) for name, part in named.items() if part.numel()]


def decompose(
    meter: Meter, model: torch.Tensor, direction: npt.NDArray[np.float64] | None = None, tolerance: float | None = None
) -> Decomposition:
    """Share zeta_rms^2 and L_h^2 at a model out over workers and blocks of parameters.

    Args:
        meter: the workers.
        model: the flat model.
        direction: the one in which L_h is attained, ``directions["L_h"]`` of a curvature reading; found if not given,
            which takes most of the time.
        tolerance: of that search, as for :func:`fedgauge.measurement.curvature.curvature`.

    >>> from fedgauge import random_quadratics
    >>> federation = random_quadratics(4, 3, hessian_spread=0.5)
    >>> with Meter(federation) as meter:
    ...     found = decompose(meter, federation.start(0))["L_h"]
    >>> abs(found.total**0.5 - federation.constants()["L_h"].value) < 1e-9
    True
    """
    method = "given"
    if direction is None:
        direction, method = _worst(meter, model, tolerance), "Lanczos"
    if direction.shape != (len(model),) or not np.isfinite(direction).all() or not direction.any():
        raise InputError(
            f"direction must be {len(model)} finite numbers, not all 0; take directions['L_h'] of a curvature reading."
        )
    names, starts = zip(*blocks(meter.federation), strict=True)
    _, gradient = meter.evaluate(model)
    zeta = _parts(meter, "zeta_rms", names, meter.ask("gradient passes", 1, "gradient_parts", model, gradient, starts))
    along = torch.from_numpy(direction / np.linalg.norm(direction)).to(model)
    centre = meter.hessian(model, along)
    found = meter.ask("Hessian passes", 1, "hessian_parts", model, along, centre, starts)
    return Decomposition((zeta, _parts(meter, "L_h", names, found)), method)


def _worst(meter: Meter, model: torch.Tensor, tolerance: float | None) -> Floats:
    """The direction in which L_h is attained."""
    if tolerance is None:
        tolerance = 1e-9 if model.dtype == torch.float64 else 1e-3

    def product(vector: Floats) -> Floats:
        answer: Floats = meter.squared_deviation(model, torch.from_numpy(vector).to(model)).cpu().numpy()
        return answer

    # Addressed as curvature addresses it, so that both find the same direction.
    generator = Streams(meter.seed, Purpose.MEASURE).at(round=2)
    return largest(product, len(model), tolerance, generator, positive=True).vector


def _parts(meter: Meter, name: str, names: Sequence[str], answers: Sequence[tuple[Any, Floats]]) -> Parts:
    squares = np.empty((meter.federation.num_workers, len(names)))
    for workers, found in answers:
        squares[workers] = found
    return Parts(name, tuple(names), meter.shares, squares)
