"""Four processes train a transformer on text, and average their models as often as a live gauge finds best.

    python transformer.py                 # text that fedgauge generates
    python transformer.py --data DIR      # Tiny Shakespeare, in DIR/tinyshakespeare/input.txt

Each process has other authors or roles. AdamW's state stays with its process.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import fedgauge as fg
from fedgauge.federation.models import transformer

WORLD, LOCAL_STEPS, STEPS, COST = 4, 8, int(os.environ.get("STEPS", "2048")), 30


def train(rank: int, data: str | None, port: int) -> None:
    """One process of the job."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    text = fg.load_dataset("shakespeare", data) if data else fg.load_dataset("text")
    shard = slice(rank * text.num_train // WORLD, (rank + 1) * text.num_train // WORLD)  # neighbours in the text
    inputs, targets = torch.tensor(text.train_inputs[shard]), torch.tensor(text.train_labels[shard])
    made = transformer(inputs.shape[1:], text.num_classes, width=32, layers=1)
    model = made.make()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    batches, held = torch.Generator().manual_seed(rank), slice(0, 200)

    gauge = fg.DistributedGauge(fg.LiveGauge(local_steps=LOCAL_STEPS, steps=STEPS, cost=COST))
    done = 0
    while done < STEPS:
        for _ in range(gauge.local_steps):
            batch = torch.randint(len(inputs), (20,), generator=batches)
            optimiser.zero_grad()
            made.loss(model(inputs[batch]), targets[batch]).backward()
            optimiser.step()
            done += 1
        gauge.average(model.parameters())
        with torch.no_grad():
            gauge.record(made.loss(model(inputs[held]), targets[held]).item())  # the mean over processes
    if rank == 0:
        print(gauge.answer())
    dist.barrier()  # nobody leaves while others still talk
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", help="directory of Tiny Shakespeare")
    parser.add_argument("--port", type=int, default=29513)
    given = parser.parse_args()
    mp.spawn(train, (given.data, given.port), nprocs=WORLD)
