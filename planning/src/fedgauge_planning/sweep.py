"""Many runs of one experiment: every combination of the values of some keys, each with several seeds.

Every run has its own directory. So a sweep can be resumed after an interruption, or extended with more values or seeds,
without repeating finished runs. Runs are computed in parallel, one process each, here or on a cluster. One that is left
alone is shared by all processes: it is interrupted and resumed, which changes no bit of it.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from fedgauge.base.errors import MOST_RUNS, InputError, count, nearest
from fedgauge.base.progress import reported
from fedgauge.base.threads import undisturbed
from fedgauge.simulation.experiment.config import Experiment, ended_run
from fedgauge.simulation.experiment.sections import keys
from fedgauge.simulation.options import Compute
from fedgauge.values import Origin, Result, Round, Trace, Value
from fedgauge.values.display import Displayed
from fedgauge_planning.jobs import make_pool, progress


@dataclass(frozen=True)
class SeedCurve(Value):
    """Mean and standard deviation over seeds, one number per recorded round."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


@dataclass(frozen=True)
class Combination(Value):
    """One combination of a sweep's values, over its seeds.

    Attributes:
        values: the values of the keys that the sweep varies.
        diverged: the number of runs that diverged.
        rounds: the rounds that all runs have recorded.
        seconds: seconds that all runs together took.
        loss: the training loss; None if a run has none.
        accuracy: the test accuracy; None if it was not tested.
        runs: status, curves and time of each run.
    """

    values: Mapping[str, Any]
    diverged: int
    rounds: tuple[int, ...]
    seconds: float
    loss: SeedCurve | None
    accuracy: SeedCurve | None
    runs: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        for curve in (self.loss, self.accuracy):
            if curve and {len(curve.mean), len(curve.deviation)} != {len(self.rounds)}:
                raise InputError("The curves of a combination must have one number per round.")


@dataclass(frozen=True)
class SweepResult(Result, Displayed):
    """What ``fedgauge runs sweep`` writes.

    Attributes:
        experiment: the experiment that all runs share.
        over: for each key that varies, its values.
        seeds: the number of seeds.
        combinations: one entry per combination of values.
        command: the command that ran the sweep.
    """

    kind: ClassVar[str] = "sweep"
    written_by: ClassVar[str] = "runs sweep"

    experiment: Mapping[str, Any]
    over: Mapping[str, tuple[Any, ...]]
    seeds: int
    combinations: tuple[Combination, ...]
    command: str = ""

    def __post_init__(self) -> None:
        for each in self.combinations:
            if set(each.values) != set(self.over):
                raise InputError(f"A combination must have values of {', '.join(self.over) or 'nothing'}.")

    @property
    def origin(self) -> Origin:
        """The experiment that all runs share."""
        return Origin(experiment=self.experiment)


_WHOLE = ("seed", "model_option", "algorithm_option", "engine", "address")
"""Keys that are the same for all runs, or that a sweep varies under another name."""
_WORTH = 60.0
"""A run that is left alone is resumed with all processes if it would take this many seconds more by itself: new
processes have to import torch and to load the data."""
Progress = Callable[[int, int, int], None]
"""Called with the numbers of finished rounds, of all rounds, and of runs that have ended."""


class Cell(NamedTuple):
    """One run of a sweep: its name, its values of the keys that the sweep varies, and the whole experiment."""

    name: str
    values: Mapping[str, Any]
    experiment: Experiment


