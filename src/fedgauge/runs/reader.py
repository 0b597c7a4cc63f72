"""Runs as they are found on disk: finished, going on, or broken off, each as far as it goes."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedgauge.errors import InputError
from fedgauge.pace.adaptive import Pace
from fedgauge.system.files import read_lines
from fedgauge.values import Round, Value

_BESIDE = (".lock", "environment.json", "rounds.jsonl")
"""One of these at least is beside a run's settings.json; other programs have files of that name too."""


@dataclass(frozen=True)
class FoundRun(Value):
    """What can be read of a run.

    Attributes:
        path: its directory.
        status: how it ended; ``unfinished`` where it has not, or where that cannot be read.
        stopped_at: the round at which it ended, or of the last record.
        settings: what was asked.
        experiment: the experiment that it comes from, where it does.
        environment: versions, machine and command.
        rounds: the records that are whole.
        seconds: the wall time of each, where that is written.
        note: what could not be read.
        events: workers that were lost or refused, where the run was on nodes of their own.
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
    def again(self) -> str:
        """The command that runs its experiment once more, from the same first model."""
        start = ["--start", f"{self.path}/start.safetensors"] if "start" in self.settings else []
        return shlex.join(["fedgauge", "simulate", f"{self.path}/experiment.toml", *start])

    @property
    def further(self) -> str:
        """The command that goes on with it."""
        return f"{self.again} --out {shlex.quote(self.path)} --resume"

    @property
    def told(self) -> tuple[str, ...]:
        """What happened to workers, a sentence each."""
        return tuple(_sentence(event) for event in self.events)

    @property
    def last(self) -> Round | None:
        """The last record."""
        return self.rounds[-1] if self.rounds else None

    @property
    def source(self) -> str:
        """What it was run on, in a word or two."""
        return source_of(self.experiment)

    @property
    def L_h_seen(self) -> float | None:  # noqa: N802
        """The largest ratio of the records, a lower bound of L_h."""
        return max((record.L_h_ratio or 0.0 for record in self.rounds), default=0.0) or None

    @property
    def steps(self) -> list[float]:
        """Local steps of a worker before each record; the mean over workers where they differ, NaN if unknown."""
        given = self.settings.get("local_steps")
        if isinstance(given, Mapping):
            return _paced(given, self.rounds)
        each = sum(given) / len(given) if isinstance(given, list) else math.nan if given is None else given
        return [record.round * each for record in self.rounds]


def source_of(experiment: Mapping[str, Any]) -> str:
    """The data of an experiment, and the model where there is a choice of it.

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
    """Local steps before each record of a run that adapts them.

    Between records they are those of the next one; before the last, which has none, what was decided at the one before.
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
    """Read a run as far as it goes; nothing of it is changed or locked.

    Args:
        path: its directory.
        model: whether the final model, which may be large, is held against its digest as the records are.
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
    """The runs in a directory and below, by path."""
    directory = Path(directory)
    if not directory.is_dir():
        raise InputError(f"There is no directory {directory}; name one that holds runs.")
    places = [settings.parent for settings in sorted(directory.rglob("settings.json"))]
    return [read_run(place, model=False) for place in places if any((place / name).exists() for name in _BESIDE)]


def _check_digests(path: Path, result: Mapping[str, Any], model: bool, notes: list[str]) -> None:
    """Note which files of a finished run are not what it wrote: a report on them would be one on something else."""
    digests = result.get("sha256")
    for name, digest in digests.items() if isinstance(digests, Mapping) else ():
        if name == "model.safetensors" and not model:
            continue
        try:
            with (path / name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                    continue
            what = "is not what the run wrote: its digest differs from result.json's"
        except OSError:
            what = "is missing"
        notes.append(f"{name} {what}; --resume mends it")


def _object(path: Path, notes: list[str]) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
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
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        notes.append(f"{path.name} cannot be read")
        return {}


def _lines(path: Path, decode: Any, notes: list[str]) -> list[Any]:
    try:
        content = path.read_bytes()
    except OSError:
        notes.append(f"{path.name} cannot be read")
        return []
    lines = read_lines(content, decode)
    if (lines[-1].end if lines else 0) < len(content):
        notes.append(f"{path.name} is whole up to line {len(lines)}")
    return [line.data for line in lines]
