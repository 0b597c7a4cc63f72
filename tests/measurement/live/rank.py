"""One rank of a job over torch.distributed, as torchrun starts it: python rank.py DIRECTORY STEP."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from tests.measurement.live.jobs import descend, mean_loss
from torch import distributed, nn

import fedgauge as fg


def make_model() -> nn.Module:
    """The first model, the same on every rank."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Dropout(0.1), nn.Linear(6, 3)).double().eval()


def make_data(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The data of one rank."""
    generator = torch.Generator().manual_seed(rank)
    inputs = torch.randn(12, 5, generator=generator, dtype=torch.float64) + rank
    return inputs, torch.randint(0, 3, (12,), generator=generator)


def batches_of(rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The fixed batches of one rank."""
    inputs, targets = make_data(rank)
    return [(inputs[:6], targets[:6]), (inputs[6:], targets[6:])]


def train(place: Path, outer: float, rounds: int = 4) -> None:
    """Train with the others, and write down what the probe says."""
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    model, started = make_model(), make_model()
    wrapped = nn.parallel.DistributedDataParallel(model)  # as a job may have it that also trains synchronously
    with fg.Probe(mean_loss, batches_of(rank), share=1.0, start=model, out=place / "run") as probe:
        for _ in range(rounds):
            descend(model, mean_loss, make_data(rank), steps=3, rate=0.2)
            probe.before(wrapped)
            with torch.no_grad():
                for now, before in zip(model.parameters(), started.parameters(), strict=True):
                    distributed.all_reduce(now)
                    now.copy_(before + outer * (now / ranks - before))
                    before.copy_(now)
            probe.after(wrapped)
    # A share that makes them measure now and then, by their own clocks: all must measure in the same rounds.
    seldom = fg.Probe(mean_loss, batches_of(rank), share=0.05 + 0.1 * rank, start=model)
    for _ in range(60):
        seldom.before(model)
        seldom.after(model)
    result = {"records": [each.to_json() for each in probe.records], "rounds": [r.round for r in seldom.records]}
    (place / f"rank{rank}.json").write_text(json.dumps(result))
    # Whoever leaves while others still use its connections, or while DDP still has its threads, ends them by an abort.
    del wrapped
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    train(Path(sys.argv[1]), float(sys.argv[2]))
    # Torch's threads sometimes abort a process while Python takes itself down ("terminate called without an active
    # exception"), when all of this is done.
    os._exit(0)
