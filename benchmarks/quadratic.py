"""Rounds of FedAvg on quadratics compared with bare numpy loops of the same products, as ratios measured in one run.

    python benchmarks/quadratic.py [--json]

d = 100, N = 10, I = 10, with noise. Each loop draws the same amount of noise, takes the same local steps and, when
``simulate`` records, the same exact gradient passes; it checks and keeps nothing else. The contestants take turns, so
that a busy moment of the machine affects all of them alike; the median of the turns counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from fedgauge import QuadraticFederation, fedavg, random_quadratics, simulate
from fedgauge.simulation.options import Recording

DIM, WORKERS, STEPS, GAMMA, ROUNDS = 100, 10, 10, 0.01, 100


def simulated(federation: QuadraticFederation, record_every: int) -> Callable[[], None]:
    """The package's own rounds."""

    def run() -> None:
        simulate(federation, fedavg(GAMMA), local_steps=STEPS, rounds=ROUNDS, record=Recording(every=record_every))

    return run


def per_worker(federation: QuadraticFederation, record: bool) -> Callable[[], None]:
    """One matrix-vector product at a time: the obvious implementation."""
    A, b = federation.hessians, federation.linear
    scale = (federation.sigma2 / DIM) ** 0.5

    def run() -> None:
        generator = np.random.default_rng(0)
        x = federation.first_model
        for _ in range(ROUNDS):
            ends = []
            for i in range(WORKERS):
                y = x
                noise = scale * generator.standard_normal((STEPS, DIM))
                for k in range(STEPS):
                    y = y - GAMMA * (A[i] @ y + b[i] + noise[k])
                ends.append(y)
            mean = np.mean(ends, axis=0)
            if record:
                at_own = np.mean([A[i] @ ends[i] + b[i] for i in range(WORKERS)], axis=0)
                at_mean = np.mean([A[i] @ mean + b[i] for i in range(WORKERS)], axis=0)
                at_global = [A[i] @ x + b[i] for i in range(WORKERS)]
                _ = np.mean([(g + b[i]) @ x / 2 for i, g in enumerate(at_global)]), np.mean(at_global, axis=0)
                _ = np.mean([np.sum((y - mean) ** 2) for y in ends]), np.sum((at_own - at_mean) ** 2)
            x = mean

    return run


def stacked(federation: QuadraticFederation, record: bool) -> Callable[[], None]:
    """All workers in one stacked product: a careful implementation."""
    A, b = federation.hessians, federation.linear
    scale = (federation.sigma2 / DIM) ** 0.5

    def products(y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        found: npt.NDArray[np.float64] = np.matmul(A, y[:, :, None])[:, :, 0] + b
        return found

    def run() -> None:
        generator = np.random.default_rng(0)
        x = federation.first_model
        for _ in range(ROUNDS):
            y = np.broadcast_to(x, (WORKERS, DIM))
            noise = scale * generator.standard_normal((STEPS, WORKERS, DIM))
            for k in range(STEPS):
                y = y - GAMMA * (products(y) + noise[k])
            mean = y.mean(axis=0)
            if record:
                everywhere = np.broadcast_to(mean, (WORKERS, DIM))
                at_global = products(np.broadcast_to(x, (WORKERS, DIM)))
                _ = (((at_global + b) @ x) / 2).mean(), at_global.mean(axis=0)
                _ = ((y - mean) ** 2).sum(axis=1).mean()
                _ = ((products(y).mean(axis=0) - products(everywhere).mean(axis=0)) ** 2).sum()
            x = mean

    return run


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    federation = random_quadratics(WORKERS, DIM, sigma2=0.01, hessian_spread=0.1)
    contestants = {
        "fedgauge, recording every round": simulated(federation, 1),
        "numpy one worker at a time, recording": per_worker(federation, True),
        "numpy stacked, recording": stacked(federation, True),
        "fedgauge, steps only": simulated(federation, ROUNDS),
        "numpy one worker at a time, steps only": per_worker(federation, False),
        "numpy stacked, steps only": stacked(federation, False),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    with threadpool_limits(1):
        for turn in range(options.turns + 1):
            for name, run in contestants.items():
                began = time.perf_counter()
                run()
                if turn:  # the first turn warms up
                    seconds[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    rows = []
    for name, median in medians.items():
        recording = "recording" in name
        ours = next(m for n, m in medians.items() if n.startswith("fedgauge") and ("recording" in n) == recording)
        rows.append(
            {
                "contestant": name,
                "rounds_per_second": ROUNDS / median,
                "spread": (max(seconds[name]) - min(seconds[name])) / median,
                "fedgauge_time_over_this": ours / median,
            }
        )
    if options.json:
        print(json.dumps({"dim": DIM, "workers": WORKERS, "local_steps": STEPS, "turns": options.turns, "rows": rows}))
        return
    print(f"{'d = 100, N = 10, I = 10':40}{'rounds/s':>10}{'spread':>9}{'fedgauge time / this':>22}")
    for row in rows:
        print(
            f"{row['contestant']:40}{row['rounds_per_second']:>10.0f}{row['spread']:>9.0%}"
            f"{row['fedgauge_time_over_this']:>22.2f}"
        )


if __name__ == "__main__":
    main()
