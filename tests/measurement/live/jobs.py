"""Training loops as users have them, whose models are averaged every few steps."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

import fedgauge as fg


def mean_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs), targets)


class Quadratic(nn.Module):
    """F(x) = x'Hx / 2 + b'x + c of a batch (H, b, c)."""

    def __init__(self, x: torch.Tensor) -> None:
        super().__init__()
        self.x = nn.Parameter(x.clone())

    def forward(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        hessian, linear, constant = batch
        return self.x @ hessian @ self.x / 2 + linear @ self.x + constant


def quadratic_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    value: torch.Tensor = model(batch)
    return value


def average(model: nn.Module, models: Sequence[nn.Module], weights: Sequence[float] | None = None) -> None:
    """Give a model the mean parameters of others."""
    shares = [1 / len(models)] * len(models) if weights is None else [each / sum(weights) for each in weights]
    with torch.no_grad():
        for own, *parts in zip(model.parameters(), *(each.parameters() for each in models), strict=True):
            own.copy_(sum((share * part for share, part in zip(shares, parts, strict=True)), torch.zeros_like(own)))


def descend(model: nn.Module, loss: Any, batch: Any, steps: int, rate: float) -> None:
    """Take exact steps on one batch."""
    for _ in range(steps):
        trained = [each for each in model.parameters() if each.requires_grad]
        gradients = torch.autograd.grad(loss(model, batch), trained)
        with torch.no_grad():
            for parameter, gradient in zip(trained, gradients, strict=True):
                parameter.sub_(gradient, alpha=rate)


def quadratics(
    count: int = 4, dim: int = 3, seed: int = 0
) -> tuple[fg.QuadraticFederation, list[tuple[torch.Tensor, ...]]]:
    """A federation without noise, and the batch of each worker."""
    federation = fg.random_quadratics(num_workers=count, dim=dim, hessian_spread=0.3, seed=seed)
    batches = [
        tuple(torch.as_tensor(part[worker], dtype=torch.float64) for part in (federation.hessians, federation.linear))
        for worker in range(count)
    ]
    constants = [torch.as_tensor(each, dtype=torch.float64) for each in federation.constant]
    return federation, [(*batch, constant) for batch, constant in zip(batches, constants, strict=True)]


def run_quadratics(
    probe: fg.Probe, model: Quadratic, batches: Sequence[Any], rounds: int, steps: int = 5, rate: float = 0.1
) -> None:
    """A plain loop over all workers."""
    for _ in range(rounds):
        models = [copy.deepcopy(model) for _ in batches]
        for local, batch in zip(models, batches, strict=True):
            descend(local, quadratic_loss, batch, steps, rate)
        probe.before(models)
        average(model, models)
        probe.after(model)
