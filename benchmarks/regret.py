"""Who reaches a goal soonest: local steps chosen by a gauge in the run, by published rules, or once and for all.

    python benchmarks/regret.py --out RUNS [--set fresh] [--only WORD] [--share 1/2]     # runs; resumes
    python benchmarks/regret.py --out RUNS --score docs/results/live                    # scores what is there

The goal is the loss that synchronous training reaches after half of the run. A round takes as long as 1, 10 or 100
local steps, beside its own steps. The regret of a rule is the time that it takes to the goal over that of the best
fixed number of local steps, which nobody knows beforehand. Every rule begins at the first round, and knows the cost.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import fedgauge as fg
from fedgauge.base.files import write_json
from fedgauge.show import pictures
from fedgauge.simulation.experiment.prepare import prepare
from fedgauge.simulation.setup import Setup
from live_runs import DEVELOPED, FRESH, Case, place_of

COSTS = (1.0, 10.0, 100.0)
FIXED = (1, 4, 16, 64, 256)
OWN = 16
"""The number that a user has who has not thought about it."""
_FAR = 20.0
"""Beyond this, the picture shows no differences."""
LIMIT = 4.0
"""A run that is not there after so many times the steps of its case is given up."""
# Where the rate falls to 0 after so many steps, only few numbers of local steps can reach the goal at all.
SETS: Mapping[str, Mapping[str, Case]] = {
    kind: {name: case for name, case in cases.items() if case.experiment["source"] == "digits" and "cosine" not in name}
    for kind, cases in (("developed", DEVELOPED), ("fresh", FRESH))
}
Chooser = Callable[[Case, float], Any]
RULES: Mapping[str, Chooser] = {
    "live gauge": lambda case, cost: fg.LiveGauge(OWN, 2 * case.steps, cost=cost),
    # Models on the way are sent once more to the server, which is half of a round's communication.
    "auto": lambda case, cost: fg.Pace(
        communication=cost, step_seconds=1.0, message=cost / 2, cap=FIXED[-1], flat=0.05
    ),
    "AdaComm": lambda case, cost: fg.AdaComm(
        local_steps=4 * OWN, interval=case.steps * (1 + cost / OWN) / 20, cost=cost
    ),
    "post-local SGD": lambda case, cost: fg.PostLocal(local_steps=OWN, switch=case.steps // 8),
}


def simulated(setup: Setup, chooser: Any, every: int, goal: float | None, most: int) -> dict[str, Any]:
    """The local steps and the rounds before every record, and f there."""
    trace = fg.simulate(
        setup.federation,
        setup.algorithm,
        local_steps=chooser,
        rounds=most,
        seed=setup.seed,
        record=fg.Recording(every=every, watch=False),
        stop=fg.StopAt(loss=goal),
        compute=fg.Compute(processes=1),
    )
    taken, looks, steps = 0, 0, [0]
    for record in trace.rounds[:-1]:
        each = record.taken if record.taken is not None else chooser
        # An undone or shortened round has taken all the same steps; its models on the way were sent too.
        taken += (record.looked[-1] if record.looked else each) * every
        looks += max(len(record.looked) - 1, 0) if record.looked else 0
        steps.append(taken)
    return {
        "rounds": [record.round for record in trace.rounds],
        "steps": steps,
        "losses": list(trace.losses),
        "looks": looks,
    }


def goal_of(run: Mapping[str, Any], steps: int) -> float:
    """f after half of the steps, over a few records."""
    at = int(np.searchsorted(run["steps"], steps / 2))
    return float(np.exp(np.mean(np.log(run["losses"][max(at - 2, 0) : at + 3]))))


def time_to(run: Mapping[str, Any], goal: float, cost: float) -> float:
    """The time to the goal, counted in local steps; infinite if it was not reached."""
    times = np.array(run["steps"]) + cost * np.array(run["rounds"])
    losses = np.array([math.inf if loss is None else loss for loss in run["losses"]])
    below = np.flatnonzero(losses <= goal)
    if not len(below):
        return math.inf
    at = int(below[0])
    extra = run["looks"] * cost / 2
    if at == 0:
        return 0.0
    share = (losses[at - 1] - goal) / (losses[at - 1] - losses[at]) if math.isfinite(losses[at - 1]) else 1.0
    return float(times[at - 1] + share * (times[at] - times[at - 1]) + extra)


def fixed_runs(name: str, case: Case, out: Path) -> tuple[Setup, dict[int, dict[str, Any]], float]:
    """The set-up of a federation, its runs with fixed local steps, made if they are not there, and the goal."""
    place = out / "regret" / place_of(name)
    place.mkdir(parents=True, exist_ok=True)
    setup = prepare(fg.Experiment.of({"processes": 1, "partition_seed": 0, **case.experiment, "seed": 0}))
    first = place / "fixed-1.json"
    if not first.exists():
        write_json(first, simulated(setup, 1, 32, None, case.steps))
    goal = goal_of(json.loads(first.read_text()), case.steps)
    return setup, {each: fixed_run(setup, case, each, goal, place) for each in FIXED}, goal


def fixed_run(setup: Setup, case: Case, local_steps: int, goal: float, place: Path) -> dict[str, Any]:
    """The run with a fixed number of local steps, made if it is not there."""
    path = place / f"fixed-{local_steps}.json"
    if not path.exists():
        every, most = max(32 // local_steps, 1), int(LIMIT * case.steps) // local_steps
        write_json(path, simulated(setup, local_steps, every, 0.97 * goal, most))
    run: dict[str, Any] = json.loads(path.read_text())
    return run


def run_case(name: str, case: Case, out: Path) -> None:
    """Make the runs of a federation that are not there yet."""
    setup, _, goal = fixed_runs(name, case, out)
    place = out / "regret" / place_of(name)
    for rule, choose in RULES.items():
        for cost in COSTS:
            path = place / f"{place_of(rule)}-{cost:g}.json"
            if not path.exists():
                write_json(path, simulated(setup, choose(case, cost), 1, 0.97 * goal, int(LIMIT * case.steps)))
        print(name, rule, flush=True)


def regrets(cases: Mapping[str, Case], out: Path) -> Iterator[dict[str, Any]]:
    """For every federation and cost that is there, the time of each rule over that of the best fixed number."""
    for name, case in cases.items():
        place = out / "regret" / place_of(name)
        runs = {path.stem: json.loads(path.read_text()) for path in place.glob("*.json")}
        wanted = {f"fixed-{each}" for each in FIXED} | {
            f"{place_of(rule)}-{cost:g}" for rule in RULES for cost in COSTS
        }
        if not wanted <= runs.keys():
            continue
        goal = goal_of(runs["fixed-1"], case.steps)
        for cost in COSTS:
            fixed = {steps: time_to(runs[f"fixed-{steps}"], goal, cost) for steps in FIXED}
            best = min(fixed, key=lambda steps: fixed[steps])
            known = {rule: time_to(runs[f"{place_of(rule)}-{cost:g}"], goal, cost) for rule in RULES}
            known[f"always {OWN}"] = fixed[OWN]
            known["a random choice"] = statistics.fmean(fixed.values())
            yield {"federation": name, "cost": cost, "best": best, **{k: v / fixed[best] for k, v in known.items()}}


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Median and nine of ten of every rule's regret, as parts of the time of the best."""
    names = [name for name in rows[0] if name not in ("federation", "cost", "best")]
    found = {}
    for name in names:
        ordered = sorted(row[name] - 1 for row in rows)
        nine = ordered[math.ceil(0.9 * len(ordered)) - 1]
        found[name] = {"median": statistics.median(ordered), "nine of ten within": nine, "worst": ordered[-1]}
    return found


