"""Time per round and memory as the number of workers grows, with the same number of participants.

    python benchmarks/scale.py [--turns 15] [--workers 1000 10000 100000] [--passes] [--json]

60,000 samples of 784 random numbers, 60 for each worker: disjoint for N = 1,000 workers, drawn at random and shared by
several workers for 10,000 and 100,000. M = 100 take part in a round, I = 10, batch 20, one hidden layer of 100, two
processes; the rounds record nothing. The three take turns, each in a separate process that waits while the others run.
Memory is that of the process and its two child processes together after a turn, with shared pages counted once, or the
process's own peak if that is more; what was used when only the data had been loaded is subtracted. With --passes, each
ends with one exact pass, f and its gradient over all samples of all workers, whose time grows with their number.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

WORKERS, SAMPLES, EACH, PARTICIPANTS, ROUNDS = (1_000, 10_000, 100_000), 60_000, 60, 100, 3


def _megabytes(field: str, *files: str) -> float:
    """The sum of a field over files of /proc."""
    lines = [line.split() for file in files for line in Path("/proc", file).read_text().splitlines()]
    return sum(int(line[1]) for line in lines if line[0] == f"{field}:") / 1024


def serve(num_workers: int) -> None:
    """Run a turn for each line of input, and print the milliseconds per round and the memory so far."""
    import torch

    import fedgauge
    from fedgauge.base.threads import one_thread
    from fedgauge.federation.models import mlp
    from fedgauge.federation.supervised import SupervisedFederation
    from fedgauge.simulation.engines.local import Processes
    from fedgauge.simulation.rounds import Rounds
    from fedgauge.simulation.workers import Work

    generator = np.random.default_rng(0)
    x = torch.from_numpy(generator.standard_normal((SAMPLES, 784), dtype=np.float32))
    y = torch.from_numpy(generator.integers(10, size=SAMPLES))
    if num_workers * EACH == SAMPLES:
        indices = np.arange(SAMPLES)
    else:
        indices = generator.integers(SAMPLES, size=num_workers * EACH)
    model, algorithm = mlp((784,), 10), fedgauge.fedavg(0.01)
    mapped = indices.nbytes / 2**20
    shared, own = _megabytes("Pss", "self/smaps_rollup") - mapped, _megabytes("VmHWM", "self/status") - mapped
    shards = SimpleNamespace(sizes=np.full(num_workers, EACH), indices=indices)
    participation = fedgauge.Participation("without-replacement", PARTICIPANTS)
    federation = SupervisedFederation(model.make, model.loss, x, y, shards)
    work = Work(federation, algorithm, 10, 0, federation.chunk(PARTICIPANTS))
    with one_thread(), Processes(work, 2) as engine:
        loop = Rounds(work, engine, participation, 0)
        state = loop.first_state()
        for line in sys.stdin:
            began = time.perf_counter()
            if line == "pass\n":
                loop.evaluate(state.model)
                print(json.dumps({"pass_seconds": time.perf_counter() - began}), flush=True)
                continue
            for _ in range(ROUNDS):
                (state,), _ = loop.round(state)
            seconds = time.perf_counter() - began
            together = _megabytes("Pss", *(f"{pid}/smaps_rollup" for pid in ("self", *engine.pids))) - shared
            megabytes = max(together, _megabytes("VmHWM", "self/status") - own)
            print(json.dumps({"ms": 1e3 * seconds / ROUNDS, "megabytes": megabytes}), flush=True)


def _ask(process: subprocess.Popen[str], what: str) -> dict[str, float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{what}\n")
    process.stdin.flush()
    answer: dict[str, float] = json.loads(process.stdout.readline())
    return answer


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--workers", type=int, nargs="+", default=list(WORKERS))
    parser.add_argument("--passes", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    command = [sys.executable, __file__, "--serve"]
    contestants = {
        n: subprocess.Popen([*command, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for n in options.workers
    }
    times: dict[int, list[float]] = {n: [] for n in options.workers}
    memory = dict.fromkeys(options.workers, 0.0)
    for turn in range(options.turns + 1):
        for n, process in contestants.items():
            answer = _ask(process, "round")
            memory[n] = answer["megabytes"]
            if turn:  # the first turn warms up
                times[n].append(answer["ms"])
    passes = {n: _ask(process, "pass") for n, process in contestants.items()} if options.passes else {}
    for process in contestants.values():
        process.communicate()
    medians = {n: statistics.median(of) for n, of in times.items()}
    rows = []
    for n in options.workers:
        low, _, high = statistics.quantiles(times[n], n=4)
        ratio = statistics.median(own / first for own, first in zip(times[n], times[options.workers[0]], strict=True))
        rows.append(
            {
                "num_workers": n,
                "ms": medians[n],
                "spread": (high - low) / medians[n],
                "fastest_ms": min(times[n]),
                "time_over_first": ratio,
                "megabytes_above_data": memory[n],
                **passes.get(n, {}),
            }
        )
    if options.json:
        print(json.dumps({"participants": PARTICIPANTS, "turns": options.turns, "rows": rows}))
        return
    print(f"{'N':>8}{'ms per round':>12}{'spread':>9}{'fastest':>10}{'time / first':>14}{'MB beyond data':>15}")
    for row in rows:
        print(
            f"{row['num_workers']:>8,}{row['ms']:>12.1f}{row['spread']:>9.0%}{row['fastest_ms']:>10.1f}"
            f"{row['time_over_first']:>14.2f}{row['megabytes_above_data']:>15.0f}"
            + (f"   a pass: {row['pass_seconds']:.1f} s" if options.passes else "")
        )


if __name__ == "__main__":
    main()
