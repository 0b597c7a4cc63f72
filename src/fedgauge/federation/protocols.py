"""The central idea: a federation is a function on rows.

Every federation offers the same few operations on a matrix whose row j is the flat model of worker ``workers[j]``.
Whatever simulates or measures is short linear algebra on those rows, written once.

:class:`Federation` is what :func:`fedgauge.simulate` needs; any object with its members is one, whatever its class. The
protocols whose names begin with ``Has`` are what only some federations offer. They can be checked with ``isinstance``,
and code that needs one names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Streams

if TYPE_CHECKING:
    import torch
    from torch import nn

Indices = npt.NDArray[np.int64]
"""Whole numbers, one per row: which worker a row belongs to, or which copy of it."""

Weights = npt.NDArray[np.float64]
"""What each worker counts for in a sum."""


class Rows(Protocol):
    """N workers, each with an objective F_i on R^d, and their exact gradients; f is the average of the F_i."""

    @property
    def num_workers(self) -> int:
        """N."""

    @property
    def dim(self) -> int:
        """The dimension d of a flat model."""

    def start(self, seed: int) -> torch.Tensor:
        """The first global model of a run with this seed; all models have its number type and device."""

    def gradients(self, models: torch.Tensor, workers: Indices) -> torch.Tensor:
        """The exact local gradients, one row each."""

    def pooled(self, model: torch.Tensor, workers: Indices, weights: Weights) -> tuple[float, torch.Tensor]:
        """Weighted sums of the workers' exact losses and gradients at one model, in float64."""


class StochasticRows(Protocol):
    """What workers do in local steps, with randomness that comes in from outside."""

    def draws(self, streams: Streams, round: int, workers: Indices, copies: Indices, steps: int) -> Sequence[Any]:
        """The randomness of a round's stochastic gradients: entry k serves step k of every row.

        Row j's draws depend only on the streams' seed and on (round, ``workers[j]``, ``copies[j]``); ``copies``
        distinguishes several runs of one worker in the same round.
        """

    def stochastic_gradients(self, models: torch.Tensor, workers: Indices, draws: Any) -> torch.Tensor:
        """g_i(x_i), one row each; ``draws`` is one entry of what :meth:`draws` returned."""

    def local_sgd(self, models: torch.Tensor, workers: Indices, draws: Sequence[Any], gamma: float) -> torch.Tensor:
        """The models after one step x_i <- x_i - gamma g_i(x_i) for each entry of ``draws``."""


class Scheduling(Protocol):
    """How a federation is best computed, unless the user decides otherwise."""

    @property
    def processes(self) -> int | None:
        """How many processes should share a round; ``None`` means one per core."""

    def chunk(self, participants: int) -> int:
        """How many of a round's participants to compute at once.

        It groups the sums, and so their rounding; it must not depend on the machine.
        """


class Federation(Rows, StochasticRows, Scheduling, Protocol):
    """What a simulation needs: exact gradients, local steps, how to share them out, and a fingerprint."""

    @property
    def digest(self) -> str:
        """A fingerprint of the objectives and their noise, by which a resumed run recognises its federation."""


# -- what only some federations have -----------------------------------------------------------------------------


@runtime_checkable
class HasDescription(Protocol):
    """More than a digest to be recognised by."""

    def description(self) -> Mapping[str, Any]:
        """What a run that is saved says about its federation, by which it is recognised when it is resumed."""


@runtime_checkable
class HasLosses(Protocol):
    """Exact losses of single workers."""

    def losses(self, models: torch.Tensor, workers: Indices) -> torch.Tensor:
        """F_i(x_i), one number per row."""

    def evaluate(self, models: torch.Tensor, workers: Indices) -> tuple[torch.Tensor, torch.Tensor]:
        """Losses and gradients from one pass, which costs little more than either."""


@runtime_checkable
class HasPooledLoss(Protocol):
    """f without its gradient, which takes a fraction of the time."""

    def pooled_loss(self, model: torch.Tensor, workers: Indices, weights: Weights) -> float:
        """Weighted sum of the workers' exact losses at one model."""


