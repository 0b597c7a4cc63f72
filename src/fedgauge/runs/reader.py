"""Reading runs from disk, whether finished, still running or interrupted."""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedgauge.codec import parse_json, parse_toml
from fedgauge.errors import InputError
from fedgauge.pace.adaptive import Pace
from fedgauge.system.files import find_files, open_file, read_file, read_lines
from fedgauge.values import Round, Value

_BESIDE = (".lock", "environment.json", "rounds.jsonl")
"""A run has at least one of these beside its settings.json; other programs write files of that name too."""


@dataclass(frozen=True)
class FoundRun(Value):
    """A run as it was read from its directory.

    Attributes:
        path: the directory of the run.
        status: how the run ended; ``unfinished`` if it has not, or if its result cannot be read.
        stopped_at: the round at which the run ended, or the round of its last record.
        settings: the settings of the run.
        experiment: the experiment that the run was made from; empty if there is none.
        environment: versions, machine and command.
        rounds: the records that could be read completely.
        seconds: the wall time of each record, as far as it was written.
        note: what could not be read, or is damaged.
        events: workers that were lost or refused, if the workers ran on nodes of their own.
    """

    path: str
    status: str
    stopped_at: int
    settings: Mapping[str, Any]
    experiment: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    rounds: tuple[Round, ...] = ()
    seconds: tuple[float, ...] = ()
    note: str = ""
    events: tuple[Mapping[str, Any], ...] = ()

    @property
    def rerun_command(self) -> str:
        """The command that runs the experiment again from the same first model."""
        start = ["--start", f"{self.path}/start.safetensors"] if "start" in self.settings else []
        return shlex.join(["fedgauge", "simulate", f"{self.path}/experiment.toml", *start])

    @property
    def resume_command(self) -> str:
        """The command that resumes the run."""
        return f"{self.rerun_command} --out {shlex.quote(self.path)} --resume"

    @property
    def incidents(self) -> tuple[str, ...]:
        """What happened to lost or refused workers, one sentence per event."""
        return tuple(_sentence(event) for event in self.events)

    @property
    def last(self) -> Round | None:
        """The last record."""
        return self.rounds[-1] if self.rounds else None

    @property
    def source(self) -> str:
        """The data and the model of the run, in a word or two."""
        return source_of(self.experiment)

    @property
    def L_h_seen(self) -> float | None:  # noqa: N802
        """The largest ratio that was recorded, which is a lower bound of L_h."""
        return max((record.L_h_ratio or 0.0 for record in self.rounds), default=0.0) or None

    @property
    def steps(self) -> list[float]:
        """Local steps that a worker has taken before each record; the mean if workers differ, NaN if unknown."""
        steps = self.settings.get("local_steps")
        if isinstance(steps, Mapping):
            return _paced(steps, self.rounds)
        each = sum(steps) / len(steps) if isinstance(steps, list) else math.nan if steps is None else steps
        return [record.round * each for record in self.rounds]


def source_of(experiment: Mapping[str, Any]) -> str:
    """The data of an experiment, and its model unless the federation is quadratic.

    >>> source_of({"data": {"name": "digits"}}), source_of({"data": {"name": "fed.json"}}), source_of({})
    ('digits, mlp', 'fed.json', '–')
    """
    sections = (experiment.get(part) for part in ("data", "model"))
    data, model = (section.get("name") if isinstance(section, Mapping) else None for section in sections)
    return str(data or "–") if not data or str(data).endswith(".json") else f"{data}, {model or 'mlp'}"


def _sentence(event: Mapping[str, Any]) -> str:
    who = f"Node {event.get('node')}" if event.get("worker") is None else f"Worker {event['worker']}"
    return f"{who} was {event.get('what')} in round {event.get('round')}: {event.get('why')}."


