"""The tasks of the benchmark, frozen: federations, goals, and the times of the best fixed numbers of local steps.

    python benchmarks/local_steps/tasks.py --runs RUNS      # writes version 1 again, from the runs of the studies

RUNS holds the runs of ``benchmarks/answer.py`` and ``benchmarks/regret.py``. Only federations on which no rule of ours
was developed are tasks.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import answer  # noqa: E402
import regret  # noqa: E402
from fedgauge import Experiment, Setup, prepare  # noqa: E402
from fedgauge.base.files import write_json  # noqa: E402
from live_runs import place_of  # noqa: E402

VERSION = 1
TRACKS = ("before", "during")
"""Whether the number of local steps is chosen before a run, or the rule may change it during the run."""


@dataclass(frozen=True)
class Task:
    """A federation and its goal.

    Attributes:
        name: of the federation.
        track: one of :data:`TRACKS`.
        experiment: its options.
        steps: local steps of a run; the goal is the loss that synchronous training reaches after half of them.
        goal: that loss.
        best: the time that the best fixed number takes to it, counted in local steps, for each cost of a round.
    """

    name: str
    track: str
    experiment: dict[str, Any]
    steps: int
    goal: float
    best: dict[str, float]

    def setup(self) -> Setup:
        """The federation, its algorithm and its seed."""
        return prepare(Experiment.of({"processes": 1, "partition_seed": 0, **self.experiment, "seed": 0}))


def tasks() -> list[Task]:
    """All tasks."""
    return [Task(**each) for each in json.loads((HERE / f"tasks-{VERSION}.json").read_text())]


def frozen(runs: Path) -> Iterator[Task]:
    """The tasks, from the runs of both studies."""
    results = HERE.parents[1] / "docs" / "results"
    rows = json.loads((results / "answer" / "answer.json").read_text())["sets"]["fresh"]["rows"]
    for name, case in answer.FRESH.items():
        first = json.loads((runs / "regret" / place_of(name) / "fixed-1.json").read_text())
        best = {f"{row['cost']:g}": row["times"][str(row["best"])] for row in rows if row["federation"] == name}
        yield Task(name, "before", dict(case.experiment), case.steps, regret.goal_of(first, case.steps), best)
    for name, case in regret.SETS["fresh"].items():
        place = runs / "regret" / place_of(name)
        fixed = {steps: json.loads((place / f"fixed-{steps}.json").read_text()) for steps in regret.FIXED}
        goal = regret.goal_of(fixed[1], case.steps)
        best = {f"{cost:g}": min(regret.time_to(run, goal, cost) for run in fixed.values()) for cost in regret.COSTS}
        yield Task(name, "during", dict(case.experiment), case.steps, goal, best)


def main() -> None:
    """Write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="directory of the runs")
    parser.add_argument("--out", type=Path, default=HERE, help="directory for the file")
    options = parser.parse_args()
    write_json(options.out / f"tasks-{VERSION}.json", [asdict(each) for each in frozen(options.runs)])


if __name__ == "__main__":
    main()
