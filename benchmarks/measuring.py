"""The memory needed to measure a thousand workers, beyond that of the data.

    python benchmarks/measuring.py [--workers 1000] [--only noise] [--json]

N workers with 60 samples of 784 random numbers each, one hidden layer of 100, two processes. Each reading runs in a
separate process, at the first model: two rounds of the trajectory, the curvature, divergence, noise and parts. Memory
is the peak of the process and its child processes together (checked fifty times a second, shared pages counted once),
minus what was used when only the data had been loaded. The target is at most 500 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

READINGS = ("divergence", "noise", "trajectory", "curvature", "parts", "sampled")
AIM = 500


def _memory() -> float:
    """The megabytes that this process and its children use; shared pages are counted once."""
    total, everyone = 0.0, [os.getpid()]
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        everyone += [int(child) for child in (task / "children").read_text().split()]
    for process in everyone:
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return total


def measure(reading: str, workers: int) -> dict[str, Any]:
    """Take one reading, and record the memory."""
    import torch

    import fedgauge
    from fedgauge.federation.models import mlp
    from fedgauge.federation.supervised import SupervisedFederation
    from fedgauge.measurement.session import MeasureOptions
    from fedgauge.measurement.session import measure as take

    generator = torch.Generator().manual_seed(0)
    model = mlp((784,), 10)
    x = torch.randn(60 * workers, 784, generator=generator)
    y = torch.randint(10, (60 * workers,), generator=generator)
    shards = [range(60 * worker, 60 * worker + 60) for worker in range(workers)]
    federation = SupervisedFederation(model.make, model.loss, x, y, shards)
    before, peak, done = _memory(), 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.02):
            peak = max(peak, _memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    found = take(
        federation,
        fedgauge.fedavg(0.1),
        local_steps=10,
        compute=fedgauge.Compute(processes=2),
        model=federation.start(0),
        options=MeasureOptions((reading,), rounds=2, seeds=1),
    )
    done.set()
    watcher.join()
    taken = {item.symbol: item.value for each in found.readings for item in each.estimates}
    return {"reading": reading, "megabytes": peak - before, "seconds": time.perf_counter() - began} | {
        "cost": dict(found.cost),
        "estimates": taken,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--only", nargs="+", choices=READINGS, default=READINGS, help="the readings to take")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--one", choices=READINGS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.workers)))
        return
    rows = []
    for reading in options.only:
        command = [sys.executable, __file__, "--one", reading, "--workers", str(options.workers)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    if options.json:
        print(json.dumps(rows))
        return
    for row in rows:
        met = "met" if row["megabytes"] <= AIM else "MISSED"
        memory = f"{row['megabytes']:6.0f} MB beyond the data (target {AIM}: {met})"
        print(f"{row['reading']:12} {memory}, {row['seconds']:.0f} s")


if __name__ == "__main__":
    main()
