"""Finds the results that belong to a run, such as its gauge and its measurement, in the directories around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedgauge.base.errors import InputError
from fedgauge.measurement.values import Measurement
from fedgauge.show.results.reading import RESULTS, FoundResults, read_results
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.runs.reader import FoundRun
from fedgauge.values import Origin


@dataclass(frozen=True)
class Beside:
    """What lies beside a run.

    Attributes:
        found: the results, with those beside the run.
        used: the files that were added.
        left_out: why files were not, by their paths.
    """

    found: FoundResults
    used: tuple[Path, ...] = ()
    left_out: Mapping[Path, str] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """Both in one line; empty where nothing was found.

        >>> Beside(FoundResults("run"), (Path("measure.json"),), {Path("plan.json"): "of other data"}).sentence
        'Shown with it: measure.json; left out: plan.json (of other data).'
        """
        used = ", ".join(map(str, self.used))
        left_out = ", ".join(f"{path} ({why})" for path, why in self.left_out.items())
        parts = [f"shown with it: {used}"] * bool(used) + [f"left out: {left_out}"] * bool(left_out)
        said = "; ".join(parts)
        return f"{said[0].upper()}{said[1:]}." if said else ""


def add_beside(results: FoundResults) -> Beside:
    """Add what belongs to a run and was not named: the nearest file of each kind, one about its own model first."""
    run, used, left_out = results.run, [], {}
    if run is None:
        return Beside(results)
    for kind in (kind for kind, made in RESULTS.items() if made.lies_beside and kind not in results.by_kind):
        fitting: list[tuple[bool, Path, Any]] = []
        for path in _places(Path(run.path), f"{RESULTS[kind].file}.json"):
            try:
                result = read_results(path).by_kind[kind]
            except (InputError, KeyError):
                left_out[path] = "not readable as a result of this version"
                continue
            if result.origin == Origin():
                continue  # nothing says what it belongs to
            why = _stranger(run, result.origin)
            if why:
                left_out[path] = why
            else:
                fitting.append((not _is_at(run, result), path, result))
        if fitting:
            _, path, result = min(fitting, key=lambda each: each[0])
            results = results.adding(kind, result)
            used.append(path)
    return Beside(results, tuple(used), left_out)


def _places(run: Path, name: str) -> Iterator[Path]:
    """Files of a name beside a run: in its parent and its siblings, and in those of a directory of runs."""
    parents = [run.parent, *([run.parent.parent] if run.parent.name == "runs" else [])]
    for parent in parents:
        near = sorted(path for path in parent.iterdir() if path.is_dir() and path != run)
        yield from (path / name for path in (parent, *near) if (path / name).is_file())


def _stranger(run: FoundRun, origin: Origin) -> str:
    """Why a result does not belong to a run; empty if it does."""
    if origin.federation:
        if origin.federation != run.settings.get("federation"):
            return "of another federation"
        return "of another algorithm" if origin.algorithm not in (None, run.settings["algorithm"]["name"]) else ""
    try:
        same = run.experiment and origin.experiment and _federation(run.experiment) == _federation(origin.experiment)
    except InputError:
        same = False
    return "" if same else "for another experiment"


def _federation(data: Mapping[str, Any]) -> tuple[Any, ...]:
    """What decides the federation of an experiment, and its algorithm."""
    made = Experiment.from_json(data)
    seed = made.run.seed if made.data.partition_seed is None else made.data.partition_seed
    model = made.model.name or "mlp", made.model.batch_norm, dict(made.model.options)
    return made.data, seed, model, made.algorithm.name


def _is_at(run: FoundRun, result: Any) -> bool:
    """Whether constants were measured at the run's own model."""
    origin = Path(str(result.point.get("origin", ""))) if isinstance(result, Measurement) else Path()
    return origin.parent.name == Path(run.path).name
