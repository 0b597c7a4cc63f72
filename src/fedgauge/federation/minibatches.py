"""The mini-batches of local steps: which samples they hold, and what the model draws with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from fedgauge.federation.modes import Augment, Mode
from fedgauge.federation.protocols import Indices
from fedgauge.federation.shards import ShardedData
from fedgauge.randomness import Streams
from fedgauge.system.threads import seed_generators

_OF_FORWARD = 2**63
"""Added to the copy in the address of a worker's mini-batches, this gives that of what the model draws itself."""


class MiniBatches(NamedTuple):
    """Mini-batches, drawn uniformly with replacement, and looked up one row or all rows at a time.

    Attributes:
        data: the samples.
        mode: how the module is called in local steps.
        augment: changes the inputs of a mini-batch at random, if anything does.
    """

    data: ShardedData
    mode: Mode
    augment: Augment | None

    @property
    def apart(self) -> bool:
        """Whether rows are looked up one at a time, each just before its forward pass."""
        return self.mode.seeded or self.data.lazy

    def draws(
        self, batch_size: int, streams: Streams, round: int, workers: Indices, copies: Indices, steps: int
    ) -> Sequence[torch.Tensor]:
        """Numbers of the mini-batches' samples, one matrix of (rows, batch size) for each step.

        Where the model or the augmentation draws at random itself, a seed for it follows as one more column.
        """
        places = np.empty((len(workers), steps, batch_size), dtype=np.int64)
        sizes = self.data.sizes(workers).tolist()
        addresses = list(zip(workers.tolist(), copies.tolist(), strict=True))
        for row, (worker, copy) in enumerate(addresses):
            places[row] = streams.at(round, worker, copy).integers(sizes[row], size=places.shape[1:])
        places += self.data.offsets[workers][:, None, None]
        numbers = self.data.numbers(places)
        if self.mode.seeded:
            seeds = np.empty((len(workers), steps, 1), dtype=np.int64)
            for row, (worker, copy) in enumerate(addresses):
                seeds[row, :, 0] = streams.at(round, worker, copy + _OF_FORWARD).integers(2**63 - 1, size=steps)
            numbers = torch.cat([numbers, torch.from_numpy(seeds).to(numbers.device)], dim=2)
        return numbers.unbind(dim=1)

    def inputs(self, numbers: torch.Tensor) -> torch.Tensor:
        """The inputs of mini-batches; with a seed, those of one, for the forward pass that follows at once."""
        if not self.mode.seeded:
            return self.data.inputs_of(numbers)
        seed_generators(int(numbers[-1]), self.data.inputs.device)
        x = self.data.inputs_of(numbers[:-1])
        return x if self.augment is None else self.augment(x)

    def targets(self, numbers: torch.Tensor) -> torch.Tensor:
        """The targets of mini-batches."""
        return self.data.targets_of(numbers[:-1] if self.mode.seeded else numbers)
