"""Points at which the constants of softmax regression are large: drawn, and then improved by ascent.

Everything is written out anew in float64, apart from the package: logits, probabilities and gradients.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from fedgauge.federation.supervised import SupervisedFederation

Quantity = Callable[[torch.Tensor], torch.Tensor]


class Softmax:
    """Workers' data side by side: inputs (N, n, q) with the 1 of the bias, classes (N, n, C)."""

    def __init__(self, federation: SupervisedFederation) -> None:
        shards = [next(federation.blocks(worker)) for worker in range(federation.num_workers)]
        size = min(len(x) for x, _ in shards)
        assert size == max(len(x) for x, _ in shards), "the adversary needs shards of one size"
        x = torch.stack([x for x, _ in shards]).flatten(2).double()
        self.x = torch.cat([x, torch.ones_like(x[..., :1])], dim=2)
        y = torch.stack([y for _, y in shards])
        self.classes = int(federation.module(federation.inputs[:1]).shape[1])
        self.y = functional.one_hot(y, self.classes).double()
        self.l2 = federation.l2
        self.shape = (self.classes, self.x.shape[2])

    def residuals(self, models: torch.Tensor) -> torch.Tensor:
        """p - y for models (..., N, C, q) or (..., 1, C, q): (..., N, n, C)."""
        return torch.softmax(self.x @ models.transpose(-1, -2), dim=-1) - self.y

    def gradients(self, models: torch.Tensor) -> torch.Tensor:
        """Gradients of every F_i, each at its own model."""
        return self.residuals(models).transpose(-1, -2) @ self.x / self.x.shape[1] + self.l2 * models

    def secant(self, pairs: torch.Tensor) -> torch.Tensor:
        """|grad F_i(a) - grad F_i(b)| / |a - b| of every worker, and of f in the last column."""
        a, b = pairs[..., 0, :, :].unsqueeze(-3), pairs[..., 1, :, :].unsqueeze(-3)
        change = self.gradients(a) - self.gradients(b)
        change = torch.cat([change, change.mean(dim=-3, keepdim=True)], dim=-3)
        return norm(change) / norm(a - b)

    def pseudo(self, models: torch.Tensor) -> torch.Tensor:
        """The ratio that L_h bounds, for one model a worker."""
        mean = models.mean(dim=-3, keepdim=True)
        change = (self.gradients(models) - self.gradients(mean)).mean(dim=-3)
        return norm(change) / norm(models - mean).square().mean(dim=-1).sqrt()

    def divergence(self, models: torch.Tensor) -> torch.Tensor:
        """|grad F_i - grad f| of every worker at models (..., C, q)."""
        gradients = self.gradients(models.unsqueeze(-3))
        return norm(gradients - gradients.mean(dim=-3, keepdim=True))

    def variance(self, models: torch.Tensor) -> torch.Tensor:
        """Variance of a sample's gradient, of every worker, at models (..., C, q)."""
        residuals = self.residuals(models.unsqueeze(-3))
        squares = (residuals.square().sum(dim=-1) * self.x.square().sum(dim=-1)).mean(dim=-1)
        return squares - norm(residuals.transpose(-1, -2) @ self.x / self.x.shape[1]).square()


def norm(matrices: torch.Tensor) -> torch.Tensor:
    return matrices.square().sum(dim=(-2, -1)).sqrt()


def climb(quantity: Quantity, points: torch.Tensor, steps: int, rate: float = 0.3) -> torch.Tensor:
    """The largest values that were seen, for every entry, from these points uphill."""
    points = points.clone().requires_grad_()
    search = torch.optim.Adam([points], lr=rate)
    best = quantity(points.detach())
    for _ in range(steps):
        search.zero_grad()
        values = quantity(points)
        # Each start climbs the one entry that is its turn, so that every worker has starts of its own.
        values = values.reshape(len(values), -1)
        turn = torch.arange(len(values)) % values.shape[1]
        (-values[torch.arange(len(values)), turn].log().sum()).backward()  # type: ignore[no-untyped-call]
        search.step()
        found = quantity(points.detach())
        best = torch.maximum(best, torch.where(torch.isfinite(found), found, best))
    return best


def draws(count: int, *shape: int, seed: int = 0) -> torch.Tensor:
    """Models of all sizes, from nearly 0 to nearly one-hot probabilities."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.logspace(-3, 2, count, dtype=torch.float64).reshape(count, *(1 for _ in shape))
    return torch.randn(count, *shape, generator=generator, dtype=torch.float64) * sizes