def _paced(settings: Mapping[str, Any], rounds: Sequence[Round]) -> list[float]:
    """Local steps before each record of a run with an adaptive pace.

    Rounds between two records have the local steps of the later record. The last record has none of its own: the rounds
    before it have those that the record before it decided.
    """
    pace = Pace(**{key: value for key, value in settings.items() if key != "name"})
    state, taken, total = pace.init(), [], 0.0
    for record, following in zip(rounds, (*rounds[1:], None), strict=True):
        taken.append(total)
        state, decision = pace.step(state, record)
        if record.looked and following:
            between = following.looked[-1] if following.looked else decision.local_steps
            total += record.looked[-1] + (following.round - record.round - 1) * between
    return taken


def read_run(path: str | Path, model: bool = True) -> FoundRun:
    """Read a run, finished or not, without changing or locking it.

    Args:
        path: the directory of the run.
        model: whether to check the digest of the final model, which may be large; records are always checked.
    """
    path = Path(path)
    if not (path / "settings.json").is_file():
        what = "there is no such directory" if not path.is_dir() else "it has no settings.json"
        raise InputError(f"{path} holds no run: {what}; see 'fedgauge runs list DIR'.")
    notes: list[str] = []
    settings = _object(path / "settings.json", notes)
    result = _object(path / "result.json", notes) if (path / "result.json").exists() else {}
    rounds = _lines(path / "rounds.jsonl", Round.from_json, notes)
    seconds = _lines(path / "timing.jsonl", lambda data: float(data["seconds"]), notes)
    last = rounds[-1].round if rounds else 0
    if result and not (isinstance(result.get("status"), str) and isinstance(result.get("stopped_at"), int)):
        notes.append("result.json is damaged")
        result = {}
    _check_digests(path, result, model, notes)
    events = _lines(path / "events.jsonl", dict, notes) if (path / "events.jsonl").exists() else []
    return FoundRun(
        path=str(path),
        status=result.get("status", "unfinished"),
        stopped_at=result.get("stopped_at", last),
        settings=settings,
        experiment=_experiment(path / "experiment.toml", notes),
        environment=_object(path / "environment.json", notes),
        rounds=tuple(rounds),
        seconds=tuple(seconds[: len(rounds)]),
        note="; ".join(notes),
        events=tuple(events),
    )


def find_runs(directory: str | Path) -> list[FoundRun]:
    """Read all runs in a directory and its subdirectories, ordered by path."""
    directory = Path(directory)
    if not directory.is_dir():
        raise InputError(f"There is no directory {directory}; name one that holds runs.")
    places = [settings.parent for settings in find_files(directory, "settings.json")]
    return [read_run(place, model=False) for place in places if any((place / name).exists() for name in _BESIDE)]


def _check_digests(path: Path, result: Mapping[str, Any], model: bool, notes: list[str]) -> None:
    """Note which files of a finished run were changed after it ended: a report must not pass them off as the run's."""
    digests = result.get("sha256")
    for name, digest in digests.items() if isinstance(digests, Mapping) else ():
        if name == "model.safetensors" and not model:
            continue
        try:
            with open_file(path / name) as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                    continue
            what = "is not what the run wrote: its digest differs from result.json's"
        except OSError:
            what = "is missing"
        notes.append(f"{name} {what}; resuming the run repairs it")


def _object(path: Path, notes: list[str]) -> dict[str, Any]:
    try:
        data = parse_json(read_file(path))
        if isinstance(data, dict):
            return data
        notes.append(f"{path.name} is damaged")
    except (OSError, ValueError):
        notes.append(f"{path.name} cannot be read")
    return {}


def _experiment(path: Path, notes: list[str]) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return parse_toml(read_file(path).decode())
    except (OSError, ValueError):
        notes.append(f"{path.name} cannot be read")
        return {}


def _lines(path: Path, decode: Any, notes: list[str]) -> list[Any]:
    try:
        content = read_file(path)
    except OSError:
        notes.append(f"{path.name} cannot be read")
        return []
    lines = read_lines(content, decode)
    if (lines[-1].end if lines else 0) < len(content):
        notes.append(f"{path.name} is readable up to line {len(lines)}")
    return [line.data for line in lines]
