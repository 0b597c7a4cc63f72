"""The live gauge with DiLoCo's outer momentum: what is read from one run, in several ways, beside whole runs.

    python benchmarks/live_outer.py --out RUNS [--score docs/results/live] [--share 1/2]    # half an hour on two cores

Five federations of digits with DiLoCo; 16 and 64 local steps in runs of 8,192, whose number changes in balanced blocks.
Where it changes, the outer momentum is kept, rescaled by the new number over the old one, or reset; long blocks are two
and a half times as long. A run is read by its steps or by the steps that the momentum has applied so far (a round's
change is spread over the rounds that follow it), and with the first 8 or 5 rounds after each change or without them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedgauge.algorithms.live.fit import MODEL_ERROR, Observations, fit
from fedgauge.base.files import write_json
from fedgauge.base.types import Floats
from fedgauge.measurement.gauge.runner import Runner
from live import SIGMAS, losses_of, truth
from live_runs import RECORDS, TRUTH_SEEDS, Case, alternating, place_of, run, setup_of, whole

SEEDS = (3, 4)
BLOCK, LONG = 640, 1600
BETA = 0.9


def _digits(**options: Any) -> Case:
    return Case(
        {"source": "digits", "algorithm": "diloco", "gamma": 0.001, **options},
        steps=8192, candidates=(16, 64), block=BLOCK, seeds=2,
    )  # fmt: skip


CASES: Mapping[str, Case] = {
    "a paper 60": _digits(percent=60),
    "b Dirichlet 0.2": _digits(scheme="dirichlet", alpha=0.2),
    "c softmax iid": _digits(scheme="iid", model="softmax"),
    "d 2 shards beta 8": _digits(scheme="shards", shards=2, beta=0.8),
    "e batch 5 paper 75": _digits(percent=75, gamma=0.0005, batch_size=5),
}


class Change(NamedTuple):
    """What becomes of the outer momentum when the number of local steps changes, and how long blocks are."""

    factor: Callable[[float], float]
    block: int = BLOCK


CHANGES: Mapping[str, Change] = {
    "live": Change(lambda ratio: 1.0),
    "scaled": Change(lambda ratio: ratio),
    "reset": Change(lambda ratio: 0.0),
    "long": Change(lambda ratio: ratio, LONG),
}
READINGS: Mapping[str, tuple[bool, int]] = {
    "steps": (False, 0),
    "steps, 8 rounds left out": (False, 8),
    "applied steps": (True, 0),
    "applied steps, 5 rounds left out": (True, 5),
}


def changing(case: Case, seed: int, change: Change) -> dict[str, Any]:
    """A run in which the number of local steps changes."""
    rounds, every = list(alternating(replace(case, block=change.block), seed)), case.steps // RECORDS
    with Runner(setup_of(case, seed, Path())) as runner:
        state, done = runner.first_state(), 0
        steps, losses = [0], [runner.loss(state)]
        for number, each in enumerate(rounds):
            if number and rounds[number - 1] != each:
                factor = change.factor(each / rounds[number - 1])
                state = replace(state, server={name: factor * part for name, part in state.server.items()})
            state, done = runner.advance(state, each, 1), done + each
            changes = number + 1 == len(rounds) or rounds[number + 1] != each
            if done - steps[-1] >= every or changes:
                steps.append(done)
                losses.append(runner.loss(state))
    packed = [[each, 1] for each in rounds]
    return {"rounds": packed, "steps": steps, "losses": losses}


def observations(case: Case, seen: Mapping[str, Any], change: Change, applied: bool, left_out: int) -> Observations:
    """The records of a run; ``applied`` counts what the outer momentum has made of the steps so far."""
    rounds = np.array([steps for steps, number in seen["rounds"] for _ in range(number)])
    under = np.searchsorted(case.candidates, rounds)
    beta = float(case.experiment.get("beta", BETA)) if applied else 0.0
    taken, momentum = np.zeros(len(case.candidates)), np.zeros(len(case.candidates))
    rows, since = list[Floats](), list[int]()
    for number, (steps, place) in enumerate(zip(rounds, under, strict=True)):
        changed = number > 0 and rounds[number - 1] != steps
        since.append(0 if changed or not number else since[-1] + 1)
        work = np.zeros(len(case.candidates))
        work[place] = steps
        if changed:
            momentum = momentum * change.factor(steps / rounds[number - 1])
        momentum = beta * momentum + work
        taken = taken + (1 - beta) * (work + beta * momentum)
        rows.append(taken)
    records, losses = np.array(seen["steps"][1:]), losses_of(seen)[1:]
    at = np.searchsorted(np.cumsum(rounds), records)
    used = np.isfinite(losses) & (np.array(since)[at] >= left_out)
    return Observations(np.array(rows)[at[used]], under[at[used]], losses[used])


def unchanging(case: Case, seed: int, local_steps: int) -> dict[str, Any]:
    """A run that never changes its number of local steps."""
    return run(setup_of(case, seed, Path()), list(whole(case, local_steps)), case.steps // RECORDS)


def missing(out: Path) -> Iterator[tuple[Path, Callable[[], dict[str, Any]]]]:
    """The runs, and what makes them."""
    for name, case in CASES.items():
        place = out / place_of(name)
        for seed in TRUTH_SEEDS[: case.seeds]:
            for steps in case.candidates:
                yield place / f"whole-{steps}-{seed}.json", partial(unchanging, case, seed, steps)
        for kind, change in CHANGES.items():
            for seed in SEEDS:
                yield place / f"{kind}-{seed}.json", partial(changing, case, seed, change)


def score(out: Path) -> dict[str, Any]:
    """What each way of reading says of each run that there is, beside the truth; 0 where there is none."""
    rows: list[dict[str, Any]] = []
    for name, case in CASES.items():
        place = out / place_of(name)
        (true,) = truth(case, place).values()
        for kind, change in CHANGES.items():
            for path in sorted(place.glob(f"{kind}-*.json")):
                seen = json.loads(path.read_text())
                for reading, (applied, left_out) in READINGS.items():
                    found = fit(observations(case, seen, change, applied, left_out), float(case.steps))
                    value, error = float(found.log_slowdowns[0, 0]), float(found.log_slowdowns[1:, 0].std())
                    width = SIGMAS * math.hypot(error, MODEL_ERROR)
                    about = {"federation": name, "run": path.stem, "change": kind, "reading": reading}
                    ends = {"low": math.exp(value - width), "high": math.exp(value + width)}
                    rows.append({**about, "truth": max(true, 0.0), "slowdown": math.exp(value), **ends})
    return {"command": "python benchmarks/live_outer.py --out RUNS", "summary": list(summary(rows)), "rows": rows}


def summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """How well each way reads the slowdowns that there are."""
    for kind in CHANGES:
        for reading in READINGS:
            known = [row for row in rows if (row["change"], row["reading"]) == (kind, reading) and row["truth"]]
            if not known:
                continue
            errors = [abs(row["slowdown"] / row["truth"] - 1) for row in known]
            held = sum(row["low"] <= row["truth"] <= row["high"] for row in known)
            found = {"change": kind, "reading": reading, "predictions": len(known)}
            yield {**found, "median error": statistics.median(errors), "largest error": max(errors), "held": held}


def main() -> None:
    """Run what is missing, or score what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="directory of the runs")
    parser.add_argument("--score", type=Path, help="write outer.json here, and run nothing")
    parser.add_argument("--share", default="1/1", help="which part of the runs, as in 1/2, for several processes")
    options = parser.parse_args()
    if options.score:
        result = score(options.out)
        write_json(options.score / "outer.json", result)
        print(json.dumps(result["summary"], indent=1))
        return
    part, parts = map(int, options.share.split("/"))
    for number, (path, make) in enumerate(missing(options.out)):
        if number % parts == part - 1 and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, make())
            print(path, flush=True)


if __name__ == "__main__":
    main()
