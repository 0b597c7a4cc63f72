"""The numbers and tables of docs/results/plan.md, from the rows that run.py finished.

    python benchmarks/plans/page.py                    # the page's tables, from docs/results/plan/numbers.json
    python benchmarks/plans/page.py --rows OUT/rows    # take these rows in first, in place of the same ones

A row is a federation, a cost and a seed of the plan's pilots. Rows that were planned again take the place of the
earlier ones; the others stay, so that the numbers can be made in several sittings, also where the runs behind them are
gone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fedgauge.base.files import write_json
from plans.federations import CASES, COSTS
from plans.run import WITHIN, short, slower

NUMBERS = Path(__file__).parents[2] / "docs" / "results" / "plan" / "numbers.json"
_SAME = ("case", "cost", "seed", "best", "best_cell", "best_judged", "plan_judged", "best_steps", "ending", "fresh")
_RENAMED = {"choice": "plan_choice", "steps": "plan_steps"}
OTHER_SEED = 5000
"""The seed of pilots that draw other mini-batches."""
Row = Mapping[str, Any]


def taken_in(numbers: Row, rows: Iterable[Row]) -> dict[str, Any]:
    """The numbers with the rows of run.py in place of those of the same federation, cost and seed."""
    found = {_key(row): row for row in numbers["rows"]}
    for row in rows:
        before = found.get(_key(row), found.get((row["case"], row["cost"], 0), {}))
        made = {name: row[name] for name in _SAME} | {name: row[given] for name, given in _RENAMED.items()}
        # A plan that was compared with a best that was known has no grid of its own.
        truth = "here" if row.get("search_cost") is not None else before.get("truth", "here")
        found[_key(row)] = {**made, "truth": truth, "replanned": True}
    order = {(case, cost): place for place, (case, cost) in enumerate((c, k) for c in CASES for k in COSTS)}
    ordered = sorted(found.values(), key=lambda row: (order[row["case"], row["cost"]], row["seed"]))
    return {**numbers, "rows": ordered}


def _key(row: Row) -> tuple[str, str, int]:
    return row["case"], row["cost"], row["seed"]


def summary(numbers: Row) -> list[str]:
    """The table of how often plans are near the best: federations that were developed on, and fresh ones."""
    first = [row for row in numbers["rows"] if row["seed"] == 0]
    other = [row for row in numbers["rows"] if row["seed"] == OTHER_SEED]
    fresh = {row["case"] for row in first if row["fresh"]}
    now = {name for name in fresh if CASES[name].fresh and name in _last(numbers)}
    groups = (
        [row for row in first if not CASES[row["case"]].fresh],
        [row for row in other if not CASES[row["case"]].fresh],
        [row for row in numbers["rows"] if row["case"] in fresh - now],
        [row for row in numbers["rows"] if row["case"] in now],
    )
    near = [sum(slower(row) <= WITHIN for row in group) for group in groups]

    def medians(value: Callable[[Row], float], digits: int) -> str:
        return " | ".join(f"{median(map(value, group)):.{digits}f}" for group in groups)

    race = [row["steps"] / numbers["race_gradient_steps"][k] for row in first if (k := _raced(row, numbers))]
    return [
        "| | target | developed on, seed 0 | developed on, seed 5000 | fresh before | fresh now |",
        "| --- | --- | --- | --- | --- | --- |",
        f"| plans | | {' | '.join(str(len(group)) for group in groups)} |",
        "| within 1.25 of the best | 90% | "
        + " | ".join(f"{n}, {n / len(group):.0%}" for n, group in zip(near, groups, strict=True))
        + " |",
        f"| median of plan over best | | {medians(slower, 2)} |",
        "| gradient steps of planning over those of the best, median | | "
        + f"{medians(lambda row: row['steps'] / row['best_steps'], 1)} |",
        "| gradient steps of planning over those of the race, median | 0.33 | "
        + f"{median(race):.2f} ({len(race)} cells) | | | |",
    ]


def _last(numbers: Row) -> set[str]:
    """The federations that were looked at only once the method was as it is: the last ones in the list."""
    names = list(dict.fromkeys(row["case"] for row in numbers["rows"]))
    return set(names[names.index("quad-last") :])


def _raced(row: Row, numbers: Row) -> str | None:
    """The race on the same cell, if there was one, and the plan is the latest."""
    name = f"{row['case']},{row['cost']}"
    return name if name in numbers["race_gradient_steps"] and row["replanned"] else None


def table(numbers: Row) -> list[str]:
    """The table of all plans, a federation and a cost to a line."""
    by = {_key(row): row for row in numbers["rows"]}
    lines = [
        "| federation | cost | best, s | again | its cell | plan | its choice | planning, steps | of the race"
        " | plan, seed 5000 | its choice |",
        "| --- | --- | ---: | ---: | --- | ---: | --- | ---: | ---: | ---: | --- |",
    ]
    for (case, cost, seed), row in by.items():
        if seed:
            continue
        other, raced = by[case, cost, OTHER_SEED], _raced(row, numbers)
        cells = (
            case,
            cost,
            f"{row['best']:.3g}" + ("" if row["truth"] == "here" else "†"),
            f"{row['best_judged'] / row['best']:.2f}",
            short(row["best_cell"]),
            _ratio(row),
            short(row["choice"]),
            f"{row['steps'] / row['best_steps']:.1f}" + ("" if row["replanned"] else "‡"),
            f"{row['steps'] / numbers['race_gradient_steps'][raced]:.2f}" if raced else "–",
            _ratio(other),
            short(other["choice"]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _ratio(row: Row) -> str:
    return f"{slower(row):.2f}" if slower(row) <= WITHIN else f"**{slower(row):.2f}**"


def main(arguments: Sequence[str] | None = None) -> None:
    """Take rows in, if there are any, and print the page's tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, help="directory of rows that run.py finished")
    parser.add_argument("--numbers", type=Path, default=NUMBERS, help="the file that they are taken into")
    options = parser.parse_args(arguments)
    numbers = json.loads(options.numbers.read_text())
    if options.rows:
        paths = sorted(options.rows.glob("*.json"))
        if not paths:
            parser.error(f"there is no row in {options.rows}; name OUT/rows of run.py")
        numbers = taken_in(numbers, [json.loads(path.read_text()) for path in paths])
        write_json(options.numbers, numbers)
    print("\n".join([*summary(numbers), "", *table(numbers)]))


if __name__ == "__main__":
    main()
