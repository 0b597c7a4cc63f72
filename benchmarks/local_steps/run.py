"""A benchmark of rules for choosing local steps, which others can enter.

    python benchmarks/local_steps/run.py                                          # the rules that are entered so far
    python benchmarks/local_steps/run.py --rule mine:rule --out RUNS [--only WORD] [--track before]     # runs; resumes

``mine:rule`` is a function in a file of yours, as in ``benchmarks/local_steps/entries.py``. For every federation and
cost of a round, it says how to train; the time to the goal counts local steps, and the cost of every round. Its regret
is that time over the time of the best fixed number, less one. A run that has not reached the goal after four times the
local steps of its case has failed.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from fedgauge import InputError, Setup  # noqa: E402
from fedgauge.base.files import write_json  # noqa: E402
from fedgauge.base.user_code import find_user_code  # noqa: E402
from live_runs import place_of  # noqa: E402
from local_steps.entries import Choice  # noqa: E402
from local_steps.tasks import TRACKS, VERSION, Task, tasks  # noqa: E402
from regret import LIMIT, simulated, time_to  # noqa: E402

RESULTS = HERE.parents[1] / "docs" / "results"
Rule = Callable[[Setup, float, int], Any]


def regret_of(rule: Rule, task: Task, cost: float) -> dict[str, Any]:
    """The regret of a rule on one task at one cost, and what it spent, in runs."""
    setup = task.setup()
    said = rule(setup, cost, task.steps)
    choice = said if isinstance(said, Choice) else Choice(said)
    local_steps, every, most = choice.local_steps, 1, int(LIMIT * task.steps)
    if isinstance(local_steps, Integral):
        local_steps = int(local_steps)
        if local_steps < 1:
            raise InputError(f"A rule must choose at least 1 local step, not {local_steps}.")
        every, most = max(32 // local_steps, 1), max(most // local_steps, 1)
    run = simulated(setup, local_steps, every, 0.97 * task.goal, most)
    number = local_steps if isinstance(local_steps, int) else None
    best = task.best[f"{cost:g}"]
    return {"regret": time_to(run, task.goal, cost) / best - 1, "spent": choice.spent / task.steps, "chosen": number}


def score(regrets: Iterable[float], spent: Iterable[float] = ()) -> dict[str, float]:
    """What the table shows of a rule."""
    ordered = sorted(regrets)
    return {
        "cases": len(ordered),
        "median": statistics.median(ordered),
        "nine of ten within": ordered[math.ceil(0.9 * len(ordered)) - 1],
        "failures": sum(map(math.isinf, ordered)),
        "spent": statistics.median([*spent] or [0.0]),
    }


def entered() -> dict[str, dict[str, dict[str, float]]]:
    """The scores of the rules that are entered, from the results of both studies."""
    before = json.loads((RESULTS / "answer" / "answer.json").read_text())["sets"]["fresh"]["rows"]
    during = json.loads((RESULTS / "live" / "regret.json").read_text())["sets"]["fresh"]["rows"]
    spent = [row["spent"] / 2 for row in before]  # the study counts them in runs of half the length
    first = ("gauge", "one epoch", "always 16", "QSR")
    second = ("live gauge", "auto", "AdaComm", "always 16")
    return {
        "before": {r: score([row["losses"][r] for row in before], spent if r == "gauge" else ()) for r in first},
        "during": {r: score(row[r] - 1 for row in during) for r in second},
    }


def run(rule: Rule, chosen: Iterable[Task], out: Path) -> dict[str, list[dict[str, Any]]]:
    """Run what is missing, one file for each task and cost; the results by track."""
    found: dict[str, list[dict[str, Any]]] = {}
    for task in chosen:
        for cost in map(float, task.best):
            path = out / f"version-{VERSION}" / task.track / f"{place_of(task.name)}-{cost:g}.json"
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, regret_of(rule, task, cost))
            result = json.loads(path.read_text())
            print(f"{task.name}, cost {cost:g}: regret {result['regret']:.0%}", file=sys.stderr, flush=True)
            found.setdefault(task.track, []).append(result)
    return found


def show(scores: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Print a table for each track."""
    for track, rules in scores.items():
        print(f"\n| {track} | cases | median regret | nine of ten within | failures | spent, in runs |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")
        for rule, one in rules.items():
            nine = f"{one['nine of ten within']:.0%}" if math.isfinite(one["nine of ten within"]) else "never"
            print(
                f"| {rule} | {one['cases']} | {one['median']:.0%} | {nine} | {one['failures']} | {one['spent']:.1f} |"
            )


def main() -> None:
    """Run a rule, if one is named, and print its score beside the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", help="module:function")
    parser.add_argument("--out", type=Path, help="directory for its runs")
    parser.add_argument("--only", default="", help="only federations whose name contains this")
    parser.add_argument("--track", choices=TRACKS, help="only this track")
    options = parser.parse_args()
    scores = entered()
    if options.rule:
        if options.out is None:
            parser.error("Name a directory for the runs: --out DIR.")
        sys.path.insert(0, str(Path.cwd()))
        try:
            rule = find_user_code(options.rule, "rule")
            chosen = [each for each in tasks() if options.only in each.name and options.track in (None, each.track)]
            for track, results in run(rule, chosen, options.out).items():
                own = score([each["regret"] for each in results], [each["spent"] for each in results])
                scores[track][options.rule] = own
        except InputError as mistake:
            sys.exit(str(mistake))
    show(scores)


if __name__ == "__main__":
    main()
