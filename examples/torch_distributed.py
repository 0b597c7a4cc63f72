"""A hand-written loop of four processes that average their models, with a live gauge that chooses the local steps.

    python examples/torch_distributed.py

Each process holds digits of its own. Without the gauge, LOCAL_STEPS would be a guess.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.functional import cross_entropy

import fedgauge as fg

WORLD, LOCAL_STEPS, STEPS, COST = 4, 16, int(os.environ.get("STEPS", "4096")), 10


def train(rank: int, port: int) -> None:
    """One process of the job."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    digits = fg.load_dataset("digits")
    inputs, labels = torch.tensor(digits.train_inputs).float().flatten(1) / 16, torch.tensor(digits.train_labels)
    mine = torch.argsort(labels, stable=True).chunk(WORLD)[rank]  # the worst case: each process has its own digits
    model = torch.nn.Linear(inputs.shape[1], 10)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.Generator().manual_seed(rank)

    gauge = fg.DistributedGauge(fg.LiveGauge(local_steps=LOCAL_STEPS, steps=STEPS, cost=COST))
    done = 0
    while done < STEPS:
        for _ in range(gauge.local_steps):
            batch = mine[torch.randint(len(mine), (20,), generator=batches)]
            optimiser.zero_grad()
            cross_entropy(model(inputs[batch]), labels[batch]).backward()
            optimiser.step()
            done += 1
        gauge.average(model.parameters())
        with torch.no_grad():
            gauge.record(cross_entropy(model(inputs[mine]), labels[mine]).item())
    if rank == 0:
        print(gauge.answer())
        print(f"Of those that it tried, the run stays with {gauge.local_steps} local steps.")
    dist.barrier()  # nobody leaves while others still talk
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (int(sys.argv[1]) if len(sys.argv) > 1 else 29511,), nprocs=WORLD)
