"""Reads the files that a report is about: a run, a measurement, or another result.

Nothing is computed here beyond checking that what a file holds fits together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, cast

import numpy as np

from fedgauge.base.codec import parse_json
from fedgauge.base.errors import InputError, nearest
from fedgauge.base.files import read_file, read_json_input
from fedgauge.base.user_code import RESULTS as ADDED
from fedgauge.base.user_code import plugins, remedy
from fedgauge.measurement.gauge.result import GaugeResult
from fedgauge.measurement.live.probe_result import ProbeResult
from fedgauge.measurement.parts import Decomposition, Parts
from fedgauge.measurement.values import Measurement, WorkerEvaluation
from fedgauge.show.views import view
from fedgauge.simulation.runs.reader import FoundRun, read_run, source_of
from fedgauge.simulation.settings import Settings
from fedgauge.values import Result, Round
from fedgauge.values.results import AlteredError

RUN = "run"
"""The kind of a run's directory, which is no single file."""
_ALONE = ("result.json", "digits.json", "mnist.json", "ledger.json")
"""Results that lie in a directory of their own."""
_KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("optimiser", "optimiser_state", "gamma_schedule", "eta_schedule"), (str,)),
    **dict.fromkeys(("nesterov", "local_nesterov"), (bool,)),
}
"""The types of an algorithm's parameters that are no numbers."""


