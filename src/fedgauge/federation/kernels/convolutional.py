"""Gradients of chains of convolutions and fully connected layers, one worker at a time, backward pass written out.

Several workers cannot share a convolution in one product. Under autograd, though, the gradient of the widest dense
layer is stored and then added to its weights, and every ReLU looks at everything that the pooling after it throws away.
Here a dense layer's outer product goes straight to its weights, pooling comes before ReLU (the result is the same), and
weights keep the memory layout that convolutions prefer. Where a convolution has few output pixels, the gradient of its
weights is one product too, which goes straight to them. Single samples' gradients and Hessian products are left to
autograd.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import nn

from fedgauge.federation.flat import FlatModule
from fedgauge.federation.kernels.autograd import Autograd
from fedgauge.federation.kernels.base import Criterion, Gather, Learner

_aten = torch.ops.aten
Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]
"""Inputs and targets, one pair per step."""


def _pair(value: int | Sequence[int]) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


_FEW_PIXELS = 64
"""Up to this many output pixels per image, one product is faster than the library's gradient of the weights.

On one core of a busy machine, with batches of 20 and several widths: by 1.2 to 1.3 times for 8x8 pixels, 1.3 to 2.1
for 4x4, and 4 to 12 for 2x2; from 16x16 on it is slower for most widths.
"""
_Held = tuple[Any, Any]
"""A layer's weight and bias; ``None`` for what it does not have."""


class _Into(NamedTuple):
    """Where a layer's gradients go: parts <- keep parts + scale gradients of the summed loss.

    A layer's weights pass the residual on before they are themselves changed, so ``parts`` may be the layer's own.
    """

    parts: _Held
    keep: float
    scale: float


class _Linear:
    def __init__(self, part: nn.Linear) -> None:
        self.biased = part.bias is not None

    def forward(self, x: torch.Tensor, held: _Held) -> tuple[torch.Tensor, Any]:
        weight, bias = held
        return (x.mm(weight.t()) if bias is None else torch.addmm(bias, x, weight.t())), x

    def backward(self, x: Any, residual: torch.Tensor, held: _Held, first: bool, into: _Into) -> Any:
        back = None if first else residual.mm(held[0])
        (weight, bias), keep, scale = into
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
        self._kernel = part.kernel_size

    def forward(self, x: torch.Tensor, held: _Held) -> tuple[torch.Tensor, Any]:
        return torch.conv2d(x, *held, *self._how, self._groups), x

    def backward(self, x: Any, residual: torch.Tensor, held: _Held, first: bool, into: _Into) -> Any:
        if self._groups == 1 and residual[0, 0].numel() <= _FEW_PIXELS:
            back = None if first else self._gradients(x, residual, held, [True, False, False])[0]
            self._multiply(x, residual, into)
            return back
        back, *gradients = self._gradients(x, residual, held, [not first, True, self.biased])
        for part, gradient in zip(into.parts, gradients, strict=True):
            if part is not None:
                part.mul_(into.keep).add_(gradient, alpha=into.scale)
        return back

    def _gradients(self, x: torch.Tensor, residual: torch.Tensor, held: _Held, wanted: list[bool]) -> Any:
        """The gradients of the inputs, the weight and the bias; ``None`` for what is not wanted."""
        return _aten.convolution_backward(
            residual, x, held[0], self._channels, *self._how, False, [0, 0], self._groups, wanted
        )

    def _multiply(self, x: torch.Tensor, residual: torch.Tensor, into: _Into) -> None:
        """Take the gradients by one product of the residuals with the inputs of every output pixel."""
        (weight, bias), keep, scale = into
        rows = residual.permute(0, 2, 3, 1).flatten(0, 2)
        flat = weight.permute(0, 2, 3, 1).view(len(weight), -1)  # no copy: channels are last in memory
        flat.addmm_(rows.t(), self._patches(x, residual.shape[2:]), beta=keep, alpha=scale)
        if bias is not None:
            bias.mul_(keep).add_(rows.sum(dim=0), alpha=scale)

    def _patches(self, x: torch.Tensor, sides: torch.Size) -> torch.Tensor:
        """The inputs of every output pixel, one row each, in the order of a weight whose channels come last."""
        (down, across), (above, left), (spread_down, spread_across) = self._how
        padded = nn.functional.pad(x, (left, left, above, above))
        image, channel, row, column = padded.stride()
        steps = (image, row * down, column * across, row * spread_down, column * spread_across, channel)
        return padded.as_strided((len(x), *sides, *self._kernel, x.shape[1]), steps).reshape(len(x) * sides.numel(), -1)


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


