"""What the examples train, written out for one process: SGD on digits that are dealt to the workers by label."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

import fedgauge as fg

RATE, BATCH = 0.1, 20


class Training:
    """One linear model, and the digits of each worker.

    Args:
        world: the number of workers.
    """

    def __init__(self, world: int) -> None:
        torch.manual_seed(0)
        digits = fg.load_dataset("digits")
        self.inputs = torch.tensor(digits.train_inputs).float().flatten(1) / 16
        self.labels = torch.tensor(digits.train_labels)
        self.shards = torch.argsort(self.labels, stable=True).chunk(world)
        self.model = torch.nn.Linear(self.inputs.shape[1], 10)

    @property
    def values(self) -> list[torch.Tensor]:
        """The model's parameters, copied."""
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    def put(self, values: list[torch.Tensor]) -> None:
        """Make these the model's parameters."""
        for parameter, value in zip(self.model.parameters(), values, strict=True):
            parameter.data.copy_(value)

    def steps_of(
        self, worker: int, begin: list[torch.Tensor], steps: int, generator: torch.Generator
    ) -> list[torch.Tensor]:
        """The parameters after local steps of one worker."""
        self.put(begin)
        mine = self.shards[worker]
        for _ in range(steps):
            batch = mine[torch.randint(len(mine), (BATCH,), generator=generator)]
            self.model.zero_grad()
            torch.autograd.backward(cross_entropy(self.model(self.inputs[batch]), self.labels[batch]))
            for parameter in self.model.parameters():
                assert parameter.grad is not None
                parameter.data -= RATE * parameter.grad
        return self.values

    def loss(self, examples: torch.Tensor | slice = slice(None)) -> float:
        """The loss of the model on some examples."""
        with torch.no_grad():
            return cross_entropy(self.model(self.inputs[examples]), self.labels[examples]).item()
