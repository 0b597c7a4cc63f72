"""What becomes of a local optimiser's state after a round: reset, kept by the worker, or averaged.

    python benchmarks/optimiser_state.py [--seeds 2] [--json FILE]

Digits, the MLP, batch 20, FedAvg with eta = 1. Every worker takes 640 local steps in all: 160 rounds of I = 4, or 20 of
I = 32. For each optimiser, state and setting, the best of three rates is shown, by the training loss f at the end,
averaged over the seeds (infinite where a run diverges). With 5 of 20 workers in a round, participants are drawn without
replacement; with all of them, there are 10. It takes about five minutes on one core.
"""

from __future__ import annotations

import argparse
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np

from fedgauge.base.files import write_json
from fedgauge.show import console
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import prepare, prepare_again
from fedgauge.simulation.loop import simulate
from fedgauge.simulation.options import Compute, Recording
from fedgauge.simulation.setup import Setup

STEPS = 640
LOCAL_STEPS = (4, 32)
DATA: dict[str, dict[str, Any]] = {
    "iid": {"scheme": "iid"},
    "dirichlet 0.1": {"scheme": "dirichlet", "alpha": 0.1},
}
WORKERS: dict[str, dict[str, Any]] = {
    "10 of 10": {"workers": 10},
    "5 of 20": {"workers": 20, "participants": 5, "sampling": "without-replacement"},
}
OPTIMISERS: dict[str, tuple[dict[str, Any], tuple[float, ...]]] = {
    "plain sgd": ({}, (0.1, 0.3, 1.0)),
    **{
        f"momentum 0.9, {state}": ({"local_momentum": 0.9, "optimiser_state": state}, (0.03, 0.1, 0.3))
        for state in ("reset", "kept", "averaged")
    },
    **{
        f"adamw, {state}": ({"optimiser": "adamw", "optimiser_state": state}, (0.001, 0.003, 0.01))
        for state in ("reset", "kept", "averaged")
    },
}


def final_loss(setup: Setup, experiment: Experiment) -> float:
    """The training loss at the end of a run; infinite where it diverges."""
    made = prepare_again(experiment, setup)
    trace = simulate(
        made.federation,
        made.algorithm,
        local_steps=made.local_steps,
        rounds=made.rounds,
        participation=made.participation,
        seed=made.seed,
        record=Recording(every=made.rounds, watch=False),
        compute=Compute(processes=1),
    )
    return math.inf if trace.status == "diverged" else float(trace.losses[-1])


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write every run's loss to this file")
    options = parser.parse_args()
    columns = list(itertools.product(DATA, WORKERS, LOCAL_STEPS))
    best: dict[str, list[tuple[float, float]]] = {name: [] for name in OPTIMISERS}
    every = []
    with console.progress() as bar:
        task = bar.add_task("settings", total=len(columns) * len(OPTIMISERS))
        for data, workers, steps in columns:
            common = {"source": "digits", "partition_seed": 0, "local_steps": steps, "rounds": STEPS // steps}
            base = Experiment.of({"gamma": 0.1, **common, **DATA[data], **WORKERS[workers]})
            setup = prepare(base)
            for name, (changes, rates) in OPTIMISERS.items():
                found = {}
                for gamma in rates:
                    runs = [
                        final_loss(setup, base.changed({**changes, "gamma": gamma, "seed": seed}))
                        for seed in range(options.seeds)
                    ]
                    found[gamma] = float(np.mean(runs))
                    every.append(
                        {
                            "data": data,
                            "workers": workers,
                            "I": steps,
                            "optimiser": name,
                            "gamma": gamma,
                            "losses": runs,
                        }
                    )
                best[name].append(min((loss, gamma) for gamma, loss in found.items()))
                bar.advance(task)
    heads = [f"{data}, {workers}, I={steps}" for data, workers, steps in columns]
    print("| f after 640 steps (best gamma) | " + " | ".join(heads) + " |")
    print("| --- |" + " --- |" * len(heads))
    for name, cells in best.items():
        print(f"| {name} | " + " | ".join(f"{loss:.4f} ({gamma:g})" for loss, gamma in cells) + " |")
    if options.json:
        write_json(options.json, every)


if __name__ == "__main__":
    main()
