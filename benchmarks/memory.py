"""Peak memory above the data with a large model: training, measuring along the trajectory, and the gauge.

    python benchmarks/memory.py [--parameters 25] [--workers 10] [--only gauge]        # a few minutes

Each task runs in a process of its own, whose largest resident set is compared with that of a process which only makes
the federation. The model is an MLP with two equal hidden layers; a row of N models takes N times its size.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
from typing import Any

TASKS = ("federation", "simulate", "adamw", "trajectory", "gauge")


def _run(task: str, millions: float, workers: int) -> dict[str, Any]:
    import torch

    import fedgauge as fg

    width = int(math.sqrt(1e6 * millions))

    def model() -> torch.nn.Module:
        layers = [torch.nn.Linear(32, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers, torch.nn.Linear(width, 10))

    generator = torch.Generator().manual_seed(0)
    shards = [
        (torch.randn(40, 32, generator=generator), torch.randint(10, (40,), generator=generator))
        for _ in range(workers)
    ]
    federation = fg.federate(model, torch.nn.functional.cross_entropy, shards)
    algorithm, here = fg.fedavg(gamma=0.01), fg.Compute(processes=1)
    start = federation.start(0)
    if task == "simulate":
        fg.simulate(federation, algorithm, local_steps=4, rounds=3, compute=here)
    elif task == "adamw":
        adamw = fg.with_optimiser(algorithm, "adamw", optimiser_state="kept")
        fg.simulate(federation, adamw, local_steps=4, rounds=3, compute=here)
    elif task == "trajectory":
        readings = fg.MeasureOptions(("trajectory", "divergence"), rounds=2, seeds=1)
        fg.measure(federation, algorithm, local_steps=4, model=start, compute=here, options=readings)
    elif task == "gauge":
        options = fg.GaugeOptions(steps=60, local_steps=(4,), budget=120)
        fg.gauge(federation, algorithm, options=options, compute=here)
    # Linux counts in kilobytes.
    return {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "parameters": start.numel()}


def main() -> None:
    """Print the peak of every task above that of the federation alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=float, default=25.0, help="millions of parameters")
    parser.add_argument("--workers", type=int, default=10, help="number of workers")
    parser.add_argument("--only", nargs="+", choices=TASKS[1:], default=TASKS[1:], help="the tasks to run")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        print(json.dumps(_run(options.task, options.parameters, options.workers)))
        return
    sizes = ["--parameters", str(options.parameters), "--workers", str(options.workers)]
    alone = 0
    for task in (TASKS[0], *options.only):
        said = subprocess.run(
            [sys.executable, __file__, "--task", task, *sizes], check=True, capture_output=True, text=True
        )
        found = json.loads(said.stdout)
        alone = alone or found["peak"]
        row = 4 * found["parameters"]
        above = found["peak"] - alone
        print(f"{task:<12} {found['peak'] / 1e9:5.2f} GB, {above / 1e9:5.2f} GB above the federation", end="")
        print(f", {above / row:5.1f} models of {row / 1e6:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
