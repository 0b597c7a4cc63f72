"""What the runs of benchmarks/language.py say: efficiency against local steps, its fit, and what predicts it.

    python benchmarks/language_scores.py --runs docs/results/language/runs --out docs/results/language
    python benchmarks/language_scores.py        # the page's tables, from docs/results/language/numbers.json

Whatever runs are there are scored; what is known of others from an earlier numbers.json in OUT stays, and what is
missing is named. The efficiency of H is the number of steps after which the reference has the loss at the end of a run
with H, over the run's own. Its range is that over the seeds and over the last quarter of each run, whose records are
taken as so many ends. Two laws with two numbers each are fitted, by least squares of log E over all seeds: a *power*,
E = 1/(1 + (H/H₀)^p), and a *floor*, E = e + (1 - e)/(1 + (H - 1)/H₀), below which E never falls. Ranges of their
numbers come from the same fit to each seed alone, at the first and the last of these ends. Both are judged on numbers
of local steps to which they were not fitted.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression, least_squares
from scipy.stats import kendalltau

from fedgauge.algorithms.live.fit import Observations, fit, model_error
from fedgauge.base.files import write_json
from fedgauge.base.types import Floats
from fedgauge.show import pictures
from language import CANDIDATES, ETAS, LOCAL_STEPS, SPLITS, STEPS, Cell, cells, checks, every

PLACE = "docs/results/language"
NUMBERS = Path(__file__).parents[1] / PLACE / "numbers.json"
LOSSES = ("loss", "held_out")
LATE = 0.75
"""Ends of a run are its records from this part of it on."""
SIGMAS = 1.645
SEEN = ("spread", "alignment", "L_h")
Runs = Mapping[Cell, Mapping[str, Any]]


def read(place: Path) -> Runs:
    """The runs that are there."""
    paths = {cell: place / f"{cell.name}.json" for cell in every()}
    return {cell: json.loads(path.read_text()) for cell, path in paths.items() if path.exists()}


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


def _power(H0: float, p: float, H: Floats) -> Floats:
    logs: Floats = -np.log1p((H / H0) ** p)
    return logs


def _floor(H0: float, e: float, H: Floats) -> Floats:
    logs: Floats = np.log(e + (1 - e) / (1 + (H - 1) / H0))
    return logs


class Law(NamedTuple):
    """How the efficiency falls with H.

    Attributes:
        log_efficiency: log E, given H₀, the law's other number (p or e), and H.
        most: the largest value of that number; the smallest is 0.
    """

    log_efficiency: Callable[[float, float, Floats], Floats]
    most: float


LAWS = {"power": Law(_power, 20.0), "floor": Law(_floor, 1.0)}


def fitted(name: str, steps: Iterable[int], values: Iterable[float]) -> tuple[float, float, float]:
    """H₀, the law's other number, and the root mean square error of log E."""
    law = LAWS[name]
    H, logs = np.array(list(steps), dtype=float), np.log(np.array(list(values)))

    def residuals(x: Floats) -> Any:
        return law.log_efficiency(math.exp(x[0]), x[1], H) - logs

    bounds = ([math.log(1e-3), 0.0], [math.log(1e6), law.most])
    fits = (least_squares(residuals, (math.log(h), 0.5), bounds=bounds, xtol=1e-12) for h in (1.0, 30.0, 1000.0))
    best = min(fits, key=lambda each: each.cost)
    return math.exp(best.x[0]), float(best.x[1]), float(np.sqrt(np.mean(best.fun**2)))


def predicted(name: str, H0: float, shape: float, H: int) -> float:
    """The efficiency that a law has for H."""
    return float(np.exp(LAWS[name].log_efficiency(H0, shape, np.array([float(H)]))[0]))


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


