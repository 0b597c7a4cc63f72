"""How good the recommended number of local steps is: the time with it over the time with the best, under four costs.

    python benchmarks/answer.py --out RUNS [--share 1/2] [--plans]           # runs; resumes
    python benchmarks/answer.py --out RUNS --score docs/results/answer       # scores what is there

For each of 49 federations, runs with 1, 4, 16, 64 and 256 local steps, and with every number that is recommended, show
the time to a goal. The goal is the loss that synchronous training reaches after half of the run, and the gauge has runs
of that length. The alpha of QSR's rule is the best for the federations of the set "developed".
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import fedgauge as fg
import fedgauge_planning as fp
from fedgauge.base.files import write_json
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.show import pictures
from fedgauge_planning.goal import Goal
from live_runs import Case, place_of
from regret import LIMIT, SETS, fixed_run, fixed_runs, time_to

COSTS = (1.0, 10.0, 100.0, 1000.0)


def _digits(**options: Any) -> Case:
    return Case({"source": "digits", "gamma": 0.1, **options}, steps=2048)


_LATER: Mapping[str, Case] = {
    "digits paper 50%": _digits(percent=50),
    "digits paper 75%": _digits(percent=75),
    "digits Dirichlet 1": _digits(scheme="dirichlet", alpha=1.0),
    "digits Dirichlet 0.1": _digits(scheme="dirichlet", alpha=0.1),
    "digits quantity 0.3": _digits(scheme="quantity", gamma=0.3),
    "digits paper 50% gamma 0.03": _digits(percent=50, gamma=0.03),
    "digits softmax paper 50%": _digits(model="softmax", percent=50),
    "digits 30 workers Dirichlet 0.3": _digits(workers=30, scheme="dirichlet", alpha=0.3),
    "digits paper 30%": _digits(percent=30),
    "digits paper 65% gamma 0.2": _digits(percent=65, gamma=0.2),
    "digits Dirichlet 0.5 batch 50": _digits(scheme="dirichlet", alpha=0.5, batch_size=50, gamma=0.2),
    "digits 4 shards": _digits(scheme="shards", shards=4),
    "digits 5 workers Dirichlet 0.2": _digits(workers=5, scheme="dirichlet", alpha=0.2),
    "digits softmax shards": _digits(model="softmax", scheme="shards", shards=3),
    "digits half rotated": _digits(scheme="iid", shift=["rotation=0.5"]),
}
FRESH: Mapping[str, Case] = {
    "digits paper 40% gamma 0.05": _digits(percent=40, gamma=0.05),
    "digits paper 70%": _digits(percent=70),
    "digits paper 80% batch 10": _digits(percent=80, batch_size=10, gamma=0.05),
    "digits Dirichlet 2": _digits(scheme="dirichlet", alpha=2.0),
    "digits Dirichlet 0.15 gamma 0.2": _digits(scheme="dirichlet", alpha=0.15, gamma=0.2),
    "digits 25 workers Dirichlet 0.5": _digits(workers=25, scheme="dirichlet", alpha=0.5),
    "digits 6 workers 2 shards": _digits(workers=6, scheme="shards", shards=2),
    "digits 5 shards": _digits(scheme="shards", shards=5),
    "digits quantity batch 5": _digits(scheme="quantity", batch_size=5, gamma=0.05),
    "digits softmax Dirichlet 0.3": _digits(model="softmax", scheme="dirichlet", alpha=0.3),
    "digits softmax paper 60%": _digits(model="softmax", percent=60),
    "digits softmax iid": _digits(model="softmax", scheme="iid"),
    "digits 3 in 4 rotated": _digits(scheme="iid", shift=["rotation=0.75"]),
    "digits some labels swapped": _digits(scheme="iid", shift=["swap=0.25"]),
    "digits 12 workers paper 55%": _digits(workers=12, percent=55),
}
CASES: Mapping[str, Mapping[str, Case]] = {
    "developed": {**SETS["developed"], **SETS["fresh"], **_LATER},
    "fresh": FRESH,
}
"""Of the first, results were compared while runs of their own for doubtful numbers were added to the gauge; the second
was run once, after that."""


def epoch(setup: fg.Setup) -> int:
    """The local steps of an epoch."""
    federation = setup.federation
    assert isinstance(federation, SupervisedFederation)
    return math.ceil(float(federation.sizes(np.arange(federation.num_workers)).mean()) / federation.batch_size)


def recommended(name: str, case: Case, out: Path, plans: bool) -> dict[str, Any]:
    """The recommendations for a federation, under every cost."""
    path = out / "answer" / f"{place_of(name)}.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    setup, _, goal = fixed_runs(name, case, out)
    known |= {"epoch": epoch(setup), "gamma": setup.algorithm.parameters["gamma"]}
    for cost in COSTS:
        if f"gauge {cost:g}" not in known:
            parts = out / "answer" / place_of(name)
            found = fg.gauge(setup, cost=cost, steps=case.steps // 2, directory=parts, progress=None)
            best = found.answer.best()
            spent = found.spent.gradient_steps / (case.steps // 2)
            known[f"gauge {cost:g}"] = {"local_steps": best.local_steps, "sure": best.sure, "spent": spent}
        if plans and f"plan {cost:g}" not in known:
            price = fg.Cost("given", fixed=cost, step=1.0)
            over = {"gamma": [known["gamma"]], "eta": [1.0]}
            options = fp.PlanOptions(limit=LIMIT * case.steps * (1 + cost))
            plan = fp.plan(setup, goal=Goal("loss", goal), cost=price, over=over, options=options, progress=None)
            known[f"plan {cost:g}"] = {"local_steps": plan.choice.I, "reached": plan.reached}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, known)
    for number in {known["epoch"], 16, *(part["local_steps"] for part in known.values() if isinstance(part, dict))}:
        fixed_run(setup, case, number, goal, out / "regret" / place_of(name))
    return known


def time_with(local_steps: float, times: Mapping[int, float]) -> float:
    """The time to the goal with any number of local steps, interpolated in logarithms between those that were run."""
    steps = np.array(sorted(times), dtype=float)
    at = min(max(local_steps, steps[0]), steps[-1])
    above = int(np.searchsorted(steps, at))
    if steps[above] == at:
        return times[int(at)]
    near = [times[int(steps[above - 1])], times[int(steps[above])]]
    if not all(map(math.isfinite, near)):
        return math.inf  # one of the neighbours never gets there
    return float(np.exp(np.interp(np.log(at), np.log(steps[above - 1 : above + 1]), np.log(near))))


def rows_of(kind: str, out: Path) -> Iterator[dict[str, Any]]:
    """For every federation and cost that is there, the time with each rule's number over that with the best."""
    for name, case in CASES[kind].items():
        path = out / "answer" / f"{place_of(name)}.json"
        if not path.exists():
            continue
        known = json.loads(path.read_text())
        _, runs, goal = fixed_runs(name, case, out)
        for path in (out / "regret" / place_of(name)).glob("fixed-*.json"):
            runs[int(path.stem.split("-")[1])] = json.loads(path.read_text())
        for cost in COSTS:
            times = {steps: time_to(run, goal, cost) for steps, run in runs.items()}
            best = min(times, key=lambda steps: times[steps])
            row = {"federation": name, "cost": cost, "best": best, "gamma": known["gamma"], "times": times}
            row["spent"] = known[f"gauge {cost:g}"]["spent"]
            row["numbers"] = {
                "gauge": known[f"gauge {cost:g}"]["local_steps"],
                "one epoch": known["epoch"],
                "always 16": 16,
            }
            if f"plan {cost:g}" in known:
                row["numbers"]["plan"] = known[f"plan {cost:g}"]["local_steps"]
            row["losses"] = {
                rule: time_with(number, times) / times[best] - 1 for rule, number in row["numbers"].items()
            }
            yield row


