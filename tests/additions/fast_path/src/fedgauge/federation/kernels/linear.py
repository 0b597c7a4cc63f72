"""One linear layer, whose gradients and Hessian products are two products each: linear and softmax regression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import torch
from torch import nn

from fedgauge.federation.kernels.base import Criterion, Gather, Learner


class Linear:
    """The operations on rows of one layer with biases; a row is the weights, then the biases."""

    name: ClassVar[str] = "linear"
    needs: ClassVar[str] = "one Linear with biases under cross-entropy or squared error"
    summary = "up to 32 workers in one product, in closed form"
    rows, samples = 32, 2048

    def __init__(self, layer: nn.Linear, learner: Learner) -> None:
        self._shape = (layer.out_features, layer.in_features)
        self._criterion = Criterion(learner.loss, layer.out_features, learner.model)

    @classmethod
    def of(cls, learner: Learner) -> Self | None:
        """Make the kernel for a module that is one such layer; ``None`` for any other. A leading Flatten is allowed."""
        parts = list(learner.module) if type(learner.module) is nn.Sequential else [learner.module]
        if parts and type(parts[0]) is nn.Flatten and (parts[0].start_dim, parts[0].end_dim) == (1, -1):
            parts = parts[1:]
        layer = parts[0] if len(parts) == 1 else None
        if type(layer) is not nn.Linear or layer.bias is None or not Criterion.knows(learner.loss, learner.targets):
            return None
        return cls(layer, learner)

    @classmethod
    def example(cls) -> tuple[nn.Module, tuple[int, ...]]:
        """A layer with three outputs."""
        return nn.Linear(6, 3), (6,)

    def _outputs(self, models: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        size = self._shape[0] * self._shape[1]
        weights = models[:, :size].view(len(models), *self._shape)
        return torch.baddbmm(models[:, size:].unsqueeze(1), x.flatten(2), weights.transpose(1, 2))

    def _back(self, residual: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        weights = torch.bmm(residual.transpose(1, 2), x.flatten(2)).flatten(1)
        return torch.cat([weights, residual.sum(dim=1)], dim=1) / x.shape[1]

    def losses(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean loss over each row's batch, in float64."""
        return self.evaluate(models, x, y)[0]

    def gradients(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Gradients of the mean losses over each row's batch."""
        return self.evaluate(models, x, y)[1]

    def evaluate(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean losses over each row's batch, and their gradients."""
        sums = models.new_zeros(len(models), dtype=torch.float64)
        residual = self._criterion.residual(self._outputs(models, x), self._criterion.vectors(y), sums)
        return sums / x.shape[1], self._back(residual, x)

    def sample_squares(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Squared norms of the gradients of single samples: the products of |residual|^2 and |x|^2 + 1."""
        residual = self._criterion.residual(self._outputs(models, x), self._criterion.vectors(y))
        return residual.double().square().sum(dim=2) * (x.flatten(2).double().square().sum(dim=2) + 1)

    def hessian_products(
        self, models: torch.Tensor, vectors: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """The Hessian of each row's mean loss times that row's vector."""
        moved = self._outputs(vectors, x)
        return self._back(self._criterion.turn(self._outputs(models, x), moved, self._criterion.vectors(y))[1], x)

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
        for draw in draws:
            models = decay * models - gamma * self.gradients(models, inputs(draw), targets(draw))
        return models
