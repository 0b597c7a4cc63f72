"""Exact passes over the workers of a federation: distributed over processes, counted, and stopped when time is up.

An estimator calls a method of :class:`Passes`, which gets a lane of workers and returns sums, so that memory does not
grow with the number of workers. :class:`Meter` runs the method on every lane and adds up the results.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch

from fedgauge.base.errors import InputError, positive
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.threads import one_thread
from fedgauge.base.types import Floats
from fedgauge.federation.participation import Cohort, Participation
from fedgauge.federation.protocols import Federation, HasCurvature, HasSamples, Indices, curvature_of
from fedgauge.measurement.lanczos import Ritz, keep_worst, largest
from fedgauge.simulation.engines.local import Engine, Method, make_engine, map_lanes
from fedgauge.simulation.options import HERE, Compute
from fedgauge.simulation.workers import Lane, LaneWork, Remembering, is_large, lanes, total

_ROWS_BYTES = 2**27
"""The bytes of rows, one per worker, that may be kept until their mean is known; beyond it they are computed twice."""


class OutOfBudgetError(Exception):
    """The seconds or passes that were allowed are used up; the message says which."""


def why_ended(reason: BaseException) -> str:
    """Why measuring ended early, in words."""
    return "the budget is used up" if isinstance(reason, OutOfBudgetError) else "measuring was interrupted"


class Distances(NamedTuple):
    """Squared distances of workers' gradients from a common vector, and their squared norms, one per worker."""

    workers: list[int]
    squares: list[float]
    norms: list[float]


