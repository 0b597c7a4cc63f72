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

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fedgauge.federation.flat import FlatModule
    from fedgauge.federation.kernels.losses import Loss

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
