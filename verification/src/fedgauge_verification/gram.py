"""Gram matrices and moments of a federation's data, one worker at a time, for models of one fully connected layer.

W is the matrix of weights with the biases as its last column, and x is an input, with a 1 appended if there is a bias.
The outputs are W x. Every Hessian of such a model is a sum of Kronecker products with x x', so that its constants come
from matrices of the size of x, never from matrices of the size of the model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedgauge.base.errors import InputError
from fedgauge.base.types import Floats
from fedgauge.federation.kernels.base import has_frozen, has_hooks, squared_error
from fedgauge.federation.supervised import SupervisedFederation

_EPS = float(np.finfo(np.float64).eps)
_KEPT_BYTES = 2**28
"""The bytes of Gram matrices that are kept from one pass over the workers to the next."""


class LayerMoments(NamedTuple):
    """LayerMoments of a worker's samples, with inputs x and targets y.

    Attributes:
        size: the number of samples.
        gram: the mean of x x'.
        mean: the mean of x.
        moment: the mean of y x', one row per output.
        target: the mean of y.
        power: the mean of |y|^2.
        longest: the largest |x|.
        peak: the largest absolute entry of any x.
        key: a digest of the samples, by which equal workers are recognised.
        inputs_key: the same of the inputs alone, by which equal Hessians are.
    """

    size: int
    gram: Floats
    mean: Floats
    moment: Floats
    target: Floats
    power: float
    longest: float
    peak: float
    key: bytes
    inputs_key: bytes


def eigenvalues(matrix: Floats) -> Floats:
    """Eigenvalues of a symmetric matrix in increasing order; by torch, which respects the limit on its threads."""
    values: Floats = torch.linalg.eigvalsh(torch.from_numpy(matrix)).numpy()
    return values


def product(left: Floats, right: Floats) -> Floats:
    """A product of matrices; by torch, for the same reason."""
    result: Floats = (torch.from_numpy(left) @ torch.from_numpy(right)).numpy()
    return result


def largest_eigenvalue(matrix: Floats, samples: int) -> float:
    """An upper bound on the largest eigenvalue of an exact Gram matrix, from the computed one.

    The norm of the error of a mean over ``samples`` products is at most samples * eps * trace, in whatever order they
    were added. The error of the eigenvalues is at most a small multiple of dim * eps * norm; 8 is ample.

    >>> largest_eigenvalue(np.diag([1.0, 3.0]), samples=2) >= 3.0
    True
    """
    top = float(eigenvalues(matrix)[-1])
    return top + _EPS * (8 * len(matrix) + samples) * float(np.abs(np.diag(matrix)).sum())


def layer(federation: SupervisedFederation) -> nn.Linear:
    """The only layer of a federation of linear or softmax regression; any other model is refused with an error."""
    if has_hooks(federation.module):
        raise InputError(
            "Constants cannot be certified for a module with hooks, because they change what it computes; remove the"
            " hooks, or measure without the reading 'certified'."
        )
    if federation.remarks:
        raise InputError(f"Constants cannot be certified. {federation.remarks[0]}")
    if federation.is_lazy:
        raise InputError(
            "Constants cannot be certified for data that are read lazily, because their fingerprint covers only a few"
            " samples; put the data in memory, or measure without the reading 'certified'."
        )
    if has_frozen(federation.module):
        raise InputError(
            "Constants can be certified only where every parameter is trained; train the whole layer, or measure"
            " without the reading 'certified'."
        )
    parts = list(federation.module) if type(federation.module) is nn.Sequential else [federation.module]
    if parts and type(parts[0]) is nn.Flatten and (parts[0].start_dim, parts[0].end_dim) == (1, -1):
        parts = parts[1:]
    convex = federation.loss in (functional.cross_entropy, squared_error)
    if len(parts) != 1 or type(parts[0]) is not nn.Linear or not convex:
        raise InputError(
            "Constants can be certified only for one Linear layer under cross-entropy or squared error, because its"
            " curvature is known everywhere; choose the model softmax or linear."
        )
    return parts[0]


class LinearDesign:
    """A federation of one layer, as matrices in float64."""

    def __init__(self, federation: SupervisedFederation) -> None:
        linear = layer(federation)
        self.federation = federation
        self.bias = linear.bias is not None
        self.outputs, self.inputs = linear.out_features, linear.in_features
        self.width = self.inputs + self.bias
        self.num_workers = federation.num_workers
        self.sizes = federation.sizes(np.arange(self.num_workers)).tolist()
        self.samples = sum(self.sizes)
        self.worker = lru_cache(max(_KEPT_BYTES // (8 * self.width**2), 1))(self._worker)

    def matrix(self, model: torch.Tensor) -> Floats:
        """A flat model as the matrix W, one row per output."""
        flat = model.detach().cpu().double().numpy()
        parts = np.split(flat, [self.outputs * self.inputs])
        return np.concatenate([parts[0].reshape(self.outputs, -1), parts[1].reshape(self.outputs, -1)], axis=1)

    def flat(self, matrix: Floats) -> Floats:
        """The flat model of a matrix W: the weights, then the biases."""
        return np.concatenate([matrix[:, : self.inputs].ravel(), matrix[:, self.inputs :].ravel()])

    def blocks(self, worker: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """A worker's inputs, with a 1 for the bias, and its targets (classes as unit vectors), in float64."""
        for x, y in self.federation.blocks(worker):
            x = x.flatten(1).double()
            x = torch.cat([x, x.new_ones(len(x), 1)], dim=1) if self.bias else x
            y = functional.one_hot(y, self.outputs) if y.dtype == torch.int64 else y
            yield x, y.reshape(len(y), -1).double()

    def _worker(self, worker: int) -> LayerMoments:
        size = self.sizes[worker]
        gram, moment = np.zeros((self.width, self.width)), np.zeros((self.outputs, self.width))
        mean, target, power = np.zeros(self.width), np.zeros(self.outputs), 0.0
        longest, peak, sha, inputs = 0.0, 0.0, hashlib.sha256(), hashlib.sha256()
        for x, y in self.blocks(worker):
            gram += (x.T @ x).cpu().numpy()
            moment += (y.T @ x).cpu().numpy()
            mean += x.sum(dim=0).cpu().numpy()
            target += y.sum(dim=0).cpu().numpy()
            power += float(y.square().sum())
            longest = max(longest, float(x.square().sum(dim=1).max()) ** 0.5)
            peak = max(peak, float(x.abs().max()))
            for part in (x, y):
                sha.update(part.cpu().contiguous().numpy().data)
            inputs.update(x.cpu().contiguous().numpy().data)
        return LayerMoments(
            size=size,
            gram=(gram + gram.T) / (2 * size),
            mean=mean / size,
            moment=moment / size,
            target=target / size,
            power=power / size,
            longest=longest,
            peak=peak,
            key=sha.digest(),
            inputs_key=inputs.digest(),
        )

    @cached_property
    def mean(self) -> LayerMoments:
        """The moments of f: averages over workers, and the largest ``longest`` and ``peak``."""
        first, N = self.worker(0), self.num_workers
        names = ("gram", "mean", "moment", "target", "power")
        total = {name: np.zeros_like(getattr(first, name)) for name in names}
        longest = peak = 0.0
        for part in map(self.worker, range(N)):
            for name in names:
                # Sum the differences from the first worker, so that the mean of equal matrices is exactly that matrix.
                total[name] = total[name] + (getattr(part, name) - getattr(first, name))
            longest, peak = max(longest, part.longest), max(peak, part.peak)
        means = {name: getattr(first, name) + total[name] / N for name in names}
        return LayerMoments(size=self.samples, longest=longest, peak=peak, key=b"", inputs_key=b"", **means)

    @cached_property
    def one_gram(self) -> bool:
        """Whether all workers have the same inputs, and so exactly the same Gram matrix."""
        return len({self.worker(worker).inputs_key for worker in range(self.num_workers)}) == 1

    def combined(self, weights: Floats) -> Floats:
        """The mean over workers of their Gram matrices, each times its weight."""
        total = np.zeros((self.width, self.width))
        for worker in np.flatnonzero(weights).tolist():
            total += weights[worker] / self.num_workers * self.worker(worker).gram
        return total

    @cached_property
    def spread(self) -> Floats:
        """The mean over workers of (G_i - G)^2."""
        total = np.zeros((self.width, self.width))
        for worker in range(self.num_workers):
            off = self.worker(worker).gram - self.mean.gram
            total += product(off, off) / self.num_workers
        return total
