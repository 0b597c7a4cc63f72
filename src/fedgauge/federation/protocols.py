"""The central idea: a federation is a function on rows.

Every federation offers the same few operations on a matrix whose row j is the flat model of worker ``workers[j]``.
Whatever simulates or measures is short linear algebra on those rows, written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from fedgauge.randomness import Streams

if TYPE_CHECKING:
    import torch

Indices = npt.NDArray[np.int64]
"""Whole numbers, one per row: which worker a row belongs to, or which copy of it."""


class Federation(Protocol):
    """N workers, each with an objective F_i on R^d; f is their average."""

    @property
    def num_workers(self) -> int:
        """N."""

    @property
    def dim(self) -> int:
        """The dimension d of a flat model."""

    @property
    def processes(self) -> int | None:
        """How many processes share a round unless told otherwise; ``None`` is one a core."""

    def chunk(self, participants: int) -> int:
        """How many of a round's participants to compute at once unless told otherwise.

        It groups the sums, and so their rounding; it must not depend on the machine.
        """

    @property
    def digest(self) -> str:
        """A fingerprint of the objectives and their noise, by which a resumed run knows its federation."""

    def start(self, seed: int) -> torch.Tensor:
        """The first global model of a run with this seed."""

    def losses(self, models: torch.Tensor, workers: Indices) -> torch.Tensor:
        """F_i(x_i), one number per row, exact."""

    def gradients(self, models: torch.Tensor, workers: Indices) -> torch.Tensor:
        """The exact local gradients, one row each."""

    def evaluate(self, models: torch.Tensor, workers: Indices) -> tuple[torch.Tensor, torch.Tensor]:
        """Losses and gradients from one pass, which costs little more than either."""

    def pooled(
        self, model: torch.Tensor, workers: Indices, weights: npt.NDArray[np.float64]
    ) -> tuple[float, torch.Tensor]:
        """Weighted sums of the workers' losses and gradients at one model, in float64."""

    def draws(self, streams: Streams, round: int, workers: Indices, copies: Indices, steps: int) -> Sequence[Any]:
        """The randomness of a round's stochastic gradients: entry k serves step k of every row.

        Row j's draws depend on the streams' seed and (round, ``workers[j]``, ``copies[j]``) alone; ``copies`` tells
        apart several runs of one worker in the same round.
        """

    def stochastic_gradients(self, models: torch.Tensor, workers: Indices, draws: Any) -> torch.Tensor:
        """g_i(x_i), one row each; ``draws`` carries the randomness in."""

    def local_sgd(self, models: torch.Tensor, workers: Indices, draws: Sequence[Any], gamma: float) -> torch.Tensor:
        """The models after one step x_i <- x_i - gamma g_i(x_i) for each entry of ``draws``."""

    def hessian_products(self, models: torch.Tensor, vectors: torch.Tensor, workers: Indices) -> torch.Tensor:
        """H_i(x_i) v_i, one row each."""

    def pooled_hessian(
        self, model: torch.Tensor, vector: torch.Tensor, workers: Indices, weights: npt.NDArray[np.float64]
    ) -> torch.Tensor:
        """Weighted sum of the workers' H_i v at one model, in float64."""
