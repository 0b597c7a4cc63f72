"""Passes over a lane of workers for the lenses and the decomposition, which ``passes.Passes`` inherits.

Each pass works on one chunk of rows at a time and returns numbers or sums, so that memory does not grow with the number
of workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.types import Floats
from fedgauge.federation.protocols import Federation, HasCurvature, Indices, curvature_of
from fedgauge.measurement.lanczos import Ritz, keep_worst, largest
from fedgauge.simulation.workers import Lane, LaneWork, Spread

ROUND = 3
"""The round in the address of the mini-batches of measured local steps; curvature uses other rounds."""


class Steps(NamedTuple):
    """The local steps to take: their rate, their number, and whether their gradients are exact or from mini-batches."""

    gamma: float
    number: int
    exact: bool


class Errors(NamedTuple):
    """The errors of local models: each worker's gradient at its own model minus its gradient at the mean model.

    Attributes:
        mean: the weighted sum of the errors e_i.
        squares: the weighted sum of their squared norms.
        steepest: the largest ratio of an error's norm to the distance of the two models; 0 if all models are equal.
    """

    mean: torch.Tensor
    squares: float
    steepest: float


class Probes(LaneWork):
    """The computations of a lane of workers that lenses and decompositions need."""

    def __init__(self, federation: Federation, chunk: int, seed: int) -> None:
        super().__init__(federation, chunk)
        self.seed = seed

    @property
    def curved(self) -> HasCurvature:
        """The federation's products with Hessians; an error is raised if it has none."""
        return curvature_of(self.federation)

    # -- squares by block of parameters ------------------------------------------------------------------------

    def gradient_parts(
        self, lane: Lane, model: torch.Tensor, centre: torch.Tensor, starts: Sequence[int]
    ) -> tuple[Indices, Floats]:
        """Squared distance of each worker's gradient from ``centre``, one number per block of parameters."""
        squares = []
        for (workers, _, _), _ in lane.chunks(self.chunk):
            rows = self.federation.gradients(model.expand(len(workers), -1), workers)
            squares.append(_by_block(rows.double() - centre, starts))
        return lane.cohort.workers, np.concatenate(squares)

    def hessian_parts(
        self, lane: Lane, model: torch.Tensor, vector: torch.Tensor, centre: torch.Tensor, starts: Sequence[int]
    ) -> tuple[Indices, Floats]:
        """Squared distance of each worker's Hessian-vector product from ``centre``, one number per block."""
        squares = []
        for (workers, _, _), _ in lane.chunks(self.chunk):
            size = len(workers)
            rows = self.curved.hessian_products(model.expand(size, -1), vector.expand(size, -1), workers)
            squares.append(_by_block(rows.double() - centre, starts))
        return lane.cohort.workers, np.concatenate(squares)

    # -- local models ------------------------------------------------------------------------------------------

    def local_spread(self, lane: Lane, model: torch.Tensor, steps: Steps) -> Spread:
        """Mean of the workers' models after local steps, and their spread around it."""
        spread = Spread()
        for _, weights, rows in self._local_models(lane, model, steps):
            spread.add_rows(rows.double(), weights)
        return spread

    def local_errors(self, lane: Lane, model: torch.Tensor, mean: torch.Tensor, steps: Steps) -> Errors:
        """The errors at the mean model; the local steps are computed again, so that no local model is kept."""
        total, squares, steepest = torch.zeros_like(model, dtype=torch.float64), 0.0, 0.0
        for workers, weights, rows in self._local_models(lane, model, steps):
            there = self.federation.gradients(mean.to(model.dtype).expand(len(workers), -1), workers).double()
            errors = self.federation.gradients(rows, workers).double() - there
            lengths, distances = errors.norm(dim=1), (rows.double() - mean.to(model.dtype).double()).norm(dim=1)
            total += weights @ errors
            squares += float(weights @ lengths.square())
            apart = distances > 0
            if bool(apart.any()):
                steepest = max(steepest, float((lengths[apart] / distances[apart]).max()))
        return Errors(total, squares, steepest)

    def joint_gradient(self, lane: Lane, model: torch.Tensor, steps: Steps, step: int) -> torch.Tensor:
        """Weighted sum of the gradients that the workers would use in a local step, all at one model."""
        total = torch.zeros_like(model, dtype=torch.float64)
        for (workers, copies, weights), _ in lane.chunks(self.chunk):
            if steps.exact:
                total += self.federation.pooled(model, workers, weights)[1]
                continue
            draws = self._draws(workers, copies, steps)[step]
            rows = self.federation.stochastic_gradients(model.expand(len(workers), -1), workers, draws)
            total += torch.from_numpy(weights).to(model.device) @ rows.double()
        return total

    def _local_models(
        self, lane: Lane, model: torch.Tensor, steps: Steps
    ) -> Iterator[tuple[Indices, torch.Tensor, torch.Tensor]]:
        for (workers, copies, weights), _ in lane.chunks(self.chunk):
            rows = model.expand(len(workers), -1)
            if steps.exact:
                for _ in range(steps.number):
                    rows = rows - steps.gamma * self.federation.gradients(rows, workers)
            else:
                rows = self.federation.local_sgd(rows, workers, self._draws(workers, copies, steps), steps.gamma)
            yield workers, torch.from_numpy(weights).to(model.device), rows

    def _draws(self, workers: Indices, copies: Indices, steps: Steps) -> Sequence[Any]:
        return self.federation.draws(Streams(self.seed, Purpose.MEASURE), ROUND, workers, copies, steps.number)

    # -- Hessians ----------------------------------------------------------------------------------------------

    def offsets(self, lane: Lane, model: torch.Tensor, shares: Floats, tolerance: float) -> list[tuple[int, Ritz]]:
        """The largest absolute eigenvalue of H_i - H for each worker of the lane; H is the Hessian of f."""
        streams, everyone = Streams(self.seed, Purpose.MEASURE), np.arange(self.federation.num_workers)
        worst: list[tuple[int, Ritz]] = []
        for worker in lane.cohort.workers.tolist():
            # H_i is part of the weighted sum, so that both Hessians come from one pass.
            weights = -shares
            weights[worker] += 1.0

            def product(vector: Floats, weights: Floats = weights) -> Floats:
                direction = torch.from_numpy(vector).to(model)
                total = torch.zeros_like(model, dtype=torch.float64)
                for first in range(0, len(everyone), self.chunk):
                    part = slice(first, first + self.chunk)
                    total += self.curved.pooled_hessian(model, direction, everyone[part], weights[part])
                answer: Floats = total.cpu().numpy()
                return answer

            generator = streams.at(round=ROUND + 1, worker=worker)
            keep_worst(worst, worker, largest(product, len(model), tolerance, generator))
        return worst


def _by_block(rows: torch.Tensor, starts: Sequence[int]) -> Floats:
    """Sums of squares over blocks of consecutive columns, each from its own start to the next."""
    ends = [*starts[1:], rows.shape[1]]
    parts = [rows[:, first:last].square().sum(dim=1) for first, last in zip(starts, ends, strict=True)]
    squares: Floats = torch.stack(parts, dim=1).cpu().numpy()
    return squares
