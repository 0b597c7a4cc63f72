"""Adaptive local steps compared with every fixed number of local steps, in seconds by a cost model.

    python benchmarks/auto.py --out DIR [--only digits-iid quadratic-equal ...] [--seeds 1] [--json]

A cell is a federation with a rate gamma and a goal, which is a loss to reach. For each cost model, the table has the
rounds and seconds to the goal of the best fixed I out of 1, 2, 4, ..., 128, of ``--local-steps auto`` and of IBM's
adaptive tau, and the ratio of auto's seconds to those of the best fixed I. The target is a ratio of at most 1.10
everywhere. A run with fixed I does not depend on the cost model, so it is run once and read three times; ``*`` marks a
goal that was not reached within the rounds allowed. Every run is saved as JSON in DIR, and is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fedgauge
from fedgauge.algorithms.cost import Cost
from fedgauge.base.files import write_json
from fedgauge.federation.protocols import Federation
from fedgauge.show import console
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import prepare
from fedgauge_planning.goal import Goal
from plans.adaptive_tau import PHI, PHI_NETWORK, adaptive_tau

GRID = tuple(2**k for k in range(8))
COSTS = ("cross-device", "cross-silo", "local,step=0.001,fixed=0.01")
GAMMAS = (0.05, 0.3)
DEMAND = 1.10
"""The largest ratio of auto's seconds to those of the best fixed I that is acceptable."""
ROUNDS, STEPS = 4000, 40_000
"""The limits of a run with fixed I: a goal that would take more counts as not reached."""

PARTITIONS: dict[str, dict[str, Any]] = {
    "iid": {"scheme": "iid"},
    "paper50": {"percent": 50.0},
    "paper100": {"percent": 100.0, "per_worker": 127},
    "dirichlet0.1": {"scheme": "dirichlet", "alpha": 0.1},
    "shards2": {"scheme": "shards", "shards": 2},
    "quantity": {"scheme": "quantity"},
}
QUADRATICS: dict[str, dict[str, Any]] = {
    # The workers' Hessians are equal, differ a little, and differ as much as possible.
    "equal": {"hessian_spread": 0.0},
    "small": {"hessian_spread": 0.05},
    "large": {"hessian_spread": 1.0},
}
# Losses that take tens to hundreds of rounds at moderate I; for quadratics, the remaining fraction of the gap f - f*.
DIGITS_GOALS = {0.05: 0.2, 0.3: 0.05}
QUADRATIC_GOALS = {0.05: 0.03, 0.3: 0.003}


@dataclass(frozen=True)
class Cell:
    """A federation, a rate and a goal."""

    name: str
    gamma: float
    goal: float
    federation: Federation


def _digits(partition: str) -> Federation:
    return prepare(Experiment.of({"source": "digits", "gamma": 0.1, **PARTITIONS[partition]})).federation


def cells(only: Sequence[str]) -> Iterator[Cell]:
    """All cells, or those whose federation is named."""
    for gamma in GAMMAS:
        for name, spread in QUADRATICS.items():
            if not only or f"quadratic-{name}" in only:
                federation = fedgauge.random_quadratics(10, 20, conditioning=100.0, sigma2=1.0, **spread)
                least = federation.minimiser()[1]
                first, _ = federation.pooled(federation.start(0), np.arange(10), np.full(10, 0.1))
                goal = least + QUADRATIC_GOALS[gamma] * (first - least)
                yield Cell(f"quadratic-{name}", gamma, goal, federation)
        for name in PARTITIONS:
            if not only or f"digits-{name}" in only:
                yield Cell(f"digits-{name}", gamma, DIGITS_GOALS[gamma], _digits(name))


