"""Rounds of FedAvg on networks compared with a careful PyTorch loop and with bare products, as ratios from one run.

    python benchmarks/rounds.py [--turns 15] [--only mlp many cnn vgg11] [--json]

mlp:  N = 10 workers with 6,000 samples of 784, all take part, I = 40 local steps, batch 20, one hidden layer of 100.
many: N = 1,000 workers with 60 samples of 784, M = 100 take part, I = 10, batch 20, the same model.
cnn:  N = 100 workers with 500 images of 3x32x32, M = 10 take part, I = 10, batch 20, the paper's CNN.
vgg11: N = 10 workers with 500 such images, all take part, I = 5, batch 20, VGG-11 at half of its width.

The data is random numbers of those shapes. The contestants take turns, so that a busy moment of the machine affects all
of them alike:

- fedgauge: ``simulate`` with its defaults and two processes; the rounds record nothing;
- loop: one module, mini-batches by index, gradients of the parameters by autograd, a manual SGD step in place, and a
  running mean of the models; with one thread and with two, of which the better counts;
- raw: only the forward and backward products, of the same shapes and number, with two threads. For the dense model,
  ``bmm`` with 5 or 10 workers per product, whichever is faster, out of place and without biases. For the CNN and VGG,
  the convolutions and their gradients (channels-last) and the products of dense layers, one worker at a time.

A turn is a few rounds of each contestant, and its time per round is one measurement. The median counts. The spread is
the range of the middle half. The fastest turn is shown too, because other work on the machine affects it least.
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
from torch.nn import functional

import fedgauge
from fedgauge.federation.models import Model, cnn, mlp, vgg11
from fedgauge.federation.supervised import SupervisedFederation

GAMMA, BATCH, THREADS = 0.01, 20, 2


@dataclass(frozen=True)
class Workload:
    """One setting."""

    name: str
    model: Model
    shape: tuple[int, ...]
    num_workers: int
    samples: int
    participants: int
    local_steps: int
    rounds: int  # the number of rounds in a turn
    targets: tuple[float, float | None]  # least speed relative to the loop; largest time relative to the raw products

    @property
    def participation(self) -> fedgauge.Participation:
        """Who takes part."""
        if self.participants == self.num_workers:
            return fedgauge.Participation()
        return fedgauge.Participation("without-replacement", self.participants)


WORKLOADS = (
    Workload("mlp", mlp((784,), 10), (784,), 10, 6000, 10, 40, 5, (5.0, 1.4)),
    Workload("many", mlp((784,), 10), (784,), 1000, 60, 100, 10, 3, (5.0, 1.5)),
    Workload("cnn", cnn((3, 32, 32), 10), (3, 32, 32), 100, 500, 10, 10, 1, (1.1, None)),
    Workload("vgg11", vgg11((3, 32, 32), 10, narrow=2), (3, 32, 32), 10, 500, 10, 5, 1, (1.1, None)),
)

Data = tuple[torch.Tensor, torch.Tensor]
Rounds = Callable[[int], None]
"""A function that runs a number of rounds."""


def make_data(work: Workload) -> Data:
    """Random samples and labels."""
    generator = torch.Generator().manual_seed(0)
    number = work.num_workers * work.samples
    return (
        torch.randn(number, *work.shape, generator=generator),
        torch.randint(10, (number,), generator=generator),
    )


def loop(work: Workload, data: Data, threads: int) -> Rounds:
    """FedAvg, carefully implemented in plain PyTorch."""
    x, y = data
    torch.manual_seed(0)
    module = work.model.make()
    if len(work.shape) == 3:
        x = x.to(memory_format=torch.channels_last)
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    parameters: list[torch.Tensor] = list(module.parameters())
    generator = np.random.default_rng(0)

    def run(rounds: int) -> None:
        torch.set_num_threads(threads)
        for _ in range(rounds):
            start = [parameter.detach().clone() for parameter in parameters]
            total = [torch.zeros_like(parameter) for parameter in start]
            cohort = generator.choice(work.num_workers, work.participants, replace=False)
            for worker in cohort.tolist():
                with torch.no_grad():
                    torch._foreach_copy_(parameters, start)
                chosen = generator.integers(work.samples, size=(work.local_steps, BATCH)) + worker * work.samples
                for batch in torch.from_numpy(chosen):
                    loss = functional.cross_entropy(module(x[batch]), y[batch])
                    gradients = torch.autograd.grad(loss, parameters)
                    with torch.no_grad():
                        torch._foreach_add_(parameters, gradients, alpha=-GAMMA)
                with torch.no_grad():
                    torch._foreach_add_(total, parameters)
            with torch.no_grad():
                torch._foreach_mul_(total, 1 / work.participants)
                torch._foreach_copy_(parameters, total)

    return run


def _dense_products(layers: list[nn.Linear], together: int, first_needs_input: bool = False) -> Callable[[], None]:
    """The products of one step of dense layers for ``together`` workers at once: one forward and two backward."""
    held = []
    for index, layer in enumerate(layers):
        weight = torch.randn(together, layer.out_features, layer.in_features)
        x = torch.randn(together, BATCH, layer.in_features)
        residual = torch.randn(together, BATCH, layer.out_features)
        wanted = index > 0 or first_needs_input
        held.append(
            (weight, x, residual, torch.empty_like(weight), torch.empty_like(residual), torch.empty_like(x), wanted)
        )

    def step() -> None:
        for weight, x, residual, slope, out, back, wanted in held:
            torch.bmm(x, weight.transpose(1, 2), out=out)
            torch.bmm(residual.transpose(1, 2), x, out=slope)
            if wanted:
                torch.bmm(residual, weight, out=back)

    return step


def raw_dense(work: Workload, together: int) -> Rounds:
    """The products of a round, with ``together`` workers per product."""
    step = _dense_products([part for part in work.model.make() if isinstance(part, nn.Linear)], together)  # type: ignore[attr-defined]

    def run(rounds: int) -> None:
        torch.set_num_threads(THREADS)
        for _ in range(rounds * work.local_steps * work.participants // together):
            step()

    return run


def raw_cnn(work: Workload) -> Rounds:
    """The convolutions and products of a round, one worker at a time."""
    module = work.model.make()
    x = torch.randn(BATCH, *work.shape)
    held: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[int], bool]] = []
    for part in module:  # type: ignore[attr-defined]
        if isinstance(part, nn.Conv2d):
            image = x.to(memory_format=torch.channels_last)
            weight = part.weight.detach().to(memory_format=torch.channels_last)
            padding = [int(side) for side in part.padding]
            residual = torch.randn_like(torch.conv2d(image, weight, padding=padding))
            held.append((image, weight, residual, padding, bool(held)))
        x = part(x).detach()
    dense = _dense_products([part for part in module if isinstance(part, nn.Linear)], 1, first_needs_input=True)  # type: ignore[attr-defined]

    def run(rounds: int) -> None:
        torch.set_num_threads(THREADS)
        for _ in range(rounds * work.local_steps * work.participants):
            for image, weight, residual, padding, wanted in held:
                torch.conv2d(image, weight, padding=padding)
                torch.ops.aten.convolution_backward(
                    residual, image, weight, None, [1, 1], padding, [1, 1], False, [0, 0], 1, [wanted, True, False]
                )
            dense()

    return run


def measure(work: Workload, turns: int) -> dict[str, list[float]]:
    """The seconds per round of each contestant, one number per turn."""
    data = make_data(work)
    shards = [range(i * work.samples, (i + 1) * work.samples) for i in range(work.num_workers)]
    federation = SupervisedFederation(work.model.make, work.model.loss, *data, shards, batch_size=BATCH)
    rivals: dict[str, Rounds] = {f"loop, {n} thread{'s'[: n - 1]}": loop(work, data, n) for n in range(1, THREADS + 1)}
    if len(work.shape) == 1:
        rivals |= {f"raw, {n} per product": raw_dense(work, n) for n in (5, 10)}
    else:
        rivals["raw"] = raw_cnn(work)
    for run in rivals.values():
        run(1)
    seconds: dict[str, list[float]] = {"fedgauge": [], **{name: [] for name in rivals}}
    began = 0.0

    def observer(done: int, _: object) -> None:
        """After the last round of a turn, let all other contestants take their turn."""
        nonlocal began
        if done % work.rounds:
            return
        if done > work.rounds:  # the first turn warms up, and its first round is recorded
            seconds["fedgauge"].append((time.perf_counter() - began) / work.rounds)
        for name, run in rivals.items():
            began = time.perf_counter()
            run(work.rounds)
            seconds[name].append((time.perf_counter() - began) / work.rounds)
        torch.set_num_threads(1)
        began = time.perf_counter()

    rounds = work.rounds * (turns + 1)
    fedgauge.simulate(
        federation,
        fedgauge.fedavg(GAMMA),
        local_steps=work.local_steps,
        rounds=rounds,
        participation=work.participation,
        record=fedgauge.Recording(every=rounds + 1, observer=observer),
        compute=fedgauge.Compute(processes=2),
    )
    return seconds


def summary(work: Workload, seconds: dict[str, list[float]]) -> dict[str, object]:
    """Medians, spreads and ratios; the ratios also from the fastest turns."""
    median = {name: statistics.median(times) for name, times in seconds.items()}
    best = {name: min(times) for name, times in seconds.items()}
    ratios = {}
    for kind, of in (("median", median), ("fastest", best)):
        fastest_loop = min(value for name, value in of.items() if name.startswith("loop"))
        fastest_raw = min(value for name, value in of.items() if name.startswith("raw"))
        ratios[kind] = {
            "loop_over_fedgauge": fastest_loop / of["fedgauge"],
            "fedgauge_over_raw": of["fedgauge"] / fastest_raw,
        }
    rows = []
    for name, times in seconds.items():
        low, _, high = statistics.quantiles(times, n=4)
        rows.append(
            {
                "contestant": name,
                "ms": 1e3 * median[name],
                "fastest_ms": 1e3 * best[name],
                "spread": (high - low) / median[name],
            }
        )
    return {
        "workload": work.name,
        "turns": len(seconds["fedgauge"]),
        "rows": rows,
        "ratios": ratios,
        "targets": work.targets,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=[work.name for work in WORKLOADS])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = []
    for work in WORKLOADS:
        if options.only and work.name not in options.only:
            continue
        result = summary(work, measure(work, options.turns))
        results.append(result)
        if options.json:
            continue
        print(f"{work.name + f', median of {options.turns} turns':32}{'ms per round':>12}{'spread':>9}{'fastest':>10}")
        for row in result["rows"]:  # type: ignore[attr-defined]
            print(f"{row['contestant']:32}{row['ms']:>12.1f}{row['spread']:>9.0%}{row['fastest_ms']:>10.1f}")
        least, most = work.targets
        for kind, ratio in result["ratios"].items():  # type: ignore[attr-defined]
            print(
                f"by {kind}: loop / fedgauge {ratio['loop_over_fedgauge']:.2f} (target: at least {least}),"
                f" fedgauge / raw {ratio['fedgauge_over_raw']:.2f}" + (f" (target: at most {most})" if most else "")
            )
        print(flush=True)
    if options.json:
        versions = {"fedgauge": version("fedgauge"), "torch": torch.__version__, "python": platform.python_version()}
        print(json.dumps({"versions": versions, "results": results}))


if __name__ == "__main__":
    main()
