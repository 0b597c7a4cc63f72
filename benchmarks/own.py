"""Rounds of FedAvg on modules of one's own compared with the loop that a careful researcher writes, in one run.

    python benchmarks/own.py [--turns 5] [--only resnet20 transformer lstm] [--threads 1 2] [--json]

resnet20:    ResNet-20 with GroupNorm, images of 3x32x32.
transformer: the transformer that ships, sequences of 32 of 31 tokens.
lstm:        a module that fedgauge has never seen: an embedding, an LSTM and a linear layer, the same sequences.

Each with N = 10 workers of 100 samples, I = 10 local steps and batch 20, on random data of these shapes. All of them
take fedgauge's plain path, which calls the module and differentiates it. The contestants take turns:

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

    model: Model
    shape: tuple[int, ...]
    sequence: bool
    rounds: int

    def data(self) -> Data:
        """Random inputs and targets of all workers."""
        generator = torch.Generator().manual_seed(0)
        number = WORKERS * SAMPLES
        if self.sequence:
            text = torch.randint(TOKENS, (number, TIME + 1), generator=generator)
            return text[:, :-1].contiguous(), text[:, 1:].contiguous()
        return (
            torch.randn(number, *self.shape, generator=generator),
            torch.randint(10, (number,), generator=generator),
        )


WORKLOADS = {
    work.model.name: work
    for work in (
        Workload(resnet20((3, 32, 32), 10), (3, 32, 32), False, 1),
        Workload(transformer((TIME,), TOKENS), (TIME,), True, 2),
        Workload(Model("lstm", Recurrent, token_entropy), (TIME,), True, 2),
    )
}


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _between(began: tuple[float, float], ended: tuple[float, float], rounds: int) -> tuple[float, float]:
    return (ended[0] - began[0]) / rounds, (ended[1] - began[1]) / rounds


def loop(work: Workload, data: Data, threads: int) -> Turn:
    """FedAvg as a careful researcher writes it."""
    x, y = data
    torch.manual_seed(0)
    module = work.model.make()
    if not work.sequence:
        x = x.contiguous(memory_format=torch.channels_last)
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.SGD(module.parameters(), lr=GAMMA)
    parameters: list[torch.Tensor] = list(module.parameters())
    generator = np.random.default_rng(0)

    def run() -> None:
        for _ in range(work.rounds):
            start = [parameter.detach().clone() for parameter in parameters]
            total = [torch.zeros_like(parameter) for parameter in start]
            for worker in range(WORKERS):
                with torch.no_grad():
                    torch._foreach_copy_(parameters, start)
                chosen = generator.integers(SAMPLES, size=(STEPS, BATCH)) + worker * SAMPLES
                for batch in torch.from_numpy(chosen):
                    optimiser.zero_grad()
                    work.model.loss(module(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
                    optimiser.step()
                with torch.no_grad():
                    torch._foreach_add_(total, parameters, alpha=1 / WORKERS)
            with torch.no_grad():
                torch._foreach_copy_(parameters, total)

    def turn() -> tuple[float, float]:
        torch.set_num_threads(threads)
        began = _now()
        run()
        ended = _now()
        torch.set_num_threads(1)
        return _between(began, ended, work.rounds)

    return turn


def simulated(federation: SupervisedFederation, rounds: int, processes: int, watched: bool = False) -> Turn:
    """fedgauge's rounds."""

    def turn() -> tuple[float, float]:
        ends: list[tuple[float, float]] = []
        fedgauge.simulate(
            federation,
            fedgauge.fedavg(GAMMA),
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
    workers = np.arange(WORKERS)
    models = federation.start(0).expand(WORKERS, -1)

    def turn() -> tuple[float, float]:
        torch.set_num_threads(1)
        began = _now()
        federation.gradients(models, workers)
        return _between(began, _now(), 1)

    return turn


def measure(work: Workload, turns: int, threads: list[int]) -> dict[str, list[tuple[float, float]]]:
    """Seconds of a round, or pass, of each contestant in each turn, by the clock and of processor time."""
    x, y = work.data()
    shards = [range(worker * SAMPLES, (worker + 1) * SAMPLES) for worker in range(WORKERS)]
    federation = SupervisedFederation(work.model.make, work.model.loss, x, y, shards, batch_size=BATCH)
    assert federation.path == "plain"
    contestants: dict[str, Turn] = {
        "fedgauge, one process": simulated(federation, work.rounds, 1),
        **{_loop(number): loop(work, (x, y), number) for number in threads},
        "fedgauge, two processes": simulated(federation, work.rounds, 2),
        "fedgauge, one process, watched": simulated(federation, work.rounds, 1, watched=True),
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
