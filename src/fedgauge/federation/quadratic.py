"""Federations of quadratics, where every constant of the theory is known exactly.

F_i(x) = x'A_i x / 2 + b_i'x + c_i, and a stochastic gradient is A_i x + b_i plus Gaussian noise of total variance
sigma^2, the same in every direction.

The numbers are kept in numpy, so that constants and exact expectations need no torch; the operations on rows give
torch views of the same memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedgauge.base.codec import json_text
from fedgauge.base.errors import InputError, nearest, non_negative
from fedgauge.base.files import read_json_input, write_atomically
from fedgauge.base.randomness import Streams
from fedgauge.base.types import Floats
from fedgauge.federation.enclosures import curvature_constants, divergence, gap_constants
from fedgauge.federation.protocols import Indices
from fedgauge.values import Constants, Scope

if TYPE_CHECKING:
    import torch


_FILE_KEYS = ("hessians", "linear", "constant", "sigma2", "start")
_ROUNDING = 1e-12
"""An eigenvalue below this fraction of the largest one counts as zero."""


_LARGEST = 1e150
"""Beyond this size of a number, squares and products overflow."""


def _all_numbers(data: Any) -> bool:
    """Whether nested lists hold numbers only: JSON's true and "1" would pass for numbers in an array."""
    if isinstance(data, list | tuple):
        return all(map(_all_numbers, data))
    return not isinstance(data, bool | str)


def _array(name: str, data: Any, ndim: int, shape: str) -> Floats:
    try:
        array = np.array(data, dtype=np.float64, order="C") if _all_numbers(data) else None
    except (TypeError, ValueError, OverflowError):
        array = None
    if array is None:
        raise InputError(f"{name} must be a {shape} of numbers, with rows of equal length.")
    if array.ndim != ndim:
        raise InputError(f"{name} must be a {shape} of numbers, not of shape {array.shape}.")
    wrong = array[~(np.abs(array) <= _LARGEST)]
    if wrong.size:
        raise InputError(f"{name} must hold finite numbers of at most {_LARGEST:g} in size, not {wrong.flat[0]:g}.")
    return array


def _mean(rows: Floats) -> Floats:
    """The mean over the first axis; exactly the common row where all rows are equal."""
    first = rows[0]
    mean: Floats = first + (rows - first).mean(axis=0)
    return mean


def varphi(kappa: float) -> float:
    """Growth of one local step at the largest admissible rate (Theorem A.2).

    >>> varphi(0.3), varphi(1.5)
    (1.0, 1.5)
    """
    return max(1.0, kappa)


