"""What a fast path is: the operations on rows, written for one family of models.

A kernel sees only batches: row j of the models is evaluated on row j of the inputs and targets. Which samples those
are, the l2 term and sums over blocks of samples are the federation's business, so a kernel stays short.

To add one, write a class with the members of :class:`Kernel` in a file of its own and list it in
``fedgauge.federation.kernels``. Nothing else changes: ``tests/contract/test_kernels.py`` then compares it with the
plain one on its own example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from torch import nn

    from fedgauge.federation.flat import FlatModule


Gather: TypeAlias = "Callable[[torch.Tensor], torch.Tensor]"
"""Inputs, or targets, of the samples with these numbers, in the shape of the numbers."""


class Learner(NamedTuple):
    """What a federation computes with, by which a kernel decides whether it can serve it.

    Attributes:
        module: gives the outputs.
        loss: mean loss from outputs and targets.
        model: a flat model, whose number type and device all others have.
        inputs: the data, first axis over samples.
        targets: labels or values, one per sample.
        flat: how the module is called with a flat model, if that holds more than its parameters.
    """

    module: nn.Module
    loss: Loss
    model: torch.Tensor
    inputs: torch.Tensor
    targets: torch.Tensor
    flat: FlatModule | None = None


class Kernel(Protocol):
    """The operations on rows for the models that it accepts.

    ``models`` has one flat model per row, ``x`` is (rows, batch, ...) and ``y`` (rows, batch, ...).

    Attributes:
        name: what a user calls it, as ``path`` of a federation.
        needs: completes the sentence "path NAME needs …".
        summary: how it computes, for the log.
        rows: how many rows it computes best at once.
        samples: how many samples of a row it computes best at once.
    """

    name: ClassVar[str]
    needs: ClassVar[str]

    @property
    def summary(self) -> str:
        """How it computes, for the log."""

    @property
    def rows(self) -> int:
        """How many rows it computes best at once; it must not depend on the machine."""

    @property
    def samples(self) -> int:
        """How many samples of a row it computes best at once; it must not depend on the machine."""

    @classmethod
    def of(cls, learner: Learner) -> Self | None:
        """Make the kernel for a learner; ``None`` if it cannot serve it."""

    @classmethod
    def example(cls) -> tuple[nn.Module, tuple[int, ...]]:
        """A small module with three outputs that it is chosen for, and the shape of one input; tests begin with it."""

    def losses(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean loss over each row's batch, in float64."""

    def gradients(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Gradients of the mean losses over each row's batch."""

    def evaluate(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean losses over each row's batch, and their gradients."""

    def sample_squares(self, models: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Squared norms of the gradients of single samples, as (rows, batch)."""

    def hessian_products(
        self, models: torch.Tensor, vectors: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """The Hessian of each row's mean loss times that row's vector."""

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

        An entry holds the numbers of the samples of each row's batch; ``inputs`` and ``targets`` look them up.
        """


_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def has_hooks(module: nn.Module) -> bool:
    """Whether a module may compute something else than the types of its layers say.

    That is so with hooks of any kind, of a layer or of all modules, with a ``forward`` that was put in place of a
    layer's own, and with parameters that two layers share. A layer with a parametrization has a type of its own.
    """
    if hooks_of_all_modules():
        return True
    for part in module.modules():
        if any(getattr(part, name) for name in _HOOKS) or "forward" in vars(part):
            return True
    return len(list(module.parameters())) < sum(1 for _ in module.named_parameters(remove_duplicate=False))


def hooks_of_all_modules() -> list[Any]:
    """The hooks that torch calls for every module there is."""
    from torch.nn.modules import module as everywhere

    return [hook for name in _HOOKS for hook in (getattr(everywhere, f"_global{name}", None) or {}).values()]


def has_frozen(module: nn.Module) -> bool:
    """Whether some parameters are not trained, so that a flat model does not hold every layer."""
    return not all(parameter.requires_grad for parameter in module.parameters())


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
