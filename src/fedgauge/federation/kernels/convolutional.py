"""Local steps of chains of convolutions and fully connected layers, a worker at a time, with backward written out.

Under autograd the gradient of the widest dense layer is stored and then added to its weights, and every ReLU looks at
all that the pooling after it throws away. Here a dense layer's outer product goes straight to its weights, pooling
comes before ReLU (the maximum of both is the same), and weights stay in the order that convolutions take them in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from fedgauge.federation.kernels.losses import Criterion, Loss

_aten = torch.ops.aten
Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]
"""Inputs and targets, one pair a step."""


def _pair(value: int | Sequence[int]) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


_Held = tuple[Any, Any]
"""A layer's weight and bias; ``None`` for what it has not."""


class _Linear:
    def __init__(self, part: nn.Linear) -> None:
        self.biased = part.bias is not None

    def forward(self, x: torch.Tensor, held: _Held) -> tuple[torch.Tensor, Any]:
        weight, bias = held
        return (x.mm(weight.t()) if bias is None else torch.addmm(bias, x, weight.t())), x

    def backward(self, x: Any, residual: torch.Tensor, held: _Held, first: bool, keep: float, scale: float) -> Any:
        weight, bias = held
        back = None if first else residual.mm(weight)
        weight.addmm_(residual.t(), x, beta=keep, alpha=scale)
        if bias is not None:
            bias.mul_(keep).add_(residual.sum(dim=0), alpha=scale)
        return back


class _Convolution:
    def __init__(self, part: nn.Conv2d) -> None:
        self.biased = part.bias is not None
        self._channels = [part.out_channels] if self.biased else None
        padding = [side for side in part.padding if isinstance(side, int)]
        self._how, self._groups = (list(part.stride), padding, list(part.dilation)), part.groups

    def forward(self, x: torch.Tensor, held: _Held) -> tuple[torch.Tensor, Any]:
        return torch.conv2d(x, *held, *self._how, self._groups), x

    def backward(self, x: Any, residual: torch.Tensor, held: _Held, first: bool, keep: float, scale: float) -> Any:
        asked = [not first, True, self.biased]
        back, *gradients = _aten.convolution_backward(
            residual, x, held[0], self._channels, *self._how, False, [0, 0], self._groups, asked
        )
        for part, gradient in zip(held, gradients, strict=True):
            if part is not None:
                part.mul_(keep).add_(gradient, alpha=scale)
        return back


class _ReLU:
    def forward(self, x: torch.Tensor, held: _Held) -> tuple[torch.Tensor, Any]:
        return x.relu_(), x

    def backward(self, x: Any, residual: torch.Tensor, *_: object) -> Any:
        return _aten.threshold_backward(residual, x, 0)


class _Pool:
    def __init__(self, part: nn.MaxPool2d) -> None:
        sizes = (part.kernel_size, part.stride, part.padding, part.dilation)
        self._how = (*map(_pair, sizes), part.ceil_mode)

    def forward(self, x: torch.Tensor, held: _Held) -> tuple[torch.Tensor, Any]:
        largest, where = _aten.max_pool2d_with_indices(x, *self._how)
        return largest, (x, where)

    def backward(self, saved: Any, residual: torch.Tensor, *_: object) -> Any:
        x, where = saved
        return _aten.max_pool2d_with_indices_backward(residual, x, *self._how, where)


class _Flatten:
    def forward(self, x: torch.Tensor, held: _Held) -> tuple[torch.Tensor, Any]:
        return x.flatten(1), x.shape

    def backward(self, shape: Any, residual: torch.Tensor, *_: object) -> Any:
        return residual.view(shape)


_Layer = _Linear | _Convolution | _ReLU | _Pool | _Flatten


def _layer(part: nn.Module) -> _Layer | None:
    """A layer of the kinds that are written out; ``None`` for any other."""
    if type(part) is nn.Linear:
        return _Linear(part)
    if type(part) is nn.Conv2d and part.padding_mode == "zeros" and not isinstance(part.padding, str):
        return _Convolution(part)
    if type(part) is nn.MaxPool2d and not part.return_indices:
        return _Pool(part)
    if type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1):
        return _Flatten()
    return _ReLU() if type(part) is nn.ReLU else None


class ConvolutionalChain:
    """The local steps of one row for a chain of convolutions, pooling, ReLU and dense layers."""

    name = "convolutional"

    def __init__(self, layers: list[_Layer], criterion: Criterion) -> None:
        self._layers, self._criterion = layers, criterion
        for index in range(len(layers) - 1):
            # A pass of bubbles: every ReLU moves behind the pooling that follows it.
            if isinstance(layers[index], _ReLU) and isinstance(layers[index + 1], _Pool):
                layers[index : index + 2] = layers[index + 1], layers[index]

    @classmethod
    def of(cls, module: nn.Module, loss: Loss, like: torch.Tensor) -> ConvolutionalChain | None:
        """Make it for a module that begins with a convolution, ends dense and is such a chain; ``None`` for others."""
        parts = list(module) if type(module) is nn.Sequential else []
        if not parts or not isinstance(parts[0], nn.Conv2d) or type(parts[-1]) is not nn.Linear:
            return None
        weighted = [id(part) for part in parts if isinstance(part, nn.Linear | nn.Conv2d)]
        layers = [_layer(part) for part in parts]
        known = [layer for layer in layers if layer is not None]
        if len(known) < len(layers) or len(set(weighted)) < len(weighted) or not Criterion.knows(loss):
            return None  # also where a layer that is used twice has one weight in the flat model
        return cls(known, Criterion(loss, parts[-1].out_features, like))

    def descend(self, parameters: Sequence[torch.Tensor], batches: Batches, gamma: float, decay: float) -> None:
        """An SGD step for each batch, in place: parameters <- decay parameters - gamma gradient."""
        ahead = iter(parameters)
        held: list[_Held] = []
        for layer in self._layers:
            weight = bias = None
            if isinstance(layer, _Linear | _Convolution):
                weight, bias = next(ahead), next(ahead) if layer.biased else None
            held.append((weight, bias))
        # Copies of the convolutions' weights in the order that they are taken in, to be put back.
        moving = [
            (weight.contiguous(memory_format=torch.channels_last), bias) if isinstance(layer, _Convolution) else pair
            for layer, pair in zip(self._layers, held, strict=True)
            for weight, bias in [pair]
        ]
        for x, targets in batches:
            self._step(moving, x.contiguous(memory_format=torch.channels_last), targets, gamma, decay)
        for (weight, _), (moved, _) in zip(held, moving, strict=True):
            if moved is not weight:
                weight.copy_(moved)

    def _step(self, held: list[_Held], x: torch.Tensor, targets: torch.Tensor, gamma: float, decay: float) -> None:
        saved = []
        for layer, own in zip(self._layers, held, strict=True):
            x, kept = layer.forward(x, own)
            saved.append(kept)
        wanted = self._criterion.vectors(targets.unsqueeze(0))
        residual = self._criterion.residual(x.unsqueeze(0), wanted)[0]
        for index in range(len(self._layers) - 1, -1, -1):
            layer = self._layers[index]
            residual = layer.backward(saved[index], residual, held[index], index == 0, decay, -gamma / len(targets))