class QuadraticFederation:
    """A federation of quadratics with additive gradient noise.

    Args:
        hessians: A_i, of shape (N, d, d), each symmetric.
        linear: b_i, of shape (N, d).
        constant: c_i, of shape (N,); zero if not given.
        sigma2: total variance of the noise in a stochastic gradient.
        start: the first global model; zero if not given.

    >>> federation = QuadraticFederation([[[1.0]], [[3.0]]], [[0.0], [2.0]])
    >>> round(federation.constants()["L_h"].value, 12)
    1.0
    """

    def __init__(
        self, hessians: Any, linear: Any, constant: Any = None, sigma2: float = 0.0, start: Any = None
    ) -> None:
        self.hessians = _array("hessians", hessians, 3, "list of matrices")
        num_workers, rows, columns = self.hessians.shape
        if num_workers == 0 or rows == 0:
            raise InputError("hessians must hold at least one worker's matrix of at least one row, not none.")
        if rows != columns:
            raise InputError(f"hessians must be square, not of {rows} rows and {columns} columns.")
        self.linear = _array("linear", linear, 2, "list of vectors")
        self.constant = _array("constant", np.zeros(num_workers) if constant is None else constant, 1, "list")
        for name, shape, wanted in (
            ("linear", self.linear.shape, (num_workers, rows)),
            ("constant", self.constant.shape, (num_workers,)),
        ):
            if shape != wanted:
                raise InputError(f"{name} must have shape {wanted} to fit the hessians, not {shape}.")
        skew = np.abs(self.hessians - self.hessians.swapaxes(1, 2)).max(axis=(1, 2))
        # Matrices computed as products are symmetric to rounding only; more than that is a mistake.
        bad = np.flatnonzero(skew > 1e-9 * np.abs(self.hessians).max(axis=(1, 2)))
        if bad.size:
            raise InputError(f"Each hessian must be symmetric, but that of worker {bad[0]} is not; use (A + A')/2.")
        # In row-major order, on which the products below take a sixth of the time of any other.
        self.hessians = np.ascontiguousarray(self.hessians + self.hessians.swapaxes(1, 2)) / 2
        self.sigma2 = non_negative("sigma2", sigma2)
        self._start = None if start is None else _array("start", start, 1, "list")
        if self._start is not None and self._start.shape != (rows,):
            raise InputError(f"start must have {rows} entries to fit the hessians, not {self._start.size}.")
        self._selected: tuple[bytes, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] | None = None

    processes: int | None = 1
    """A round takes less time than handing it to other processes."""

    def chunk(self, participants: int) -> int:
        """A number whose Hessians fit the caches for the dimensions of interest."""
        return 32

    # -- where federations come from ---------------------------------------------------------------------------

    @classmethod
    def least_squares(
        cls, designs: Any, targets: Any, scale: float = 1.0, sigma2: float = 0.0, start: Any = None
    ) -> Self:
        """Make F_i(x) = (scale/2) ‖U_i x - v_i‖^2 from designs U_i (N, n, d) and targets v_i (N, n).

        >>> QuadraticFederation.least_squares([[[2.0]]], [[6.0]]).minimiser()
        (array([3.]), 0.0)
        """
        U, v = _array("designs", designs, 3, "list of matrices"), _array("targets", targets, 2, "list of vectors")
        if v.shape != U.shape[:2]:
            raise InputError(f"targets must have shape {U.shape[:2]} to fit the designs, not {v.shape}.")
        gram = scale * np.einsum("nki,nkj->nij", U, U)
        return cls(
            hessians=(gram + gram.swapaxes(1, 2)) / 2,
            linear=-scale * np.einsum("nki,nk->ni", U, v),
            constant=scale / 2 * np.einsum("nk,nk->n", v, v),
            sigma2=sigma2,
            start=start,
        )

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a federation from the JSON file that :meth:`write` makes."""
        return cls.from_json(read_json_input(path, "a JSON file that describes a federation"), str(path))

    @classmethod
    def from_json(cls, data: Any, where: str = "The federation") -> Self:
        """Make a federation from what :meth:`to_json` returned."""
        if not isinstance(data, Mapping):
            entries, kind = ", ".join(_FILE_KEYS), type(data).__name__
            raise InputError(f"{where} must hold a JSON object with the entries {entries}, not a {kind}.")
        for key in data:
            if key not in _FILE_KEYS:
                raise InputError(f"{where} has an unknown entry {key!r}; {nearest(key, _FILE_KEYS)}")
        for key in ("hessians", "linear"):
            if key not in data:
                raise InputError(f"{where} needs the entry {key!r}.")
        return cls(
            data["hessians"],
            data["linear"],
            data.get("constant"),
            data.get("sigma2", 0.0),
            data.get("start"),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the federation as the object that its JSON file holds."""
        data: dict[str, Any] = {
            "hessians": self.hessians.tolist(),
            "linear": self.linear.tolist(),
            "constant": self.constant.tolist(),
            "sigma2": self.sigma2,
        }
        if self._start is not None:
            data["start"] = self._start.tolist()
        return data

    def write(self, path: str | Path) -> None:
        """Write the federation to a JSON file, exactly: every float is read back bit for bit."""
        write_atomically(Path(path), json_text(self.to_json()).encode())

    # -- what is known exactly ---------------------------------------------------------------------------------

    @property
    def num_workers(self) -> int:
        """N."""
        return len(self.hessians)

    @property
    def dim(self) -> int:
        """The dimension d."""
        return int(self.hessians.shape[1])

    @cached_property
    def mean_hessian(self) -> Floats:
        """A, the Hessian of f."""
        return _mean(self.hessians)

    @cached_property
    def mean_linear(self) -> Floats:
        """b, the linear part of f."""
        return _mean(self.linear)

    @cached_property
    def mean_constant(self) -> float:
        """c, the constant part of f."""
        return float(_mean(self.constant[:, None])[0])

    def minimiser(self) -> tuple[Floats | None, float]:
        """x* (the shortest one, where there are many) and f*; ``None`` and -inf where f has no least value."""
        values, vectors = np.linalg.eigh(self.mean_hessian)
        b = vectors.T @ self.mean_linear
        floor = _ROUNDING * np.abs(values).max()
        flat = np.abs(values) <= floor
        if (values < -floor).any() or (np.abs(b[flat]) > _ROUNDING * np.abs(b).max(initial=0.0)).any():
            return None, -np.inf
        coordinates = np.where(flat, 0.0, -b / np.where(flat, 1.0, values))
        # Adding 0.0 turns a negative zero into zero.
        return vectors @ coordinates + 0.0, float(self.mean_constant + b @ coordinates / 2)

    def constants(self) -> Constants:
        """The constants of the theory, each exact to rounding: its interval holds the truth, its value is the safe end.

        L_h is the tight one; ``L_h_paper`` is Proposition 5.3's max‖A_i - A‖, which is valid, is never smaller, and
        can exceed L_tilde. mu is the smallest eigenvalue of A, negative where f is not convex, and 0 where it is zero
        to rounding: a flat direction that rounding made to rise would pass for strong convexity.
        """
        return Constants(tuple(curvature_constants(self, _ROUNDING))).within(Scope(self.digest))

    def constants_at(self, start: Any = None) -> Constants:
        """What depends on the first model, by default the federation's own: f*, F, d0 and zeta.

        f* does not depend on it, but F is known only together with f*; zeta does unless the Hessians are equal.

        >>> federation = QuadraticFederation([[[1.0]], [[3.0]]], [[0.0], [2.0]], start=[0.0])
        >>> {name: round(estimate.value, 6) for name, estimate in federation.constants_at().items()}
        {'zeta': 1.0, 'f_star': -0.25, 'F': 0.25, 'd0': 0.25}
        """
        first = self.first_model if start is None else _array("start", start, 1, "list")
        digest = hashlib.sha256(first.tobytes()).hexdigest()
        estimates = (divergence(self, first), *gap_constants(self, first))
        return Constants(estimates).within(Scope(self.digest, digest))

    def zeta(self, points: Any) -> Floats:
        """‖∇F_i(x) - ∇f(x)‖ for every worker i (columns) at every given point x (rows).

        Its largest entry is the zeta of the paper's assumption on those points; over all of R^d it is finite only
        where the Hessians agree.
        """
        x = np.atleast_2d(_array("points", np.atleast_2d(points), 2, "list of vectors"))
        if x.shape[1] != self.dim:
            raise InputError(f"points must have {self.dim} entries each, not {x.shape[1]}.")
        off = np.einsum("nij,pj->pni", self.hessians - self.mean_hessian, x) + (self.linear - self.mean_linear)
        distances: Floats = np.linalg.norm(off, axis=-1)
        return distances

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the numbers that define the federation."""
        parts = (self.hessians, self.linear, self.constant, np.float64(self.sigma2), self.first_model)
        return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()

    # -- operations on rows ------------------------------------------------------------------------------------

    @property
    def first_model(self) -> Floats:
        """The first global model: as given, or zero."""
        return np.zeros(self.dim) if self._start is None else self._start

    def start(self, seed: int = 0) -> torch.Tensor:
        """The first global model, the same for every seed."""
        import torch

        return torch.tensor(self.first_model)

    @cached_property
    def _tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        import torch

        return torch.tensor(self.hessians), torch.tensor(self.linear), torch.tensor(self.constant)

    def _select(self, workers: Indices) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A_i, b_i, c_i of the named workers; a view where they are neighbours, else a copy kept for the next call.

        A round asks for the same workers at every step, and gathering their Hessians costs more than a product.
        """
        key = workers.tobytes()
        if self._selected is None or self._selected[0] != key:
            first, last = int(workers[0]), int(workers[-1])
            neighbours = last - first + 1 == len(workers) and bool((np.diff(workers) == 1).all())
            A, b, c = self._tensors
            chosen = slice(first, last + 1) if neighbours else workers
            self._selected = (key, (A[chosen], b[chosen], c[chosen]))
        return self._selected[1]

    def losses(self, models: torch.Tensor, workers: Indices) -> torch.Tensor:
        """F_i(x_i), one number per row."""
        return self.evaluate(models, workers)[0]

    def gradients(self, models: torch.Tensor, workers: Indices) -> torch.Tensor:
        """A_i x_i + b_i, one row each."""
        import torch

        A, b, _ = self._select(workers)
        # Row times matrix: the Hessians are symmetric, and this order is four times as fast as matrix times column.
        return torch.baddbmm(b.unsqueeze(1), models.unsqueeze(1), A).squeeze(1)

    def evaluate(self, models: torch.Tensor, workers: Indices) -> tuple[torch.Tensor, torch.Tensor]:
        """Losses and gradients from one product."""
        _, b, c = self._select(workers)
        gradients = self.gradients(models, workers)
        return ((gradients + b) * models).sum(dim=1) / 2 + c, gradients

    def pooled(self, model: torch.Tensor, workers: Indices, weights: Floats) -> tuple[float, torch.Tensor]:
        """Weighted sums of the workers' losses and gradients at one model."""
        import torch

        shares = torch.from_numpy(weights)
        losses, gradients = self.evaluate(model.expand(len(workers), -1), workers)
        return float(shares @ losses), shares @ gradients

    def draws(self, streams: Streams, round: int, workers: Indices, copies: Indices, steps: int) -> Sequence[Any]:
        """Noise vectors of variance sigma^2, one tensor of rows for each step."""
        if self.sigma2 == 0:
            return [None] * steps
        import torch

        noise = np.empty((len(workers), steps, self.dim))
        for row, worker, copy in zip(noise, workers.tolist(), copies.tolist(), strict=True):
            streams.at(round, worker, copy).standard_normal(out=row)
        noise *= (self.sigma2 / self.dim) ** 0.5
        return torch.from_numpy(noise).unbind(dim=1)

    def stochastic_gradients(self, models: torch.Tensor, workers: Indices, draws: Any) -> torch.Tensor:
        """A_i x_i + b_i + noise, one row each."""
        gradients = self.gradients(models, workers)
        return gradients if draws is None else gradients + draws

    def local_sgd(self, models: torch.Tensor, workers: Indices, draws: Sequence[Any], gamma: float) -> torch.Tensor:
        """The models after a step of SGD for each draw."""
        for draw in draws:
            models = models.sub(self.stochastic_gradients(models, workers, draw), alpha=gamma)
        return models

    def hessian_products(self, models: torch.Tensor, vectors: torch.Tensor, workers: Indices) -> torch.Tensor:
        """A_i v_i, one row each, whatever the models are."""
        import torch

        return torch.bmm(vectors.unsqueeze(1), self._select(workers)[0]).squeeze(1)

    def pooled_hessian(
        self, model: torch.Tensor, vector: torch.Tensor, workers: Indices, weights: Floats
    ) -> torch.Tensor:
        """Weighted sum of the workers' A_i v, whatever the model is."""
        import torch

        rows = (len(workers), -1)
        return torch.from_numpy(weights) @ self.hessian_products(model.expand(rows), vector.expand(rows), workers)