class Passes(LaneWork):
    """The computations that a lane of workers can do, one chunk of rows at a time."""

    def __init__(self, federation: Federation, chunk: int, seed: int) -> None:
        super().__init__(federation, chunk)
        self.seed = seed

    @property
    def curved(self) -> HasCurvature:
        """The federation's products with Hessians; an error is raised if it has none."""
        return curvature_of(self.federation)

    def distances(self, lane: Lane, model: torch.Tensor, centre: torch.Tensor) -> Distances:
        """How far each worker's gradient at the model is from ``centre``."""
        distances = Distances([], [], [])
        for (workers, _, _), _ in lane.chunks(self.chunk):
            slopes = self.federation.gradients(model.expand(len(workers), -1), workers).double()
            distances.workers.extend(workers.tolist())
            distances.squares.extend((slopes - centre).square().sum(dim=1).tolist())
            distances.norms.extend(slopes.square().sum(dim=1).tolist())
        return distances

    def displaced(self, lane: Lane, model: torch.Tensor) -> torch.Tensor:
        """Weighted sum of the workers' gradients, each at the model plus its own row of the lane's memory."""
        gradient = _zeros(model)
        for (workers, _, weights), rows in lane.chunks(self.chunk):
            slopes = self.federation.gradients(model + rows["rows"].to(model.dtype), workers)
            gradient += torch.from_numpy(weights).to(model.device) @ slopes.double()
        return gradient

    def hessian(self, lane: Lane, model: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        """Weighted sum of the workers' Hessians times one vector."""
        product = _zeros(model)
        for (workers, _, weights), _ in lane.chunks(self.chunk):
            product += self.curved.pooled_hessian(model, vector, workers, weights)
        return product

    def products(self, lane: Lane, model: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        """Each worker's Hessian times one vector, one row per worker."""
        products = [
            self._times(model, vector.expand(len(part.workers), -1), part.workers)
            for part, _ in lane.chunks(self.chunk)
        ]
        return torch.cat(products)

    def contract(self, lane: Lane, model: torch.Tensor) -> torch.Tensor:
        """Weighted sum of each worker's Hessian times its own row of the lane's memory."""
        total = _zeros(model)
        for (workers, _, weights), rows in lane.chunks(self.chunk):
            total += torch.from_numpy(weights).to(model.device) @ self._times(model, rows["rows"], workers).double()
        return total

    def deviate(self, lane: Lane, model: torch.Tensor, vector: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        """Weighted sum of H_i (H_i v - ``mean``), with both products in one go, so that no rows are kept."""
        total = _zeros(model)
        for (workers, _, weights), _ in lane.chunks(self.chunk):
            rows = self._times(model, vector.expand(len(workers), -1), workers).double() - mean
            total += torch.from_numpy(weights).to(model.device) @ self._times(model, rows, workers).double()
        return total

    def norms(self, lane: Lane, model: torch.Tensor, tolerance: float) -> list[tuple[int, Ritz]]:
        """The largest absolute eigenvalue of each worker's Hessian."""
        streams = Streams(self.seed, Purpose.MEASURE)
        worst: list[tuple[int, Ritz]] = []
        for worker in lane.cohort.workers.tolist():
            one = np.array([worker])

            def product(vector: Floats, one: npt.NDArray[np.int64] = one) -> Floats:
                rows = torch.from_numpy(vector).to(model).unsqueeze(0)
                answer: Floats = self.curved.hessian_products(model.unsqueeze(0), rows, one)[0].double().cpu().numpy()
                return answer

            keep_worst(worst, worker, largest(product, len(model), tolerance, streams.at(worker=worker + 1)))
        return worst

    def _times(self, model: torch.Tensor, rows: torch.Tensor, workers: npt.NDArray[np.int64]) -> torch.Tensor:
        return self.curved.hessian_products(model.expand(len(workers), -1), rows.to(model.dtype), workers)


def _zeros(model: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(model), dtype=torch.float64, device=model.device)


class Meter:
    """Runs passes over all workers of a federation, and counts what they cost.

    Args:
        federation: the federation to measure.
        weights: the weights w_i in f = sum_i w_i F_i; equal by default.
        seed: the seed of the random directions and samples that estimators draw.
        compute: where to compute the passes: this process, several processes or a cluster.
        until: the time of ``time.monotonic`` after which no pass begins.
        passes: the largest number of passes, of all kinds together.
        progress: a function that is called before every pass with its kind and how many of that kind were made.

    Attributes:
        cost: the number of passes of each kind so far; a gradient pass computes every worker's gradient once.

    >>> from fedgauge import random_quadratics
    >>> federation = random_quadratics(4, 3)
    >>> with Meter(federation) as meter:
    ...     loss, gradient = meter.evaluate(federation.start(0))
    >>> dict(meter.cost)
    {'gradient passes': 1.0}
    """

    def __init__(
        self,
        federation: Federation,
        *,
        weights: tuple[float, ...] | None = None,
        seed: int = 0,
        compute: Compute = HERE,
        until: float = math.inf,
        passes: float | None = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> None:
        self.federation, self.seed, self.weights = federation, seed, weights
        N = federation.num_workers
        self.shares = Participation(weights=weights).objective(N)
        self.everyone = Participation(weights=weights).cohort(N, seed, 0)
        self.chunk = compute.chunk or federation.chunk(N)
        self._compute = compute
        self.cost: Counter[str] = Counter()
        self._until = until
        self.passes = None if passes is None else positive("passes", passes)
        self._progress = progress or (lambda what, done: None)
        self._stack = ExitStack()
        self._engine: Engine | None = None

    def __enter__(self) -> Self:
        self._stack.enter_context(one_thread())
        passes = Passes(self.federation, self.chunk, self.seed)
        self._engine = self._stack.enter_context(make_engine(passes, self._compute))
        return self

    def __exit__(self, *failure: Any) -> None:
        self._stack.__exit__(*failure)

    @property
    def rows_fit(self) -> bool:
        """Whether one row per worker fits in memory."""
        return self.federation.num_workers * self.federation.dim * 4 <= _ROWS_BYTES

    def check_budget(self, passes: float, what: str) -> None:
        """Raise an error if something needs more passes than are allowed in all."""
        if self.passes is not None and passes > self.passes * (1 + 1e-9):
            raise InputError(f"passes = {self.passes:g} is too few for {what}, which takes {passes:g}; allow more.")

    def ask(self, what: str, passes: float, method: Method, *arguments: Any, **which: Any) -> list[Any]:
        """All results of :meth:`stream` at once."""
        return list(self.stream(what, passes, method, *arguments, **which))

    def stream(
        self,
        what: str,
        passes: float,
        method: Method,
        *arguments: Any,
        rows: torch.Tensor | None = None,
        workers: Indices | None = None,
    ) -> Iterator[Any]:
        """Run a method of :class:`Passes` on every lane, and give the results in order.

        Args:
            what: the kind of pass, for ``cost``.
            passes: the number of passes that this call counts as.
            method: a method, such as ``Passes.distances``; or a module-level function, whose first arguments are the
                passes and the lane.
            *arguments: the arguments after the lane.
            rows: one row per worker; each lane gets the rows of its own workers.
            workers: the workers to use, in order; all by default.
        """
        if self._engine is None:
            raise InputError("A meter works only in a with statement; write 'with Meter(federation) as meter:'.")
        if time.monotonic() > self._until:
            raise OutOfBudgetError("The time that was allowed is used up.")
        if self.passes is not None and sum(self.cost.values()) + passes > self.passes * (1 + 1e-9):
            raise OutOfBudgetError(f"The {self.passes:g} passes that were allowed are used up.")
        self.cost[what] += float(passes)  # type: ignore[assignment]  # half a pass counts as half
        self._progress(what, self.cost[what])
        cohort = self.everyone
        if workers is not None:
            cohort = Cohort(workers, np.zeros_like(workers), self.shares[workers])
        dealt = Remembering(lanes(cohort, self.chunk), {} if rows is None else {"rows": rows})
        few = any(isinstance(each, torch.Tensor) and is_large(each) for each in arguments)
        return map_lanes(self._engine, method, dealt, *arguments, few=few)

    @property
    def sample_passes(self) -> float:
        """The cost of one stochastic gradient of every worker, in gradient passes."""
        federation = self.federation
        if not isinstance(federation, HasSamples):
            return 1.0
        everyone = np.arange(federation.num_workers)
        return float(federation.batch_size * len(everyone) / federation.sizes(everyone).sum())

    def evaluate(self, model: torch.Tensor) -> tuple[float, torch.Tensor]:
        """The value of f and its gradient."""
        return total(self.stream("gradient passes", 1, Passes.evaluate, model))

    def distances(self, model: torch.Tensor, centre: torch.Tensor) -> tuple[Floats, Floats]:
        """Squared distance of every worker's gradient from ``centre``, and its squared norm, in order of worker."""
        squares, norms = np.empty(self.federation.num_workers), np.empty(self.federation.num_workers)
        for part in self.ask("gradient passes", 1, Passes.distances, model, centre):
            squares[part.workers], norms[part.workers] = part.squares, part.norms
        return squares, norms

    def displaced(self, model: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """The average of the workers' gradients, each at the model plus its own row."""
        return _total(self.ask("gradient passes", 1, Passes.displaced, model, rows=rows))

    def hessian(self, model: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        """The Hessian of f times a vector."""
        return _total(self.ask("Hessian passes", 1, Passes.hessian, model, vector))

    def deviations(self, model: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        """(H_i - H) v, one row per worker; for federations whose rows fit in memory."""
        products = self.ask("Hessian passes", 1, Passes.products, model, vector)
        rows = torch.empty(self.federation.num_workers, len(model), dtype=torch.float64, device=model.device)
        for lane, part in zip(lanes(self.everyone, self.chunk), products, strict=True):
            rows[lane.cohort.workers] = part.double()
        # Subtract the first row, so that equal rows have a deviation of exactly 0.
        shares = torch.from_numpy(self.shares).to(model.device)
        rows -= rows[0].clone()
        return rows - shares @ rows

    def squared_deviation(self, model: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        """sum_i w_i (H_i - H)^2 v.

        The weighted rows (H_i - H) v sum to zero, so that the outer factor may be H_i. This takes two Hessian passes,
        or three if the rows do not fit in memory.
        """
        if self.rows_fit:
            rows = self.deviations(model, vector)
            return _total(self.ask("Hessian passes", 1, Passes.contract, model, rows=rows))
        mean = self.hessian(model, vector)
        return _total(self.ask("Hessian passes", 2, Passes.deviate, model, vector, mean))

    def norms(self, model: torch.Tensor, tolerance: float) -> list[Ritz]:
        """The largest absolute eigenvalue of every worker's Hessian, in order of worker."""
        parts = self.ask("Hessian passes", 0, Passes.norms, model, tolerance)
        by_worker = dict(pair for part in parts for pair in part)
        ordered = [by_worker[worker] for worker in range(self.federation.num_workers)]
        self.cost["Hessian passes"] += sum(ritz.products for ritz in ordered) / len(ordered)
        return ordered


def _total(parts: Iterable[torch.Tensor]) -> torch.Tensor:
    first, *others = parts
    return sum(others, start=first)
