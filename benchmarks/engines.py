"""The cost of computing a round in other processes or on a cluster, for growing models and numbers of workers.

    python benchmarks/engines.py [--turns 7] [--only wide] [--local] [--json]

M workers with 60 samples of 784 random numbers each, all taking part, one hidden layer, batch 20, I local steps; the
rounds record nothing. The engines take turns, in one process per workload: this process alone, two forked processes,
and two tasks on a Ray cluster that is started on this machine. On one machine, a cluster can only add time. The
overhead is how many milliseconds per round it takes more than the two processes: the median over turns of the
difference within a turn. It tells when a cluster is worthwhile: if this machine takes T, then k machines like it take
T / k + overhead, which is less if T is above overhead k / (k - 1), here for k = 4. The bytes are those of the messages:
the model and its state, which each machine is sent once, and the sums that come back from each task. With --local, no
cluster is started.

To add an engine, add an entry to CONTESTANTS: a function from the work of a federation to an engine that maps lanes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

EACH, FEATURES, CLASSES, TASKS, MACHINES = 60, 784, 10, 2, 4


class Workload(NamedTuple):
    """The number of workers, the width of their model, and their local steps."""

    workers: int
    width: int
    steps: int

    @property
    def parameters(self) -> int:
        """The number of parameters of the model."""
        return (FEATURES + 1) * self.width + (self.width + 1) * CLASSES


WORKLOADS = {
    "tiny": Workload(16, 10, 1),
    "mlp": Workload(16, 100, 10),
    "wide": Workload(16, 1000, 10),
    "more": Workload(64, 100, 10),
    "many": Workload(256, 100, 10),
    "both": Workload(64, 1000, 10),
}


def _inline(work: Any) -> Any:
    from fedgauge.simulation.engines.local import Inline

    return Inline(work)


def _processes(work: Any) -> Any:
    from fedgauge.simulation.engines.local import Processes

    return Processes(work, TASKS)


def _ray(work: Any) -> Any:
    from fedgauge.simulation.engines.local import make_engine
    from fedgauge.simulation.options import Compute

    return make_engine(work, Compute(TASKS, "ray"))


# In the order in which they are started: processes are forked before the cluster starts its threads.
CONTESTANTS: dict[str, Callable[[Any], Any]] = {"one process": _inline, "two processes": _processes, "ray": _ray}
BASE = "two processes"


def _bytes(values: Any) -> int:
    from fedgauge_ray.cluster import pack

    packed = pack(values)
    return len(packed.content) + int(sum(array.nbytes for array in packed.arrays))


def serve(workload: Workload, turns: int, contestants: list[str]) -> None:
    """Run the turns of one workload, and print milliseconds per round and bytes."""
    import torch

    import fedgauge
    from fedgauge.base.threads import one_thread
    from fedgauge.federation.models import mlp
    from fedgauge.federation.supervised import SupervisedFederation
    from fedgauge.simulation.engines.local import Inline
    from fedgauge.simulation.rounds import Rounds
    from fedgauge.simulation.workers import Work, lanes

    generator = np.random.default_rng(0)
    samples = workload.workers * EACH
    x = torch.from_numpy(generator.standard_normal((samples, FEATURES), dtype=np.float32))
    y = torch.from_numpy(generator.integers(CLASSES, size=samples))
    shards = [range(EACH * worker, EACH * (worker + 1)) for worker in range(workload.workers)]
    model = mlp((FEATURES,), CLASSES, width=workload.width)
    federation = SupervisedFederation(model.make, model.loss, x, y, shards)
    participation = fedgauge.Participation()
    work = Work(federation, fedgauge.fedavg(0.01), workload.steps, 0, federation.chunk(workload.workers))
    times: dict[str, list[float]] = {name: [] for name in contestants}
    with ExitStack() as stack:
        stack.enter_context(one_thread())
        loops, states = {}, {}
        for name in contestants:
            engine = stack.enter_context(CONTESTANTS[name](work))
            loops[name] = Rounds(work, engine, participation, 0)
            states[name] = loops[name].first_state()
        rounds = 0
        for turn in range(turns + 2):
            for name, loop in loops.items():
                began, count = time.perf_counter(), 0
                # As many rounds as take a tenth of a second, the same number for every engine.
                while count < rounds or (not rounds and time.perf_counter() - began < 0.1):
                    (states[name],), _ = loop.round(states[name])
                    count += 1
                rounds = rounds or count
                if turn > 1:  # the first turns warm up
                    times[name].append(1e3 * (time.perf_counter() - began) / count)
        same = all(torch.equal(state.model, states[BASE].model) for state in states.values())
        state = states[BASE]
        dealt = lanes(participation.cohort(workload.workers, 0, 0), work.chunk)
        arguments = (state.round, state.model, state.server, 0, None)
        sums = Inline(work).map(Work.local_phase, dealt, *arguments)
        down, up = _bytes((arguments, dealt)), sum(_bytes(sums[task::TASKS]) for task in range(TASKS))
    print(json.dumps({"times": times, "same": same, "down": down, "up": up, "placed": _bytes(work)}))


def measured(name: str, turns: int, contestants: list[str]) -> dict[str, Any]:
    """The measurements of a workload in a separate process."""
    workload = WORKLOADS[name]
    command = [sys.executable, __file__, "--serve", name, "--turns", str(turns)]
    command += ["--local"] * ("ray" not in contestants)
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout)
    times: dict[str, list[float]] = found.pop("times")
    overhead = {
        other: statistics.median(own - base for own, base in zip(times[other], times[BASE], strict=True))
        for other in contestants[2:]
    }
    return {
        "workload": name,
        **workload._asdict(),
        "parameters": workload.parameters,
        "ms": {each: statistics.median(values) for each, values in times.items()},
        "fastest_ms": {each: min(values) for each, values in times.items()},
        "overhead_ms": overhead,
        "pays_from_ms": {each: max(ms, 0.0) * MACHINES / (MACHINES - 1) for each, ms in overhead.items()},
        **found,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--only", choices=WORKLOADS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--local", action="store_true", help="leave out the cluster")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    contestants = [name for name in CONTESTANTS if not (options.local and name == "ray")]
    if options.serve:
        serve(WORKLOADS[options.serve], options.turns, contestants)
        return
    rows = [measured(name, options.turns, contestants) for name in WORKLOADS if options.only in (None, name)]
    if options.json:
        print(json.dumps({"turns": options.turns, "tasks": TASKS, "rows": rows}))
        return
    others = contestants[2:]
    head = [f"{name} ms" for name in contestants] + [f"{name} {what}" for name in others for what in ("over", "pays")]
    print(f"{'M':>5}{'d':>9}{'I':>4}" + "".join(f"{name:>18}" for name in head) + f"{'KB down':>10}{'KB up':>9}  bits")
    for row in rows:
        cells = [f"{row['ms'][name]:.1f}" for name in contestants]
        for name in others:
            cells += [f"{row['overhead_ms'][name]:+.1f}", f"T > {row['pays_from_ms'][name]:.0f}"]
        print(
            f"{row['workers']:>5}{row['parameters']:>9,}{row['steps']:>4}"
            + "".join(f"{cell:>18}" for cell in cells)
            + f"{row['down'] / 1e3:>10.0f}{row['up'] / 1e3:>9.0f}  {'same' if row['same'] else 'OTHER'}"
        )


if __name__ == "__main__":
    main()