class Chain:
    """Gradients and local steps of one row for a chain of convolutions, pooling, ReLU and dense layers."""

    def __init__(self, layers: list[_Layer], criterion: Criterion) -> None:
        self._layers, self._criterion = layers, criterion
        for index in range(len(layers) - 1):
            # One pass of a bubble sort: every ReLU moves behind the pooling that follows it.
            if isinstance(layers[index], _ReLU) and isinstance(layers[index + 1], _Pool):
                layers[index : index + 2] = layers[index + 1], layers[index]

    @classmethod
    def of(cls, learner: Learner) -> Self | None:
        """Make it for a module that begins with a convolution, ends dense and is such a chain; ``None`` for others."""
        module = learner.module
        parts = list(module) if type(module) is nn.Sequential else []
        if not parts or not isinstance(parts[0], nn.Conv2d) or type(parts[-1]) is not nn.Linear:
            return None
        weighted = [id(part) for part in parts if isinstance(part, nn.Linear | nn.Conv2d)]
        layers = [_layer(part) for part in parts]
        known = [layer for layer in layers if layer is not None]
        if len(known) < len(layers) or len(set(weighted)) < len(weighted):
            return None  # also where a layer that is used twice has one weight in the flat model
        return cls(known, Criterion(learner.loss, parts[-1].out_features, learner.model))

    def descend(self, parameters: Sequence[torch.Tensor], batches: Batches, gamma: float, decay: float) -> None:
        """Take an SGD step for each batch, in place: parameters <- decay parameters - gamma gradient."""
        with self._moved(parameters) as held:
            for x, targets in batches:
                self._pass(held, x, targets, [_Into(own, decay, -gamma / len(targets)) for own in held])

    def evaluate(
        self, parameters: Sequence[torch.Tensor], x: torch.Tensor, targets: torch.Tensor, into: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """The mean loss over a batch; its gradient is added to ``into``, which has the parameters' shapes."""
        losses = torch.zeros(1, dtype=torch.float64, device=x.device)
        with self._moved(parameters, back=False) as held, self._moved(into) as places:
            self._pass(held, x, targets, [_Into(own, 1.0, 1 / len(targets)) for own in places], losses)
        return losses[0] / len(targets)

    @contextmanager
    def _moved(self, parameters: Sequence[torch.Tensor], back: bool = True) -> Iterator[list[_Held]]:
        """The layers' parts, those of convolutions as copies in the layout that they prefer; copied back in the end."""
        ahead, held = iter(parameters), []
        copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        for layer in self._layers:
            weight = bias = None
            if isinstance(layer, _Linear | _Convolution):
                weight, bias = next(ahead), next(ahead) if layer.biased else None
            if weight is not None and isinstance(layer, _Convolution):
                copies.append((weight, weight.contiguous(memory_format=torch.channels_last)))
                weight = copies[-1][1]
            held.append((weight, bias))
        yield held
        for weight, copy in copies if back else ():
            if copy is not weight:
                weight.copy_(copy)

    def _pass(
        self,
        held: Sequence[_Held],
        x: torch.Tensor,
        targets: torch.Tensor,
        into: Sequence[_Into],
        losses: torch.Tensor | None = None,
    ) -> None:
        """Go forward and back over a batch; its summed loss is added to ``losses``."""
        x, saved = x.contiguous(memory_format=torch.channels_last), []
        for layer, own in zip(self._layers, held, strict=True):
            x, kept = layer.forward(x, own)
            saved.append(kept)
        wanted = self._criterion.vectors(targets.unsqueeze(0))
        residual = self._criterion.residual(x.unsqueeze(0), wanted, losses)[0]
        for index in range(len(self._layers) - 1, -1, -1):
            residual = self._layers[index].backward(saved[index], residual, held[index], index == 0, into[index])


class Convolutional:
    """A chain for gradients and local steps, autograd for all else."""

    name: ClassVar[str] = "convolutional"
    needs: ClassVar[str] = (
        "images and a chain of Conv2d, MaxPool2d, ReLU, Flatten and Linear under cross-entropy or squared error"
    )
    summary = "one worker at a time, with gradients written out"
    rows = 1
    samples = 64  # what convolutions make of more images no longer fits the caches

    def __init__(self, plain: Autograd, chain: Chain, flat: FlatModule) -> None:
        self._plain, self._chain, self._flat = plain, chain, flat

    @classmethod
    def of(cls, learner: Learner) -> Self | None:
        """Make the kernel for images and a module that is such a chain; ``None`` for any other."""
        if learner.inputs.ndim != 4 or not Criterion.knows(learner.loss, learner.targets):
            return None
        chain = Chain.of(learner)
        if chain is None:
            return None
        flat = FlatModule(learner.module)
        return cls(Autograd(flat, learner.loss), chain, flat)

    @classmethod
    def example(cls) -> tuple[nn.Module, tuple[int, ...]]:
        """Two convolutions and two dense layers."""
        images = (nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 3, 2), nn.ReLU())
        return nn.Sequential(*images, nn.Flatten(), nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 3)), (2, 4, 4)

    def losses(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean loss over each row's batch: ``x`` is (rows, batch, ...)."""
        return self._plain.losses(models, x, y)

    def gradients(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Gradients of the mean losses over each row's batch."""
        return self.evaluate(models, x, y)[1]

    def evaluate(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean losses over each row's batch, and their gradients."""
        losses = torch.empty(len(models), dtype=torch.float64, device=models.device)
        gradients = torch.zeros_like(models, memory_format=torch.contiguous_format)
        for row in range(len(models)):
            parts, into = (list(self._flat.parts(each[row]).values()) for each in (models, gradients))
            losses[row] = self._chain.evaluate(parts, x[row], y[row], into)
        return losses, gradients

    def sample_squares(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Squared norms of the gradients of single samples, as (rows, batch)."""
        return self._plain.sample_squares(models, x, y)

    def hessian_products(
        self, models: torch.Tensor, vectors: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """The Hessian of each row's mean loss times that row's vector."""
        return self._plain.hessian_products(models, vectors, x, y)

    def descend(
        self,
        models: torch.Tensor,
        draws: Sequence[torch.Tensor],
        inputs: Gather,
        targets: Gather,
        gamma: float,
        decay: float,
    ) -> torch.Tensor:
        """Take an SGD step for each entry of ``draws``: models <- decay models - gamma gradient.

        A row takes all its steps before the next one begins, while its parameters are in the cache.
        """
        models = models.clone(memory_format=torch.contiguous_format)
        for row in range(len(models)):
            batches = ((inputs(draw[row]), targets(draw[row])) for draw in draws)
            self._chain.descend(list(self._flat.parts(models[row]).values()), batches, gamma, decay)
        return models
