"""Replicas of torchft with a live gauge: python examples/torchft_replicas.py, with the argument diloco for DiLoCo."""

import os
import sys

import torch
import torch.multiprocessing as mp
from torch.nn.functional import cross_entropy
from torchft._torchft import LighthouseServer
from torchft.local_sgd import DiLoCo, LocalSGD
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo

import fedgauge as fg

WORLD, LOCAL_STEPS, STEPS, COST = 2, 16, int(os.environ.get("STEPS", "4096")), 10


def train(rank: int, lighthouse: str, diloco: bool) -> None:
    """One replica."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    digits = fg.load_dataset("digits")
    inputs, labels = torch.tensor(digits.train_inputs).float().flatten(1) / 16, torch.tensor(digits.train_labels)
    mine = torch.argsort(labels, stable=True).chunk(WORLD)[rank]
    model, batches = torch.nn.Linear(inputs.shape[1], 10), torch.Generator().manual_seed(rank)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(), use_async_quorum=False, min_replica_size=WORLD, init_sync=False, replica_id=str(rank),
        load_state_dict=model.load_state_dict, state_dict=model.state_dict, rank=0, world_size=1,
        lighthouse_addr=lighthouse, store_addr="127.0.0.1", store_port=store.port, hostname="127.0.0.1",
    )  # fmt: skip
    gauge = fg.DistributedGauge(fg.LiveGauge(local_steps=LOCAL_STEPS, steps=STEPS, cost=COST), manager)
    local_sgd, outer = LocalSGD(manager, model, optimiser, 1), torch.optim.SGD(model.parameters(), 0.7, momentum=0.5)
    with DiLoCo(manager, [model], optimiser, outer, 1) if diloco else local_sgd as averager:
        done = 0
        while done < STEPS:
            gauge.pace(averager, rescale=diloco)
            for _ in range(gauge.local_steps):
                batch = mine[torch.randint(len(mine), (20,), generator=batches)]
                optimiser.zero_grad()
                cross_entropy(model(inputs[batch]), labels[batch]).backward()
                optimiser.step()
            done += gauge.local_steps
            with torch.no_grad():  # the averager has just averaged, unless a replica failed
                gauge.record(cross_entropy(model(inputs[mine]), labels[mine]).item())
    if rank == 0:
        print(f"{gauge.answer()}\nOf those that it tried, the run stays with {gauge.local_steps} local steps.")
    manager.shutdown(wait=False)


if __name__ == "__main__":
    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=WORLD, join_timeout_ms=60000)
    mp.spawn(train, (server.address(), "diloco" in sys.argv), nprocs=WORLD)
    server.shutdown()
