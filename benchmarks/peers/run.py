"""Compare rounds of FedAvg with other federated-learning libraries, as ratios measured in one run.

    python benchmarks/peers/run.py [--only pfl fedjax flower fedlab fluke] [--turns 9] [--json | --markdown]
    python benchmarks/peers/run.py --only pfl --workloads tiny --turns 2      # whether it works

The workloads are mlp and many of ``benchmarks/rounds.py``. Every library is installed from PyPI, in the versions under
``requirements``, into its own virtual environment (``--environments``, by default ``.peers``), and runs its own FedAvg
as described at the top of its program under ``contestants``: in the fastest way that its documentation describes for a
CPU. If that is in doubt, there are variants (threads, processes), and the fastest counts.

Each contestant is a process that is prepared, warmed up and then waits while the others have their turns. A turn
consists of a few rounds; its time per round is one measurement. The median counts, with the range of the middle half as
the spread, and beside it the fastest turn, which is the one that other work on the machine disturbs least.

Before the turns, every contestant runs the same number of rounds from the same model on the same data. If its loss
falls by more or less than fedgauge's, beyond the tolerance in ``workloads.py``, it does another job and is left out.
The tolerance allows for different random draws, but not for one local step too few. If fedgauge itself fails, there is
nothing to compare with: no ratio is printed, and the status is 1, as it is when a peer fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
BENCHMARKS, ROOT = HERE.parent, HERE.parents[1]
sys.path.insert(0, str(BENCHMARKS))

from peers.workloads import TINY, WORKLOADS, Workload  # noqa: E402


@dataclass(frozen=True)
class Variant:
    """A way to run a contestant."""

    label: str
    threads: int = 1
    processes: int = 1


@dataclass(frozen=True)
class Peer:
    """A contestant; ``aims`` says how many times as long as fedgauge it should take on each workload."""

    name: str
    title: str
    variants: tuple[Variant, ...]
    aims: Mapping[str, float]


THREADS = (Variant("1 thread"), Variant("2 threads", threads=2))
OURSELVES = Peer("fedgauge", "fedgauge", (Variant("2 processes", processes=2),), {})
PEERS = {
    peer.name: peer
    for peer in (
        Peer("pfl", "pfl-research", (*THREADS, Variant("2 processes", processes=2)), {"mlp": 6, "many": 6}),
        Peer("fedjax", "FedJAX", (*THREADS, Variant("2 devices", processes=2)), {"mlp": 2.5, "many": 2.5}),
        Peer("flower", "Flower", (Variant("2 actors", processes=2),), {"mlp": 8, "many": 25}),
        Peer("fedlab", "FedLab", THREADS, {"mlp": 6, "many": 6}),
        Peer("fluke", "fluke", THREADS, {"mlp": 6, "many": 6}),
    )
}


class ContestantError(Exception):
    """A contestant cannot take part; the message says why."""


def interpreter(peer: Peer, environments: Path) -> Path:
    """A contestant's Python, with everything that its requirements name; without any, the one that runs this."""
    requirements = sorted((HERE / "requirements").glob(f"{peer.name}.*txt"), reverse=True)
    if not requirements:
        return Path(sys.executable)
    wanted = hashlib.sha256(b"".join(file.read_bytes() for file in requirements)).hexdigest()
    directory = environments / peer.name
    python, stamp = directory / "bin" / "python", directory / "installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"Installing {peer.title} into {directory} …", file=sys.stderr, flush=True)
    commands = [[sys.executable, "-m", "venv", "--clear", str(directory)]]
    for file in requirements:
        alone = ["--no-deps"] if file.name.endswith(".alone.txt") else []
        commands.append([str(python), "-m", "pip", "install", "--quiet", *alone, "--requirement", str(file)])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise ContestantError(f"not installed: {errors[-1] if errors else done.stderr[-500:]}")
    stamp.write_text(wanted)
    return python


