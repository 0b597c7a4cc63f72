"""Federations as they are when a run begins, and the same with one thing changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, default_collate

from fedgauge import SupervisedFederation, federate

LOG = logging.getLogger(__name__)
SCALE = {"of": 2.0}
X = torch.linspace(-1, 1, 36).reshape(12, 3).sin()
Y = torch.arange(12) % 2
PAIRS = [(X[:6], Y[:6]), (X[6:], Y[6:])]


class Net(nn.Module):
    def __init__(self, activation: nn.Module, slope: float = 1.0) -> None:
        super().__init__()
        self.first, self.activation, self.last, self.slope = nn.Linear(3, 4), activation, nn.Linear(4, 2), slope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.activation(self.slope * self.first(x)))  # type: ignore[no-any-return]


class Squared(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).square()


class Recurrent(nn.Module):
    def __init__(self, cells: Any) -> None:
        super().__init__()
        self.cells, self.last = cells(1, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.cells(x.unsqueeze(2))[0][:, -1])  # type: ignore[no-any-return]


class Doubled(Recurrent):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


class Weighted:
    def __init__(self, weight: float) -> None:
        self.weight = weight

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self.weight * functional.cross_entropy(outputs, targets)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self(outputs, targets)


class Items(Dataset[Any]):
    def __init__(self, part: int) -> None:
        self.part = part

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> Any:
        return PAIRS[self.part][0][number], PAIRS[self.part][1][number]


def with_log(outputs: torch.Tensor, targets: torch.Tensor, smoothing: float = 0.0) -> torch.Tensor:
    LOG.debug("a batch of %d", len(targets))
    return SCALE["of"] * functional.cross_entropy(outputs, targets, label_smoothing=smoothing)


def scaled(by: float) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return lambda outputs, targets: by * functional.cross_entropy(outputs, targets)


def hooked(by: float | None) -> nn.Module:
    torch.manual_seed(0)
    made = Net(nn.ReLU())
    if by is not None:
        made.first.register_forward_hook(lambda layer, given, out: by * out)
    return made


def drawn(net: Callable[..., nn.Module], *given: Any) -> Callable[[], nn.Module]:
    return lambda: net(*given)


USUAL = drawn(Net, nn.ReLU())


def of(loss: Any = functional.cross_entropy, model: Any = USUAL, **how: Any) -> SupervisedFederation:
    return federate(model, loss, PAIRS, batch_size=4, **how)


def lazily(collate: Any) -> SupervisedFederation:
    loaders = [DataLoader(Items(part), batch_size=4, collate_fn=collate) for part in range(2)]
    return federate(drawn(Net, nn.ReLU()), functional.cross_entropy, loaders, batch_size=4)


def twice(items: Any) -> Any:
    x, y = default_collate(items)
    return x, y


def thrice(items: Any) -> Any:
    x, y = default_collate(items)
    return 1 * x, y


def entropies(**how: Any) -> tuple[Any, Any]:
    return nn.CrossEntropyLoss(), nn.CrossEntropyLoss(**how)


WEIGHTS = torch.tensor([1.0, 3.0])
LOSSES: dict[str, tuple[Any, Any]] = {
    "label smoothing": entropies(label_smoothing=0.9),
    "class weights": entropies(weight=WEIGHTS),
    "ignored class": entropies(ignore_index=1),
    "reduction": (
        lambda o, y: functional.cross_entropy(o, y, reduction="mean"),
        lambda o, y: functional.cross_entropy(o, y, reduction="sum"),
    ),
    "weights of a module": (nn.CrossEntropyLoss(WEIGHTS), nn.CrossEntropyLoss(2 * WEIGHTS)),
    "lambda": (lambda o, y: functional.cross_entropy(o, y), lambda o, y: functional.cross_entropy(2 * o, y)),
    "closure": (scaled(1.0), scaled(2.0)),
    "default": (with_log, lambda o, y, by=0.9: with_log(o, y, by)),
    "partial": (
        partial(functional.cross_entropy, label_smoothing=0.1),
        partial(functional.cross_entropy, label_smoothing=0.2),
    ),
    "object": (Weighted(1.0), Weighted(2.0)),
    "bound method": (Weighted(1.0).loss, Weighted(2.0).loss),
}
"""A loss, and another one."""

CASES: dict[str, tuple[str, Callable[[], SupervisedFederation], Callable[[], SupervisedFederation]]] = {
    **{name: ("loss", partial(of, one), partial(of, other)) for name, (one, other) in LOSSES.items()},
    "activation": ("model", of, lambda: of(model=drawn(Net, nn.Tanh()))),
    "attribute": ("model", of, lambda: of(model=drawn(Net, nn.ReLU(), 2.0))),
    "forward": ("model", of, lambda: of(model=drawn(Squared, nn.ReLU()))),
    "hook": ("model", lambda: of(model=hooked(2.0)), lambda: of(model=hooked(3.0))),
    "no hook": ("model", lambda: of(model=hooked(2.0)), lambda: of(model=hooked(None))),
    "recurrent": ("model", lambda: of(model=drawn(Recurrent, nn.LSTM)), lambda: of(model=drawn(Doubled, nn.LSTM))),
    "dropout": (
        "model",
        lambda: of(model=drawn(Net, nn.Dropout(0.1))),
        lambda: of(model=drawn(Net, nn.Dropout(0.2))),
    ),
    "augment": (
        "augment function",
        lambda: of(augment=lambda x: x + 0.1 * torch.randn_like(x)),
        lambda: of(augment=lambda x: x + 0.2 * torch.randn_like(x)),
    ),
    "collate": ("collate function", lambda: lazily(twice), lambda: lazily(thrice)),
    "l2": ("l2", of, lambda: of(l2=0.1)),
}
"""What differs, the federation of a run, and one with which the run must not be resumed."""


def each() -> Iterator[tuple[str, SupervisedFederation]]:
    """The federations of all runs."""
    for name, (_, make, _) in CASES.items():
        yield name, make()
