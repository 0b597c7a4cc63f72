"""How often the gauge's intervals of 90% hold the truth where workers have very unequal shards.

    python benchmarks/gauge_weighted.py --set fresh --out gauged        # resumes; a quarter of an hour on one core

Softmax regression with an l2 term on made-up data: 8 to 14 workers with 1 to 500 examples each, who count by their
number of examples, and whose inputs are shifted and whose labels are skewed by amounts that differ from federation to
federation. The goal is the default one, where the base run ends. The truth is the slowdown of whole runs, as the median
over five seeds; the gauge has two seeds that the truth does not have. Federations "developed" were looked at while
intervals were changed, "fresh" only afterwards. Most efficiencies are near 1 here, and so most are pooled.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from fedgauge import GaugeOptions, Participation, SupervisedFederation, fedavg, federate, gauge
from fedgauge.base.files import write_json
from fedgauge.measurement.gauge.curves import BaseCurve, crossing
from fedgauge.measurement.gauge.runner import Runner
from fedgauge.simulation.setup import Setup
from gauge import LIMIT

SETS = {"developed": range(12), "fresh": range(200, 216)}
LOCAL_STEPS, STEPS = (4, 16, 64), 600
WIDTH, CLASSES = 10, 4


def made(number: int) -> tuple[SupervisedFederation, Participation, float]:
    """A federation, its weights and its gamma."""
    draw = np.random.default_rng(number)
    workers, shift = int(draw.integers(8, 15)), float(draw.choice([0.0, 0.5, 1.5]))
    sizes = np.round(np.exp(draw.uniform(0, np.log(500), workers))).astype(int)
    truth, skew = draw.standard_normal((WIDTH, CLASSES)), float(draw.choice([0.0, 1.0, 3.0]))
    shards = []
    for size in sizes:
        x = draw.standard_normal((size, WIDTH)) + shift * draw.standard_normal(WIDTH)
        scores = x @ truth + skew * draw.standard_normal(CLASSES) + draw.gumbel(size=(size, CLASSES))
        shards.append((x.astype(np.float32), scores.argmax(axis=1)))
    l2 = float(draw.choice([0.0, 1e-3, 1e-2]))
    federation = federate(lambda: torch.nn.Linear(WIDTH, CLASSES), cross_entropy, shards, l2=l2)
    return federation, Participation(weights=tuple(map(float, sizes))), float(draw.choice([0.02, 0.05, 0.1]))


def true_slowdowns(number: int, seed: int) -> dict[str, float]:
    """The slowdowns of whole runs."""
    federation, weights, gamma = made(number)
    with Runner(Setup(federation, fedavg(gamma), participation=weights, seed=seed)) as runner:
        base = runner.follow("base", [1] * STEPS, max(STEPS // 96, 1))
        goal = BaseCurve(base.steps, base.losses).loss_at(base.steps[-1])
        reference = crossing(list(base.steps), list(base.losses), goal)
        found = {}
        for local_steps in LOCAL_STEPS:
            rounds, every = [local_steps] * int(LIMIT * STEPS / local_steps), max(STEPS // 96, local_steps)
            run = runner.follow(str(local_steps), rounds, every, goal=goal)
            found[str(local_steps)] = crossing(run.steps, run.losses, goal) / reference
    return found


def gauged(number: int, seed: int) -> list[dict[str, Any]]:
    """What the gauge says, at its default budget."""
    federation, weights, gamma = made(number)
    options = GaugeOptions(steps=STEPS, local_steps=LOCAL_STEPS)
    found = gauge(federation, fedavg(gamma), options=options, participation=weights, seed=seed)
    return [each.to_json() for each in found.efficiency[1:]]


def main() -> None:
    """Compute what is missing, and say how often intervals hold and how far values are off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=SETS, default="fresh")
    parser.add_argument("--out", type=Path, required=True, help="directory for finished parts and weighted.json")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in SETS[options.set]:
        path = options.out / f"weighted-{number}.json"
        if not path.exists():
            truths = [true_slowdowns(number, seed) for seed in range(5)]
            write_json(path, {"truths": truths, "gauged": [gauged(number, seed) for seed in (5, 6)]})
        part = json.loads(path.read_text())
        for found in part["gauged"]:
            for each in found:
                truth = statistics.median(one[str(each["local_steps"])] for one in part["truths"])
                if truth < LIMIT and each["value"] is not None:
                    held = each["low"] <= 1 / truth <= each["high"]
                    rows.append({"federation": number, "truth": truth, **each, "held": held})
    errors = sorted(abs(1 / row["value"] / row["truth"] - 1) for row in rows)
    result = {
        "set": options.set,
        "intervals": len(rows),
        "held": sum(row["held"] for row in rows) / len(rows),
        "median error": statistics.median(errors),
        "nine of ten within": errors[int(0.9 * len(errors))],
        "rows": rows,
    }
    write_json(options.out / f"weighted-{options.set}.json", result)
    print(json.dumps({name: value for name, value in result.items() if name != "rows"}, indent=2))
    for row in rows:
        if not row["held"]:
            print(row["federation"], row["local_steps"], f"true {1 / row['truth']:.3f}", row["low"], row["high"])


if __name__ == "__main__":
    main()