@dataclass(frozen=True)
class FoundResults:
    """The results that a report is about.

    Attributes:
        path: the file or directory that was named.
        by_kind: the results, at most one of each kind; a run has the kind ``run``.
    """

    path: str
    by_kind: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that are there, the one that the report is mainly about first."""
        return tuple(kind for kind in (RUN, *RESULTS) if kind in self.by_kind)

    @property
    def run(self) -> FoundRun | None:
        """The run."""
        return cast("FoundRun | None", self.by_kind.get(RUN))

    @property
    def measurement(self) -> Measurement | None:
        """The measurement."""
        return cast("Measurement | None", self.by_kind.get(Measurement.kind))

    def adding(self, kind: str, result: Any) -> FoundResults:
        """The same with one more result."""
        return replace(self, by_kind={**self.by_kind, kind: result})


def read_results(path: Path, named: Mapping[str, Path] = MappingProxyType({})) -> FoundResults:
    """Read what is at a path, and the files that are named beside it.

    Args:
        path: the directory of a run, a measurement or another result, or one of their JSON files.
        named: JSON files, by the commands that wrote them.
    """
    results = _in_directory(path) if path.is_dir() else _with(FoundResults(str(path)), path)
    for command, file in named.items():
        results = _with(results, file, command)
    _check_same(results)
    return results


def _in_directory(path: Path) -> FoundResults:
    results = FoundResults(str(path))
    if (path / "settings.json").is_file():
        results = results.adding(RUN, _run(path))
    beside = [f"{kind.file}.json" for kind in RESULTS.values() if kind.lies_beside]
    for name in beside if results.run else (*beside, *_ALONE):
        if (path / name).is_file():
            results = _with(results, path / name)
    if not results.by_kind:
        raise InputError(
            f"{path} holds nothing to report: none of settings.json (a run), {', '.join(beside)}, ledger.json and the"
            " result.json of a sweep, a figure or a table; name a directory with one."
        )
    return results


def _with(results: FoundResults, path: Path, command: str = "") -> FoundResults:
    """Add what a file holds, which a command must have written if one is named."""
    data = _read(path)
    try:
        kind = kind_of(data)
    except InputError as error:
        missing = remedy(str(data["kind"]))
        raise InputError(f"{path} is read by another package; {missing}" if missing else _misfit(path, error)) from None
    if kind is None:
        held = ", ".join(list(data)[:4]) or "nothing"
        raise InputError(
            f"{path} is neither a measurement nor a plan nor any other result of fedgauge (it holds {held}); name a"
            " file that 'fedgauge measure', 'plan', 'runs sweep' or 'paper' wrote."
        )
    if not kind.written_by.startswith(command):
        raise InputError(f"{path} is the result of 'fedgauge {kind.written_by}'; name one of 'fedgauge {command}'.")
    return results.adding(kind.kind, _decode(kind, path, data))


def _read(path: Path) -> Mapping[str, Any]:
    data = read_json_input(path, "a run's directory or a JSON file", parse_json)
    if not isinstance(data, Mapping):
        raise InputError(f"{path} must hold a JSON object; name a file that fedgauge wrote.")
    return data


def _decode(kind: type[Result], path: Path, data: Mapping[str, Any]) -> Any:
    """The value that a file holds, or one sentence that names what does not fit."""
    try:
        made = kind.from_json(data)
        if isinstance(made, Measurement):
            parts_of(made)
        # What a view shows has to be there, of a result inside another too.
        for each in (made, *vars(made).values()):
            if isinstance(each, Result):
                view(each)
    except AlteredError:
        raise InputError(
            f"{path} has changed since fedgauge wrote it: its contents do not fit its digest; write it again with"
            f" 'fedgauge {kind.written_by}'."
        ) from None
    except InputError as error:
        raise InputError(_misfit(path, error)) from None
    # Deep inside what a value holds.
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(_misfit(path, f"{type(error).__name__} {error}")) from None
    return made


def _misfit(path: Path, problem: object, remedy: str = "write it again with this version") -> str:
    return f"{path} does not fit this version of fedgauge: {str(problem).rstrip('.?')}; {remedy}."


def parts_of(measurement: Measurement) -> tuple[Parts, ...]:
    """Where the constants come from; empty where that was not measured."""
    reading = measurement.reading("parts")
    if not reading or not reading.details:
        return ()
    parts = Decomposition.from_json(reading.details).parts
    for part in parts:
        numbers = (part.weights, part.squares, part.by_worker, part.by_block)
        if not part.squares.size or not all(np.isfinite(held).all() and (held >= 0).all() for held in numbers):
            raise InputError("The parts of a constant must be finite numbers of at least 0, for one worker or more.")
    return parts


# -- runs --------------------------------------------------------------------------------------------------------


def _check_settings(settings: Settings) -> None:
    """Check what a report derives from the settings of a run."""
    algorithm = settings.algorithm
    if not isinstance(algorithm.get("name"), str):
        raise InputError("algorithm must have a name.")
    # A fingerprint says that functions are the user's own, whose factory may take anything.
    is_users_code = isinstance(algorithm.get("code"), str)
    for name, value in algorithm.items():
        kind = _KINDS.get(name, (int, float))
        if (
            not is_users_code
            and name != "name"
            and (not isinstance(value, kind) or (isinstance(value, bool) != (bool in kind)))
        ):
            what = "true or false" if bool in kind else "text" if str in kind else "a number"
            raise InputError(f"algorithm.{name} must be {what}, not {value!r}.")
    if settings.local_steps is None or isinstance(settings.local_steps, Mapping):
        return  # not known, or adapting
    steps = settings.local_steps if isinstance(settings.local_steps, tuple) else (settings.local_steps,)
    if not steps or min(steps) < 1:
        raise InputError(
            f"local_steps must be a number of at least 1, or one such number per worker, not {settings.local_steps!r}."
        )


def _run(path: Path) -> FoundRun:
    """The run as far as it goes; one that another version wrote is refused, not shown in part."""
    run = read_run(path)
    where = path / "settings.json"
    if not run.settings:
        raise InputError(f"{where} is damaged, so the run cannot be shown; run it again.")
    try:
        _check_settings(Settings.from_json(run.settings))
    except InputError as error:
        raise InputError(_misfit(where, error, "run it again")) from None
    _check_records(path / "rounds.jsonl", len(run.rounds))
    return run


def _check_records(path: Path, sound: int) -> None:
    """Tell a line that was cut short, where the run broke off, from a whole one that another version wrote."""
    try:
        lines = read_file(path).split(b"\n")[:-1]
        data = parse_json(lines[sound]) if sound < len(lines) else None
    except (OSError, ValueError):
        return
    if data is None:
        return
    try:
        Round.from_json(data)
    except InputError as error:
        raise InputError(_misfit(path, error, "run it again")) from None


def _check_same(results: FoundResults) -> None:
    """Refuse what is about one federation beside a run on another."""
    run = results.run
    if run is None:
        return
    for kind in results.kinds[1:]:
        result = results.by_kind[kind]
        origin = result.origin
        if origin.federation:
            if run.settings.get("federation") not in (None, origin.federation):
                command = result.written_by.removesuffix(" --out")
                raise InputError(
                    f"The result of 'fedgauge {command}' is of another federation than the run in {run.path}; make one"
                    f" for this run with 'fedgauge {command} {run.path} --out DIR'."
                )
        elif origin.experiment and run.experiment:
            # A file may have been named from another place.
            mine, other = (Path(source_of(held)).name for held in (run.experiment, origin.experiment))
            if mine != other:
                raise InputError(
                    f"The {kind} is for {other}, and the run in {run.path} is on {mine}; name a {kind} for the same"
                    " data."
                )


@dataclass(frozen=True)
class DemoResult(Result):
    """What ``fedgauge demo`` writes: the answer and the runs on digits, and both federations of quadratics."""

    kind: ClassVar[str] = "demo"
    written_by: ClassVar[str] = "demo"

    digits: Mapping[str, Any]
    gamma: float
    eta: float
    rounds: int
    seed: int
    federations: Mapping[str, Any]
    sentence: str


RESULTS: Mapping[str, type[Result]] = {
    result.kind: result
    for result in (
        GaugeResult,
        *(result for added in plugins(ADDED).values() for result in added),
        Measurement,
        WorkerEvaluation,
        ProbeResult,
        DemoResult,
    )
}
"""Kinds by name. A report on several results is named after the first of them in this order."""


def kind_of(data: Mapping[str, Any]) -> type[Result] | None:
    """The kind of a file's content, as it says itself.

    >>> kind_of({"kind": "gauge"}).__name__, kind_of({"a": 1})
    ('GaugeResult', None)
    """
    if "kind" not in data:
        return None
    kind = data["kind"]
    if not isinstance(kind, str) or kind not in RESULTS:
        raise InputError(f"There is no result of kind {kind!r}; {nearest(str(kind), RESULTS)}")
    return RESULTS[kind]
