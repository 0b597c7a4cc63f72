"""The gauge against the truth: the slowdown that it predicts, and that of whole runs.

    python benchmarks/gauge.py --data DATA --out gauged            # resumes; DATA holds MNIST as it is published
    python benchmarks/gauge.py --out gauged --only digits          # federations whose name contains a word
    python benchmarks/gauge.py --data DATA --out gauged --truth docs/results/gauge/numbers.json  # no runs for the truth

The truth is the number of steps that a run with I local steps per round needs to the loss at which the base run ends,
over that of the base run; each crossing is interpolated between records, and the median is over five seeds. The gauge
uses one seed at a time, two of them; on short ways, where it may run the whole way itself, two that the truth has not.
Federations of the sets "developed" were looked at while the method was made; the others only once it was fixed.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.ticker import FixedLocator, NullLocator
from scipy.stats import kendalltau

from fedgauge import Experiment, GaugeOptions, gauge
from fedgauge.base.files import write_json
from fedgauge.measurement.gauge.curves import BaseCurve, crossing
from fedgauge.measurement.gauge.runner import Runner
from fedgauge.show import pictures
from fedgauge.simulation.experiment.prepare import prepare

LOCAL_STEPS = (4, 16, 64)
LIMIT = 6.0
"""The largest slowdown that is compared."""


class Ways(NamedTuple):
    """Federations whose ways are equally long.

    Attributes:
        federations: the experiments, by name.
        steps: of the base run.
        seeds: of the truth.
        gauged: seeds with which the gauge is taken.
        given_up: the slowdown at which runs for the truth are given up.
        tried: the numbers of local steps that the gauge tries: in one run, unless that is too short for them.
    """

    federations: Mapping[str, dict[str, Any]]
    steps: int = 1000
    seeds: Sequence[int] = range(5)
    gauged: Sequence[int] = (0, 1)
    given_up: float = 2 * LIMIT
    tried: Sequence[int] = (16, 64)


def _digits(**options: Any) -> dict[str, Any]:
    return {"source": "digits", "gamma": 0.1, **options}


def _mnist(**options: Any) -> dict[str, Any]:
    return {"source": "mnist", "gamma": 0.1, **options}


DEVELOPED: Mapping[str, dict[str, Any]] = {
    "digits, iid": _digits(scheme="iid"),
    "digits, paper 50%": _digits(percent=50),
    "digits, paper 75%": _digits(percent=75),
    "digits, paper 90%": _digits(percent=90, fill=True),
    "digits, Dirichlet 1": _digits(scheme="dirichlet", alpha=1.0),
    "digits, Dirichlet 0.3": _digits(scheme="dirichlet", alpha=0.3),
    "digits, Dirichlet 0.1": _digits(scheme="dirichlet", alpha=0.1),
    "digits, 2 shards": _digits(scheme="shards", shards=2),
}
FRESH: Mapping[str, dict[str, Any]] = {
    "digits softmax, paper 50%": _digits(model="softmax", percent=50),
    "digits softmax, Dirichlet 0.1": _digits(model="softmax", scheme="dirichlet", alpha=0.1),
    "digits, paper 50%, gamma 0.03": _digits(percent=50, gamma=0.03),
    "digits, 30 workers, Dirichlet 0.3": _digits(workers=30, scheme="dirichlet", alpha=0.3),
    "digits, 5 of 10 workers, paper 50%": _digits(percent=50, participants=5, sampling="without-replacement"),
    "digits, 3 shards": _digits(scheme="shards", shards=3),
    "digits, quantity skew": _digits(scheme="quantity"),
    "digits, batch 5, paper 75%": _digits(percent=75, batch_size=5, gamma=0.05),
    "MNIST, paper 25%": _mnist(percent=25, per_worker=600),
    "MNIST, paper 50%": _mnist(percent=50, per_worker=600),
    "MNIST, paper 75%": _mnist(percent=75, per_worker=600),
    "MNIST, paper 90%": _mnist(percent=90, per_worker=600),
}


SHORT_DEVELOPED: Mapping[str, dict[str, Any]] = {
    **DEVELOPED,
    "digits, paper 50%, gamma 0.3": _digits(percent=50, gamma=0.3),
    "digits, batch 5, Dirichlet 0.3": _digits(scheme="dirichlet", alpha=0.3, batch_size=5),
}
SHORT_MNIST: Mapping[str, dict[str, Any]] = {
    "MNIST, iid": _mnist(percent=0, per_worker=600),
    "MNIST, paper 40%": _mnist(percent=40, per_worker=600),
    "MNIST, paper 80%": _mnist(percent=80, per_worker=600),
    "MNIST, paper 95%": _mnist(percent=95, per_worker=600, fill=True),
}
SETS: Mapping[str, Ways] = {
    "developed": Ways(DEVELOPED),
    "fresh": Ways(FRESH),
    "short, developed": Ways(SHORT_DEVELOPED, 200, gauged=(5, 6), given_up=LIMIT, tried=LOCAL_STEPS),
    "short, fresh": Ways(SHORT_MNIST, 200, gauged=(5, 6), given_up=LIMIT, tried=LOCAL_STEPS),
}


def true_slowdowns(experiment: Experiment, ways: Ways) -> dict[int, float]:
    """The slowdown of whole runs with one seed; infinite where they are given up."""
    with Runner(prepare(experiment)) as runner:
        base = runner.follow("base", [1] * ways.steps, max(ways.steps // 96, 1))
        goal = BaseCurve(base.steps, base.losses).loss_at(base.steps[-1])
        reference = crossing(list(base.steps), list(base.losses), goal)
        found = {}
        for local_steps in LOCAL_STEPS:
            state, steps, losses = runner.first_state(), [0], [base.losses[0]]
            every = max(ways.steps // 96 // local_steps, 1)
            while losses[-1] > goal and math.isfinite(losses[-1]) and steps[-1] < ways.given_up * ways.steps:
                state = runner.advance(state, local_steps, every)
                steps.append(steps[-1] + every * local_steps)
                losses.append(runner.loss(state))
            found[local_steps] = crossing(steps, losses, goal) / reference
    return found


def predicted(experiment: Experiment, ways: Ways) -> dict[str, Any]:
    """What the gauge says, at its default budget."""
    found = gauge(experiment, options=GaugeOptions(steps=ways.steps, local_steps=ways.tried), progress=None)
    return {
        "efficiency": [each.to_json() for each in found.efficiency[1:]],
        "spent": found.spent.gradient_steps / ways.steps,
    }


def cell(
    name: str, options: Mapping[str, Any], ways: Ways, directory: Path, truth: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """One federation: truth and predictions, each seed in a file of its own as soon as it is done.

    The truth is not computed again if it is given.
    """
    place = directory / "".join(letter if letter.isalnum() else "-" for letter in f"{name.lower()} {ways.steps}")
    place.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[Any]] = {"truth": [], "gauge": []}
    known = () if truth else ways.seeds
    for what, seeds, compute in (("truth", known, true_slowdowns), ("gauge", ways.gauged, predicted)):
        for seed in seeds:
            path = place / f"{what}-{seed}.json"
            if not path.exists():
                write_json(path, compute(Experiment.of({**options, "seed": seed}), ways))
            parts[what].append(json.loads(path.read_text()))
    truth = truth or {str(each): statistics.median(part[str(each)] for part in parts["truth"]) for each in LOCAL_STEPS}
    return {"federation": name, "truth": truth, "gauge": parts["gauge"]}


def pairs(cells: list[dict[str, Any]]) -> Iterator[tuple[float, dict[str, Any]]]:
    """The true slowdown and the prediction, for every number of local steps and seed; only where the truth is small."""
    for each in cells:
        for found in each["gauge"]:
            for prediction in found["efficiency"]:
                truth = each["truth"][str(prediction["local_steps"])]
                if truth < LIMIT:
                    yield truth, prediction


def summary(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """How well the gauge predicts, over all federations, numbers of local steps and seeds."""
    everything = list(pairs(cells))
    known = [(truth, 1 / each["value"], each) for truth, each in everything if not each["limit"]]
    errors = sorted(abs(slowdown / truth - 1) for truth, slowdown, _ in known)
    return {
        "cells": len(everything),
        "without a number": len(everything) - len(known),
        "median error": statistics.median(errors),
        "nine of ten within": errors[math.ceil(0.9 * len(errors)) - 1],
        "largest error": errors[-1],
        "Kendall's tau": float(kendalltau([a for a, _, _ in known], [b for _, b, _ in known]).statistic),
        "intervals that hold the truth": sum(e["low"] <= 1 / t <= e["high"] for t, _, e in known) / len(known),
        "spent, in runs": statistics.median(found["spent"] for each in cells for found in each["gauge"]),
    }


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw the predicted slowdown against the true one; a point on the diagonal is right."""
    with pictures.figure(path, panels=1, width=5.0, height=4.4) as (axes,):
        for number, (kind, part) in enumerate(result.items()):
            known = [(truth, 1 / each["value"]) for truth, each in pairs(part["cells"]) if not each["limit"]]
            axes.plot([a for a, _ in known], [b for _, b in known], "o", color=f"C{number}", markersize=4, label=kind)
        axes.plot([0.9, LIMIT], [0.9, LIMIT], color="0.5", linewidth=1)
        axes.set(xlabel="true slowdown", ylabel="slowdown by the gauge", xscale="log", yscale="log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(FixedLocator([1, 1.5, 2, 3, 4, 6]))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_locator(NullLocator())
        axes.legend()


def main() -> None:
    """Compute what is missing, print a table, and write result.json and gauge.png."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="directory for finished parts and result.json")
    parser.add_argument("--data", help="directory that holds MNIST")
    parser.add_argument("--only", default="", help="only federations whose name contains this")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="only these sets")
    parser.add_argument("--truth", type=Path, help="take the truth from this result instead of computing it")
    options = parser.parse_args()
    result: dict[str, Any] = {}
    before = json.loads(options.truth.read_text()) if options.truth else {}
    truths = {(kind, each["federation"]): each["truth"] for kind in before for each in before[kind].get("cells", ())}
    for kind in options.sets:
        ways, cells = SETS[kind], []
        for name, chosen in ways.federations.items():
            if options.only not in name:
                continue
            where = {} if chosen["source"] == "digits" else {"data": options.data}
            known = truths.get((kind, name))
            cells.append(cell(name, {"processes": 1, **chosen, **where}, ways, options.out, known))
            for truth, each in pairs(cells[-1:]):
                told = f"at least {1 / each['high']:.2f}" if each["limit"] else f"{1 / each['value']:.2f}"
                print(f"{name:<38} I {each['local_steps']:>3}  truth {truth:5.2f}  gauge {told}", flush=True)
        if cells:
            result[kind] = {"summary": summary(cells), "cells": cells}
            print(kind, json.dumps(result[kind]["summary"], indent=2), flush=True)
    write_json(options.out / "result.json", result)
    draw(result, options.out / "gauge.png")


if __name__ == "__main__":
    main()