@runtime_checkable
class HasCurvature(Protocol):
    """Exact products with Hessians."""

    def hessian_products(self, models: torch.Tensor, vectors: torch.Tensor, workers: Indices) -> torch.Tensor:
        """H_i(x_i) v_i, one row each."""

    def pooled_hessian(
        self, model: torch.Tensor, vector: torch.Tensor, workers: Indices, weights: Weights
    ) -> torch.Tensor:
        """Weighted sum of the workers' H_i v at one model, in float64."""


def curvature_of(federation: Rows) -> HasCurvature:
    """A federation's products with Hessians, or one sentence that it has none."""
    if not isinstance(federation, HasCurvature):
        raise InputError(
            f"Curvature needs products with Hessians, which a {type(federation).__name__} does not offer; give it the"
            " methods hessian_products and pooled_hessian, or leave curvature out."
        )
    return federation


@runtime_checkable
class HasKnownNoise(Protocol):
    """Gradient noise whose variance is known."""

    @property
    def sigma2(self) -> float:
        """The variance of every worker's stochastic gradient."""


@runtime_checkable
class HasSamples(Protocol):
    """Objectives that are means over samples, and stochastic gradients from mini-batches of them."""

    @property
    def batch_size(self) -> int:
        """Samples in a mini-batch."""

    def sizes(self, workers: Indices) -> Indices:
        """How many samples each of the workers has."""


@runtime_checkable
class HasSampleNoise(HasSamples, Protocol):
    """Samples whose gradients can be computed one by one."""

    @property
    def averages_samples(self) -> bool:
        """Whether a stochastic gradient is the mean of its samples' own gradients, so that their variance says all."""

    def with_batch_size(self, batch_size: int) -> StochasticRows:
        """The same workers and data, with mini-batches of another size."""

    def sample_variances(self, model: torch.Tensor, workers: Indices) -> torch.Tensor:
        """The variance of one sample's gradient over each worker's samples."""


@runtime_checkable
class HasSubsets(HasSamples, Protocol):
    """Samples of which random subsets can be taken."""

    def subset_sizes(self, size: int | float, workers: Indices | None = None) -> Indices:
        """How many samples :meth:`subset` takes of each of the workers, at least one."""

    def subset(
        self, size: int | float, streams: Streams, *, round: int = 0, copy: int = 0, workers: Indices | None = None
    ) -> Rows:
        """A federation of random subsets of the workers' samples, drawn at the address (round, worker, copy)."""


@runtime_checkable
class HasEffort(HasSubsets, Protocol):
    """Samples whose work is known, and that can be split into groups."""

    @property
    def num_workers(self) -> int:
        """N."""

    @property
    def dim(self) -> int:
        """The dimension d of a flat model."""

    def effort(self) -> int:
        """About how many products of two numbers the forward pass of one sample takes."""

    def every(self, number: int, first: int) -> HasLosses:
        """A federation of each worker's every ``number``-th sample, beginning with ``first``; at least one of each."""


@runtime_checkable
class HasModule(Protocol):
    """Flat models that are the parameters of a torch module."""

    @property
    def module(self) -> nn.Module:
        """The module; its own parameters are those of some model, not of any particular one."""

    def flatten(self, module: nn.Module) -> torch.Tensor:
        """A module's parameters as one vector."""

    def unflatten(self, row: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """The parameters by name, as views of a flat model."""


@runtime_checkable
class HasStatistics(Protocol):
    """Flat models in which running statistics may follow the trained parameters, and are averaged with them."""

    @property
    def statistics(self) -> Sequence[str]:
        """The names of the statistics; mostly there are none."""

    @property
    def num_trained(self) -> int:
        """The number of trained parameters, which come first."""

    def with_statistics_of(self, model: torch.Tensor) -> Federation:
        """The federation whose statistics are those of a flat model, and stay as they are."""


def carries_statistics(federation: object) -> bool:
    """Whether statistics follow the parameters in a federation's flat models."""
    return isinstance(federation, HasStatistics) and bool(federation.statistics)
