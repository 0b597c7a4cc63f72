"""The examples on real processes: what they print, and that it is what one process would have found."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import fedgauge as fg

ROOT = Path(__file__).parents[2]
STEPS = 1600
ENVIRONMENT = {**os.environ, "STEPS": str(STEPS), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}


def free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


def run(*command: str) -> str:
    return subprocess.run(
        command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=300
    ).stdout


def alone(world: int) -> fg.LiveGauge:
    """The same training in one process: the same models, batches and losses."""
    torch.manual_seed(0)
    digits = fg.load_dataset("digits")
    inputs, labels = torch.tensor(digits.train_inputs).float().flatten(1) / 16, torch.tensor(digits.train_labels)
    shards = torch.argsort(labels, stable=True).chunk(world)
    model = torch.nn.Linear(inputs.shape[1], 10)
    batches = [torch.Generator().manual_seed(rank) for rank in range(world)]
    live, done = fg.LiveGauge(local_steps=16, steps=STEPS, cost=10), 0
    shared = [parameter.detach().clone() for parameter in model.parameters()]
    while done < STEPS:
        moved: list[list[torch.Tensor]] = []
        for mine, generator in zip(shards, batches, strict=True):
            for parameter, value in zip(model.parameters(), shared, strict=True):
                parameter.data.copy_(value)
            for _ in range(live.local_steps):
                batch = mine[torch.randint(len(mine), (20,), generator=generator)]
                model.zero_grad()
                torch.autograd.backward(cross_entropy(model(inputs[batch]), labels[batch]))
                for parameter in model.parameters():
                    assert parameter.grad is not None
                    parameter.data -= 0.1 * parameter.grad
            moved.append([parameter.detach().clone() for parameter in model.parameters()])
        done += live.local_steps
        shared = [torch.stack(column).mean(dim=0) for column in zip(*moved, strict=True)]
        for parameter, value in zip(model.parameters(), shared, strict=True):
            parameter.data.copy_(value)
        with torch.no_grad():
            losses = [cross_entropy(model(inputs[mine]), labels[mine]).item() for mine in shards]
        live.record(sum(losses) / world)
    return live


@pytest.mark.parametrize(
    ("name", "world"), [("torch_distributed.py", 4), ("accelerate_local_sgd.py", 2)], ids=["torch", "accelerate"]
)
def test_the_answer_is_that_of_one_process(name: str, world: int) -> None:
    path = str(ROOT / "examples" / name)
    if world == 4:
        printed = run(sys.executable, path, str(free_port()))
    else:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        printed = run(*launcher, "--master-port", str(free_port()), path)
    live = alone(world)
    assert live.answer().complete
    stays = re.search(r"stays with (\d+) local steps", printed)
    assert stays is not None
    assert int(stays[1]) == live.local_steps
    # Sums are taken in another order, so that losses differ in their last digits, and how sure it is by a per cent.
    assert printed.splitlines()[0].split(" (")[0] == str(live.answer()).splitlines()[0].split(" (")[0]


EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_example_is_short_and_says_how_to_run_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    # A Flower app is run by its directory.
    place = path.parent if (path.parent / "pyproject.toml").exists() else path
    assert place.relative_to(ROOT).as_posix() in text
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None


DISAGREEING = """
import sys, torch, torch.distributed as dist, torch.multiprocessing as mp, fedgauge as fg
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

def job(rank, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    gauge = fg.DistributedGauge(fg.LiveGauge(4, 2000, cost=5))
    weight = torch.nn.Parameter(torch.zeros(3) + rank)
    averager = PeriodicModelAverager(period=1, warmup_steps=0)
    weight.grad = torch.zeros(3)  # the averager leaves out what has no gradient
    averaged, done, asked = [], 0, []
    for _ in range(60):
        gauge.pace(averager)
        asked.append(gauge.local_steps)
        for step in range(gauge.local_steps):
            with torch.no_grad():
                weight += rank + 1
            before = weight.detach().clone()
            averager.average_parameters([weight])
            if not torch.equal(before, weight):
                averaged.append(done + step + 1)
        done += gauge.local_steps
        # The processes' losses differ in the last bits, as evaluations on different machines do.
        gauge.record(1 / (1 + done / 50) * (1 + rank * 2.0**-52))
    ends = torch.tensor(asked).cumsum(0).tolist()
    assert averaged == ends, (averaged[:9], ends[:9])
    everyone = [None, None]
    dist.all_gather_object(everyone, asked)
    assert everyone[0] == everyone[1] and len(set(asked)) > 1, everyone
    dist.barrier()
    dist.destroy_process_group()
    print("agreed")

if __name__ == "__main__":
    mp.spawn(job, (int(sys.argv[1]),), nprocs=2)
"""


def test_processes_agree_and_the_periodic_averager_follows(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(DISAGREEING)
    assert run(sys.executable, str(tmp_path / "job.py"), str(free_port())).count("agreed") == 2