def shown(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of averaging, and those of DiLoCo with the outer rate that has the least training loss at the end."""
    plain: list[Mapping[str, Any]] = []
    tuned: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["outer"] == "mean":
            plain.append(row)
        else:
            tuned[row["split"], row["workers"], row["local_steps"], row["seed"]].append(row)
    best = (min(group, key=lambda row: row["final"]["loss"]) for group in tuned.values())
    return plain + [{**row, "outer": "diloco"} for row in best]


def groups_of(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[int, str, str], list[Mapping[str, Any]]]:
    """The rows of each number of workers, division and outer step, in this order."""
    groups: dict[tuple[int, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["workers"], row["split"], row["outer"]].append(row)
    order = sorted(groups, key=lambda key: (key[0], SPLITS.index(key[1]), key[2] != "mean"))
    return {key: groups[key] for key in order}


def fits_of(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Both laws for every federation and outer step with at least three of the planned numbers of local steps."""
    fits = []
    for (workers, split, outer), group in groups_of(rows).items():
        for kind in LOSSES:
            # Runs with many local steps have few records: the first and the last of these ends are common to all.
            known = [row for row in group if np.isfinite([row[kind]["ends"][0], row[kind]["ends"][-1]]).all()]
            known = [row for row in known if row["local_steps"] in LOCAL_STEPS]
            seeds = [[row for row in known if row["seed"] == seed] for seed in sorted({row["seed"] for row in known})]
            # A seed with one or two numbers of local steps would pull the curve towards these.
            seeds = [some for some in seeds if len(some) >= 3]
            for law in LAWS if seeds else ():
                H0, shape, error = _fit(law, [row for some in seeds for row in some], kind, -1)
                each = [_fit(law, some, kind, end) for some in seeds for end in (0, -1)]
                ranges = [[min(column), max(column)] for column in zip((H0, shape, error), *each, strict=True)]
                names = {"split": split, "workers": workers, "outer": outer, "by": kind, "seeds": len(seeds)}
                found = {"H0": H0, "H0 range": ranges[0], "shape": shape, "shape range": ranges[1]}
                fits.append({**names, "law": law, **found, "error of log E": error})
    return fits


def _fit(law: str, rows: Iterable[Mapping[str, Any]], kind: str, end: int) -> tuple[float, float, float]:
    pairs = [(row["local_steps"], row[kind]["ends"][end]) for row in rows]
    return fitted(law, *zip(*pairs, strict=True))


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


def efficiency_of(rows: Iterable[Mapping[str, Any]], kind: str) -> tuple[float, float, float] | None:
    """The mean over seeds of runs that are otherwise alike, and the range over seeds and ends."""
    known = [row[kind] for row in rows]
    if not known:
        return None
    values = [each["value"] for each in known]
    return statistics.mean(values), min(each["low"] for each in known), max(each["high"] for each in known)


def tables(numbers: Mapping[str, Any]) -> list[list[str]]:
    """The tables of the page: efficiencies, laws, what these predict, the outer rates, and the live gauge."""
    columns = LOCAL_STEPS[1:]
    efficiency = [["efficiency", *(f"H = {H}" for H in columns), "seeds"]]
    for key, group in groups_of(shown(numbers["rows"])).items():
        by_steps = [[row for row in group if row["local_steps"] == H] for H in columns]
        counts = sorted({len(rows) for rows in by_steps if rows})
        seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        efficiency.append([_name(*key), *(_range(efficiency_of(rows, "loss")) for rows in by_steps), seeds])
    of_laws = _laws(numbers["fits"])
    fits = [["fit by the training loss", "power: H₀", "p", "error", "floor: H₀", "e", "error"]]
    for key, laws in of_laws.items():
        line = [_name(*key)]
        for name in LAWS:
            H0, shape = ((laws[name][of], *laws[name][f"{of} range"]) for of in ("H0", "shape"))
            line += [_range(H0, ",.0f"), _range(shape), f"{laws[name]['error of log E']:.3f}"]
        fits.append(line)
    judged = [["not fitted to", *LAWS, "measured"]]
    rows = {key: group for key, group in groups_of(shown(numbers["rows"])).items() if key in of_laws}
    for key, H in sorted({((each.workers, each.split, each.outer), each.local_steps) for each in checks()}):
        if key in rows:
            foretold = [predicted(name, fit["H0"], fit["shape"], H) for name, fit in of_laws[key].items()]
            measured = efficiency_of([row for row in rows[key] if row["local_steps"] == H], "loss")
            judged.append([f"{_name(*key)}, H = {H:,}", *(f"{each:.2f}" for each in foretold), _range(measured)])
    etas = [f"{eta:g}" for eta in sorted(ETAS)]
    rates = [["training loss at the end", *(f"outer rate {eta}" for eta in etas)]]
    losses: dict[str, dict[str, float]] = defaultdict(dict)
    for row in numbers["rows"]:
        if row["outer"] != "mean":
            name = f"M = {row['workers']}, {row['split']}, H = {row['local_steps']}, seed {row['seed']}"
            losses[name][row["outer"].removeprefix("diloco")] = row["final"]["loss"]
    for name, by_eta in losses.items():
        rates.append([name, *(f"{by_eta[eta]:.3f}" if eta in by_eta else "–" for eta in etas)])
    live = [["one run that alternates between 1, 16 and 64", "estimate", "90% interval", "whole runs"]]
    for each in numbers["live"]:
        split, workers, _ = each["run"].split("-", 2)
        name = f"M = {workers[1:]}, {split}, H = {each['local_steps']}"
        ends = f"{each['low']:.2f} to {each['high']:.2f}"
        live.append([name, f"{each['value']:.2f}", ends, f"{each['truth']:.2f}"])
    return [_markdown(table) for table in (efficiency, fits, judged, rates, live)]


def _laws(fits: Iterable[Mapping[str, Any]]) -> dict[tuple[int, str, str], dict[str, Mapping[str, Any]]]:
    """The fits by the training loss, by federation and outer step, and by law."""
    found: dict[tuple[int, str, str], dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for each in fits:
        if each["by"] == "loss":
            found[each["workers"], each["split"], each["outer"]][each["law"]] = each
    return found


def _name(workers: int, split: str, outer: str) -> str:
    """What a group of rows is called.

    >>> _name(4, "iid", "mean")
    'M = 4, iid, averaging'
    """
    return f"M = {workers}, {split}, {'averaging' if outer == 'mean' else 'DiLoCo'}"


def _range(found: tuple[float, float, float] | None, form: str = ".2f") -> str:
    """A value and its range.

    >>> _range((0.771, 0.77, 0.8)), _range(None)
    ('0.77 (0.77 to 0.80)', '–')
    """
    if found is None:
        return "–"
    value, low, high = (format(each, form) for each in found)
    return f"{value} ({low} to {high})"


def _markdown(table: list[list[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in table]
    return [lines[0], f"| {' | '.join(['---'] * len(table[0]))} |", *lines[1:]]


def draw(rows: Iterable[Mapping[str, Any]], fits: list[dict[str, Any]], target: Path) -> None:
    """The efficiency against H, a panel for each number of workers."""
    groups = groups_of(rows)
    counts = sorted({workers for workers, _, _ in groups})
    laws, most = _laws(fits), max(row["local_steps"] for group in groups.values() for row in group)
    ticks = [steps for steps in (*LOCAL_STEPS, STEPS) if steps <= most]
    highs = [row["loss"]["high"] for group in groups.values() for row in group]
    top = 1.03 * max([1.02, *filter(math.isfinite, highs)])
    names = sorted({key[1:] for key in groups}, key=lambda key: (key[1] != "mean", SPLITS.index(key[0])))
    with pictures.figure(target, panels=len(counts), width=4.0, height=3.6) as panels:
        for axes, M in zip(panels, counts, strict=True):
            for (workers, split, outer), group in groups.items():
                if workers != M:
                    continue
                colour = f"C{names.index((split, outer))}"
                H = sorted({row["local_steps"] for row in group})
                found = [efficiency_of([row for row in group if row["local_steps"] == each], "loss") for each in H]
                E, low, high = zip(*(each for each in found if each), strict=True)
                axes.fill_between(H, low, high, color=colour, alpha=0.15)
                label = f"{split}, {'averaging' if outer == 'mean' else 'DiLoCo'}"
                axes.plot(H, E, "o" if outer == "mean" else "s", color=colour, label=label)
                law = laws.get((M, split, outer), {}).get("floor")
                if law:
                    fine = np.unique(np.geomspace(1, max(H), 100).astype(int))
                    curve = [predicted("floor", law["H0"], law["shape"], each) for each in fine]
                    axes.plot(fine, curve, "-" if outer == "mean" else "--", color=colour, lw=1)
            axes.set(xscale="log", xlim=(0.9, 1.3 * most), ylim=(0, top), title=f"M = {M}")
            axes.set(xlabel="local steps H", ylabel="efficiency")
            axes.set_xticks(ticks, [str(steps) for steps in ticks])
            axes.minorticks_off()
            axes.legend(loc="lower left")


def main() -> None:
    """Score, print and write; or print the tables of the numbers that are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="directory of the runs")
    parser.add_argument("--out", type=Path, help="directory for numbers.json and the picture")
    options = parser.parse_args()
    if options.runs is None:
        result = json.loads(NUMBERS.read_text(encoding="utf-8"))
    else:
        kept = options.out and options.out / NUMBERS.name
        result = scored(options.runs, json.loads(kept.read_text()) if kept and kept.exists() else {})
        if not result["rows"]:
            parser.exit(1, "There is no run to score yet, with its reference; run benchmarks/language.py first.\n")
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            write_json(options.out / "numbers.json", result)
            draw(shown(result["rows"]), result["fits"], options.out / "language.png")
    for table in tables(result):
        print("\n".join(table), end="\n\n")


def scored(place: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of the page: of the runs in a directory, and of earlier runs as they are known."""
    runs = read(place)
    rows, live = rows_of(runs), live_of(runs)
    scored_cells, read_live = {row["cell"] for row in rows}, {(each["run"], each["local_steps"]) for each in live}
    rows += [row for row in known.get("rows", ()) if row["cell"] not in scored_cells]
    live += [each for each in known.get("live", ()) if (each["run"], each["local_steps"]) not in read_live]
    seconds = {**known.get("seconds", {}), **{cell.name: run["seconds"] for cell, run in runs.items()}}
    order = {cell.name: place for place, cell in enumerate(every())}
    planned = {cell.name for cell in cells()}
    rows.sort(key=lambda row: order[row["cell"]])
    first = "processor seconds of the first 24 cells"
    return {
        "command": f"python benchmarks/language_scores.py --runs {PLACE}/runs --out {PLACE}",
        first: known.get(first),
        "seconds": {name: seconds[name] for name in order if name in seconds},
        "rows": rows,
        "fits": fits_of(shown(rows)),
        "live": live,
        "predicts": predictions_of(rows),
        "missing": [name for name in order if name in planned and name not in seconds],
    }


if __name__ == "__main__":
    main()
