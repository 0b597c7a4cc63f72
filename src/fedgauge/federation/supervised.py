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
from torch.nn import functional

from fedgauge.errors import InputError, count, nearest, non_negative
from fedgauge.federation.kernels.autograd import Autograd
from fedgauge.federation.kernels.convolutional import ConvolutionalChain
from fedgauge.federation.kernels.dense import DenseStack
from fedgauge.federation.kernels.losses import Loss
from fedgauge.federation.protocols import Indices
from fedgauge.federation.shards import BLOCK, ShardedData, Shards, flat
from fedgauge.randomness import Purpose, Streams

_OnRows = Callable[[slice, torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]
"""Means over a batch of samples for these rows, from its inputs and targets of (rows, batch, ...)."""

_PATHS = {
    "auto": "the fastest that fits",
    "dense": "{rows} workers to a product, backward written out",
    "convolutional": "a worker at a time, local steps written out",
    "plain": "autograd, a worker at a time",
}

_log = logging.getLogger(__name__)


def _check_module(module: nn.Module) -> None:
    """Refuse modules under which F_i is no function of the parameters alone."""
    if not any(True for _ in module.parameters()):
        raise InputError("The model has no parameters to learn; give a module that has some.")
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0 and part.training:
            raise InputError(f"Dropout ({name}) makes the loss random for equal models; set its p to 0 or remove it.")
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.training:
            raise InputError(
                f"BatchNorm ({name}) makes a worker's loss depend on the batch and on running statistics, not on the"
                " model alone; use GroupNorm, or freeze its statistics with module.eval()."
            )


class SupervisedFederation:
    """Workers that share a model and a loss, each with data of its own.

    F_i(x) is the mean loss of the model with parameters x over worker i's shard, plus (l2/2)‖x‖². A stochastic gradient
    is that of a mini-batch drawn uniformly with replacement from the shard, so that its variance is that of one sample
    divided by the batch size, whatever the size of the shard.

    Args:
        model: a function that makes the module (called anew, and seeded, for every run's first model), or a module
            whose present parameters are the first model.
        loss: mean loss from (outputs, targets).
        inputs: the data, first axis over samples.
        targets: labels or values, one per sample.
        shards: for every worker the indices of its samples, or all of them in the two arrays of :class:`Shards`.
        batch_size: samples in a mini-batch.
        l2: weight of the squared norm in the objective.
        path: ``auto``, ``dense`` (several workers in one product), ``convolutional`` (a worker at a time, local steps
            written out) or ``plain`` (any module, a worker at a time, by autograd).
        device: where to compute.

    Attributes:
        path: the path that was taken; it is logged too.

    >>> x, y, shards = torch.randn(8, 3), torch.arange(8) % 2, [range(4), range(4, 8)]
    >>> federation = SupervisedFederation(lambda: nn.Linear(3, 2), functional.cross_entropy, x, y, shards)
    >>> federation.num_workers, federation.dim, federation.path
    (2, 8, 'dense')
    """

    processes: int | None = None
    """A round is long enough that processes pay: one a core unless told otherwise."""

    def __init__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        loss: Loss,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        shards: Shards | Sequence[Any],
        *,
        batch_size: int = 20,
        l2: float = 0.0,
        path: str = "auto",
        device: str = "cpu",
    ) -> None:
        self.batch_size = count("batch_size", batch_size)
        self.l2 = non_negative("l2", l2)
        if path not in _PATHS:
            raise InputError(f"There is no path {path!r}; {nearest(path, _PATHS)}")
        if len(inputs) != len(targets):
            raise InputError(f"inputs and targets must be of one length, not {len(inputs)} and {len(targets)}.")
        if inputs.is_floating_point() and not all(
            bool(torch.isfinite(part).all()) for part in torch.split(inputs, BLOCK)
        ):
            raise InputError("inputs must be finite, but hold NaN or infinity; clean the data.")
        if not targets.is_floating_point():
            targets = targets.to(torch.int64)
        self._make = None if isinstance(model, nn.Module) else model
        module = model if isinstance(model, nn.Module) else self._made(0)
        _check_module(module)
        self.module = module.to(device)
        self.loss = loss
        self._first = self.flatten(module)
        self._data = ShardedData(inputs.to(device), targets.to(device), *flat(shards))
        self._plain = Autograd(module, loss)
        self._check_output()
        self._rows = self._choose(path)
        self.path = self._rows.name
        _log.info("path %s: %s", self.path, _PATHS[self.path].format(rows=self._rows.rows))

    def _choose(self, path: str) -> Autograd | DenseStack:
        """The fastest path for the module and the loss, or the one that is asked for."""
        soft = self.loss is functional.cross_entropy and self.targets.is_floating_point()
        given = (self.module, self.loss, self._first)
        dense = None if soft or path not in ("auto", "dense") else DenseStack.of(*given)
        if path == "dense" and dense is None:
            raise InputError("path dense needs a chain of Linear and ReLU under cross-entropy or squared error.")
        images = self.inputs.ndim == 4 and not soft and path in ("auto", "convolutional")
        chain = ConvolutionalChain.of(*given) if images else None
        if path == "convolutional" and chain is None:
            raise InputError(
                "path convolutional needs images and a chain of Conv2d, MaxPool2d, ReLU, Flatten and Linear under"
                " cross-entropy or squared error."
            )
        return dense or (self._plain if chain is None else Autograd(self.module, self.loss, chain))

    def __getstate__(self) -> dict[str, Any]:
        """ProcessPool processes get everything but what makes the first model, which is often a lambda."""
        return {**self.__dict__, "_make": None}

    def _made(self, seed: int) -> nn.Module:
        """A module made anew with torch's own generator seeded, which is put back afterwards."""
        if self._make is None:
            return self.module
        with torch.random.fork_rng():
            torch.manual_seed(int(Streams(seed, Purpose.START).at().integers(2**63)))
            return self._make()

    def _check_output(self) -> None:
        """Try the model on two samples, so that what does not fit is said here and not in the middle of a run."""
        twice = torch.zeros(2, dtype=torch.int64, device=self.inputs.device)
        x, y = self._data.inputs_of(twice), self._data.targets_of(twice)
        before = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        try:
            with torch.no_grad():
                outputs = self._plain.outputs(self.unflatten(self._first), x)
        except (RuntimeError, ValueError, IndexError) as error:
            reason = str(error).split("\n")[0].rstrip(".")
            raise InputError(f"The model does not take inputs of shape {tuple(x.shape[1:])} ({reason}).") from None
        for name, buffer in self.module.named_buffers():
            if not torch.equal(before[name], buffer):
                raise InputError(
                    f"The model changes its buffer {name} when it is called, so a worker's loss is not a function of"
                    " the parameters alone; freeze it with module.eval()."
                )
        if self.targets.dtype == torch.int64 and self.loss is functional.cross_entropy:
            classes, labels = outputs.shape[-1], (int(self.targets.min()), int(self.targets.max()))
            if outputs.ndim != 2 or labels[0] < 0 or labels[1] >= classes:
                raise InputError(
                    f"The model gives {tuple(outputs.shape[1:])} outputs a sample, which does not fit labels"
                    f" {labels[0]} to {labels[1]}; give it one output a class."
                )
        try:
            value = self.loss(outputs, y)
        except (RuntimeError, ValueError, IndexError) as error:
            shapes = f"outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(y.shape)}"
            raise InputError(f"The loss does not take {shapes} ({str(error).rstrip('.')}).") from None
        if value.ndim:
            raise InputError(
                f"The loss must be one number, the mean over the batch, not of shape {tuple(value.shape)}."
            )

    # -- the flat model ----------------------------------------------------------------------------------------

    @staticmethod
    def flatten(module: nn.Module) -> torch.Tensor:
        """A module's parameters as one vector, in the order of ``named_parameters``."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])

    def unflatten(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parameters by name, as views of a flat model."""
        return self._plain.parts(row)

    @property
    def num_workers(self) -> int:
        """N."""
        return len(self._data.offsets) - 1

    @property
    def dim(self) -> int:
        """The number of parameters d."""
        return len(self._first)

    def chunk(self, participants: int) -> int:
        """As many rows as the path computes best at once, and at most half of them, so that two processes can share."""
        return min(self._rows.rows, -(-participants // 2))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the data, the shards, the model's form, the loss and the batch size."""
        sha = hashlib.sha256(f"{self.module} {getattr(self.loss, '__qualname__', self.loss)} {self.l2}".encode())
        sha.update(f"{self.batch_size}".encode())
        sha.update(self._data.offsets.data)
        for tensor in (self.inputs, self.targets, self._data.samples, self._first):
            if tensor is not None:
                # The array's own memory, not a copy of the data.
                sha.update(tensor.cpu().contiguous().numpy().data)
        return sha.hexdigest()

    def start(self, seed: int) -> torch.Tensor:
        """The first global model: made anew for the seed, or the given module's."""
        return self._first.clone() if self._make is None else self.flatten(self._made(seed)).to(self._first.device)

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
            raise InputError(f"size must be a number of samples a worker, or a part of them above 0.0, not {size!r}.")
        taken: Indices = np.maximum(np.rint(size * sizes), 1).astype(np.int64)
        return taken

    def subset(
        self, size: int | float, streams: Streams, *, round: int = 0, copy: int = 0, workers: Indices | None = None
    ) -> Self:
        """A federation whose shards are uniformly random subsets of the workers' shards; the data are not copied.

        Args:
            size: samples a worker (all, where it has fewer), or the part of them as a float.
            streams: where the subsets come from; worker i's is drawn at the address (round, i, copy).
            round: of the address.
            copy: of the address; subsets at two addresses are independent.
            workers: whose subsets, as workers 0, 1, … of the new federation; all workers' if not given.

        >>> x, y, shards = torch.randn(8, 3), torch.arange(8) % 2, [range(4), range(4, 8)]
        >>> whole = SupervisedFederation(lambda: nn.Linear(3, 2), functional.cross_entropy, x, y, shards)
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
