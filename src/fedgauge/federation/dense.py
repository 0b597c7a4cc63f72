"""Stacks of fully connected layers, computed for several workers in one matrix product.

A row of a matrix of flat models is read as the layers' weights and biases without a copy, and every product runs over
all rows at once. The backward pass is written out, so that a local SGD step adds the outer product of a layer straight
to its weights: the gradient of the widest layer, which is most of the model, is never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


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
    """The layers of a chain of Linear and ReLU (a leading Flatten is allowed); ``None`` for any other module."""
    parts = list(module) if isinstance(module, nn.Sequential) else [module]
    if parts and isinstance(parts[0], nn.Flatten):
        parts = parts[1:]
    layers: list[_Layer] = []
    first = 0
    for part, following in pairwise([*parts, None]):
        if isinstance(part, nn.Linear):
            weight = slice(first, first + part.weight.numel())
            bias = None if part.bias is None else slice(weight.stop, weight.stop + part.bias.numel())
            first = (bias or weight).stop
            relu = isinstance(following, nn.ReLU)
            layers.append(_Layer(weight, bias, (part.out_features, part.in_features), relu))
        elif not isinstance(part, nn.ReLU) or not layers:
            return None
    return layers or None


class DenseStack:
    """The batched operations of a chain of fully connected layers under cross-entropy or squared error."""

    def __init__(self, layers: Sequence[_Layer], loss: Loss) -> None:
        self._layers, self._loss = layers, loss

    @classmethod
    def of(cls, module: nn.Module, loss: Loss) -> DenseStack | None:
        """Make it for a module that is such a chain; ``None`` for any other."""
        layers = _layers(module) if loss in (functional.cross_entropy, squared_error) else None
        return None if layers is None else cls(layers, loss)

    def _weights(self, models: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        rows = len(models)
        return [
            (
                models[:, layer.weight].view(rows, *layer.shape),
                None if layer.bias is None else models[:, layer.bias].unsqueeze(1),
            )
            for layer in self._layers
        ]

    def _forward(
        self, weights: list[tuple[torch.Tensor, torch.Tensor | None]], x: torch.Tensor
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """What goes into every layer, and the outputs."""
        entering = []
        for layer, (weight, bias) in zip(self._layers, weights, strict=True):
            entering.append(x)
            across = weight.transpose(1, 2)
            x = torch.bmm(x, across) if bias is None else torch.baddbmm(bias, x, across)
            if layer.relu:
                x = x.relu_()
        return entering, x

    def _residual(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Gradient of the summed loss with respect to the outputs."""
        residual = outputs.softmax(dim=2) if self._loss is functional.cross_entropy else outputs.clone()
        if targets.dtype == torch.int64:
            residual.scatter_add_(2, targets.unsqueeze(2), residual.new_full((*targets.shape, 1), -1.0))
            return residual
        return residual.sub_(targets.view_as(residual))

    def losses(self, models: torch.Tensor, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Sum of the losses over each row's batch: ``x`` is (rows, batch, inputs)."""
        _, outputs = self._forward(self._weights(models), x)
        return self._summed(outputs, targets)

    def _summed(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if self._loss is functional.cross_entropy:
            picked = functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
            return picked.view(targets.shape).sum(dim=1, dtype=torch.float64)
        batch = outputs.shape[1]
        each = torch.func.vmap(squared_error)(outputs, targets)
        return each.double() * batch

    def evaluate(
        self, models: torch.Tensor, x: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums of losses and of gradients over each row's batch."""
        weights = self._weights(models)
        entering, outputs = self._forward(weights, x)
        gradients = torch.empty_like(models)
        self._backward(weights, entering, self._residual(outputs, targets), self._weights(gradients), 0.0, 1.0)
        return self._summed(outputs, targets), gradients

    def gradients(self, models: torch.Tensor, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Sums of gradients over each row's batch."""
        weights = self._weights(models)
        entering, outputs = self._forward(weights, x)
        gradients = torch.empty_like(models)
        self._backward(weights, entering, self._residual(outputs, targets), self._weights(gradients), 0.0, 1.0)
        return gradients

    def descend(self, models: torch.Tensor, x: torch.Tensor, targets: torch.Tensor, gamma: float, decay: float) -> None:
        """One SGD step on the mean loss of each row's batch, in place: models <- decay models - gamma gradient."""
        weights = self._weights(models)
        entering, outputs = self._forward(weights, x)
        residual = self._residual(outputs, targets)
        self._backward(weights, entering, residual, weights, decay, -gamma / x.shape[1])

    def _backward(
        self,
        weights: list[tuple[torch.Tensor, torch.Tensor | None]],
        entering: list[torch.Tensor],
        residual: torch.Tensor,
        into: list[tuple[torch.Tensor, torch.Tensor | None]],
        keep: float,
        scale: float,
    ) -> None:
        """Go back through the layers: ``into`` <- keep ``into`` + scale gradient.

        A layer's weights pass the residual on before they are themselves changed, so ``into`` may be ``weights``.
        """
        for index in range(len(self._layers) - 1, -1, -1):
            x = entering[index]
            back = None
            if index:
                back = torch.bmm(residual, weights[index][0])
                if self._layers[index - 1].relu:
                    back.mul_(x > 0)
            weight, bias = into[index]
            weight.baddbmm_(residual.transpose(1, 2), x, beta=keep, alpha=scale)
            if bias is not None:
                summed = residual.sum(dim=1, keepdim=True)
                bias.mul_(keep).add_(summed, alpha=scale) if keep else torch.mul(summed, scale, out=bias)
            if back is not None:
                residual = back