def add_qsr(sets: Mapping[str, list[dict[str, Any]]]) -> float:
    """Add the rule of QSR, with the alpha that is best for the first half; returns it."""

    def loss(row: Mapping[str, Any], alpha: float) -> float:
        best: float = row["times"][row["best"]]
        return time_with(max((alpha / row["gamma"]) ** 2, 1), row["times"]) / best - 1

    def total(alpha: float) -> float:
        return sum(math.log1p(min(loss(row, alpha), 100.0)) for row in sets["developed"])

    alpha = float(min(np.geomspace(0.01, 10, 61), key=total))
    for rows in sets.values():
        for row in rows:
            row["losses"]["QSR"] = loss(row, alpha)
    return alpha


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The median, nine of ten and the worst loss of every rule."""
    found = {}
    for rule in rows[0]["losses"]:
        ordered = sorted(row["losses"][rule] for row in rows if rule in row["losses"])
        nine = ordered[math.ceil(0.9 * len(ordered)) - 1]
        found[rule] = {
            "cases": len(ordered),
            "median": statistics.median(ordered),
            "nine of ten within": nine,
            "worst": ordered[-1],
        }
    return found


def main() -> None:
    """Make what is missing, or score what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="directory of the runs")
    parser.add_argument(
        "--share", default="1/1", help="which part of the federations, as in 1/2, for several processes"
    )
    parser.add_argument("--plans", action="store_true", help="make plans too, which take much longer")
    parser.add_argument("--score", type=Path, help="write answer.json and a picture here, and run nothing")
    options = parser.parse_args()
    if options.score is None:
        part, parts = map(int, options.share.split("/"))
        every = [(name, case) for cases in CASES.values() for name, case in cases.items()]
        for name, case in every[part - 1 :: parts]:
            print(name, recommended(name, case, options.out, options.plans), flush=True)
        return
    sets = {kind: list(rows_of(kind, options.out)) for kind in CASES}
    alpha = add_qsr(sets)
    result: dict[str, Any] = {
        "command": "python benchmarks/answer.py --out RUNS --score docs/results/answer",
        "alpha": alpha,
    }
    result["sets"] = {kind: {"summary": summary(rows), "rows": rows} for kind, rows in sets.items() if rows}
    for kind, part in result["sets"].items():
        print(kind, json.dumps(part["summary"], indent=1))
    options.score.mkdir(parents=True, exist_ok=True)
    write_json(options.score / "answer.json", result)
    with pictures.figure(options.score / "answer.png", panels=1, width=5.6, height=4.2) as (axes,):
        for number, rule in enumerate(result["sets"]["fresh"]["summary"]):
            losses = sorted(row["losses"][rule] for row in sets["fresh"] if rule in row["losses"])
            shares = np.arange(1, len(losses) + 1) / len(losses)
            axes.step([1 + min(loss, 20) for loss in losses], shares, where="post", color=f"C{number}", label=rule)
        axes.set(xscale="log", xlabel="time over that of the best number", ylabel="share of federations and costs")
        axes.legend()


if __name__ == "__main__":
    main()
