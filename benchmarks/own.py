"""Rounds of FedAvg on modules of one's own compared with the loop that a careful researcher writes, in one run.

    python benchmarks/own.py [--turns 5] [--only resnet20 transformer lstm] [--threads 1 2] [--json]

resnet20:    ResNet-20 with GroupNorm, images of 3x32x32.
transformer: the transformer that ships, sequences of 32 of 31 tokens.
language:    the transformer with a million parameters and AdamW, whose state each of 4 workers keeps; batches of 8
             sequences of 64 tokens.
lstm:        a module that fedgauge has never seen: an embedding, an LSTM and a linear layer, the same sequences.

The others with N = 10 workers and batches of 20; all with 100 samples of each worker and I = 10 local steps, on random
data of these shapes. They take fedgauge's plain path, which calls the module and differentiates it. The contestants
take turns:

- fedgauge: ``simulate`` in one process and in two, one thread each; the rounds record nothing. Its start, the first
  record and the first round are not counted;
- loop: one module (channels-last for images), ``torch.optim.SGD``, models copied and averaged in place; with one thread
  and with two, of which the faster counts. Two threads that wait for each other on a busy machine can take many times
  as long as one; ``--threads 1`` leaves them out;
- watched: ``simulate`` in one process with a record in every round, of losses, gradients, the spread of the models and
  the L_h that was seen. What it takes beyond a round, relative to a pass of gradients of all workers over all their
  data, is the number of passes.

A turn is two rounds of each, one of resnet20. Medians count; the fastest turns are shown too, because other work on the
machine affects them least, and processor time where one thread does all the work, because other work hardly affects it.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import torch
from torch import nn

import fedgauge
from fedgauge.federation.kernels.base import token_entropy
from fedgauge.federation.models import Model, resnet20, transformer
from fedgauge.federation.supervised import SupervisedFederation

GAMMA, BATCH, WORKERS, SAMPLES, STEPS = 0.01, 20, 10, 100, 10
TOKENS, TIME = 31, 32


Data = tuple[torch.Tensor, torch.Tensor]
Turn = Callable[[], tuple[float, float]]
"""Gives the seconds of a round, by the clock and of this process's own processor time."""


class Recurrent(nn.Module):
    """Predicts the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.read = nn.Embedding(TOKENS, 32), nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, TOKENS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens of (batch, time) to (batch, time, tokens)."""
        read, _ = self.read(self.embed(x))
        return self.head(read)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Workload:
    """One model, the shape of one of its inputs, whether these are tokens, and the rounds of a turn that are timed."""

    name: str
    model: Model
    shape: tuple[int, ...]
    sequence: bool
    rounds: int
    adamw: bool = False
    workers: int = WORKERS
    batch: int = BATCH

    def data(self) -> Data:
        """Random inputs and targets of all workers."""
        generator = torch.Generator().manual_seed(0)
        number = self.workers * SAMPLES
        if self.sequence:
            text = torch.randint(TOKENS, (number, self.shape[0] + 1), generator=generator)
            return text[:, :-1].contiguous(), text[:, 1:].contiguous()
        return (
            torch.randn(number, *self.shape, generator=generator),
            torch.randint(10, (number,), generator=generator),
        )


WORKLOADS = {
    work.name: work
    for work in (
        Workload("resnet20", resnet20((3, 32, 32), 10), (3, 32, 32), False, 1),
        Workload("transformer", transformer((TIME,), TOKENS), (TIME,), True, 2),
        Workload("language", transformer((64,), TOKENS, width=128, layers=5), (64,), True, 1, True, 4, 8),
        Workload("lstm", Model("lstm", Recurrent, token_entropy), (TIME,), True, 2),
    )
}


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _between(began: tuple[float, float], ended: tuple[float, float], rounds: int) -> tuple[float, float]:
    return (ended[0] - began[0]) / rounds, (ended[1] - began[1]) / rounds