def _kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The content of a file; if it does not exist yet, it is made first."""
    if not path.exists():
        write_json(path, make())
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def fixed(cell: Cell, local_steps: int, seed: int) -> dict[str, Any]:
    """The losses of a run with a fixed number of local steps, round by round."""
    rounds = min(ROUNDS, max(STEPS // local_steps, 1))
    trace = fedgauge.simulate(
        cell.federation,
        fedgauge.fedavg(gamma=cell.gamma),
        local_steps=local_steps,
        rounds=rounds,
        seed=seed,
        record=fedgauge.Recording(every=1, watch=False),
        stop=fedgauge.StopAt(loss=cell.goal),
        compute=fedgauge.Compute(processes=1),
    )
    return {"reached": trace.status == "target", "rounds": trace.stopped_at}


def paced(cell: Cell, cost: Cost, seed: int, limit: float) -> dict[str, Any]:
    """The rounds and seconds that ``auto`` takes to the goal, with its local steps round by round."""
    trace = fedgauge.simulate(
        cell.federation,
        fedgauge.fedavg(gamma=cell.gamma),
        local_steps=fedgauge.adaptive_pace(cost, cell.federation),
        rounds=ROUNDS,
        seed=seed,
        record=fedgauge.Recording(every=1, watch=False),
        stop=fedgauge.StopAt(loss=cell.goal, when=lambda records: (records[-1].elapsed or 0.0) > limit),
        compute=fedgauge.Compute(processes=1),
    )
    last = trace.rounds[-1]
    steps = [record.looked[-1] for record in trace.rounds if record.looked]
    reached = trace.status == "target" and last.loss <= cell.goal
    return {"reached": reached, "rounds": trace.stopped_at, "seconds": last.elapsed, "local_steps": steps}


def baseline(cell: Cell, cost: Cost, seed: int, limit: float) -> dict[str, Any]:
    """The rounds and seconds that adaptive tau takes to the goal; its budget is twice that of the best fixed I."""
    participants = cell.federation.num_workers
    records = adaptive_tau(
        cell.federation,
        cell.gamma,
        budget=limit,
        step=cost.step or 0.0,
        fixed=cost.communication(participants),
        phi=PHI if cell.name.startswith("quadratic") else PHI_NETWORK,
        cap=GRID[-1],
        goal=Goal("loss", cell.goal),
        seed=seed,
    )
    last = records[-1]
    steps = [record.tau for record in records if record.tau]
    return {"reached": last.loss <= cell.goal, "rounds": last.round, "seconds": last.seconds, "local_steps": steps}


def _shown(result: dict[str, Any]) -> str:
    return f"{result['seconds']:.4g}" + "*" * (not result["reached"])


def rows(cell: Cell, seed: int, out: Path, done: Callable[[], None]) -> Iterator[dict[str, Any]]:
    """The rows of a cell, one per cost model; ``done`` is called after each run."""
    name = f"{cell.name}-gamma{cell.gamma}-goal{cell.goal:.6g}-seed{seed}"
    runs = {}
    for steps in GRID:
        runs[steps] = _kept(out / f"{name}-I{steps}.json", lambda steps=steps: fixed(cell, steps, seed))  # type: ignore[misc]
        done()
    participants = cell.federation.num_workers
    for text in COSTS:
        cost = Cost.parse(text).completed(cell.federation)
        seconds = {
            steps: run["rounds"] * cost.round(steps, participants) if run["reached"] else math.inf
            for steps, run in runs.items()
        }
        best = min(seconds, key=lambda steps: seconds[steps])
        limit = 2 * seconds[best]
        row = {"cell": cell.name, "gamma": cell.gamma, "cost": text, "seed": seed, "best": best}
        row |= {"rounds": runs[best]["rounds"], "seconds": seconds[best], "fixed": seconds}
        if math.isfinite(limit):
            label = text.partition(",")[0]
            for key, run in (("auto", paced), ("tau", baseline)):
                path = out / f"{name}-{label}-{key}.json"
                row[key] = _kept(path, lambda run=run, cost=cost, limit=limit: run(cell, cost, seed, limit))  # type: ignore[misc]
        done()
        yield row


def main() -> None:
    """Run what is still missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    chosen = list(cells(options.only))
    found: list[dict[str, Any]] = []
    with console.progress() as bar:
        task = bar.add_task("runs", total=len(chosen) * options.seeds * (len(GRID) + len(COSTS)))
        for cell in chosen:
            for seed in range(options.seeds):
                found += rows(cell, seed, options.out, lambda: bar.advance(task))
    if options.json:
        print(json.dumps(found))
        return
    shown, ratios = [], []
    for row in found:
        line = [
            row["cell"],
            f"{row['gamma']:g}",
            row["cost"].partition(",")[0],
            str(row["best"]),
            str(row["rounds"]),
        ]
        if "auto" in row:
            ratios.append(row["auto"]["seconds"] / row["seconds"])
            ratio = f"{ratios[-1]:.3f}" + "*" * (not row["auto"]["reached"])
            line += [
                f"{row['seconds']:.4g}",
                str(row["auto"]["rounds"]),
                _shown(row["auto"]),
                ratio,
                _shown(row["tau"]),
            ]
        shown.append([*line, *["-"] * (10 - len(line))])
    head = ("federation", "gamma", "cost", "best I", "rounds", "s", "auto: rounds", "s", "ratio", "tau: s")
    console.table("Seconds of the cost model to the goal (* not reached)", head, shown, padding=0)
    if ratios:
        within = sum(ratio <= DEMAND for ratio in ratios)
        print(f"{within} of {len(ratios)} within {DEMAND:.2f}; the largest ratio is {max(ratios):.3f}.")


if __name__ == "__main__":
    main()
