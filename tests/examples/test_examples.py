"""The examples on real processes: what they print, and that it is what one process would have found."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training import Training

import fedgauge as fg

ROOT = Path(__file__).parents[2]
STEPS = 960
NOTING = """
import json, os
import fedgauge as fg

class Noting(fg.DistributedGauge):
    def answer(self):
        if os.environ.get("RANK", "0") == "0":
            print("records:", json.dumps(self.state_dict()["records"]), flush=True)
        return super().answer()

fg.DistributedGauge = Noting
"""
"""Python runs this before an example: the answer then comes with all decisions and losses."""
ENVIRONMENT = {**os.environ, "STEPS": str(STEPS), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}


def free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


def run(*command: str, **named: str) -> str:
    return subprocess.run(
        command, cwd=ROOT, env={**ENVIRONMENT, **named}, capture_output=True, text=True, check=True, timeout=300
    ).stdout


@pytest.fixture
def noting(tmp_path: Path) -> dict[str, str]:
    """The environment variables with which an example notes decisions and losses."""
    (tmp_path / "sitecustomize.py").write_text(NOTING)
    return {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [ENVIRONMENT.get("PYTHONPATH")])])}


def alone(world: int, steps: int = STEPS, diloco: bool = False) -> fg.LiveGauge:
    """The same training in one process: the same models, batches and losses."""
    training = Training(world)
    batches = [torch.Generator().manual_seed(rank) for rank in range(world)]
    outer = torch.optim.SGD(training.model.parameters(), lr=0.7, momentum=0.5)

    def rescale(before: int, after: int) -> None:
        for state in outer.state.values():
            state["momentum_buffer"] *= after / before

    live, done = fg.LiveGauge(local_steps=16, steps=steps, cost=10, on_change=rescale if diloco else None), 0
    while done < steps:
        shared = training.values
        moved = [training.steps_of(rank, shared, live.local_steps, batches[rank]) for rank in range(world)]
        done += live.local_steps
        means = [torch.stack(column).mean(dim=0) for column in zip(*moved, strict=True)]
        training.put(shared if diloco else means)
        if diloco:
            for parameter, start, mean in zip(training.model.parameters(), shared, means, strict=True):
                parameter.grad = start - mean
            outer.step()
        live.record(sum(training.loss(mine) for mine in training.shards) / world)
    return live


def assert_agree(printed: str, live: fg.LiveGauge) -> None:
    assert live.answer().complete
    stays = re.search(r"stays with (\d+) local steps", printed)
    assert stays is not None
    assert int(stays[1]) == live.local_steps
    # Sums are taken in another order, so that losses differ in their last digits, and how sure it is by a per cent.
    assert str(live.answer()).splitlines()[0].split(" (")[0] in printed
    found = re.search(r"^records: (.*)$", printed, re.MULTILINE)
    assert found is not None
    records, expected = json.loads(found[1]), live.state_dict()["records"]
    number = len(records["losses"])
    assert number >= len(expected["losses"]) - 1  # accelerate's may end within a round
    for name in ("taken", "under"):
        assert records[name] == expected[name][:number], name
    assert records["losses"] == pytest.approx(expected["losses"][:number], rel=1e-5)


@pytest.mark.parametrize(
    ("name", "world"),
    [("torch_distributed.py", 4), pytest.param("accelerate_local_sgd.py", 2, marks=pytest.mark.long)],
    ids=["torch", "accelerate"],
)
def test_the_answer_is_that_of_one_process(name: str, world: int, noting: dict[str, str]) -> None:
    path = str(ROOT / "examples" / name)
    if world == 4:
        printed = run(sys.executable, path, str(free_port()), **noting)
    else:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        printed = run(*launcher, "--master-port", str(free_port()), path, **noting)
    assert_agree(printed, alone(world))


@pytest.mark.long
@pytest.mark.parametrize("diloco", [False, True], ids=["local-sgd", "diloco"])
def test_replicas_of_torchft_answer_as_one_process(diloco: bool, noting: dict[str, str]) -> None:
    path = str(ROOT / "examples" / "torchft_replicas.py")
    printed = run(sys.executable, path, *(["diloco"] if diloco else []), STEPS="480", **noting)
    assert_agree(printed, alone(2, 480, diloco))


EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_example_is_short_and_says_how_to_run_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    # A Flower app is run by its directory.
    place = path.parent if (path.parent / "pyproject.toml").exists() else path
    # What a page of the documentation shows as a file of the reader's own is run where the reader puts it.
    assert place.relative_to(ROOT).as_posix() in text or f"python {path.name}" in text
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


FAILING = """
import torch
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from torchft._torchft import LighthouseServer
from torchft.local_sgd import DiLoCo, LocalSGD
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo
import fedgauge as fg
from fedgauge.base.errors import InputError
from fedgauge.measurement.live.replicas import set_steps