@dataclass(frozen=True)
class Sweep:
    """An experiment, the values that some of its keys take in turn, and the number of seeds.

    Attributes:
        experiment: the experiment that all runs share; its seed is the first one.
        over: for each key that varies, its values; keys are named as the command's options.
        seeds: the number of seeds.

    >>> base = Experiment.of({"source": "digits", "gamma": 0.1})
    >>> [cell.name for cell in Sweep(base, {"local_steps": [1, 5]}, seeds=2).cells]
    ['local_steps=1,seed=0', 'local_steps=1,seed=1', 'local_steps=5,seed=0', 'local_steps=5,seed=1']
    """

    experiment: Experiment
    over: Mapping[str, Sequence[Any]]
    seeds: int = 1

    def __post_init__(self) -> None:
        count("seeds", self.seeds, most=MOST_RUNS)
        known = [key.option for key in keys() if key.option not in _WHOLE]
        for key, values in self.over.items():
            if key == "seed":
                raise InputError("A sweep runs over seeds by their number, as in seeds=3; leave seed out of over.")
            if key not in known:
                raise InputError(f"A sweep cannot vary {key!r}; {nearest(key, known)}")
            if not values:
                raise InputError(f"{key} needs at least one value; give some, or leave it out.")
        runs = self.seeds * math.prod(len(values) for values in self.over.values())
        if runs > MOST_RUNS:
            raise InputError(f"A sweep has at most {MOST_RUNS:,} runs, not {runs:,}; give fewer values or seeds.")
        # Making the cells checks that every combination is a valid experiment, before the first one is run.
        name, often = Counter(cell.name for cell in self.cells).most_common(1)[0]
        if often > 1:
            raise InputError(
                f"Two runs of the sweep would have the name {name}: values must differ even as file names, in which 1.0"
                " becomes 1 and / becomes _; leave out one of them."
            )

    @property
    def combinations(self) -> list[dict[str, Any]]:
        """All combinations of values; the value of the last key changes fastest."""
        return [dict(zip(self.over, values, strict=True)) for values in itertools.product(*self.over.values())]

    @property
    def cells(self) -> list[Cell]:
        """All runs of the sweep."""
        first = self.experiment.run.seed
        cells = []
        for values in self.combinations:
            for seed in range(first, first + self.seeds):
                # One process for each run is faster than several processes for one run.
                changes = {"processes": 1, **values, "seed": seed}
                name = ",".join(f"{key}={shown(value)}" for key, value in {**values, "seed": seed}.items())
                experiment = self.experiment.changed(changes)
                cells.append(Cell(name, values, replace(experiment, run=experiment.run.here)))
        return cells


def shown(value: Any) -> str:
    """A value as it appears in tables and in file names.

    >>> shown(50.0), shown("a/b")
    ('50', 'a_b')
    """
    return str(value).removesuffix(".0").replace("/", "_")


def _run(cell: Cell, directory: str) -> dict[str, Any]:
    """Run one cell, or resume it."""
    from fedgauge.simulation.experiment.prepare import execute
    from fedgauge.simulation.options import Keep

    done = 0

    def observer(rounds: int, record: Round | None) -> None:
        nonlocal done
        progress(rounds - done)
        done = rounds

    trace = execute(cell.experiment, keep=Keep(directory, resume=True), observer=observer)
    progress(cell.experiment.run.rounds - done)
    return _result(cell, trace)


def _length(cell: Cell) -> int:
    """The local steps of a worker in all rounds, as far as they are known beforehand."""
    run = cell.experiment.run
    return run.rounds * (run.local_steps if isinstance(run.local_steps, int) else 1)


def _with_all_processes(cell: Cell, processes: int | None) -> Cell:
    """A run that has no other beside it, shared by this number of processes, or by the default for such a run."""
    if "processes" in cell.values:
        return cell
    return cell._replace(experiment=cell.experiment.changed({"processes": processes}))


