"""Chains of fully connected layers, computed for several workers in one matrix product.

A row of a matrix of flat models is read as the layers' weights and biases without a copy, and every product runs over
all rows at once. The backward pass is written out, so that a local SGD step adds the outer product of a layer straight
to its weights: the gradient of the widest layer, which is most of the model, is never stored. What it
takes beside the bare products and a loop under autograd is in docs/results/speed.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Gather = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Inputs and targets of the samples with these numbers, in the shape of the numbers."""

_BYTES = 3_200_000
"""Of models in one product: ten rows of the paper's MLP. With five, a worker's step takes a tenth longer."""
_MOST = 32
_LINE = 64
"""Bytes in a line of the cache. Where rows do not begin on one, products take up to twice as long."""


def squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Half the squared distance to the targets (classes count as unit vectors), averaged over the batch.

    >>> float(squared_error(torch.tensor([[0.0, 0.0]]), torch.tensor([1])))
    0.5
    """
    if targets.dtype == torch.int64:
        targets = functional.one_hot(targets, outputs.shape[-1]).to(outputs.dtype)
    return (outputs - targets.reshape(outputs.shape)).square().sum(dim=-1).mean() / 2


class _Layer(NamedTuple):
    """Where a fully connected layer stands in a flat model, and what follows it."""

    weight: slice
    bias: slice | None
    shape: tuple[int, int]
    relu: bool


def _layers(module: nn.Module) -> list[_Layer] | None:
    """The layers of a chain of Linear and ReLU that ends with a Linear; ``None`` for any other module.

    A leading Flatten is allowed.
    """
    parts = list(module) if type(module) is nn.Sequential else [module]
    if parts and type(parts[0]) is nn.Flatten and (parts[0].start_dim, parts[0].end_dim) == (1, -1):
        parts = parts[1:]
    if len({id(part) for part in parts if isinstance(part, nn.Linear)}) < sum(type(p) is nn.Linear for p in parts):
        return None  # a layer used twice has one weight in the flat model
    layers: list[_Layer] = []
    first = 0
    for part, following in pairwise([*parts, None]):
        if type(part) is nn.Linear:
            weight = slice(first, first + part.weight.numel())
            bias = None if part.bias is None else slice(weight.stop, weight.stop + part.bias.numel())
            first = (bias or weight).stop
            layers.append(_Layer(weight, bias, (part.out_features, part.in_features), type(following) is nn.ReLU))
        elif type(part) is not nn.ReLU or not layers:
            return None
    return layers if layers and not layers[-1].relu else None


_Weights = list[tuple[torch.Tensor, torch.Tensor | None]]
"""Weight matrices and biases of the layers, stacked over the rows: views of the flat models."""


class DenseStack:
    """The operations on rows of a chain of fully connected layers under cross-entropy or squared error."""

    name = "dense"

    def __init__(self, layers: Sequence[_Layer], loss: Loss, like: torch.Tensor) -> None:
        self._layers, self._entropy = layers, loss is functional.cross_entropy
        self.rows = min(max(_BYTES // (like.numel() * like.element_size()), 1), _MOST)
        # Rows of the identity are the classes' unit vectors: looking them up is one small operation.
        self._units = torch.eye(layers[-1].shape[0], dtype=like.dtype, device=like.device)

    @classmethod
    def of(cls, module: nn.Module, loss: Loss, like: torch.Tensor) -> DenseStack | None:
        """Make it for a module that is such a chain, with flat models ``like`` this; ``None`` for any other."""
        layers = _layers(module) if loss in (functional.cross_entropy, squared_error) else None
        return None if layers is None else cls(layers, loss, like)

    def _weights(self, models: torch.Tensor) -> _Weights:
        rows = len(models)
        return [
            (
                models[:, layer.weight].view(rows, *layer.shape),
                None if layer.bias is None else models[:, layer.bias].unsqueeze(1),
            )
            for layer in self._layers
        ]

    def _targets(self, targets: torch.Tensor) -> torch.Tensor:
        """Targets as (rows, batch, outputs); classes as unit vectors."""
        if targets.dtype == torch.int64:
            chosen = self._units.index_select(0, targets.reshape(-1))
        else:
            chosen = targets.to(self._units.dtype)
        return chosen.view(*targets.shape[:2], -1)

    def _forward(self, weights: _Weights, x: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        """What goes into every layer, and the outputs."""
        entering = []
        x = x.flatten(2)
        for layer, (weight, bias) in zip(self._layers, weights, strict=True):
            entering.append(x)
            across = weight.transpose(1, 2)
            x = torch.bmm(x, across) if bias is None else torch.baddbmm(bias, x, across)
            if layer.relu:
                x = x.relu_()
        return entering, x

    def _residual(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Gradient of the summed loss with respect to the outputs."""
        return outputs.softmax(dim=2).sub_(targets) if self._entropy else outputs - targets

    def _losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean losses, one a row, added up in float64."""
        if self._entropy:
            each = outputs.logsumexp(dim=2) - (outputs * targets).sum(dim=2)
        else:
            each = (outputs - targets).square().sum(dim=2) / 2
        return each.mean(dim=1, dtype=torch.float64)

    def losses(self, models: torch.Tensor, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean loss over each row's batch: ``x`` is (rows, batch, ...)."""
        return self._losses(self._forward(self._weights(models), x)[1], self._targets(targets))

    def evaluate(
        self, models: torch.Tensor, x: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean losses over each row's batch, and their gradients."""
        weights, wanted = self._weights(models), self._targets(targets)
        entering, outputs = self._forward(weights, x)
        gradients = torch.empty_like(models, memory_format=torch.contiguous_format)
        self._backward(weights, entering, self._residual(outputs, wanted), self._weights(gradients), 0, 1 / x.shape[1])
        return self._losses(outputs, wanted), gradients

    def gradients(self, models: torch.Tensor, draws: torch.Tensor, gather: Gather) -> torch.Tensor:
        """Gradients of the mean losses over the mini-batches with these numbers, one row of them for each model."""
        x, targets = gather(draws)
        weights = self._weights(models)
        entering, outputs = self._forward(weights, x)
        gradients = torch.empty_like(models, memory_format=torch.contiguous_format)
        residual = self._residual(outputs, self._targets(targets))
        self._backward(weights, entering, residual, self._weights(gradients), 0, 1 / x.shape[1])
        return gradients

    def sample_squares(self, models: torch.Tensor, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Squared norms of the gradients of single samples, as (rows, batch); none of the gradients is made.

        A sample's gradient by a layer's weights is the outer product of what comes back and what went in, so that its
        squared norm is the product of theirs; the bias adds one more input, which is 1.
        """
        weights = self._weights(models)
        entering, outputs = self._forward(weights, x)
        back = self._residual(outputs, self._targets(targets))
        squares = torch.zeros(back.shape[:2], dtype=torch.float64, device=back.device)
        for index in range(len(self._layers) - 1, -1, -1):
            into = entering[index].square().sum(dim=2, dtype=torch.float64)
            if weights[index][1] is not None:
                into += 1
            squares.addcmul_(back.square().sum(dim=2, dtype=torch.float64), into)
            if index:
                back = torch.bmm(back, weights[index][0])
                if self._layers[index - 1].relu:
                    back = torch.ops.aten.threshold_backward(back, entering[index], 0)
        return squares

    def hessian_products(
        self, models: torch.Tensor, vectors: torch.Tensor, x: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """The Hessian of each row's mean loss times a vector, all of it and not its Gauss-Newton part.

        The forward and the backward pass are differentiated along the vector beside the passes themselves. The inputs
        do not move, so the widest layer takes three products where a gradient takes two.
        """
        weights, along = self._weights(models), self._weights(vectors)
        entering, outputs = self._forward(weights, x)
        moving, moved = self._tangent(weights, along, entering)
        if self._entropy:
            chances = outputs.softmax(dim=2)
            residual = chances - self._targets(targets)
            chances_moved = chances * moved
            turned = chances_moved.sub_(chances.mul_(chances_moved.sum(dim=2, keepdim=True)))
        else:
            residual, turned = outputs - self._targets(targets), moved
        products = torch.empty_like(models, memory_format=torch.contiguous_format)
        into, scale = self._weights(products), 1 / x.shape[1]
        ones = residual.new_ones(1, 1, 1).expand(len(models), 1, x.shape[1])
        for index in range(len(self._layers) - 1, -1, -1):
            weight, bias = into[index]
            weight.baddbmm_(turned.transpose(1, 2), entering[index], beta=0, alpha=scale)
            if bias is not None:
                bias.baddbmm_(ones, turned, beta=0, alpha=scale)
            moves = moving[index]
            if moves is None:
                break
            weight.baddbmm_(residual.transpose(1, 2), moves, alpha=scale)
            turned = torch.bmm(turned, weights[index][0]).baddbmm_(residual, along[index][0])
            residual = torch.bmm(residual, weights[index][0])
            if self._layers[index - 1].relu:
                turned, residual = (
                    torch.ops.aten.threshold_backward(part, entering[index], 0) for part in (turned, residual)
                )
        return products

    def _tangent(
        self, weights: _Weights, along: _Weights, entering: list[torch.Tensor]
    ) -> tuple[list[torch.Tensor | None], torch.Tensor]:
        """How what goes into every layer, and the outputs, move with the models; the inputs (``None``) do not."""
        moving: list[torch.Tensor | None] = [None]
        for index, x in enumerate(entering):
            weight, bias = along[index]
            across, before = weight.transpose(1, 2), moving[index]
            moved = torch.bmm(x, across) if bias is None else torch.baddbmm(bias, x, across)
            if before is not None:
                moved.baddbmm_(before, weights[index][0].transpose(1, 2))
            if self._layers[index].relu:
                moved = torch.ops.aten.threshold_backward(moved, entering[index + 1], 0)
            moving.append(moved)
        return moving[:-1], moved

    def descend(
        self, models: torch.Tensor, draws: Sequence[torch.Tensor], gather: Gather, gamma: float, decay: float
    ) -> torch.Tensor:
        """An SGD step for each entry of ``draws``: models <- decay models - gamma gradient."""
        rows, dim = models.shape
        line = _LINE // models.element_size()
        models = models.new_empty(rows, -(-dim // line) * line)[:, :dim].copy_(models)
        weights = self._weights(models)
        for draw in draws:
            x, targets = gather(draw)
            entering, outputs = self._forward(weights, x)
            residual = self._residual(outputs, self._targets(targets))
            self._backward(weights, entering, residual, weights, decay, -gamma / x.shape[1])
        return models

    def _backward(
        self,
        weights: _Weights,
        entering: list[torch.Tensor],
        residual: torch.Tensor,
        into: _Weights,
        keep: float,
        scale: float,
    ) -> None:
        """Go back through the layers: ``into`` <- keep ``into`` + scale gradient.

        A layer's weights pass the residual on before they are themselves changed, so ``into`` may be ``weights``.
        """
        rows, batch, _ = residual.shape
        ones = residual.new_ones(1, 1, 1).expand(rows, 1, batch)
        for index in range(len(self._layers) - 1, -1, -1):
            x = entering[index]
            back = None
            if index:
                back = torch.bmm(residual, weights[index][0])
                if self._layers[index - 1].relu:
                    back = torch.ops.aten.threshold_backward(back, x, 0)
            weight, bias = into[index]
            weight.baddbmm_(residual.transpose(1, 2), x, beta=keep, alpha=scale)
            if bias is not None:
                bias.baddbmm_(ones, residual, beta=keep, alpha=scale)
            if back is not None:
                residual = back
