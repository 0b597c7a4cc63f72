"""Passes over a lane of workers for the lenses.

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
from fedgauge.federation.protocols import Indices
from fedgauge.measurement.lanczos import Ritz, keep_worst, largest
from fedgauge.measurement.passes import Passes
from fedgauge.simulation.workers import Lane, Spread

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


def local_spread(passes: Passes, lane: Lane, model: torch.Tensor, steps: Steps) -> Spread:
    """Mean of the workers' models after local steps, and their spread around it."""
    spread = Spread()
    for _, weights, rows in _local_models(passes, lane, model, steps):
        spread.add_rows(rows.double(), weights)
    return spread


def local_errors(passes: Passes, lane: Lane, model: torch.Tensor, mean: torch.Tensor, steps: Steps) -> Errors:
    """The errors at the mean model; the local steps are computed again, so that no local model is kept."""
    total, squares, steepest = torch.zeros_like(model, dtype=torch.float64), 0.0, 0.0
    for workers, weights, rows in _local_models(passes, lane, model, steps):
        there = passes.federation.gradients(mean.to(model.dtype).expand(len(workers), -1), workers).double()
        errors = passes.federation.gradients(rows, workers).double() - there
        lengths, distances = errors.norm(dim=1), (rows.double() - mean.to(model.dtype).double()).norm(dim=1)
        total += weights @ errors
        squares += float(weights @ lengths.square())
        apart = distances > 0
        if bool(apart.any()):
            steepest = max(steepest, float((lengths[apart] / distances[apart]).max()))
    return Errors(total, squares, steepest)


def joint_gradient(passes: Passes, lane: Lane, model: torch.Tensor, steps: Steps, step: int) -> torch.Tensor:
    """Weighted sum of the gradients that the workers would use in a local step, all at one model."""
    total = torch.zeros_like(model, dtype=torch.float64)
    for (workers, copies, weights), _ in lane.chunks(passes.chunk):
        if steps.exact:
            total += passes.federation.pooled(model, workers, weights)[1]
            continue
        draws = _draws(passes, workers, copies, steps)[step]
        rows = passes.federation.stochastic_gradients(model.expand(len(workers), -1), workers, draws)
        total += torch.from_numpy(weights).to(model.device) @ rows.double()
    return total


def _local_models(
    passes: Passes, lane: Lane, model: torch.Tensor, steps: Steps
) -> Iterator[tuple[Indices, torch.Tensor, torch.Tensor]]:
    for (workers, copies, weights), _ in lane.chunks(passes.chunk):
        rows = model.expand(len(workers), -1)
        if steps.exact:
            for _ in range(steps.number):
                rows = rows - steps.gamma * passes.federation.gradients(rows, workers)
        else:
            rows = passes.federation.local_sgd(rows, workers, _draws(passes, workers, copies, steps), steps.gamma)
        yield workers, torch.from_numpy(weights).to(model.device), rows


def _draws(passes: Passes, workers: Indices, copies: Indices, steps: Steps) -> Sequence[Any]:
    return passes.federation.draws(Streams(passes.seed, Purpose.MEASURE), ROUND, workers, copies, steps.number)


def offsets(
    passes: Passes, lane: Lane, model: torch.Tensor, shares: Floats, tolerance: float
) -> list[tuple[int, Ritz]]:
    """The largest absolute eigenvalue of H_i - H for each worker of the lane; H is the Hessian of f."""
    streams, everyone = Streams(passes.seed, Purpose.MEASURE), np.arange(passes.federation.num_workers)
    worst: list[tuple[int, Ritz]] = []
    for worker in lane.cohort.workers.tolist():
        # H_i is part of the weighted sum, so that both Hessians come from one pass.
        weights = -shares
        weights[worker] += 1.0

        def product(vector: Floats, weights: Floats = weights) -> Floats:
            direction = torch.from_numpy(vector).to(model)
            total = torch.zeros_like(model, dtype=torch.float64)
            for first in range(0, len(everyone), passes.chunk):
                part = slice(first, first + passes.chunk)
                total += passes.curved.pooled_hessian(model, direction, everyone[part], weights[part])
            answer: Floats = total.cpu().numpy()
            return answer

        generator = streams.at(round=ROUND + 1, worker=worker)
        keep_worst(worst, worker, largest(product, len(model), tolerance, generator))
    return worst
