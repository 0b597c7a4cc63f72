"""The operations on rows for any module, by autograd, one worker at a time.

This is the plain path: it serves every module and defines what the specialised kernels must agree with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedgauge.base.errors import InputError
from fedgauge.federation.flat import FlatModule
from fedgauge.federation.kernels.base import Gather, Learner, Loss


class Autograd:
    """Losses, gradients and Hessian products of a module whose parameters are one flat row."""

    name: ClassVar[str] = "plain"
    needs: ClassVar[str] = "a torch module and a loss, which every federation of this kind has"
    summary = "one worker at a time, by autograd"
    rows = 1
    samples = 200  # with more, an LSTM takes half as long again, and no network that was tried takes less

    def __init__(self, flat: FlatModule, loss: Loss) -> None:
        self._flat, self._loss = flat, loss

    @classmethod
    def of(cls, learner: Learner) -> Self | None:
        """Make the kernel, for whatever module it is."""
        return cls(learner.flat or FlatModule(learner.module), learner.loss)

    @classmethod
    def example(cls) -> tuple[nn.Module, tuple[int, ...]]:
        """A network with group normalisation, which no other kernel serves."""
        convolution = (nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2))
        return nn.Sequential(*convolution, nn.Flatten(), nn.Linear(16, 3)), (2, 4, 4)

    def _differentiate(
        self, parts: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        with self._flat.holding(parts):
            value = self._loss(self._flat.call(x), y)
            gradients = torch.autograd.grad(value, self._trained(parts), materialize_grads=True)
        return value.detach(), gradients

    def _trained(self, parts: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        return [parts[name] for name in self._flat.trained]

    def losses(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean loss over each row's batch: ``x`` is (rows, batch, ...)."""
        with torch.no_grad():
            return torch.tensor(
                [
                    float(self._loss(self._flat.outputs(self._flat.parts(row), xs), ys))
                    for row, xs, ys in zip(models, x, y, strict=True)
                ],
                dtype=torch.float64,
                device=models.device,
            )

    def evaluate(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean losses over each row's batch, and their gradients."""
        losses = torch.empty(len(models), dtype=torch.float64, device=models.device)
        gradients = torch.empty_like(models, memory_format=torch.contiguous_format)
        for row in range(len(models)):
            leaves = self._flat.leaves(models[row])
            losses[row], parts = self._differentiate(leaves, x[row], y[row])
            flat = [part.reshape(-1) for part in parts]
            if (after := self._flat.statistics(leaves)) is not None:
                # Statistics are not differentiated: a step of rate 1 along this is what the forward pass made of them.
                flat.append(models[row, self._flat.num_trained :] - after)
            torch.cat(flat, out=gradients[row])
        return losses, gradients

    def gradients(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Gradients of the mean losses over each row's batch."""
        return self.evaluate(models, x, y)[1]

    def sample_squares(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Squared norms of the gradients of single samples, as (rows, batch), one at a time to save memory."""
        squares = torch.zeros(x.shape[:2], dtype=torch.float64, device=models.device)
        for row in range(len(models)):
            leaves = self._flat.leaves(models[row])
            for sample in range(x.shape[1]):
                one = slice(sample, sample + 1)
                _, parts = self._differentiate(leaves, x[row, one], y[row, one])
                squares[row, sample] = sum(float(part.double().square().sum()) for part in parts)
        return squares

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
            leaves = self._flat.leaves(models[row])
            held = self._trained(leaves)
            for draw in draws:
                _, gradients = self._differentiate(leaves, inputs(draw[row]), targets(draw[row]))
                with torch.no_grad():
                    if decay != 1.0:
                        torch._foreach_mul_(held, decay)
                    torch._foreach_add_(held, gradients, alpha=-gamma)
            if (after := self._flat.statistics(leaves)) is not None:
                models[row, self._flat.num_trained :] = after
        return models

    def hessian_products(
        self, models: torch.Tensor, vectors: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """The Hessian of each row's mean loss times a vector, by differentiating the gradient along it."""
        products = torch.empty_like(models, memory_format=torch.contiguous_format)
        # The fast kernels of attention have no second derivative; the one that writes attention out has.
        with sdpa_kernel(SDPBackend.MATH):
            for row in range(len(models)):
                try:
                    parts = self._turned(models[row], vectors[row], x[row], y[row])
                except RuntimeError as error:
                    if "derivative" not in str(error) and "differentiate twice" not in str(error):
                        raise
                    reason = str(error).split("\n")[0].rstrip(".")
                    raise InputError(
                        f"The model has no second derivatives ({reason}); leave out the readings of curvature, or use"
                        " layers that can be differentiated twice."
                    ) from None
                flat = [part.reshape(-1) for part in parts]
                still = models.new_zeros(models.shape[1] - self._flat.num_trained)
                torch.cat([*flat, still], out=products[row])
        return products

    def _turned(
        self, model: torch.Tensor, vector: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ) -> Sequence[torch.Tensor]:
        """How the gradient of one row turns along a vector, parameter by parameter."""
        leaves = self._flat.leaves(model)
        held = self._trained(leaves)
        with self._flat.holding(leaves):
            value = self._loss(self._flat.call(x), y)
            gradients = torch.autograd.grad(value, held, create_graph=True, materialize_grads=True)
            directions = self._trained(self._flat.parts(vector))
            along = sum((gradient * part).sum() for gradient, part in zip(gradients, directions, strict=True))
            if not (isinstance(along, torch.Tensor) and along.requires_grad):
                return [torch.zeros_like(part) for part in held]
            return torch.autograd.grad(along, held, materialize_grads=True)
