"""What the runs of benchmarks/language.py say: efficiency against local steps, its fit, and what predicts it.

    python benchmarks/language_scores.py --runs RUNS --out docs/results/language

Whatever runs are there are scored; what is missing is named. The efficiency of H is the number of steps after which the
reference has the loss at the end of a run with H, over the run's own; its interval is that of the last quarter of the
run, whose records are taken as so many ends. H₀ and p of 1/(1 + (H/H₀)^p) are least squares of log E; their intervals
come from the same fit at the beginning of that quarter.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression, least_squares
from scipy.stats import kendalltau

from fedgauge.algorithms.live.fit import Observations, fit, model_error
from fedgauge.base.files import write_json
from fedgauge.base.types import Floats
from fedgauge.show import pictures
from language import CANDIDATES, STEPS, Cell, cells

LOSSES = ("loss", "held_out")
LATE = 0.75
"""Ends of a run are its records from this part of it on."""
SIGMAS = 1.645
SEEN = ("spread", "alignment", "L_h")
Runs = Mapping[Cell, Mapping[str, Any]]


def read(place: Path) -> tuple[Runs, list[str]]:
    """The runs that are there, and the names of those that are not."""
    runs, missing = {}, []
    for cell in dict.fromkeys(cells()):
        path = place / f"{cell.name}.json"
        if path.exists():
            runs[cell] = json.loads(path.read_text())
        else:
            missing.append(cell.name)
    return runs, missing


def column(run: Mapping[str, Any], name: str) -> Floats:
    """One number of each record."""
    return np.array([record[name] for record in run["records"]], dtype=float)


def steps_to(reference: Mapping[str, Any], losses: Floats, kind: str) -> Floats:
    """The steps after which the reference has these losses; infinite where it never has them."""
    steps, falling = column(reference, "step"), isotonic_regression(column(reference, kind), increasing=False).x
    found: Floats = np.asarray(np.interp(-losses, -falling, steps), dtype=float)
    found[losses < falling[-1]] = np.inf
    return found


def efficiencies(run: Mapping[str, Any], reference: Mapping[str, Any], kind: str) -> Floats:
    """At each end, the last one last."""
    steps = column(run, "step")
    late = steps >= LATE * steps[-1]
    ends: Floats = steps_to(reference, column(run, kind)[late], kind) / steps[late]
    return ends


def fitted(steps: Iterable[int], values: Iterable[float]) -> tuple[float, float, float]:
    """H₀, p, and the root mean square error of log E."""
    H, logs = np.array(list(steps), dtype=float), np.log(np.array(list(values)))

    def residuals(x: Floats) -> Any:
        return -np.log1p(np.exp(np.clip(x[1] * (np.log(H) - x[0]), -50, 50))) - logs

    best = min((least_squares(residuals, (math.log(h), 0.5)) for h in (1.0, 30.0, 1000.0)), key=lambda each: each.cost)
    return math.exp(best.x[0]), float(best.x[1]), float(np.sqrt(np.mean(best.fun**2)))


def reference_of(cell: Cell, runs: Runs, outer: str = "mean") -> Mapping[str, Any] | None:
    """The run that a cell is compared with."""
    return runs.get(Cell(cell.split, cell.workers, outer, 1, cell.seed))


def rows_of(runs: Runs) -> list[dict[str, Any]]:
    """The efficiency of every run with more than one local step, by both losses and references."""
    rows = []
    for cell, run in runs.items():
        reference = reference_of(cell, runs)
        if cell.local_steps <= 1 or reference is None:
            continue
        row: dict[str, Any] = {"cell": cell.name, **vars(cell), "final": run["records"][-1]}
        for kind in LOSSES:
            ends = efficiencies(run, reference, kind)
            row[kind] = {"value": ends[-1], "low": ends.min(), "high": ends.max(), "ends": ends.tolist()}
        gradients = reference_of(cell, runs, "gradients")
        row["of averaged gradients"] = None if gradients is None else efficiencies(run, gradients, "loss")[-1]
        for sight in run["sights"][:1]:
            row["seen"] = {
                "spread": math.sqrt(sight["spread"]),
                "alignment": sight["change2"] / (sight["change2"] + sight["spread"]) if cell.outer == "mean" else None,
                "L_h": math.sqrt(sight["deviation2"] / sight["spread"]),
            }
        rows.append(row)
    return rows


def best_eta(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """DiLoCo's rows, each with the rate that has the least training loss at the end."""
    by: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["outer"].startswith("diloco"):
            by[row["split"], row["workers"], row["local_steps"], row["seed"]].append(row)
    chosen = (min(group, key=lambda row: row["final"]["loss"]) for group in by.values())
    return [{**row, "eta": float(row["outer"].removeprefix("diloco")), "outer": "diloco"} for row in chosen]


def fits_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """H₀ and p of every federation and outer step with at least three numbers of local steps."""
    by: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by[row["split"], row["workers"], row["outer"], row["seed"]].append(row)
    found = []
    for (split, workers, outer, seed), group in by.items():
        for kind in LOSSES:
            # Runs with many local steps have few records: the first and the last of these ends are common to all.
            ends = np.array([[row[kind]["ends"][0], row[kind]["ends"][-1]] for row in group])
            if len(group) < 3 or not np.isfinite(ends).all():
                continue
            steps = [row["local_steps"] for row in group]
            fits = [fitted(steps, values) for values in ends.T]
            H0, p, error = fits[-1]
            each = {"split": split, "workers": workers, "outer": outer, "seed": seed, "by": kind, "H0": H0, "p": p}
            each |= {"H0 interval": [min(f[0] for f in fits), max(f[0] for f in fits)], "error of log E": error}
            found.append({**each, "p interval": [min(f[1] for f in fits), max(f[1] for f in fits)]})
    return found


