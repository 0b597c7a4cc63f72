"""How long the commands for saved runs take: one run with many records, and many runs.

    python benchmarks/runs.py [--records 100000] [--runs 500] [--times 3]

Every command is started as a user would start it, so that its time includes the start of Python.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fedgauge import Experiment, Keep, Round, Trace, execute, random_quadratics
from fedgauge.simulation.runs.directory import RunDirectory


def run_of(directory: Path, rounds: int) -> list[str]:
    """Make a finished run with a record for each of many rounds, and return the command that made it.

    Only the first ten rounds are really run: a record is written as any other, whatever it says.
    """
    directory.parent.mkdir(exist_ok=True)
    federation = directory.parent / "federation.json"
    random_quadratics(num_workers=2, dim=2, sigma2=0.1).write(federation)
    experiment = Experiment.of({"source": str(federation), "gamma": 0.01, "local_steps": 2, "rounds": rounds})
    trace = execute(experiment, keep=Keep(directory), pause=10)
    records = [*trace.rounds, *(Round(n, 1.0 / n, 1.0 / n**2, 0.1, 0.01, zeta2=0.1) for n in range(11, rounds + 1))]
    with RunDirectory.open(directory, trace.settings, resume=True, description=experiment.to_toml()) as kept:
        kept.restore(1)
        for record in records:
            kept.append(record, 0.001 * record.round)
        kept.finish(Trace(trace.settings, "finished", rounds, tuple(records), trace.model))
    return ["simulate", str(directory / "experiment.toml"), "--out", str(directory), "--resume"]


def seconds(number: int, *arguments: str) -> float:
    """The wall time of one command, the best of a number of times."""
    times = []
    for _ in range(number):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "fedgauge", *arguments], check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    """Print a table of times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000, help="number of records of the long run")
    parser.add_argument("--runs", type=int, default=500, help="number of runs with 100 records each")
    parser.add_argument("--times", type=int, default=3, help="how often each command is run; the fastest counts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        long, many = Path(place) / "long", Path(place) / "many"
        resume = run_of(long, options.records)
        for number in range(options.runs):
            run_of(many / f"{number:04d}", 100)
        rows = {
            "fedgauge --version": seconds(options.times, "--version"),
            f"runs show, {options.records} records": seconds(options.times, "runs", "show", str(long)),
            f"simulate --resume, finished, {options.records} records": seconds(options.times, *resume),
            f"runs list, {options.runs} runs": seconds(options.times, "runs", "list", str(many)),
        }
    for name, value in rows.items():
        print(f"{name:<55}{value:6.2f} s")


if __name__ == "__main__":
    main()
