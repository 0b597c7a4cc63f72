"""Federations of supervised learners: a torch module, a loss and one shard of data per worker."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from copy import copy as shallow_copy
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedgauge.errors import InputError, count, non_negative
from fedgauge.federation import kernels
from fedgauge.federation.checks import as_tensor, check_data, check_loss, check_module, check_output, joined
from fedgauge.federation.flat import FlatModule, flatten
from fedgauge.federation.kernels.losses import Loss
from fedgauge.federation.protocols import Indices
from fedgauge.federation.shards import ShardedData, Shards, flat
from fedgauge.randomness import Purpose, Streams

_OnRows = Callable[[slice, torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]
"""Means over a batch of samples for these rows, from its inputs and targets of (rows, batch, ...)."""

_log = logging.getLogger(__name__)


class SupervisedFederation:
    """Workers that share a model and a loss, each with data of its own.

    F_i(x) is the mean loss of the model with parameters x over worker i's shard, plus (l2/2)‖x‖². A stochastic gradient
    is that of a mini-batch drawn uniformly with replacement from the shard, so that its variance is that of one sample
    divided by the batch size, whatever the size of the shard.

    Args:
        model: a function that makes the module (called again, with its own seed, for every run's first model), or a
            module whose present parameters are the first model.
        loss: mean loss from (outputs, targets).
        inputs: the data as a tensor or a numpy array, first axis over samples. Fractions of a numpy array take the
            model's number type; a tensor is used as it is.
        targets: labels or values, one per sample, as a tensor or a numpy array.
        shards: for every worker the indices of its samples, or all of them in the two arrays of :class:`Shards`.
        batch_size: samples in a mini-batch.
        l2: weight of the squared norm in the objective.
        path: ``auto``, or the name of a kernel in :data:`fedgauge.federation.kernels.KERNELS`, such as ``dense``
            (several workers in one product) or ``plain`` (any module, one worker at a time, by autograd).
        device: where to compute.

    Attributes:
        path: the path that was taken; it is logged too.

    See :func:`federate` for data that are one pair of inputs and targets per worker.

    >>> x, y, shards = torch.randn(8, 3), torch.arange(8) % 2, [range(4), range(4, 8)]
    >>> federation = SupervisedFederation(lambda: nn.Linear(3, 2), nn.functional.cross_entropy, x, y, shards)
    >>> federation.num_workers, federation.dim, federation.path
    (2, 8, 'dense')
    """

    processes: int | None = None
    """A round is long enough for several processes to pay off: one per core unless the user sets another number."""

    def __init__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        loss: Loss,
        inputs: torch.Tensor | npt.NDArray[Any],
        targets: torch.Tensor | npt.NDArray[Any],
        shards: Shards | Sequence[Any],
        *,
        batch_size: int = 20,
        l2: float = 0.0,
        path: str = "auto",
        device: str = "cpu",
    ) -> None:
        self.batch_size = count("batch_size", batch_size)
        self.l2 = non_negative("l2", l2)
        kernels.check_path(path)
        self._make = model if not isinstance(model, nn.Module) and callable(model) else None
        module = check_module(model if self._make is None else self._made(0))
        self.module = module.to(device)
        self.loss = check_loss(loss)
        self._first, self._flat = flatten(module), FlatModule(module)
        number = self._first.dtype
        x, y = check_data(as_tensor("inputs", inputs, number), as_tensor("targets", targets, number))
        self._data = ShardedData(x.to(device), y.to(device), *flat(shards))
        twice = torch.zeros(2, dtype=torch.int64, device=self.inputs.device)
        samples = self._data.inputs_of(twice), self._data.targets_of(twice)
        check_output(self.module, self.loss, self._first, samples, self.targets)
        learner = kernels.Learner(self.module, self.loss, self._first, self.inputs, self.targets)
        self._rows = kernels.choose(learner, path)
        self.path = self._rows.name
        _log.info("path %s: %s", self.path, self._rows.summary)

    def __getstate__(self) -> dict[str, Any]:
        """Other processes get everything but what makes the first model, which is often a lambda."""
        return {**self.__dict__, "_make": None}

    def _made(self, seed: int) -> nn.Module:
        """A new module, made with torch's own generator seeded; its state is restored afterwards."""
        if self._make is None:
            return self.module
        with torch.random.fork_rng():
            torch.manual_seed(int(Streams(seed, Purpose.START).at().integers(2**63)))
            return self._make()

    # -- the flat model ----------------------------------------------------------------------------------------

    @staticmethod
    def flatten(module: nn.Module) -> torch.Tensor:
        """A module's parameters as one vector, in the order of ``named_parameters``."""
        return flatten(module)

    def unflatten(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parameters by name, as views of a flat model."""
        return self._flat.parts(row)

    @property
    def num_workers(self) -> int:
        """N."""
        return len(self._data.offsets) - 1

    @property
    def dim(self) -> int:
        """The number of parameters d."""
        return len(self._first)

    def chunk(self, participants: int) -> int:
        """As many rows as the path computes best at once, but at most half, so that two processes can share them."""
        return min(self._rows.rows, -(-participants // 2))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the data, the shards, the model's form, the loss and the batch size."""
        sha = hashlib.sha256(f"{self.module} {getattr(self.loss, '__qualname__', self.loss)} {self.l2}".encode())
        sha.update(f"{self.batch_size}".encode())
        if kernels.has_hooks(self.module):
            sha.update(b"hooks")  # so that it is not taken for the module without them
        sha.update(self._data.offsets.data)
        for tensor in (self.inputs, self.targets, self._data.samples, self._first):
            if tensor is not None:
                # The array's own memory, not a copy of the data.
                sha.update(tensor.cpu().contiguous().numpy().data)
        return sha.hexdigest()

    def start(self, seed: int) -> torch.Tensor:
        """The first global model: made for the seed, or the given module's."""
        return self._first.clone() if self._make is None else flatten(self._made(seed)).to(self._first.device)

    # -- data --------------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> torch.Tensor:
        """The data, worker by worker where it is a partition."""
        return self._data.inputs

    @property
    def targets(self) -> torch.Tensor:
        """Labels or values of the inputs."""
        return self._data.targets

    def sizes(self, workers: Indices) -> Indices:
        """How many samples each of the workers has."""
        return self._data.sizes(workers)

    def shard(self, worker: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A worker's own inputs and targets."""
        return self._data.shard(worker)

    def blocks(self, worker: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """A worker's inputs and targets, a block of samples at a time."""
        return self._data.blocks(*self._data.offsets[worker : worker + 2].tolist())

    # -- parts of the federation -------------------------------------------------------------------------------

    def _changed(self, **attributes: Any) -> Self:
        """A federation that shares all but these attributes."""
        other = shallow_copy(self)
        other.__dict__.pop("digest", None)
        other.__dict__.update({"_make": self._make, **attributes})
        return other

    def with_batch_size(self, batch_size: int) -> Self:
        """The same workers and data, with mini-batches of another size."""
        return self._changed(batch_size=count("batch_size", batch_size))

    def subset_sizes(self, size: int | float, workers: Indices | None = None) -> Indices:
        """How many samples :meth:`subset` takes of each of the workers, at least one."""
        sizes = self.sizes(np.arange(self.num_workers) if workers is None else workers)
        if isinstance(size, int) and not isinstance(size, bool):
            return np.minimum(sizes, count("size", size))
        if not (isinstance(size, float) and 0 < size <= 1):
            raise InputError(
                f"size must be a whole number of samples per worker, or a fraction of them above 0.0 and up to 1.0, not"
                f" {size!r}."
            )
        taken: Indices = np.maximum(np.rint(size * sizes), 1).astype(np.int64)
        return taken

    def subset(
        self, size: int | float, streams: Streams, *, round: int = 0, copy: int = 0, workers: Indices | None = None
    ) -> Self:
        """A federation whose shards are uniformly random subsets of the workers' shards; the data are not copied.

        Args:
            size: samples per worker (all, where it has fewer), or the fraction of them as a float.
            streams: where the subsets come from; worker i's is drawn at the address (round, i, copy).
            round: of the address.
            copy: of the address; subsets at two addresses are independent.
            workers: whose subsets to take, as workers 0, 1, … of the new federation; all workers if not given.

        >>> x, y, shards = torch.randn(8, 3), torch.arange(8) % 2, [range(4), range(4, 8)]
        >>> whole = SupervisedFederation(lambda: nn.Linear(3, 2), nn.functional.cross_entropy, x, y, shards)
        >>> whole.subset(3, Streams(0, Purpose.SUBSET)).sizes(np.arange(2))
        array([3, 3])
        """
        workers = np.arange(self.num_workers) if workers is None else workers
        taken, sizes = self.subset_sizes(size, workers), self.sizes(workers)
        places = [
            first + streams.at(round, worker, copy).choice(held, wanted, replace=False)
            for worker, first, held, wanted in zip(
                workers.tolist(), self._data.offsets[workers].tolist(), sizes.tolist(), taken.tolist(), strict=True
            )
        ]
        return self._changed(_data=self._data.part(taken, np.concatenate(places)))

    # -- exact operations on rows ------------------------------------------------------------------------------

    def _per_row(self, models: torch.Tensor, workers: Indices, compute: _OnRows) -> tuple[torch.Tensor, ...]:
        """Means over the workers' whole shards, one row each, without the l2 term."""
        stacked = self._data.stacked(workers)
        if stacked is not None:
            return compute(slice(None), *stacked)
        rows: tuple[torch.Tensor, ...] = ()
        for row, worker in enumerate(workers.tolist()):
            found = self._mean(slice(row, row + 1), compute, *self._data.offsets[worker : worker + 2].tolist())
            if not rows:
                # Losses stay in float64; vectors have the models' type.
                rows = tuple(
                    part.new_empty(len(workers), *part.shape[1:], dtype=None if part.ndim == 1 else models.dtype)
                    for part in found
                )
            for into, part in zip(rows, found, strict=True):
                into[row] = part[0]
        return rows

    def _mean(self, row: slice, compute: _OnRows, first: int, last: int) -> tuple[torch.Tensor, ...]:
        """Means over the samples at these places, for one row; several blocks are added up in float64."""
        totals: tuple[torch.Tensor, ...] = ()
        for x, y in self._data.blocks(first, last):
            found = compute(row, x.unsqueeze(0), y.unsqueeze(0))
            if len(x) == last - first:
                return found
            totals = totals or tuple(torch.zeros_like(part, dtype=torch.float64) for part in found)
            for total, part in zip(totals, found, strict=True):
                total.add_(part, alpha=len(x) / (last - first))
        return totals

    def _pool(
        self, workers: Indices, weights: npt.NDArray[np.float64], compute: _OnRows
    ) -> Iterator[tuple[float, tuple[torch.Tensor, ...]]]:
        """Weights and means that sum up to the weighted sum over the workers, at one model.

        Neighbours whose samples all weigh the same are one body of data: big blocks whatever the size of a shard.
        """
        share, offsets = weights / self.sizes(workers), self._data.offsets
        ends = np.flatnonzero((np.diff(workers) != 1) | (np.diff(share) != 0)) + 1
        for run in np.split(np.arange(len(workers)), ends):
            first, last = int(offsets[workers[run[0]]]), int(offsets[workers[run[-1]] + 1])
            yield float(share[run[0]]) * (last - first), self._mean(slice(0, 1), compute, first, last)

    def evaluate(self, models: torch.Tensor, workers: Indices) -> tuple[torch.Tensor, torch.Tensor]:
        """Exact losses and gradients over the workers' whole shards, summed over blocks in float64."""
        losses, gradients = self._per_row(models, workers, lambda rows, x, y: self._rows.evaluate(models[rows], x, y))
        if self.l2:
            losses = losses + self.l2 / 2 * models.double().square().sum(dim=1)
            gradients.add_(models, alpha=self.l2)
        return losses, gradients

    def pooled(
        self, model: torch.Tensor, workers: Indices, weights: npt.NDArray[np.float64]
    ) -> tuple[float, torch.Tensor]:
        """Weighted sums of the workers' losses and gradients at one model, in float64."""
        row = model.unsqueeze(0)
        loss, gradient = 0.0, torch.zeros_like(model, dtype=torch.float64)
        for weight, (value, slope) in self._pool(workers, weights, lambda _, x, y: self._rows.evaluate(row, x, y)):
            loss += weight * float(value)
            gradient.add_(slope[0], alpha=weight)
        if self.l2:
            wide, total = model.double(), float(weights.sum())
            loss += total * self.l2 / 2 * float(wide @ wide)
            gradient.add_(wide, alpha=total * self.l2)
        return loss, gradient

    def losses(self, models: torch.Tensor, workers: Indices) -> torch.Tensor:
        """F_i(x_i), one number per row, exact."""
        (losses,) = self._per_row(models, workers, lambda rows, x, y: (self._rows.losses(models[rows], x, y),))
        return losses + self.l2 / 2 * models.double().square().sum(dim=1)

    def gradients(self, models: torch.Tensor, workers: Indices) -> torch.Tensor:
        """The exact local gradients, one row each."""
        (gradients,) = self._per_row(models, workers, lambda rows, x, y: (self._rows.gradients(models[rows], x, y),))
        return gradients.add_(models, alpha=self.l2) if self.l2 else gradients

    def hessian_products(self, models: torch.Tensor, vectors: torch.Tensor, workers: Indices) -> torch.Tensor:
        """H_i(x_i) v_i over the workers' whole shards, the exact Hessian: all of it, not its Gauss-Newton part."""

        def compute(rows: slice, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
            return (self._rows.hessian_products(models[rows], vectors[rows], x, y),)

        (products,) = self._per_row(models, workers, compute)
        return products.add_(vectors, alpha=self.l2) if self.l2 else products

    def pooled_hessian(
        self, model: torch.Tensor, vector: torch.Tensor, workers: Indices, weights: npt.NDArray[np.float64]
    ) -> torch.Tensor:
        """Weighted sum of the workers' H_i v at one model, in float64."""
        row, along = model.unsqueeze(0), vector.to(model.dtype).unsqueeze(0)
        product = torch.zeros_like(model, dtype=torch.float64)
        for weight, (part,) in self._pool(
            workers, weights, lambda _, x, y: (self._rows.hessian_products(row, along, x, y),)
        ):
            product.add_(part[0], alpha=weight)
        return product.add_(vector, alpha=float(weights.sum()) * self.l2) if self.l2 else product

    def sample_variances(self, model: torch.Tensor, workers: Indices) -> torch.Tensor:
        """The variance of one sample's gradient over each worker's whole shard: mean ‖g_s‖² - ‖∇F_i‖².

        The l2 term is the same for all samples and drops out.
        """
        models = model.expand(len(workers), -1)

        def compute(rows: slice, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            squares = self._rows.sample_squares(models[rows], x, y).mean(dim=1)
            return squares, self._rows.evaluate(models[rows], x, y)[1]

        squares, gradients = self._per_row(models, workers, compute)
        # Rounding can take a difference of equal numbers below zero.
        return (squares - gradients.double().square().sum(dim=1)).clamp_(min=0.0)

    # -- mini-batches ------------------------------------------------------------------------------------------

    def draws(self, streams: Streams, round: int, workers: Indices, copies: Indices, steps: int) -> Sequence[Any]:
        """Numbers of the mini-batches' samples, one matrix of (rows, batch size) for each step."""
        places = np.empty((len(workers), steps, self.batch_size), dtype=np.int64)
        sizes = self.sizes(workers).tolist()
        for row, (worker, copy) in enumerate(zip(workers.tolist(), copies.tolist(), strict=True)):
            places[row] = streams.at(round, worker, copy).integers(sizes[row], size=places.shape[1:])
        places += self._data.offsets[workers][:, None, None]
        return self._data.numbers(places).unbind(dim=1)

    def stochastic_gradients(self, models: torch.Tensor, workers: Indices, draws: Any) -> torch.Tensor:
        """Gradients of the mean loss over each row's mini-batch."""
        gradients = self._rows.gradients(models, self._data.inputs_of(draws), self._data.targets_of(draws))
        return gradients.add_(models, alpha=self.l2) if self.l2 else gradients

    def local_sgd(self, models: torch.Tensor, workers: Indices, draws: Sequence[Any], gamma: float) -> torch.Tensor:
        """All local steps of plain SGD at once: what repeated steps along ``stochastic_gradients`` give."""
        decay = 1.0 - gamma * self.l2
        return self._rows.descend(models, draws, self._data.inputs_of, self._data.targets_of, gamma, decay)


def federate(
    model: nn.Module | Callable[[], nn.Module],
    loss: Loss,
    shards: Sequence[tuple[Any, Any]],
    *,
    batch_size: int = 20,
    l2: float = 0.0,
    path: str = "auto",
    device: str = "cpu",
) -> SupervisedFederation:
    """Make a federation from a model, a loss and each worker's own data.

    Args:
        model: a torch module, or a function that makes one.
        loss: mean loss from (outputs, targets).
        shards: one (inputs, targets) pair per worker, tensors or numpy arrays. Fractions of numpy arrays take the
            model's number type.
        batch_size: samples in a mini-batch.
        l2: weight of the squared norm in the objective.
        path: as for :class:`SupervisedFederation`.
        device: where to compute.

    >>> generator = np.random.default_rng(0)
    >>> shards = [(generator.normal(size=(size, 3)), generator.integers(2, size=size)) for size in (40, 60)]
    >>> made = federate(lambda: nn.Linear(3, 2), nn.functional.cross_entropy, shards)
    >>> made.num_workers, made.sizes(np.arange(2))
    (2, array([40, 60]))
    """
    with torch.random.fork_rng():
        module = check_module(model() if callable(model) and not isinstance(model, nn.Module) else model)
    inputs, targets, places = joined(shards, next(module.parameters()).dtype)
    return SupervisedFederation(
        model, loss, inputs, targets, places, batch_size=batch_size, l2=l2, path=path, device=device
    )
