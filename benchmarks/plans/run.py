"""Compare plans with the rule of thumb, the adaptive tau rule and exhaustive search.

    python benchmarks/plans/run.py --out OUT --data DATA [--only NAME ...] [--seed 0] [--jobs 2] [--markdown] [--json]
    python benchmarks/plans/run.py --out OUT --data DATA --known docs/results/plan/numbers.json --seed 5000

For every federation and every cost of a round, it compares the times to the goal of

- best: the best cell of an exhaustive grid of I and gamma with three seeds, known only after all of it has been run;
- plan: what ``fedgauge plan`` chooses, starting from the middle of the grid's rates and I = 10;
- folk: the rule of thumb, one epoch of local steps per round, with the best gamma of the grid;
- tau: IBM's adaptive tau rule, at the user's gamma and at the plan's, with both of its authors' values of phi, and a
  budget of five times the time of the best; the fastest of the four counts, with one seed;
- auto: ``--local-steps auto`` at the best cell's gamma, without any planning.

All times are seconds of the cost model, as geometric means over seeds that no plan has seen. The best cell was chosen
by those seeds, and the least of forty means flatters it; so the best cell and the choice of the plan are judged by the
median over nine other seeds, and "within 1.25" is about those. The cost of the exhaustive search is that of all its
cells and seeds, each stopped at the goal or at three times the time of the best. Nobody knows that time beforehand, so
this favours the search. A plan's cost is that of all of its pilots, in seconds and in gradient steps of all workers;
with --seed, its pilots draw other mini-batches. With --known, the best cells come from a file of numbers and not from
the grid, which takes most of the time; then only plans are compared with them. Runs are saved in OUT, so that repeating
the same command resumes. DATA holds MNIST and CIFAR-10 in their published layouts; only a part of them is used.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fedgauge import adaptive_pace, fedavg, simulate
from fedgauge.algorithms.cost import Cost
from fedgauge.base.files import write_json
from fedgauge.show import console
from fedgauge.simulation.options import Recording, StopAt
from fedgauge_planning.candidates import Candidate
from fedgauge_planning.planner import PlanOptions, plan
from plans.adaptive_tau import PHI, PHI_NETWORK, adaptive_tau
from plans.federations import CASES, COSTS, make_parts
from plans.truth import GIVEN_UP, UNSEEN, Truth

WITHIN, PART, LATER = 1.25, 0.1, 1.1


def folk(truth: Truth) -> int:
    """The I of the grid that is closest to one epoch: a worker's samples divided by the batch size."""
    if truth.case.quadratic:
        return 0
    epoch = math.ceil(truth.samples / truth.federation.num_workers / (truth.experiment.run.batch_size or 20))
    return min(truth.case.steps, key=lambda steps: abs(math.log(steps / epoch)))


def tau(truth: Truth, cost: Cost, gammas: Sequence[float], budget: float) -> float:
    """The shortest time in which the adaptive tau rule reaches the goal."""
    times = [math.inf]
    for gamma, phi in itertools.product(dict.fromkeys(gammas), (PHI, PHI_NETWORK)):
        last = adaptive_tau(
            truth.federation,
            gamma,
            budget=budget,
            step=cost.step or 0.0,
            fixed=cost.communication(truth.federation.num_workers),
            phi=phi,
            goal=truth.case.goal,
            evaluator=truth.evaluator,
            start=truth.federation.start(truth.experiment.run.seed),
            seed=UNSEEN,
        )[-1]
        times.append(last.seconds if last.reached else math.inf)
    return min(times)


def paced(truth: Truth, cost: Cost, gamma: float, budget: float) -> float:
    """The time of ``--local-steps auto``, averaged as in the grid; infinite if a seed misses the goal in the budget."""
    times = [_paced(truth, cost, gamma, budget, UNSEEN + seed) for seed in range(truth.case.seeds)]
    return math.exp(sum(map(math.log, times)) / len(times))


def _paced(truth: Truth, cost: Cost, gamma: float, budget: float, seed: int) -> float:
    goal = truth.case.goal
    trace = simulate(
        truth.federation,
        fedavg(gamma),
        local_steps=adaptive_pace(cost, truth.federation),
        rounds=100_000,
        seed=seed,
        start=truth.federation.start(truth.experiment.run.seed),
        record=Recording(every=1, evaluator=truth.evaluator, watch=False),
        stop=StopAt(when=lambda records: goal.reached(records[-1]) or (records[-1].elapsed or 0.0) > budget),
    )
    last = trace.rounds[-1]
    return float(last.elapsed or 0.0) if goal.reached(last) else math.inf