def live_of(runs: Runs) -> list[dict[str, Any]]:
    """What the live gauge reads from one run that alternates, beside whole runs."""
    found = []
    for cell, run in runs.items():
        if cell.local_steps:
            continue
        rounds = np.array([steps for steps, number in run["rounds"] for _ in range(number)])
        under = np.searchsorted(CANDIDATES, rounds)
        taken = np.cumsum(rounds[:, None] * (under[:, None] == np.arange(len(CANDIDATES))), axis=0).astype(float)
        steps = column(run, "step")[1:]
        at = np.searchsorted(np.cumsum(rounds), steps)
        read = fit(Observations(taken[at], under[at], column(run, "loss")[1:]), float(STEPS))
        for number, H in enumerate(CANDIDATES[1:]):
            whole = runs.get(Cell(cell.split, cell.workers, "mean", H, cell.seed % 10))
            reference = reference_of(Cell(cell.split, cell.workers, "mean", H, cell.seed % 10), runs)
            if whole is None or reference is None:
                continue
            log, error = read.log_slowdowns[0, number], float(read.log_slowdowns[1:, number].std())
            width = SIGMAS * math.hypot(error, model_error(1.0))
            ends = {"value": math.exp(-log), "low": math.exp(-log - width), "high": math.exp(-log + width)}
            found.append(
                {"run": cell.name, "local_steps": H, **ends, "truth": efficiencies(whole, reference, "loss")[-1]}
            )
    return found


def predictions_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Whether what is seen in the middle of a run orders runs of one H, or of all H, by their efficiency."""
    found: dict[str, Any] = {}
    plain = [row for row in rows if row["outer"] == "mean" and "seen" in row]
    for name in SEEN:
        pairs = [(row["seen"][name], row["loss"]["value"], row["local_steps"]) for row in plain]
        within = [kendalltau(*zip(*[p[:2] for p in pairs if p[2] == H], strict=True)).statistic
                  for H in {p[2] for p in pairs} if sum(p[2] == H for p in pairs) > 2]  # fmt: skip
        all_of = kendalltau([p[0] for p in pairs], [p[1] for p in pairs]).statistic if len(pairs) > 2 else math.nan
        found[name] = {"tau over all H": all_of, "tau within one H": statistics.mean(within) if within else None}
    return found


def draw(rows: list[dict[str, Any]], fits: list[dict[str, Any]], target: Path) -> None:
    """The efficiency against H, a panel for each number of workers."""
    counts = sorted({row["workers"] for row in rows})
    with pictures.figure(target, panels=len(counts), width=4.0 * len(counts), height=3.6) as panels:
        for axes, M in zip(panels, counts, strict=True):
            here = [row for row in rows if row["workers"] == M]
            for number, (split, outer) in enumerate(sorted({(row["split"], row["outer"]) for row in here})):
                group = sorted(
                    (row for row in here if (row["split"], row["outer"]) == (split, outer) and row["seed"] == 0),
                    key=lambda row: row["local_steps"],
                )
                H, E = [row["local_steps"] for row in group], [row["loss"]["value"] for row in group]
                low, high = [row["loss"]["low"] for row in group], [row["loss"]["high"] for row in group]
                name = f"{split}, {'averaging' if outer == 'mean' else 'DiLoCo'}"
                axes.fill_between(H, low, high, color=f"C{number}", alpha=0.15)
                axes.plot(H, E, "o" if outer == "mean" else "s--", color=f"C{number}", label=name)
                for each in fits:
                    key = (each["split"], each["workers"], each["outer"], each["seed"], each["by"])
                    if key == (split, M, outer, 0, "loss"):
                        fine = np.geomspace(1, max(H), 100)
                        axes.plot(fine, 1 / (1 + (fine / each["H0"]) ** each["p"]), "-", color=f"C{number}", lw=1)
            axes.set(xscale="log", ylim=(0, None), xlabel="local steps H", ylabel="efficiency", title=f"M = {M}")
            axes.legend()


def main() -> None:
    """Score, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="directory of the runs")
    parser.add_argument("--out", type=Path, required=True, help="directory for numbers.json and the picture")
    options = parser.parse_args()
    runs, missing = read(options.runs)
    plain = rows_of(runs)
    rows = [row for row in plain if row["outer"] == "mean"] + best_eta(plain)
    if not rows:
        parser.exit(1, "There is no run to score yet, with its reference; run benchmarks/language.py first.\n")
    fits = fits_of(rows)
    result = {"rows": rows, "fits": fits, "live": live_of(runs), "predicts": predictions_of(rows), "missing": missing}
    options.out.mkdir(parents=True, exist_ok=True)
    command = "python benchmarks/language_scores.py --runs RUNS --out docs/results/language"
    seconds = sum(run["seconds"] for run in runs.values())
    write_json(
        options.out / "numbers.json", {"command": command, "processor seconds of local steps": seconds, **result}
    )
    draw(rows, fits, options.out / "language.png")
    for row in rows:
        by = "  ".join(f"{kind} {row[kind]['value']:.2f} ({row[kind]['low']:.2f} to {row[kind]['high']:.2f})"
                       for kind in LOSSES)  # fmt: skip
        print(f"{row['cell']:26} {by}  of averaged gradients {row['of averaged gradients'] or math.nan:.2f}")
    for name in ("fits", "live", "predicts"):
        print(name, json.dumps(result[name], indent=1))


if __name__ == "__main__":
    main()