def _run_all(
    cells: Sequence[Cell], out: Path, compute: Compute, report: Callable[[int], None]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run cells side by side, and one that is left alone with all processes; yield their names and results.

    Args:
        cells: the runs, in the order in which they begin.
        out: directory for the runs.
        compute: where; its ``processes`` is the number of runs at once, by default one per core.
        report: called with the number of rounds that all runs together have done.
    """
    here, at_once = not compute.on_cluster, compute.processes
    if here:
        if len(cells) == 1 and at_once != 1:
            cells = [_with_all_processes(cells[0], at_once)]
        at_once = min(at_once or os.cpu_count() or 1, len(cells))
    shares = here and at_once != 1 and "processes" not in cells[0].values
    left, done, began = {cell.name: cell for cell in cells}, 0, time.monotonic()

    def count(rounds: int) -> None:
        nonlocal done
        done = rounds
        report(rounds)

    with make_pool(compute.with_processes(at_once), count) as pool:
        arguments = {name: (cell,) for name, cell in left.items()}
        for name, result in pool.map(_run, arguments, {name: out / name for name in left}):
            del left[name]
            yield name, result
            spent = (at_once or 1) * (time.monotonic() - began)
            if shares and len(left) == 1 and _seconds_left(cells, next(iter(left.values())), done, spent) > _WORTH:
                break  # the pool interrupts it, and it saves its state
    if left:
        others = sum(cell.experiment.run.rounds for cell in cells if cell.name not in left)
        yield from _run_all([*left.values()], out, compute, lambda rounds: report(others + rounds))


def _seconds_left(cells: Sequence[Cell], last: Cell, done: int, spent: float) -> float:
    """About how many more seconds the last of some cells takes by itself.

    Args:
        cells: all of them.
        last: the one that has not ended.
        done: the rounds that all of them together have done.
        spent: the seconds that all processes together have spent on that.
    """
    rounds = sum(cell.experiment.run.rounds for cell in cells) - done
    steps = rounds * _length(last) / last.experiment.run.rounds
    return spent * steps / max(sum(map(_length, cells)) - steps, 1.0)


def _result(cell: Cell, trace: Trace) -> dict[str, Any]:
    """The part of a run that the result of a sweep contains."""
    return {
        "run": cell.name,
        "seed": cell.experiment.run.seed,
        "status": trace.status,
        "stopped_at": trace.stopped_at,
        "rounds": [record.round for record in trace.rounds],
        "loss": trace.losses.tolist(),
        "accuracy": [record.accuracy for record in trace.rounds],
        "L_h_seen": max((record.L_h_ratio or 0.0 for record in trace.rounds), default=0.0) or None,
        "seconds": trace.seconds[-1] if trace.seconds else 0.0,
    }


@undisturbed
def run_sweep(
    sweep: Sweep,
    out: Path,
    jobs: int | None = None,
    report: Progress | Literal["auto"] | None = "auto",
    *,
    only_finished: bool = False,
    known: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> SweepResult | None:
    """Run every cell that is not finished in ``out``, and summarise all of them.

    The runs are computed on a cluster if the experiment's engine is one.

    Args:
        sweep: the sweep to run.
        out: directory for the runs.
        jobs: number of runs at once; by default, one per core. With 1, runs are computed in this process.
        report: called with the progress. By default, a bar is shown on a terminal and in a notebook; None shows
            nothing.
        only_finished: run nothing, and summarise the runs that have finished, each combination with the seeds it has.
            Without a directory of data in the experiment, it does not matter where the runs had theirs.
        known: what is known of runs that need not be in ``out``, by name, as an earlier summary has it.

    Returns:
        ``None`` if it was interrupted; otherwise one entry per combination, with the curves of all runs.
    """
    with reported(report if report == "auto" else None) as bar:
        if callable(report):
            said = report
        else:

            def said(done: int, total: int, ended: int) -> None:
                bar("rounds", done, total)

        return _sweep_all(sweep, out, jobs, said, only_finished, known)


def _sweep_all(
    sweep: Sweep,
    out: Path,
    jobs: int | None,
    report: Progress,
    only_finished: bool,
    known: Mapping[str, dict[str, Any]],
) -> SweepResult | None:
    """Run the cells, and summarise them; None if it was interrupted."""
    cells = sweep.cells
    total = sum(cell.experiment.run.rounds for cell in cells)
    results = {cell.name: known[cell.name] for cell in cells if cell.name in known}
    try:
        for cell in cells:
            if cell.name in results:
                continue
            trace = ended_run(cell.experiment, out / cell.name, with_any_data=only_finished)
            if trace is not None:
                results[cell.name] = _result(cell, trace)
        # The longest begin first, so that none of them is left for the end, when other processes have nothing to do.
        missing = sorted((cell for cell in cells if cell.name not in results), key=_length, reverse=True)
        before = total - sum(cell.experiment.run.rounds for cell in missing)
        report(before, total, len(results))
        # Starting processes and loading the data in each takes longer than reading many finished runs.
        if missing and not only_finished:
            compute = sweep.experiment.run.compute.with_processes(jobs)

            def tell(done: int) -> None:
                report(before + done, total, len(results))

            for name, result in _run_all(missing, out, compute, tell):
                results[name] = result
    except KeyboardInterrupt:
        return None
    return _summary(sweep, results)


def _summary(sweep: Sweep, results: Mapping[str, dict[str, Any]]) -> SweepResult:
    """All combinations that have a result; all have one with every seed, unless only finished ones were asked for."""
    cells = sweep.cells
    combinations = []
    for values in sweep.combinations:
        runs = [results[cell.name] for cell in cells if cell.values == values and cell.name in results]
        if runs:
            combinations.append({"values": values, **over_seeds(runs), "runs": runs})
    over = {key: list(values) for key, values in sweep.over.items()}
    entries = {"experiment": sweep.experiment.to_json(), "over": over, "seeds": sweep.seeds}
    return SweepResult.from_json({**entries, "combinations": combinations})


def over_seeds(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds of the curves, at the rounds that all runs have recorded."""
    common = sorted(set.intersection(*(set(run["rounds"]) for run in runs)))
    summary: dict[str, Any] = {
        "diverged": sum(run["status"] == "diverged" for run in runs),
        "rounds": common,
        "seconds": sum(run["seconds"] for run in runs),
    }
    for name in ("loss", "accuracy"):
        rows = [[run[name][run["rounds"].index(r)] for r in common] for run in runs]
        if any(value is None for row in rows for value in row):
            summary[name] = None
            continue
        curves = np.array(rows, dtype=float)
        deviation = curves.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(len(common))
        summary[name] = {"mean": curves.mean(axis=0).tolist(), "deviation": deviation.tolist()}
    return summary