def best_of(truth: Truth, cost: Cost, known: Mapping[str, Any] | None) -> tuple[Candidate, float]:
    """The best cell and its time: of the grid that was run, or as a file of numbers has them."""
    if known is not None:
        return next(c for c in truth.candidates if c.name == known["best_cell"]), float(known["best"])
    times = {c: truth.time(truth.curves(c, cost)) for c in truth.candidates}
    cell = min(times, key=lambda c: times[c])
    return cell, times[cell]


def compare(
    truth: Truth, name: str, cost: Cost, options: argparse.Namespace, known: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Compare everything on one federation at one cost."""
    jobs, seed = options.jobs, options.seed
    cell, best = best_of(truth, cost, known)
    began = time.monotonic()
    # With another seed, the pilots draw other mini-batches from the same first model.
    other = replace(truth.setup, seed=seed, start=truth.setup.first_model, experiment={})
    made = plan(
        other if seed else truth.experiment,
        goal=truth.case.goal,
        cost=cost,
        over=truth.case.over,
        options=PlanOptions(seeds=truth.case.seeds, limit=50 * best, jobs=jobs),
        directory=options.out / "plans" / f"{truth.case.name}{f',seed={seed}' if seed else ''}",
    )
    # The grid's rates have more digits than a plan's, but are the same.
    chosen = next((c for c in truth.candidates if c.name == made.choice.name), made.choice)
    judged = [truth.judged(candidate, cost, 2 * GIVEN_UP * best, jobs) for candidate in (cell, chosen)]
    return {
        "case": truth.case.name,
        "cost": name,
        "goal": truth.case.goal.words,
        "best": best,
        "best_cell": cell.name,
        "plan_choice": made.choice.name,
        "best_judged": judged[0],
        "plan_judged": judged[1],
        "plan_cost": made.race.spent,
        "plan_steps": made.race.gradient_steps,
        "best_steps": best / cell.seconds(cost) * cell.I * cell.M,
        "fresh": truth.case.fresh,
        "seed": seed,
        "ending": made.race.ending,
        "why": made.why,
        "wall": time.monotonic() - began,
        **({} if known else against_grid(truth, cost, cell, chosen, made.choice.gamma, options)),
    }


def against_grid(
    truth: Truth, cost: Cost, cell: Candidate, chosen: Candidate, gamma: float, options: argparse.Namespace
) -> dict[str, Any]:
    """What the grid says about the plan by its own seeds, and the other ways to choose I."""
    truth.run([chosen], options.jobs)
    grid = {c: truth.time(truth.curves(c, cost)) for c in truth.candidates}
    best, epoch, own = grid[cell], folk(truth), truth.experiment.algorithm.gamma or 0.0
    return {
        "plan": truth.time(truth.curves(chosen, cost)),
        "search_cost": sum(
            min(curve.end, GIVEN_UP * best) for c in truth.candidates for curve in truth.curves(c, cost)
        ),
        "own": grid.get(Candidate(8, own, 1.0, truth.federation.num_workers)),
        "tau": None if options.seed else tau(truth, cost, (own, gamma), 5 * best),
        "auto": None if options.seed else paced(truth, cost, cell.gamma, 5 * best),
        "folk": min((t for c, t in grid.items() if epoch == c.I), default=None),
        "folk_steps": epoch or None,
    }


def slower(row: Mapping[str, Any]) -> float:
    """The time of the plan's choice over that of the best cell, by seeds that chose neither."""
    return float(row["plan_judged"] / row["best_judged"])


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How often each target was met."""

    def share(needs: str, met: Callable[[dict[str, Any]], bool]) -> float | None:
        found = [met(row) for row in rows if row.get(needs) is not None]
        return sum(found) / len(found) if found else None

    return {
        "rows": len(rows),
        "within 1.25 of the best": share("plan_judged", lambda row: slower(row) <= WITHIN),
        "within 1.25 of the best by the seeds that chose the best": share(
            "plan", lambda row: row["plan"] <= WITHIN * row["best"]
        ),
        "at most a tenth of the cost of the search": share(
            "search_cost", lambda row: row["plan_cost"] <= PART * row["search_cost"]
        ),
        "gradient steps of planning in those of the best, median": median(
            row["plan_steps"] / row["best_steps"] for row in rows
        ),
        "faster than adaptive tau": share("tau", lambda row: row["plan"] < row["tau"]),
        "auto at most 10% slower than the best": share("auto", lambda row: row["auto"] <= LATER * row["best"]),
    }


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the table."""
    columns = ("federation", "cost", "best", "plan", "folk", "tau", "auto", "planning", "in steps", "search", "share")
    cells = []
    for row in rows:
        best = row["best"]
        times = [f"{slower(row):.2f}"]
        times += [f"{row[key] / best:.2f}" if row.get(key) is not None else "–" for key in ("folk", "tau", "auto")]
        steps = f"{row['plan_steps'] / row['best_steps']:.1f}"
        cells.append((row["case"], row["cost"], f"{best:.3g} s", *times, f"{row['plan_cost'] / best:.1f}", steps))
        if row.get("search_cost") is None:
            cells[-1] += ("–", "–")
        else:
            cells[-1] += (f"{row['search_cost'] / best:.0f}", f"{row['plan_cost'] / row['search_cost']:.3f}")
    caption = "plan, folk, tau, auto and costs in units of the time of the best"
    console.table("Time to the goal", columns, cells, caption, padding=0)


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The table for docs/results/plan.md."""

    def ratio(row: dict[str, Any], key: str) -> str:
        if key != "plan" and row.get(key) is None:
            return "–"
        value = slower(row) if key == "plan" else row[key] / row["best"]
        shown = f"{value:.2f}" if math.isfinite(value) else "never"
        missed = (key == "plan" and value > WITHIN) or (key == "auto" and value > LATER)
        return f"**{shown}**" if missed else shown

    lines = [
        "| federation | cost | best, s | its cell | plan | its choice | folk | tau | auto | planning | in steps"
        " | of search |",
        "| --- | --- | ---: | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        cells = [row["case"], row["cost"], f"{row['best']:.3g}", short(row["best_cell"]), ratio(row, "plan")]
        cells += [short(row["plan_choice"]), *(ratio(row, key) for key in ("folk", "tau", "auto"))]
        cells += [f"{row['plan_cost'] / row['best']:.1f}", f"{row['plan_steps'] / row['best_steps']:.1f}"]
        if row.get("search_cost") is None:
            cells.append("–")
        else:
            part = row["plan_cost"] / row["search_cost"]
            cells.append(f"{part:.1%}" if part <= PART else f"**{part:.1%}**")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def short(name: str) -> str:
    """I, gamma, and eta if it is not 1."""
    steps, gamma, eta, _ = (part.partition("=")[2] for part in name.split(","))
    return f"{steps}, {gamma}" if eta == "1" else f"{steps}, {gamma}, eta {eta}"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="directory that keeps all runs")
    parser.add_argument("--data", help="directory of MNIST and CIFAR-10")
    parser.add_argument("--only", nargs="*", choices=list(CASES), help="run only these federations")
    parser.add_argument("--seed", type=int, default=0, help="seed of the plans' pilots; the grid keeps its own")
    parser.add_argument(
        "--known", type=Path, help="file of numbers that has the best cells; federations in it skip the grid"
    )
    parser.add_argument("--jobs", type=int, help="number of runs at the same time")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/results/plan.md")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.data:
        make_parts(options.data, options.out)
    numbers = json.loads(options.known.read_text())["rows"] if options.known else []
    known = {(row["case"], row["cost"]): row for row in numbers}
    rows = []
    with console.doing() as progress:
        for case in (CASES[name] for name in options.only or CASES):
            truth = Truth(case, options.out, partial(progress, f"grid of {case.name}"))
            if not all((case.name, name) in known for name in COSTS):
                truth.run(truth.candidates, options.jobs)
            for name, cost in COSTS.items():
                again = f",seed={options.seed}" if options.seed else ""
                place = options.out / "rows" / f"{case.name},{name}{again}.json"
                if not place.exists():
                    progress(f"plan of {case.name}, {name}", 0, None)
                    place.parent.mkdir(exist_ok=True)
                    whole = cost.completed(truth.federation)
                    write_json(place, compare(truth, name, whole, options, known.get((case.name, name))))
                rows.append(json.loads(place.read_text()))
    met = summary(rows)
    result = {"summary": met, "rows": rows}
    write_json(options.out / "result.json", result)
    if options.json:
        print(json.dumps(result))
    elif options.markdown:
        print(markdown(rows))
    else:
        show(rows)
        for what, part in met.items():
            print(f"{what}: {part}")


if __name__ == "__main__":
    main()
