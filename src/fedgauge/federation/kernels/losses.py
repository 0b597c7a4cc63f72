"""Losses: cross-entropy and squared error, whose derivatives are written out, and cross-entropy over tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch
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


def token_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean over sequences of each one's mean cross-entropy, from outputs of (batch, time, tokens).

    Targets that are negative are masked. A sequence that is masked altogether counts as zero.

    >>> targets = torch.tensor([[0, -1, -1], [1, 0, 1]])
    >>> round(float(token_entropy(torch.zeros(2, 3, 2), targets)), 6)
    0.693147
    """
    masked = targets < 0
    each = functional.cross_entropy(
        outputs.reshape(-1, outputs.shape[-1]), targets.masked_fill(masked, -100).reshape(-1), reduction="none"
    )
    return (each.view(targets.shape).sum(dim=-1) / (~masked).sum(dim=-1).clamp(min=1)).mean()


def is_mean(loss: Loss, targets: torch.Tensor) -> bool:
    """Whether the loss of a batch is known to be the mean of its samples' losses; masked classes count in no mean.

    >>> labels = torch.tensor([0, 2, -100])
    >>> [is_mean(functional.cross_entropy, each) for each in (labels, labels[:2])]
    [False, True]
    """
    if loss is functional.cross_entropy:
        return targets.is_floating_point() or bool(targets.min() >= 0)
    return loss in (squared_error, token_entropy)


def token_accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean over sequences of the fraction of tokens, of those that are not masked, that have the largest output.

    >>> outputs = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]])
    >>> float(token_accuracy(outputs, torch.tensor([[0, 1, -1]])))
    0.5
    """
    right = outputs.argmax(dim=-1) == targets
    return (right.sum(dim=-1) / (targets >= 0).sum(dim=-1).clamp(min=1)).mean()


class Criterion:
    """A loss by its derivatives, on outputs of (rows, batch, outputs) and targets as vectors of that shape."""

    def __init__(self, loss: Loss, outputs: int, like: torch.Tensor) -> None:
        self._entropy = loss is functional.cross_entropy
        # Rows of the identity are the classes' unit vectors: looking them up is one small operation.
        self._units = torch.eye(outputs, dtype=like.dtype, device=like.device)

    @staticmethod
    def knows(loss: Loss, targets: torch.Tensor) -> bool:
        """Whether the loss is one of these; cross-entropy only with classes as targets, not with probabilities."""
        if loss is functional.cross_entropy:
            return not targets.is_floating_point()
        return loss is squared_error

    def vectors(self, targets: torch.Tensor) -> torch.Tensor:
        """Targets of (rows, batch, ...) as vectors; classes as unit vectors."""
        if targets.dtype == torch.int64:
            chosen = self._units.index_select(0, targets.reshape(-1))
        else:
            chosen = targets.to(self._units.dtype)
        return chosen.view(*targets.shape[:2], -1)

    def residual(
        self, outputs: torch.Tensor, targets: torch.Tensor, losses: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Gradient of the summed loss with respect to the outputs; the rows' summed losses are added to ``losses``."""
        if self._entropy:
            logs = outputs.log_softmax(dim=2)
            if losses is not None:
                losses.sub_((logs * targets).sum(dim=(1, 2), dtype=torch.float64))
            return logs.exp_().sub_(targets)
        residual = outputs - targets
        if losses is not None:
            losses.add_(residual.square().sum(dim=(1, 2), dtype=torch.float64), alpha=0.5)
        return residual

    def turn(
        self, outputs: torch.Tensor, moved: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The residual, and how it changes when the outputs move by ``moved``."""
        if not self._entropy:
            return outputs - targets, moved
        chances = outputs.softmax(dim=2)
        turned = chances * moved
        return chances - targets, turned.sub_(chances * turned.sum(dim=2, keepdim=True))
