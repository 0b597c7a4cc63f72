"""fluke: its FedAVG, one client after another, without evaluation or log.

fluke counts in epochs, so a client's loader, a FastDataLoader of fluke's, holds I batches, drawn again with replacement
whenever it is iterated over, and one epoch is run. A run cannot be stopped and resumed, so it waits for its turns in
the observer that fluke calls at the end of a round.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Self

import numpy as np
import torch
from torch import nn

from peers.absent import stand_in_for_torchvision
from peers.networks import make_network, values_of
from peers.workloads import BATCH, CLASSES, GAMMA, Contestant, NoMoreTurns, Pauses, Workload

stand_in_for_torchvision()

from fluke import DDict, FlukeENV  # noqa: E402
from fluke.algorithms.fedavg import FedAVG  # noqa: E402
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader  # noqa: E402
from fluke.utils import FederationObserver  # noqa: E402


class Drawn(FastDataLoader):
    """The I batches of one client in one round."""

    def __init__(self, work: Workload, x: torch.Tensor, y: torch.Tensor) -> None:
        self._shard, self._number = (x, y), work.local_steps * BATCH
        super().__init__(*self._draw(), num_labels=CLASSES, batch_size=BATCH)

    def _draw(self) -> tuple[torch.Tensor, ...]:
        drawn = torch.randint(len(self._shard[0]), (self._number,))
        return tuple(part[drawn] for part in self._shard)

    def __iter__(self) -> Self:
        self.tensors = self._draw()
        return super().__iter__()  # type: ignore[no-any-return]


class Rounds(FederationObserver):
    """Report the result of the check after its rounds, and wait for turns from then on."""

    def __init__(self, contestant: Contestant, model: nn.Module) -> None:
        self._contestant, self._model = contestant, model
        self._pauses = Pauses(contestant, warm_up=contestant.work.check_rounds)

    def end_round(self, round: int) -> None:
        """Count a round."""
        if round == self._contestant.work.check_rounds:
            self._contestant.ready(values_of(self._model.parameters()))
        self._pauses.round_is_over()


def main() -> None:
    """Run the check and the turns."""
    contestant = Contestant("fluke-fl", "torch")
    work = contestant.work
    torch.set_num_threads(contestant.threads)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 (fluke chooses its clients by it)
    x, y = map(torch.from_numpy, contestant.data)
    loaders = [Drawn(work, x[work.rows(worker)], y[work.rows(worker)]) for worker in range(work.num_workers)]
    data = DummyDataContainer(loaders, [None] * work.num_workers, None, CLASSES)
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    client = DDict(
        batch_size=BATCH,
        local_epochs=1,
        loss=nn.CrossEntropyLoss,
        optimizer=DDict(name="SGD", lr=GAMMA),
        scheduler=DDict(name="StepLR", step_size=1, gamma=1),
    )
    settings = DDict(client=client, server=DDict(weighted=False), model=make_network())
    algorithm = FedAVG(work.num_workers, DataSplitter(data), settings)
    algorithm.set_callbacks(Rounds(contestant, algorithm.server.model))
    with suppress(NoMoreTurns):
        algorithm.run(n_rounds=sys.maxsize // work.participants, eligible_perc=work.participants / work.num_workers)


if __name__ == "__main__":
    main()
