"""What a probe costs in a job of two ranks over gloo: a measured round against a local step, and the share of the time.

    python benchmarks/probe.py [--steps 16] [--rounds 200] [--models mlp cnn]

Both ranks compute with one thread. The probe has two fixed batches of each rank, as large as those of the training.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import distributed, nn

import fedgauge as fg

CLASSES = 10
MODELS = ("mlp", "cnn")


def network(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """A model by name, and the shape of one of its inputs."""
    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)), (784,)
    convolutions = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1)]
    return nn.Sequential(*convolutions, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4096, 10)), (3, 32, 32)


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """The mean loss of a batch."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def job(name: str, steps: int, rounds: int, share: float | None) -> tuple[float, float, fg.Probe | None]:
    """Train; the seconds of a local step and of the whole job, and the probe."""
    torch.manual_seed(0)
    model, shape = network(name)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(distributed.get_rank())
    batches = [
        (torch.randn(32, *shape, generator=generator), torch.randint(0, CLASSES, (32,), generator=generator))
        for _ in range(8)
    ]
    probe = fg.Probe(loss_of, batches[:2], share=share, start=model) if share else None
    distributed.barrier()
    began, local = time.perf_counter(), 0.0
    for _ in range(rounds):
        start = time.perf_counter()
        for step in range(steps):
            optimiser.zero_grad()
            loss_of(model, batches[step % 8]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        local += time.perf_counter() - start
        if probe:
            probe.before(model)
        with torch.no_grad():
            for parameter in model.parameters():
                distributed.all_reduce(parameter)
                parameter.div_(distributed.get_world_size())
        if probe:
            probe.after(model)
    return local / (rounds * steps), time.perf_counter() - began, probe


def rank(name: str, steps: int, rounds: int) -> None:
    """One rank of all three jobs; the first prints."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    say: Callable[[str], None] = print if distributed.get_rank() == 0 else lambda line: None
    job(name, steps, 2, None)
    always = job(name, steps, 10, 1.0)[-1]
    # In turns, because the machine's speed changes by more than the probe takes.
    turns = [(job(name, steps, rounds // 2, None), job(name, steps, rounds // 2, 0.05)) for _ in range(2)]
    step = sum(one[0] for one, _ in turns) / len(turns)
    plain, probed = sum(one[1] for one, _ in turns), sum(other[1] for _, other in turns)
    seldom = turns[-1][1][-1]
    assert always is not None
    assert seldom is not None
    every, found = always.summary(), seldom.summary()
    cost = every.spent / len(every.rounds)
    say(
        f"{name}, {steps} local steps a round: a step takes {1e3 * step:.1f} ms,"
        f" a round {1e3 * plain / (rounds // 2 * 2):.1f} ms."
    )
    say(f"A measured round takes {1e3 * cost:.1f} ms more: {cost / step:.1f} steps.")
    say(f"{found.pace} With it, the job took {probed / plain - 1:+.1%} longer than without.")
    distributed.barrier()
    distributed.destroy_process_group()


def main() -> None:
    """Start two ranks for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=16, help="local steps in a round")
    parser.add_argument("--rounds", type=int, default=200, help="rounds of a job")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="the models to train")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        rank(options.rank_of, options.steps, options.rounds)
        return
    for name in options.models:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        usual = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        usual |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        again = [sys.executable, __file__, "--steps", str(options.steps), "--rounds", str(options.rounds)]
        again += ["--rank-of", name]
        ranks = [subprocess.Popen(again, env={**usual, "RANK": str(number)}) for number in range(2)]
        ends = [each.wait() for each in ranks]
        if any(ends):
            sys.exit(f"{name}: a rank failed.")


if __name__ == "__main__":
    main()
