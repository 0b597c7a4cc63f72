"""The gauge on short ways with a CNN: the CIFAR-10 federations of the decisive study, with seeds that it has not.

    python benchmarks/gauge_cifar.py --data DATA --out gauged/cifar10          # resumes; DATA holds CIFAR-10

The truth is that of the study, one seed (papers/wang2024/results/decisive/cifar10.json): the slowdown of whole runs
with 10 and 40 local steps on a way of 200 steps. With other seeds the gauge has other partitions, first models and
batches, so that a whole run of its own is not the truth again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fedgauge import Experiment, GaugeOptions, gauge
from fedgauge.base.files import write_json
from fedgauge.simulation.experiment.prepare import prepare
from fedgauge_wang2024.decisive.federations import federations, source_of
from fedgauge_wang2024.equal_zeta import with_kind
from gauge import pairs, summary

STUDY = Path(__file__).parents[1] / "papers" / "wang2024" / "results" / "decisive" / "cifar10.json"


def predicted(kind: str | None, strength: float | None, seed: int, data: str) -> dict[str, Any]:
    """What the gauge says of one federation, at its default budget."""
    source = source_of("cifar10")
    plain = Experiment.of({**source.keys, "seed": seed, "data": data, "local_steps": 1})
    experiment = plain if kind is None or strength is None else with_kind(plain, kind, strength)
    options = GaugeOptions(steps=source.steps, local_steps=source.local_steps)
    found = gauge(prepare(experiment), options=options)
    return {
        "efficiency": [each.to_json() for each in found.efficiency[1:]],
        "spent": found.spent.gradient_steps / source.steps,
        "sentence": found.sentence,
        "notes": list(found.notes),
    }


def main() -> None:
    """Gauge what is missing, print predictions beside the truth, and write result.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="directory for finished parts and result.json")
    parser.add_argument("--data", required=True, help="directory that holds CIFAR-10")
    parser.add_argument("--seeds", type=int, nargs="+", default=[5], help="seeds of the gauge, not 0")
    options = parser.parse_args()
    truth = {each["federation"]: each["slowdown"] for each in json.loads(STUDY.read_text())["cells"]}
    cells = []
    for each in federations(source_of("cifar10")):
        found = []
        for seed in options.seeds:
            path = options.out / f"{each.name.replace(' ', '-')}-{seed}.json"
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, predicted(each.kind, each.strength, seed, options.data))
            found.append(json.loads(path.read_text()))
        # A run that was given up took more than five times the steps.
        true = {steps: float("inf") if value is None else value for steps, value in truth[each.name].items()}
        cells.append({"federation": each.name, "truth": true, "gauge": found})
        for slowdown, prediction in pairs(cells[-1:]):
            value, steps = prediction["value"], prediction["local_steps"]
            said = f"at least {1 / prediction['high']:.2f}" if prediction["limit"] else f"{1 / value:.2f}"
            print(f"{each.name:<16} I {steps:>3}  truth {slowdown:5.2f}  gauge {said}", flush=True)
    result = {"summary": summary(cells), "cells": cells}
    print(json.dumps(result["summary"], indent=2))
    write_json(options.out / "result.json", result)


if __name__ == "__main__":
    main()