class Process:
    """A contestant at work on one workload."""

    def __init__(self, peer: Peer, variant: Variant, work: Workload, python: Path, log: Path) -> None:
        self.peer, self.variant, self.log = peer, variant, log
        log.parent.mkdir(parents=True, exist_ok=True)
        path = [str(BENCHMARKS)]
        if python == Path(sys.executable):
            path += [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(variant.threads))
        command = [str(python), "-P", "-m", f"peers.contestants.{peer.name}", work.name]
        command += ["--threads", str(variant.threads), "--processes", str(variant.processes)]
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join(path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.check: dict[str, Any] = {}

    def prepare(self) -> None:
        """Wait until it is ready and its check is done."""
        self.check = self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ContestantError(f"ended with status {self._process.wait()}; see {self.log}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def turn(self, rounds: int) -> float:
        """Run this many rounds; the seconds per round."""
        assert self._process.stdin is not None
        try:
            print(rounds, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise ContestantError(f"ended with status {self._process.wait()}; see {self.log}") from None
        seconds: float = self._answer()["seconds"]
        return seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Close its input, upon which the contestant ends by itself; if it does not, end it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(timeout=60)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def fall(check: Mapping[str, float]) -> float:
    """By how much the rounds of the check lowered the loss."""
    return check["before"] - check["after"]


def measure(work: Workload, peers: Sequence[Peer], turns: int, environments: Path) -> dict[str, Any]:
    """Run the checks and turns of all contestants on one workload."""
    failures: dict[str, str] = {}
    with ExitStack() as stack:
        processes: list[Process] = []
        for peer in (OURSELVES, *peers):
            for variant in peer.variants:
                try:
                    python = interpreter(peer, environments)
                    log = environments / "logs" / f"{work.name}-{peer.name}-{variant.label.replace(' ', '-')}.log"
                    process = stack.enter_context(Process(peer, variant, work, python, log))
                    process.prepare()
                    if abs(ratio := fall(process.check) / fall((processes or [process])[0].check) - 1) > work.tolerance:
                        raise ContestantError(f"lowers the loss {ratio:+.1%} more than fedgauge: a different job")
                    processes.append(process)
                except ContestantError as failure:
                    failures[f"{peer.name}, {variant.label}"] = str(failure)
            if not processes:
                return nothing(work, turns, failures)
        seconds: dict[Process, list[float]] = {process: [] for process in processes}
        for turn in range(turns + 1):
            for process in list(seconds):
                try:
                    time = process.turn(work.rounds)
                except ContestantError as failure:
                    del seconds[process]
                    failures[f"{process.peer.name}, {process.variant.label}"] = str(failure)
                    if process.peer is OURSELVES:
                        return nothing(work, turns, failures)
                    continue
                if turn:  # the first is a warm-up
                    seconds[process].append(time)
    return {"workload": work.name, "turns": turns, "failures": failures, **summary(work, seconds)}


def nothing(work: Workload, turns: int, failures: Mapping[str, str]) -> dict[str, Any]:
    """The result of a workload on which fedgauge failed, so that peers would be compared with each other."""
    return {"workload": work.name, "turns": turns, "failures": failures, "rows": [], "ratios": []}


def summary(work: Workload, seconds: Mapping[Process, list[float]]) -> dict[str, Any]:
    """One row per contestant, and one ratio per peer, by its fastest variant."""
    rows = []
    for process, times in seconds.items():
        low, median, high = statistics.quantiles(times, n=4)
        rows.append(
            {
                "contestant": process.peer.name,
                "title": process.peer.title,
                "variant": process.variant.label,
                "ms": 1e3 * median,
                "spread": (high - low) / median,
                "fastest_ms": 1e3 * min(times),
                "seconds": times,
                **process.check,
            }
        )
    ratios = []
    for name, peer in PEERS.items():
        own = [row for row in rows if row["contestant"] == name]
        if not own:
            continue
        by_median, by_fastest = (min(row[key] for row in own) / rows[0][key] for key in ("ms", "fastest_ms"))
        aim = peer.aims.get(work.name, 0.0)
        ratios.append(
            {
                "contestant": name,
                "title": peer.title,
                "median": by_median,
                "fastest": by_fastest,
                "aim": aim,
                "verdict": verdict(by_median, by_fastest, aim),
            }
        )
    return {"rows": rows, "ratios": ratios}


def verdict(by_median: float, by_fastest: float, aim: float) -> str:
    """Whether a target is met, by both measures or by one."""
    if (by_median >= aim) == (by_fastest >= aim):
        return "met" if by_median >= aim else "missed"
    return "missed by medians" if by_fastest >= aim else "missed by fastest turns"


ROW_HEADINGS = ("workload", "", "", "ms per round, median", "spread", "fastest turn", "loss from", "to")
RATIO_HEADINGS = ("workload", "peer's time over fedgauge's", "by medians", "by fastest turns", "target", "")


def cells(results: Sequence[dict[str, Any]]) -> tuple[list[list[str]], list[list[str]]]:
    """Both tables as text."""
    rows = [
        [
            result["workload"],
            row["title"],
            row["variant"],
            f"{row['ms']:.1f}",
            f"{row['spread']:.0%}",
            f"{row['fastest_ms']:.1f}",
            f"{row['before']:.4f}",
            f"{row['after']:.4f}",
        ]
        for result in results
        for row in result["rows"]
    ]
    ratios = [
        [
            result["workload"],
            ratio["title"],
            f"{ratio['median']:.2f}",
            f"{ratio['fastest']:.2f}",
            f"at least {ratio['aim']:g}",
            ratio["verdict"],
        ]
        for result in results
        for ratio in result["ratios"]
    ]
    return rows, ratios


def show(results: Sequence[dict[str, Any]], markdown: bool) -> None:
    """Print both tables, for a terminal or for a page."""
    for headings, body in zip((ROW_HEADINGS, RATIO_HEADINGS), cells(results), strict=True):
        if markdown:
            for line in (headings, ["---"] * len(headings), *body):
                print(f"| {' | '.join(line)} |")
            print()
            continue
        table = Table(*headings)
        for line in body:
            table.add_row(*line)
        Console().print(table)
    for result in results:
        for name, reason in result["failures"].items():
            print(f"{result['workload']}: {name} {reason}", file=sys.stderr)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(PEERS), default=list(PEERS), help="the peers to measure")
    parser.add_argument("--workloads", nargs="+", choices=[*WORKLOADS, TINY.name], default=list(WORKLOADS))
    parser.add_argument("--turns", type=int, default=9, help="turns of each contestant, at least 2")
    parser.add_argument("--environments", type=Path, default=ROOT / ".peers", help="where the peers are installed")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print everything as JSON, with versions")
    output.add_argument("--markdown", action="store_true", help="print the tables of docs/results/speed.md")
    options = parser.parse_args()
    if options.turns < 2:
        parser.error("--turns must be at least 2, so that there is a spread.")
    if sys.version_info[:2] != (3, 11):
        parser.error(f"The peers' versions are chosen for Python 3.11, not {platform.python_version()}.")
    peers = [PEERS[name] for name in options.only]
    environments = options.environments.resolve()
    workloads = [{**WORKLOADS, TINY.name: TINY}[name] for name in options.workloads]
    results = [measure(work, peers, options.turns, environments) for work in workloads]
    if options.json:
        print(json.dumps({"python": platform.python_version(), "cores": os.cpu_count(), "results": results}))
    else:
        show(results, options.markdown)
    if any(result["failures"] for result in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
