"""The live gauge against the truth: the slowdown that it reads from one run, and that of whole runs.

    python benchmarks/live_runs.py --data DATA --out RUNS     # first: the runs themselves, which are resumed
    python benchmarks/live.py --runs RUNS --out docs/results/live

The truth of H local steps is the length of a run over the steps in which a run of the reference, the smallest number
tried, comes as far as a run with H alone comes at its end; logs of losses are averaged over seeds. The gauge has one
alternating run of the same length, with another seed. No run takes a step that does not train.
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

from fedgauge.algorithms.live.fit import Observations, fit, model_error
from fedgauge.base.files import write_json
from fedgauge.base.types import Floats
from fedgauge.show import pictures
from live_runs import DEVELOPED, FRESH, LIVE_SEEDS, TRUTH_SEEDS, Case, place_of

SETS: Mapping[str, Mapping[str, Case]] = {"developed": DEVELOPED, "fresh": FRESH}
PARTS = (1.0, 0.5)
"""The parts of an alternating run that the gauge is given."""
SIGMAS = 1.645
LATE = 8
"""The end of a curve is a straight line through its last part, one in so many."""


def losses_of(run: Mapping[str, Any]) -> Floats:
    """The losses of a run; one that is not finite is infinite."""
    return np.array([math.inf if loss is None else loss for loss in run["losses"]], dtype=float)


def curve(case: Case, local_steps: int, place: Path) -> tuple[Floats, Floats]:
    """Steps, and the log of f at them, averaged over the seeds of the truth."""
    runs = [json.loads((place / f"whole-{local_steps}-{seed}.json").read_text()) for seed in TRUTH_SEEDS[: case.seeds]]
    grid = np.array(runs[0]["steps"], dtype=float)
    logs = [np.interp(grid, run["steps"], np.log(losses_of(run))) for run in runs]
    return grid, np.mean(logs, axis=0)


def truth(case: Case, place: Path) -> dict[int, float]:
    """The slowdown of every number of local steps but the reference."""
    grid, reference = curve(case, case.candidates[0], place)
    falling = np.minimum.accumulate(np.convolve(np.pad(reference, 1, mode="edge"), np.full(3, 1 / 3), "valid"))
    found = {}
    for local_steps in case.candidates[1:]:
        steps, logs = curve(case, local_steps, place)
        late = max(len(steps) // LATE, 3)
        end = float(np.polyval(np.polyfit(steps[-late:], logs[-late:], 1), steps[-1]))
        if end >= falling[-1]:
            equal = float(np.interp(-end, -falling, grid))
        else:  # faster than the reference, whose last part is taken to go on
            at = np.log(grid[-late:] + case.steps / 16)
            slope, height = np.polyfit(at, reference[-late:], 1)
            equal = math.exp((end - height) / slope) - case.steps / 16
        found[local_steps] = case.steps / equal
    return found


def observations(case: Case, run: Mapping[str, Any], part: float) -> Observations:
    """What the first part of an alternating run shows."""
    rounds = np.array([steps for steps, number in run["rounds"] for _ in range(number)])
    under = np.searchsorted(case.candidates, rounds)
    taken = np.cumsum(rounds[:, None] * (under[:, None] == np.arange(len(case.candidates))), axis=0).astype(float)
    steps, losses = np.array(run["steps"][1:]), losses_of(run)[1:]
    at = np.searchsorted(np.cumsum(rounds), steps)
    used = np.isfinite(losses) & (steps <= part * case.steps)
    return Observations(taken[at[used]], under[at[used]], losses[used])


def predictions(name: str, case: Case, runs: Path, part: float) -> Iterator[dict[str, Any]]:
    """What is read from every alternating run of a federation, beside the truth."""
    place = runs / place_of(name)
    true = truth(case, place)
    for seed in LIVE_SEEDS[: case.seeds]:
        run = json.loads((place / f"live-{seed}.json").read_text())
        found = fit(observations(case, run, part), float(case.steps))
        for number, local_steps in enumerate(case.candidates[1:]):
            value, error = found.log_slowdowns[0, number], found.log_slowdowns[1:, number].std()
            width = SIGMAS * math.hypot(float(error), model_error(part))
            yield {
                "federation": name,
                "seed": seed,
                "local_steps": local_steps,
                "truth": true[local_steps],
                "slowdown": math.exp(value),
                "low": math.exp(value - width),
                "high": math.exp(value + width),
            }


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """How well the slowdowns are predicted."""
    errors = sorted(abs(row["slowdown"] / row["truth"] - 1) for row in rows)
    return {
        "predictions": len(rows),
        "median error": statistics.median(errors),
        "nine of ten within": errors[math.ceil(0.9 * len(errors)) - 1],
        "largest error": errors[-1],
        "intervals that hold": sum(row["low"] <= row["truth"] <= row["high"] for row in rows) / len(rows),
    }


def main() -> None:
    """Score what there is, print it, and write numbers.json and live.png."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="directory of the runs")
    parser.add_argument("--out", type=Path, required=True, help="directory for numbers.json and the picture")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    options = parser.parse_args()
    result: dict[str, Any] = {"command": "python benchmarks/live.py --runs RUNS --out docs/results/live", "sets": {}}
    for kind in options.sets:
        for part in PARTS:
            rows: list[dict[str, Any]] = []
            missing = []
            for name, case in SETS[kind].items():
                try:
                    rows += predictions(name, case, options.runs, part)
                except FileNotFoundError:
                    missing.append(name)
            if not rows:
                continue
            label = f"{kind}, {'whole run' if part == 1 else 'first half'}"
            result["sets"][label] = {"summary": summary(rows), "not run": missing, "rows": rows}
            print(label, json.dumps(result["sets"][label]["summary"], indent=1), "not run:", missing, flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "numbers.json", result)
    with pictures.figure(options.out / "live.png", panels=1, width=5.4, height=4.6) as (axes,):
        for number, kind in enumerate(options.sets):
            rows = result["sets"].get(f"{kind}, whole run", {"rows": []})["rows"]
            axes.plot([r["truth"] for r in rows], [r["slowdown"] for r in rows], "o", color=f"C{number}", label=kind)
        axes.plot([0.7, 12], [0.7, 12], color="0.5", linewidth=1)
        axes.set(xlabel="slowdown of whole runs", ylabel="slowdown read from one run", xscale="log", yscale="log")
        axes.legend()


if __name__ == "__main__":
    main()
