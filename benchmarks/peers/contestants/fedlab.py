"""FedLab: its standalone pipeline of ``FedAvgSerialClientTrainer`` and ``FedAvgServerHandler``.

FedLab counts in epochs, so a client's loader gives I batches, drawn with replacement, and one epoch is run. The loader
is torch's DataLoader with a batch sampler and no collation, which fetches a whole batch by index: the default, one
sample at a time, is slower. ``evaluate``, which the pipeline calls after every round, does nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from peers.absent import stand_in_for_torchvision
from peers.networks import make_network, values_of
from peers.workloads import BATCH, GAMMA, Contestant, Workload

stand_in_for_torchvision()

from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler  # noqa: E402
from fedlab.contrib.dataset.basic_dataset import BaseDataset, FedDataset  # noqa: E402
from fedlab.core.standalone import StandalonePipeline  # noqa: E402


class Shards(FedDataset):
    """The samples of all clients."""

    def __init__(self, work: Workload, x: torch.Tensor, y: torch.Tensor) -> None:
        super().__init__()
        self._drawn = work.local_steps * BATCH
        self._shards = [BaseDataset(x[work.rows(i)], y[work.rows(i)]) for i in range(work.num_workers)]

    def get_dataloader(self, id: int, batch_size: int, type: str = "train") -> DataLoader[Any]:
        """The I batches of one client in one round."""
        shard = self._shards[id]
        sampler = RandomSampler(shard, replacement=True, num_samples=self._drawn)
        return DataLoader(shard, sampler=BatchSampler(sampler, batch_size, drop_last=True), batch_size=None)


class Pipeline(StandalonePipeline):
    """The pipeline without its example of an evaluation."""

    def evaluate(self) -> None:
        """Do nothing."""


def main() -> None:
    """Run the check and the turns."""
    contestant = Contestant("fedlab", "torch")
    work = contestant.work
    torch.set_num_threads(contestant.threads)
    torch.manual_seed(0)
    x, y = map(torch.from_numpy, contestant.data)
    handler = FedAvgServerHandler(make_network(), global_round=0, sample_ratio=work.participants / work.num_workers)
    trainer = FedAvgSerialClientTrainer(make_network(), work.num_workers)
    trainer.setup_dataset(Shards(work, x, y))
    trainer.setup_optim(epochs=1, batch_size=BATCH, lr=GAMMA)
    pipeline = Pipeline(handler, trainer)

    def run(rounds: int) -> None:
        handler.global_round += rounds
        pipeline.main()

    contestant.serve(run, lambda: values_of(handler.model.parameters()))


if __name__ == "__main__":
    main()