def loop(work: Workload, data: Data, threads: int) -> Turn:
    """FedAvg as a careful researcher writes it; workers that keep a state have a module and an optimiser each."""
    x, y = data
    torch.manual_seed(0)
    modules = [work.model.make() for _ in range(work.workers if work.adamw else 1)]
    if not work.sequence:
        x = x.contiguous(memory_format=torch.channels_last)
        modules = [each.to(memory_format=torch.channels_last) for each in modules]  # type: ignore[call-overload]
    optimisers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(each.parameters(), lr=GAMMA) if work.adamw else torch.optim.SGD(each.parameters(), lr=GAMMA)
        for each in modules
    ]
    of = [list(each.parameters()) for each in modules]
    average = [parameter.detach().clone() for parameter in of[0]]
    generator = np.random.default_rng(0)

    def run() -> None:
        for _ in range(work.rounds):
            total = [torch.zeros_like(parameter) for parameter in average]
            for worker in range(work.workers):
                module, optimiser = modules[worker % len(modules)], optimisers[worker % len(modules)]
                parameters: list[torch.Tensor] = list(of[worker % len(modules)])
                with torch.no_grad():
                    torch._foreach_copy_(parameters, average)
                chosen = generator.integers(SAMPLES, size=(STEPS, work.batch)) + worker * SAMPLES
                for batch in torch.from_numpy(chosen):
                    optimiser.zero_grad()
                    work.model.loss(module(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
                    optimiser.step()
                with torch.no_grad():
                    torch._foreach_add_(total, parameters, alpha=1 / work.workers)
            torch._foreach_copy_(average, total)

    def turn() -> tuple[float, float]:
        torch.set_num_threads(threads)
        began = _now()
        run()
        ended = _now()
        torch.set_num_threads(1)
        return _between(began, ended, work.rounds)

    return turn


def simulated(federation: SupervisedFederation, work: Workload, processes: int, watched: bool = False) -> Turn:
    """fedgauge's rounds."""
    algorithm, rounds = fedgauge.fedavg(GAMMA), work.rounds
    if work.adamw:
        algorithm = fedgauge.with_optimiser(algorithm, "adamw", optimiser_state="kept")

    def turn() -> tuple[float, float]:
        ends: list[tuple[float, float]] = []
        fedgauge.simulate(
            federation,
            algorithm,
            local_steps=STEPS,
            rounds=rounds + 2,
            record=fedgauge.Recording(every=1 if watched else rounds + 2, observer=lambda *_: ends.append(_now())),
            compute=fedgauge.Compute(processes=processes),
        )
        # The first round has the start in it, and the last one a record.
        return _between(ends[0], ends[rounds], rounds)

    return turn


def passed(federation: SupervisedFederation) -> Turn:
    """A pass of gradients, in one process and with one thread."""
    workers = np.arange(federation.num_workers)
    models = federation.start(0).expand(len(workers), -1)

    def turn() -> tuple[float, float]:
        torch.set_num_threads(1)
        began = _now()
        federation.gradients(models, workers)
        return _between(began, _now(), 1)

    return turn


def measure(work: Workload, turns: int, threads: list[int]) -> dict[str, list[tuple[float, float]]]:
    """Seconds of a round, or pass, of each contestant in each turn, by the clock and of processor time."""
    x, y = work.data()
    shards = [range(worker * SAMPLES, (worker + 1) * SAMPLES) for worker in range(work.workers)]
    federation = SupervisedFederation(work.model.make, work.model.loss, x, y, shards, batch_size=work.batch)
    assert federation.path == "plain"
    contestants: dict[str, Turn] = {
        "fedgauge, one process": simulated(federation, work, 1),
        **{_loop(number): loop(work, (x, y), number) for number in threads},
        "fedgauge, two processes": simulated(federation, work, 2),
        "fedgauge, one process, watched": simulated(federation, work, 1, watched=True),
        "pass of gradients": passed(federation),
    }
    for name in (*map(_loop, threads), "pass of gradients"):
        contestants[name]()  # fedgauge warms up in its own first round
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    for _ in range(turns):
        for name, turn in contestants.items():
            seconds[name].append(turn())
    return seconds


def _loop(threads: int) -> str:
    return f"loop, {threads} thread{'s' if threads > 1 else ''}"


def ratios(of: dict[str, float]) -> dict[str, float]:
    """What is compared with the targets, from one time per contestant."""
    best = min(value for name, value in of.items() if name.startswith("loop"))
    found = {"one": best / of["fedgauge, one process"]}
    if "fedgauge, two processes" in of:
        found["two"] = best / of["fedgauge, two processes"]
    beyond = of["fedgauge, one process, watched"] - of["fedgauge, one process"]
    return {**found, "watched": beyond / of["pass of gradients"]}


MEANING = {
    "one": "best loop / fedgauge, one process (target: at least 1)",
    "two": "best loop / fedgauge, two processes (target: at least 1.7)",
    "watched": "gradient passes of a watched record (target: at most 3.5)",
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = {}
    for name in options.only:
        seconds = measure(WORKLOADS[name], options.turns, options.threads)
        median = {each: statistics.median(clock for clock, _ in times) for each, times in seconds.items()}
        best = {each: min(clock for clock, _ in times) for each, times in seconds.items()}
        # Other processes and threads are not in this process's processor time, or only add up in it.
        own = {
            each: min(own for _, own in times)
            for each, times in seconds.items()
            if each != "fedgauge, two processes" and not each.endswith("threads")
        }
        kinds = {"medians": ratios(median), "fastest turns": ratios(best), "processor time": ratios(own)}
        results[name] = {"seconds": seconds, "ratios": kinds}
        if options.json:
            continue
        print(f"{name + f', {options.turns} turns':34}{'median ms':>12}{'fastest':>12}{'processor':>12}")
        for each in seconds:
            last = f"{1e3 * own[each]:>12.1f}" if each in own else ""
            print(f"{each:34}{1e3 * median[each]:>12.1f}{1e3 * best[each]:>12.1f}{last}")
        for ratio, meaning in MEANING.items():
            found = ", ".join(f"{of[ratio]:.2f} by {kind}" for kind, of in kinds.items() if ratio in of)
            print(f"{meaning}: {found}")
        print(flush=True)
    if options.json:
        versions = {"fedgauge": version("fedgauge"), "torch": torch.__version__, "python": platform.python_version()}
        print(json.dumps({"versions": versions, "results": results}))


if __name__ == "__main__":
    main()
