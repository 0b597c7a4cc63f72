"""Federations of supervised learners: a torch module, a loss and one shard of data per worker."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedgauge.errors import InputError, count, non_negative
from fedgauge.federation.base import Indices
from fedgauge.federation.dense import DenseStack, Loss
from fedgauge.randomness import Purpose, Streams

_BLOCK = 2048
"""Samples in one exact pass: enough to fill the machine, few enough to fit its caches."""


def _check_module(module: nn.Module) -> None:
    """Refuse modules under which F_i is no function of the parameters alone."""
    if not any(True for _ in module.parameters()):
        raise InputError("The model has no parameters to learn; give a module that has some.")
    for name, part in module.named_modules():
        if isinstance(part, nn.Dropout | nn.Dropout2d | nn.AlphaDropout) and part.p > 0:
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
        shards: for every worker the indices of its samples.
        batch_size: samples in a mini-batch.
        l2: weight of the squared norm in the objective.
        path: ``auto``, ``dense`` (several workers in one product) or ``plain`` (any module, a worker at a time).
        device: where to compute.

    >>> x, y, shards = torch.randn(8, 3), torch.arange(8) % 2, [range(4), range(4, 8)]
    >>> federation = SupervisedFederation(lambda: nn.Linear(3, 2), functional.cross_entropy, x, y, shards)
    >>> federation.num_workers, federation.dim, federation.path
    (2, 8, 'dense')
    """

    def __init__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        loss: Loss,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        shards: Sequence[Any],
        *,
        batch_size: int = 20,
        l2: float = 0.0,
        path: str = "auto",
        device: str = "cpu",
    ) -> None:
        self.batch_size = count("batch_size", batch_size)
        self.l2 = non_negative("l2", l2)
        if len(inputs) != len(targets):
            raise InputError(f"inputs and targets must be of one length, not {len(inputs)} and {len(targets)}.")
        if inputs.is_floating_point() and not torch.isfinite(inputs).all():
            raise InputError("inputs must be finite, but hold NaN or infinity; clean the data.")
        self._make = None if isinstance(model, nn.Module) else model
        module = model if isinstance(model, nn.Module) else self._made(0)
        _check_module(module)
        self.module = module.to(device)
        self.loss = loss
        self._first = self.flatten(module)
        self._names = [name for name, _ in module.named_parameters()]
        self._shapes = [parameter.shape for parameter in module.parameters()]
        self._sizes = [parameter.numel() for parameter in module.parameters()]
        sizes = np.array([len(shard) for shard in shards], dtype=np.int64)
        if not len(sizes) or sizes.min() == 0:
            raise InputError("Every worker must have at least one sample; use fewer workers or another partition.")
        self._offsets = np.concatenate([[0], np.cumsum(sizes)])
        order = np.concatenate([np.asarray(shard, dtype=np.int64) for shard in shards])
        if order.min() < 0 or order.max() >= len(inputs):
            raise InputError(f"shards must name samples 0 to {len(inputs) - 1}, not {order.min()} to {order.max()}.")
        self.inputs, self.targets = inputs.to(device), targets.to(device)
        self._samples: torch.Tensor | None = torch.from_numpy(order).to(device)
        if len(order) == len(inputs) and len(np.unique(order)) == len(order):
            # A partition is laid out worker by worker, so that a shard is a view.
            self.inputs, self.targets, self._samples = self.inputs[order], self.targets[order], None
        self._dense = DenseStack.of(module, loss) if path != "plain" else None
        if path == "dense" and self._dense is None:
            raise InputError("path dense needs a chain of Linear and ReLU under cross-entropy or squared error.")
        self.path = "plain" if self._dense is None else "dense"
        self._check_output()

    def _made(self, seed: int) -> nn.Module:
        """A module made anew with torch's own generator seeded, which is put back afterwards."""
        if self._make is None:
            return self.module
        with torch.random.fork_rng():
            torch.manual_seed(int(Streams(seed, Purpose.START).at().integers(2**63)))
            return self._make()

    def _check_output(self) -> None:
        """Try the model on one sample, so that what does not fit is said here and not in the middle of a run."""
        x, y = self._batch(torch.zeros(1, dtype=torch.int64))
        if self.targets.dtype == torch.int64 and self.loss is functional.cross_entropy:
            outputs = self._outputs(self._first, x)
            classes, labels = outputs.shape[-1], (int(self.targets.min()), int(self.targets.max()))
            if outputs.ndim != 2 or labels[0] < 0 or labels[1] >= classes:
                raise InputError(
                    f"The model gives {tuple(outputs.shape[1:])} outputs a sample, which does not fit labels"
                    f" {labels[0]} to {labels[1]}; give it one output a class."
                )
        value = self.loss(self._outputs(self._first, x), y)
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
        parts = torch.split(row, self._sizes)
        return {name: part.view(shape) for name, part, shape in zip(self._names, parts, self._shapes, strict=True)}

    @property
    def num_workers(self) -> int:
        """N."""
        return len(self._offsets) - 1

    @property
    def dim(self) -> int:
        """The number of parameters d."""
        return len(self._first)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the data, the shards, the model's form, the loss and the batch size."""
        sha = hashlib.sha256(f"{self.module} {getattr(self.loss, '__qualname__', self.loss)} {self.l2}".encode())
        sha.update(f"{self.batch_size} {self._offsets.tolist() if self.num_workers < 10_000 else ''}".encode())
        for tensor in (self.inputs, self.targets, self._samples, self._first):
            if tensor is not None:
                sha.update(tensor.cpu().contiguous().numpy().tobytes())
        return sha.hexdigest()

    def start(self, seed: int) -> torch.Tensor:
        """The first global model: made anew for the seed, or the given module's."""
        return self._first.clone() if self._make is None else self.flatten(self._made(seed)).to(self._first.device)

    # -- data --------------------------------------------------------------------------------------------------

    def sizes(self, workers: Indices) -> Indices:
        """How many samples each of the workers has."""
        found: Indices = self._offsets[workers + 1] - self._offsets[workers]
        return found

    def _batch(self, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The samples at these places of the concatenated shards."""
        chosen = places if self._samples is None else self._samples[places]
        return self.inputs[chosen], self.targets[chosen]

    def _blocks(self, worker: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """A worker's whole shard, a block at a time."""
        first, last = int(self._offsets[worker]), int(self._offsets[worker + 1])
        for begin in range(first, last, _BLOCK):
            part = slice(begin, min(begin + _BLOCK, last))
            if self._samples is None:
                yield self.inputs[part], self.targets[part]
            else:
                yield self.inputs[self._samples[part]], self.targets[self._samples[part]]

    # -- operations on rows ------------------------------------------------------------------------------------

    def _outputs(self, row: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = torch.func.functional_call(self.module, self.unflatten(row), (x,))
        return outputs

    def _gradient(self, row: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean loss over a batch and its gradient, by autograd."""
        row = row.detach().requires_grad_()
        value = self.loss(self._outputs(row, x), y)
        (gradient,) = torch.autograd.grad(value, row)
        return value.detach(), gradient

    def evaluate(self, models: torch.Tensor, workers: Indices) -> tuple[torch.Tensor, torch.Tensor]:
        """Exact losses and gradients over the workers' whole shards, summed over blocks in float64."""
        losses = torch.zeros(len(models), dtype=torch.float64)
        gradients = torch.empty_like(models)
        for row, worker in enumerate(workers.tolist()):
            total = torch.zeros(self.dim, dtype=torch.float64, device=models.device)
            for x, y in self._blocks(worker):
                if self._dense:
                    value, gradient = self._dense.evaluate(
                        models[row : row + 1], x.flatten(1).unsqueeze(0), y.unsqueeze(0)
                    )
                    losses[row] += value[0]
                    total += gradient[0]
                else:
                    value, gradient = self._gradient(models[row], x, y)
                    losses[row] += float(value) * len(x)
                    total += gradient.double() * len(x)
            gradients[row] = total / int(self.sizes(workers[row : row + 1])[0])
        losses /= torch.from_numpy(self.sizes(workers))
        if self.l2:
            losses += self.l2 / 2 * models.double().square().sum(dim=1)
            gradients += self.l2 * models
        return losses, gradients

    def losses(self, models: torch.Tensor, workers: Indices) -> torch.Tensor:
        """F_i(x_i), one number per row, exact."""
        losses = torch.zeros(len(models), dtype=torch.float64)
        with torch.no_grad():
            for row, worker in enumerate(workers.tolist()):
                for x, y in self._blocks(worker):
                    losses[row] += float(self.loss(self._outputs(models[row], x), y)) * len(x)
        losses /= torch.from_numpy(self.sizes(workers))
        return losses + self.l2 / 2 * models.double().square().sum(dim=1)

    def gradients(self, models: torch.Tensor, workers: Indices) -> torch.Tensor:
        """The exact local gradients, one row each."""
        return self.evaluate(models, workers)[1]

    def draws(self, streams: Streams, round: int, workers: Indices, copies: Indices, steps: int) -> Sequence[Any]:
        """Places of the mini-batches' samples, one matrix of (rows, batch size) for each step."""
        places = np.empty((len(workers), steps, self.batch_size), dtype=np.int64)
        sizes = self.sizes(workers).tolist()
        for row, (worker, copy) in enumerate(zip(workers.tolist(), copies.tolist(), strict=True)):
            places[row] = streams.at(round, worker, copy).integers(sizes[row], size=places.shape[1:])
        places += self._offsets[workers][:, None, None]
        return torch.from_numpy(places).to(self.inputs.device).unbind(dim=1)

    def _stack(self, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = self._batch(places.reshape(-1))
        return x.reshape(*places.shape, -1), y.view(*places.shape, *y.shape[1:])

    def stochastic_gradients(self, models: torch.Tensor, workers: Indices, draws: Any) -> torch.Tensor:
        """Gradients of the mean loss over each row's mini-batch."""
        if self._dense:
            gradients = self._dense.gradients(models, *self._stack(draws)) / self.batch_size
        else:
            gradients = torch.stack(
                [self._gradient(row, *self._batch(places))[1] for row, places in zip(models, draws, strict=True)]
            )
        return gradients.add_(models, alpha=self.l2) if self.l2 else gradients

    def local_sgd(self, models: torch.Tensor, workers: Indices, draws: Sequence[Any], gamma: float) -> torch.Tensor:
        """All local steps of plain SGD at once: what repeated steps along ``stochastic_gradients`` give."""
        if self._dense is None:
            for draw in draws:
                models = models.sub(self.stochastic_gradients(models, workers, draw), alpha=gamma)
            return models
        models = models.clone()
        for draw in draws:
            self._dense.descend(models, *self._stack(draw), gamma, 1.0 - gamma * self.l2)
        return models

    def hessian_products(self, models: torch.Tensor, vectors: torch.Tensor, workers: Indices) -> torch.Tensor:
        """H_i(x_i) v_i over the workers' whole shards, by differentiating the gradient along v."""
        products = torch.empty_like(models)
        for row, worker in enumerate(workers.tolist()):
            total = torch.zeros(self.dim, dtype=torch.float64, device=models.device)
            for x, y in self._blocks(worker):
                point = models[row].detach().requires_grad_()
                value = self.loss(self._outputs(point, x), y)
                (gradient,) = torch.autograd.grad(value, point, create_graph=True)
                (product,) = torch.autograd.grad(gradient @ vectors[row], point)
                total += product.double() * len(x)
            products[row] = total / int(self.sizes(workers[row : row + 1])[0])
        return products.add_(vectors, alpha=self.l2) if self.l2 else products