ROUNDS, FAILED = 24, (5, 6, 12)

class Link(ProcessGroupGloo):
    down = False

    def allreduce(self, tensors, opts):
        if self.down:
            self.down = False
            raise RuntimeError("the link is down")
        return super().allreduce(tensors, opts)

def refused(call, *words):
    try:
        call()
    except InputError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(words)

def replica(rank, lighthouse, diloco, least, fragments, begun):
    if rank and least == 1:
        begun.wait()  # it joins later
    model = torch.nn.Sequential(*(torch.nn.Linear(1, 1, bias=False) for _ in range(fragments)))
    for weight in model.parameters():
        torch.nn.init.zeros_(weight)
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = Link()
    manager = Manager(
        pg=group, use_async_quorum=False, min_replica_size=least, init_sync=False, replica_id=str(rank),
        load_state_dict=model.load_state_dict, state_dict=model.state_dict, rank=0, world_size=1,
        lighthouse_addr=lighthouse, store_addr="127.0.0.1", store_port=store.port, hostname="127.0.0.1")
    live = fg.LiveGauge(2, 400, candidates=(2, 4), explore=1.0)
    gauge = fg.DistributedGauge(live, manager)
    inner, outer = torch.optim.SGD(model.parameters(), 1.0), torch.optim.SGD(model.parameters(), 1.0)
    asked, weights, together = [], [], 0
    local_sgd = LocalSGD(manager, model, inner, 1)
    with DiLoCo(manager, list(model), inner, outer, 2) if diloco else local_sgd as averager:
        while together < ROUNDS:
            gauge.pace(averager)
            asked.append(gauge.local_steps)
            group.down = least == 2 and fragments == 1 and len(asked) in FAILED
            for _ in range(gauge.local_steps):
                for weight in model.parameters():
                    weight.grad = -torch.full((1, 1), rank + 1.0)
                inner.step()
            weights.append(model[0].weight.item())
            gauge.record(1 / (1 + weights[-1] / 100))
            together += manager.num_participants() == 2
            if manager.current_step() == 8:
                begun.set()
    if fragments > 1:
        assert manager.current_step() == fragments * ROUNDS and averager._sync_every * fragments == asked[-1]
        refused(lambda: set_steps(averager, 2, [2, 3]), "2 fragments", "3 local")
        averager._fragments[0]._outer_optimizer = torch.optim.Adam(model.parameters())
        refused(lambda: gauge.pace(averager, rescale=True), "outer SGD", "Adam")
    manager.shutdown(wait=False)
    return asked, weights, gauge.state_dict()

def run(diloco, least, fragments=1):
    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=least, join_timeout_ms=20000, quorum_tick_ms=10)
    begun = Event()
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda rank: replica(rank, server.address(), diloco, least, fragments, begun), range(2)))
    server.shutdown()
    return found

for diloco in (False, True):
    (asked, weights, state), (others, theirs, another) = run(diloco, 2)
    assert asked == others and state == another and set(asked) == {2, 4}, (asked, others)
    # What was not averaged is done again with as many steps.
    assert all(asked[failed] == asked[failed - 1] for failed in FAILED), asked
    done = [not diloco or number + 1 not in FAILED for number in range(ROUNDS)]
    assert state["total"] == sum(steps for steps, counts in zip(asked, done) if counts)
    assert weights[-1] == theirs[-1] == 1.5 * state["total"], (weights, theirs)
    # LocalSGD's next averages follow rounds that were too long; DiLoCo went back to the last average.
    missing = FAILED if diloco else (5, 6, 7, 12, 13)
    losses = [1 / (1 + weight / 100) for number, weight in enumerate(weights) if number + 1 not in missing]
    assert state["records"]["losses"] == losses

(asked, _, state), (others, _, another) = run(True, 2, fragments=2)
assert asked == others and state == another and len(state["records"]["losses"]) == ROUNDS

(asked, _, state), (others, _, another) = run(False, 1)
# It joins at the end of its first round, and follows from then on.
assert len(others) == ROUNDS < len(asked) and asked[1 - ROUNDS:] == others[1:], (asked, others)
assert state == another and set(others[1:]) == {2, 4}
print("agreed")
"""


@pytest.mark.long
def test_replicas_that_fail_or_join_agree(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(FAILING)
    assert "agreed" in run(sys.executable, str(tmp_path / "job.py"))
