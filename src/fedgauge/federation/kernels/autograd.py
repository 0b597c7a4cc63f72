"""The operations on rows for any module, by autograd, a worker at a time.

This is the plain path: it defines what the specialised ones must agree with. It also serves convolutions, which several
workers cannot share in one product.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from fedgauge.federation.kernels.convolutional import ConvolutionalChain
from fedgauge.federation.kernels.dense import Gather
from fedgauge.federation.kernels.losses import Loss


class Autograd:
    """Losses, gradients and Hessian products of a module whose parameters are one flat row.

    Args:
        module: gives the outputs.
        loss: mean loss from outputs and targets.
        chain: takes the local steps where they are written out for the module.
    """

    rows = 1

    def __init__(self, module: nn.Module, loss: Loss, chain: ConvolutionalChain | None = None) -> None:
        self._module, self._loss, self._chain = module, loss, chain
        self.name = "plain" if chain is None else chain.name
        self._names = [name for name, _ in module.named_parameters()]
        self._shapes = [parameter.shape for parameter in module.parameters()]
        self._sizes = [shape.numel() for shape in self._shapes]

    def parts(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parameters by name, as views of a flat model."""
        split = torch.split(row, self._sizes)
        return {name: part.view(shape) for name, part, shape in zip(self._names, split, self._shapes, strict=True)}

    def outputs(self, parts: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        """What the module gives with these parameters."""
        if x.ndim == 4:
            # Convolutions take a tenth less time on images whose channels lie next to each other.
            x = x.contiguous(memory_format=torch.channels_last)
        outputs: torch.Tensor = torch.func.functional_call(self._module, parts, (x,))
        return outputs

    def _differentiate(
        self, parts: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        value = self._loss(self.outputs(parts, x), y)
        gradients = torch.autograd.grad(value, list(parts.values()), materialize_grads=True)
        return value.detach(), gradients

    def _leaves(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parameters by name, to differentiate by; they share the row's memory."""
        return {name: part.requires_grad_() for name, part in self.parts(row.detach()).items()}

    def losses(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean loss over each row's batch: ``x`` is (rows, batch, ...)."""
        with torch.no_grad():
            return torch.tensor(
                [
                    float(self._loss(self.outputs(self.parts(row), xs), ys))
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
            losses[row], parts = self._differentiate(self._leaves(models[row]), x[row], y[row])
            torch.cat([part.reshape(-1) for part in parts], out=gradients[row])
        return losses, gradients

    def gradients(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Gradients of the mean losses over each row's batch."""
        return self.evaluate(models, x, y)[1]

    def sample_squares(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Squared norms of the gradients of single samples, as (rows, batch), one at a time to save memory."""
        squares = torch.zeros(x.shape[:2], dtype=torch.float64, device=models.device)
        for row in range(len(models)):
            leaves = self._leaves(models[row])
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
        """An SGD step for each entry of ``draws``: models <- decay models - gamma gradient.

        A row takes all its steps before the next one begins, while its parameters are in the cache.
        """
        models = models.clone(memory_format=torch.contiguous_format)
        for row in range(len(models)):
            if self._chain is not None:
                batches = ((inputs(draw[row]), targets(draw[row])) for draw in draws)
                self._chain.descend(list(self.parts(models[row]).values()), batches, gamma, decay)
                continue
            leaves = self._leaves(models[row])
            held = list(leaves.values())
            for draw in draws:
                _, gradients = self._differentiate(leaves, inputs(draw[row]), targets(draw[row]))
                with torch.no_grad():
                    if decay != 1.0:
                        torch._foreach_mul_(held, decay)
                    torch._foreach_add_(held, gradients, alpha=-gamma)
        return models

    def hessian_products(
        self, models: torch.Tensor, vectors: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """The Hessian of each row's mean loss times a vector, by differentiating the gradient along it."""
        products = torch.empty_like(models, memory_format=torch.contiguous_format)
        for row in range(len(models)):
            leaves = self._leaves(models[row])
            held = list(leaves.values())
            value = self._loss(self.outputs(leaves, x[row]), y[row])
            gradients = torch.autograd.grad(value, held, create_graph=True, materialize_grads=True)
            along = sum(
                (gradient * part).sum()
                for gradient, part in zip(gradients, self.parts(vectors[row]).values(), strict=True)
            )
            parts: tuple[torch.Tensor, ...] = tuple(map(torch.zeros_like, held))
            if isinstance(along, torch.Tensor) and along.requires_grad:
                parts = torch.autograd.grad(along, held, materialize_grads=True)
            torch.cat([part.reshape(-1) for part in parts], out=products[row])
        return products
