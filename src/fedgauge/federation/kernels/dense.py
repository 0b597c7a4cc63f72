"""Chains of fully connected layers, computed for several workers in one matrix product.

A row of a matrix of flat models is read as the layers' weights and biases without a copy, and every product runs over
all rows at once. The backward pass is written out, so that a local SGD step adds the outer product of a layer straight
to its weights: the gradient of the widest layer, which is most of the model, is never stored. How it
compares with the bare products and with a loop under autograd is in docs/results/speed.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar, NamedTuple, Self

import torch
from torch import nn

from fedgauge.federation.kernels.base import Criterion, Gather, Learner, Loss

_BYTES = 3_200_000
"""Size of the models in one product: ten rows of the paper's MLP. With five, a worker's step takes a tenth longer."""
_MOST = 32
"""The largest number of rows in one product."""
_SAMPLES = 512
"""Samples of a row in one product of an exact pass; four times as many leave the cache before they are used again."""
_LINE = 64
"""Bytes in a cache line. Where rows do not begin on one, products take up to twice as long."""
_SMALL = 4096
"""Entries of a product below which it costs more to take the rows one by one than to copy it."""


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


def _pieces(x: torch.Tensor, targets: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """A few samples of every row at a time."""
    return zip(torch.split(x, _SAMPLES, dim=1), torch.split(targets, _SAMPLES, dim=1), strict=True)


def _rows_like(models: torch.Tensor) -> torch.Tensor:
    """Room for rows of this shape, each beginning on a cache line."""
    rows, dim = models.shape
    line = _LINE // models.element_size()
    return models.new_empty(rows, -(-dim // line) * line)[:, :dim]


def _accumulate(into: torch.Tensor, left: torch.Tensor, right: torch.Tensor, keep: float, scale: float) -> None:
    """Set ``into`` <- keep ``into`` + scale left right."""
    if into.is_contiguous() or into[0].numel() > _SMALL:
        into.baddbmm_(left, right, beta=keep, alpha=scale)
    elif keep:
        # A product into rows that lie apart would be computed row by row.
        into.mul_(keep).add_(torch.bmm(left, right), alpha=scale)
    else:
        torch.mul(torch.bmm(left, right), scale, out=into)


def _ones(residual: torch.Tensor) -> torch.Tensor:
    """Ones that sum a residual over the batch when multiplied by it; a view of one number would be copied each time."""
    return residual.new_ones(len(residual), 1, residual.shape[1])


_Weights = list[tuple[torch.Tensor, torch.Tensor | None]]
"""Weight matrices and biases of the layers, stacked over the rows: views of the flat models."""


class DenseStack:
    """The operations on rows of a chain of fully connected layers under cross-entropy or squared error."""

    name: ClassVar[str] = "dense"
    needs: ClassVar[str] = "a chain of Linear and ReLU under cross-entropy or squared error"
    samples = 2048  # larger products are faster, and blocks are never larger

    def __init__(self, layers: Sequence[_Layer], loss: Loss, model: torch.Tensor) -> None:
        self._layers, self._criterion = layers, Criterion(loss, layers[-1].shape[0], model)
        self.rows = min(max(_BYTES // (model.numel() * model.element_size()), 1), _MOST)
        self.summary = f"up to {self.rows} workers in one product, with the backward pass written out"

    @classmethod
    def of(cls, learner: Learner) -> Self | None:
        """Make the kernel for a module that is such a chain; ``None`` for any other."""
        layers = _layers(learner.module) if Criterion.knows(learner.loss, learner.targets) else None
        return None if layers is None else cls(layers, learner.loss, learner.model)

    @classmethod
    def example(cls) -> tuple[nn.Module, tuple[int, ...]]:
        """One hidden layer."""
        return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), (6,)

    def _weights(self, models: torch.Tensor) -> _Weights:
        rows = len(models)
        return [
            (
                models[:, layer.weight].view(rows, *layer.shape),
                None if layer.bias is None else models[:, layer.bias].unsqueeze(1),
            )
            for layer in self._layers
        ]

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

    def losses(self, models: torch.Tensor, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean loss over each row's batch: ``x`` is (rows, batch, ...)."""
        weights = self._weights(models)
        losses = models.new_zeros(len(models), dtype=torch.float64)
        for inputs, wanted in _pieces(x, targets):
            self._criterion.residual(self._forward(weights, inputs)[1], self._criterion.vectors(wanted), losses)
        return losses / x.shape[1]

    def evaluate(
        self, models: torch.Tensor, x: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean losses over each row's batch, and their gradients."""
        losses = models.new_zeros(len(models), dtype=torch.float64)
        gradients = self.gradients(models, x, targets, losses)
        return losses / x.shape[1], gradients

    def gradients(
        self, models: torch.Tensor, x: torch.Tensor, targets: torch.Tensor, losses: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Gradients of the mean losses over each row's batch; the summed losses are added to ``losses``."""
        weights = self._weights(models)
        gradients = _rows_like(models)
        into, keep = self._weights(gradients), 0.0
        for inputs, wanted in _pieces(x, targets):
            entering, outputs = self._forward(weights, inputs)
            residual = self._criterion.residual(outputs, self._criterion.vectors(wanted), losses)
            self._backward(weights, entering, residual, into, keep, 1 / x.shape[1], _ones(residual))
            keep = 1.0
        return gradients

    def descend(
        self,
        models: torch.Tensor,
        draws: Sequence[torch.Tensor],
        inputs: Gather,
        targets: Gather,
        gamma: float,
        decay: float,
    ) -> torch.Tensor:
        """Take an SGD step for each entry of ``draws``: models <- decay models - gamma gradient."""
        # Each layer's rows are contiguous while they move: a product into rows that lie apart is computed row by row.
        weights: _Weights = [
            (weight.clone(memory_format=torch.contiguous_format), None if bias is None else bias.clone())
            for weight, bias in self._weights(models)
        ]
        wanted = torch.split(self._criterion.vectors(targets(torch.cat(list(draws)))), len(models))
        ones = wanted[0].new_ones(len(models), 1, draws[0].shape[1])
        for draw, target in zip(draws, wanted, strict=True):
            entering, outputs = self._forward(weights, inputs(draw))
            residual = self._criterion.residual(outputs, target)
            self._backward(weights, entering, residual, weights, decay, -gamma / draw.shape[1], ones)
        moved = _rows_like(models)
        for layer, into in zip(weights, self._weights(moved), strict=True):
            for part, place in zip(layer, into, strict=True):
                if part is not None and place is not None:
                    place.copy_(part)
        return moved

    def _backward(
        self,
        weights: _Weights,
        entering: list[torch.Tensor],
        residual: torch.Tensor,
        into: _Weights,
        keep: float,
        scale: float,
        ones: torch.Tensor,
    ) -> None:
        """Go back through the layers: ``into`` <- keep ``into`` + scale gradient.

        A layer's weights pass the residual on before they are themselves changed, so ``into`` may be ``weights``.
        """
        for index in range(len(self._layers) - 1, -1, -1):
            back = self._back(index, residual, weights, entering) if index else residual
            weight, bias = into[index]
            _accumulate(weight, residual.transpose(1, 2), entering[index], keep, scale)
            if bias is not None:
                _accumulate(bias, ones, residual, keep, scale)
            residual = back

    def _back(
        self, index: int, residual: torch.Tensor, weights: _Weights, entering: list[torch.Tensor]
    ) -> torch.Tensor:
        """A residual before a layer from that after it."""
        return self._mask(index, torch.bmm(residual, weights[index][0]), entering)

    def _mask(self, index: int, values: torch.Tensor, entering: list[torch.Tensor]) -> torch.Tensor:
        """Zero, in place, where the ReLU before this layer, if there is one, gave zero."""
        if self._layers[index - 1].relu:
            torch.ops.aten.threshold_backward.grad_input(values, entering[index], 0, grad_input=values)
        return values

    def sample_squares(self, models: torch.Tensor, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Squared norms of the gradients of single samples, as (rows, batch), without storing any of the gradients.

        A sample's gradient by a layer's weights is the outer product of what comes back and what went in, so that its
        squared norm is the product of theirs; the bias adds one more input, which is 1.
        """
        weights = self._weights(models)
        entering, outputs = self._forward(weights, x)
        back = self._criterion.residual(outputs, self._criterion.vectors(targets))
        squares = torch.zeros(back.shape[:2], dtype=torch.float64, device=back.device)
        for index in range(len(self._layers) - 1, -1, -1):
            into = entering[index].square().sum(dim=2, dtype=torch.float64)
            if weights[index][1] is not None:
                into += 1
            squares.addcmul_(back.square().sum(dim=2, dtype=torch.float64), into)
            if index:
                back = self._back(index, back, weights, entering)
        return squares

    def hessian_products(
        self, models: torch.Tensor, vectors: torch.Tensor, x: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """The Hessian of each row's mean loss times a vector, all of it and not its Gauss-Newton part.

        The forward and the backward pass are differentiated along the vector, next to the passes themselves. The
        inputs do not move, so the widest layer takes three products where a gradient takes two.
        """
        weights, along = self._weights(models), self._weights(vectors)
        products = _rows_like(models)
        into, keep = self._weights(products), 0.0
        for inputs, wanted in _pieces(x, targets):
            self._turn(weights, along, inputs, self._criterion.vectors(wanted), into, keep, 1 / x.shape[1])
            keep = 1.0
        return products

    def _turn(
        self,
        weights: _Weights,
        along: _Weights,
        x: torch.Tensor,
        targets: torch.Tensor,
        into: _Weights,
        keep: float,
        scale: float,
    ) -> None:
        """How the gradient turns along a direction: ``into`` <- keep ``into`` + scale Hessian product."""
        entering, outputs = self._forward(weights, x)
        moving, moved = self._tangent(weights, along, entering)
        residual, turned = self._criterion.turn(outputs, moved, targets)
        ones = _ones(residual)
        for index in range(len(self._layers) - 1, -1, -1):
            weight, bias = into[index]
            _accumulate(weight, turned.transpose(1, 2), entering[index], keep, scale)
            if bias is not None:
                _accumulate(bias, ones, turned, keep, scale)
            moves = moving[index]
            if moves is None:
                break
            _accumulate(weight, residual.transpose(1, 2), moves, 1.0, scale)
            turned = torch.bmm(turned, weights[index][0]).baddbmm_(residual, along[index][0])
            turned = self._mask(index, turned, entering)
            residual = self._back(index, residual, weights, entering)

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
            if index + 1 < len(entering):
                moved = self._mask(index + 1, moved, entering)
            moving.append(moved)
        return moving[:-1], moved