def main() -> None:
    """Make what is missing, or score what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="directory of the runs")
    parser.add_argument("--set", choices=SETS, default="developed", help="which federations to run")
    parser.add_argument("--only", default="", help="only federations whose name contains this")
    parser.add_argument(
        "--share", default="1/1", help="which part of the federations, as in 1/2, for several processes"
    )
    parser.add_argument("--score", type=Path, help="write regret.json here, and run nothing")
    options = parser.parse_args()
    if options.score is None:
        part, parts = map(int, options.share.split("/"))
        for number, (name, case) in enumerate(SETS[options.set].items()):
            if options.only in name and number % parts == part - 1:
                run_case(name, case, options.out)
        return
    result: dict[str, Any] = {"command": "python benchmarks/regret.py --out RUNS --score docs/results/live", "sets": {}}
    for kind, cases in SETS.items():
        rows = list(regrets(cases, options.out))
        if rows:
            result["sets"][kind] = {"summary": summary(rows), "rows": rows}
            print(kind, json.dumps(result["sets"][kind]["summary"], indent=1))
    write_json(options.score / "regret.json", result)
    with pictures.figure(options.score / "regret.png", panels=1, width=5.6, height=4.2) as (axes,):
        rows = result["sets"]["fresh"]["rows"]
        for number, rule in enumerate((*RULES, f"always {OWN}")):
            ordered = sorted(min(row[rule], _FAR) for row in rows)
            shares = np.arange(1, len(rows) + 1) / len(rows)
            axes.step(ordered, shares, where="post", color=f"C{number}", label=rule)
        axes.set(
            xscale="log", xlabel="time over that of the best fixed number", ylabel="share of federations and costs"
        )
        axes.legend()


if __name__ == "__main__":
    main()
