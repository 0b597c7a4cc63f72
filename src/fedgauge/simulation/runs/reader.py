"""Reading runs from disk, whether finished, still running or interrupted."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.numpy import load

from fedgauge.algorithms.adaptive_pace import Pace
from fedgauge.algorithms.paces import LIVE, from_settings, rate_for, replayed
from fedgauge.base.codec import parse_json, parse_toml
from fedgauge.base.errors import InputError
from fedgauge.base.files import UNREADABLE, Lines, find_files, read_file, read_lines, regular
from fedgauge.simulation.runs.manifest import MANIFEST, altered, digest, read_manifest, verified
from fedgauge.values import Round, Trace, Value
from fedgauge.values.answer import Answer
from fedgauge.values.display import Displayed


def seconds_of(data: Mapping[str, Any]) -> float:
    """The wall time in a line of ``timing.jsonl``."""
    return float(data["seconds"])


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Read one of a run's JSON files, which must be what the run wrote."""
    return parse_object(path, _read(path), remedy)


def parse_object(path: Path, content: bytes, remedy: str) -> dict[str, Any]:
    """The JSON object in one of a run's files."""
    try:
        data = parse_json(content)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise InputError(f"{path} is damaged; {remedy}.")
    return data


def _read(path: Path) -> bytes:
    try:
        return verified(path, read_file(path))
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}; name a directory that holds a finished run.") from None


def read_trace(path: str | Path) -> Trace:
    """Read a finished run, all of whose files must be what the run wrote."""
    path = Path(path)
    remedy = "resume the run to repair it"
    result = read_json(path / "result.json", remedy)
    settings = read_json(path / "settings.json", remedy)
    content = {name: _read(path / name) for name in ("rounds.jsonl", "model.safetensors", "timing.jsonl")}
    for name, what in altered(path, ["state_dict.safetensors"]).items():
        raise InputError(f"{path / name} {what}.")
    known = read_manifest(path)
    if not {"rounds.jsonl", "model.safetensors"} <= known.keys():
        raise InputError(f"{path / MANIFEST} does not list the files of a finished run; {remedy}.")
    rounds, timing = content["rounds.jsonl"], content["timing.jsonl"]
    # Lines that have the right digest need not be decoded before they are used.
    timed = timing.count(b"\n") if "timing.jsonl" in known else 0
    try:
        return Trace(
            settings=settings,
            status=result["status"],
            stopped_at=result["stopped_at"],
            rounds=read_lines(rounds, Round.from_json, str(path / "rounds.jsonl"), rounds.count(b"\n")),
            model=load(content["model.safetensors"])["model"],
            seconds=read_lines(timing, seconds_of, str(path / "timing.jsonl"), timed),
        )
    except (KeyError, SafetensorError):
        raise InputError(f"{path / 'result.json'} is damaged; {remedy}.") from None


T = TypeVar("T")

_BESIDE = (".lock", "environment.json", "rounds.jsonl")
"""A run has at least one of these beside its settings.json; other programs write files of that name too."""


@dataclass(frozen=True)
class FoundRun(Value, Displayed):
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
        note: what could not be read, or is not what the run wrote.
        events: workers that were lost or refused, if the workers ran on nodes of their own.
    """

    path: str
    status: str
    stopped_at: int
    settings: Mapping[str, Any]
    experiment: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    rounds: Sequence[Round] = ()
    seconds: Sequence[float] = ()
    note: str = ""
    events: tuple[Mapping[str, Any], ...] = ()

    @property
    def rerun_command(self) -> str:
        """The command that runs the experiment again from the same first model."""
        start = ["--at", f"{self.path}/start.safetensors"] if "start" in self.settings else []
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
            return _paced(steps, self.rounds, self.settings["algorithm"])
        each = sum(steps) / len(steps) if isinstance(steps, list) else math.nan if steps is None else steps
        return [record.round * each for record in self.rounds]


def answer_of(settings: Mapping[str, Any], rounds: Sequence[Round]) -> Answer | None:
    """The answer of the live gauge that chose a run's local steps; None if there was none."""
    steps = settings.get("local_steps")
    if not isinstance(steps, Mapping) or steps.get("name") != LIVE:
        return None
    from fedgauge.algorithms.live.gauge import replayed as replayed_gauge  # waits for scipy's optimisers

    return replayed_gauge(steps, {record.round: record.loss for record in rounds}).answer()


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


def _paced(settings: Mapping[str, Any], rounds: Sequence[Round], algorithm: Mapping[str, Any]) -> list[float]:
    """Local steps before each record of a run with a pace.

    Rounds between two records have the local steps of the later record. The last record has none of its own: the rounds
    before it have those that the record before it decided.
    """
    if settings.get("name") == LIVE:
        steps = [float(record.taken or 0) for record in rounds]
        return [sum(steps[:number]) for number in range(len(steps))]
    if (rule := from_settings(settings)) is not None:
        rate = rate_for(rule, algorithm["name"], algorithm)
        places = replayed(rule, rate, rounds, rounds[-1].round if rounds else 0)
        return [float(places[record.round].taken) for record in rounds]
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
    digests = _check_files(path, model, notes)
    settings = _settings(path / "settings.json", notes)
    result = _object(path / "result.json", notes) if (path / "result.json").exists() else {}
    if result and not (isinstance(result.get("status"), str) and isinstance(result.get("stopped_at"), int)):
        notes.append("result.json is damaged")
        result = {}
    # Before the records, which a run that is going on writes first.
    header = {} if result else _newest_checkpoint(path)
    content = {name: _content(path / name, notes) for name in ("rounds.jsonl", "timing.jsonl")}
    whole = {name: text.count(b"\n") if name in digests else 0 for name, text in content.items()}
    if header:
        whole["rounds.jsonl"] = _check_records(header, content["rounds.jsonl"], path, settings, notes)
    rounds = _lines(path / "rounds.jsonl", content["rounds.jsonl"], Round.from_json, notes, whole["rounds.jsonl"])
    seconds = _lines(path / "timing.jsonl", content["timing.jsonl"], seconds_of, notes, whole["timing.jsonl"])
    happened = path / "events.jsonl"
    events = _lines(happened, _content(happened, notes), dict, notes) if happened.exists() else ()
    return FoundRun(
        path=str(path),
        status=result.get("status", "unfinished"),
        stopped_at=result.get("stopped_at", rounds[-1].round if rounds else 0),
        settings=settings,
        experiment=_experiment(path / "experiment.toml", notes),
        environment=_object(path / "environment.json", notes),
        rounds=rounds,
        seconds=seconds if len(seconds) <= len(rounds) else seconds[: len(rounds)],
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


def _check_files(path: Path, model: bool, notes: list[str]) -> set[str]:
    """Note which files are not what the run wrote, and return the names of those that are."""
    try:
        names = [name for name in read_manifest(path) if model or not name.endswith(".safetensors")]
        problems = altered(path, names)
    except InputError as error:
        notes.append(str(error).removesuffix("."))
        return set()
    notes += [f"{name} {what}" for name, what in problems.items()]
    if not (path / MANIFEST).exists():
        notes.append(f"it has no {MANIFEST}, because an older version wrote it: changed settings would not be noticed")
    elif (path / "result.json").exists() and "rounds.jsonl" not in names:
        notes.append(f"{MANIFEST} does not list rounds.jsonl; resuming the run repairs it")
    return set(names) - set(problems)


def _newest_checkpoint(path: Path) -> Mapping[str, str]:
    """What the newest checkpoint says about the records before it; nothing if there is none that can be read."""
    for place in sorted((path / "checkpoints").glob("*.safetensors"), reverse=True):
        try:
            with safe_open(regular(place), framework="numpy") as file:
                return file.metadata() or {}
        except (OSError, SafetensorError):
            continue  # a run that is going on has deleted it
    return {}


def _check_records(
    header: Mapping[str, str], content: bytes, path: Path, settings: Mapping[str, Any], notes: list[str]
) -> int:
    """Check the records of an unfinished run against its newest checkpoint; return how many are known to be its own."""
    try:
        count = len(range(0, int(header["round"]), int(settings.get("record_every", 1))))
        owner = header.get("run")
        if owner not in (None, digest(read_file(path / "settings.json"))):
            notes.append("its newest checkpoint belongs to another run; resuming the run repairs it")
        own = content[: read_lines(content, dict, "", verified=content.count(b"\n")).end(count)]
        if digest(own) == header["rounds"]:
            return count
    except (OSError, *UNREADABLE):
        return 0  # resuming the run says what is wrong with the checkpoint
    notes.append(
        "rounds.jsonl is not what the run wrote: its newest checkpoint has another digest; resuming repairs it"
    )
    return 0


def _object(path: Path, notes: list[str]) -> dict[str, Any]:
    try:
        data = parse_json(read_file(path))
        if isinstance(data, dict):
            return data
        notes.append(f"{path.name} is damaged")
    except (OSError, *UNREADABLE):
        notes.append(f"{path.name} cannot be read")
    return {}


def _settings(path: Path, notes: list[str]) -> dict[str, Any]:
    """The settings of a run; none at all if those that every reader uses are not what a run writes."""
    settings = _object(path, notes)
    algorithm, steps = settings.get("algorithm", {"name": ""}), settings.get("local_steps")
    fits = isinstance(algorithm, Mapping) and isinstance(algorithm.get("name"), str)
    fits &= isinstance(settings.get("participation") or {}, Mapping)
    fits &= steps != [] and (not isinstance(steps, Mapping) or "name" in steps)
    if fits:
        return settings
    notes.append(f"{path.name} is damaged")
    return {}


def _experiment(path: Path, notes: list[str]) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        content = parse_toml(read_file(path).decode())
        if all(isinstance(section, Mapping) for section in content.values()):
            return content
        notes.append(f"{path.name} is damaged")
    except (OSError, *UNREADABLE):
        notes.append(f"{path.name} cannot be read")
    return {}


def _content(path: Path, notes: list[str]) -> bytes:
    try:
        return read_file(path)
    except OSError:
        notes.append(f"{path.name} cannot be read")
        return b""


def _lines(path: Path, content: bytes, decode: Callable[[Any], T], notes: list[str], whole: int = 0) -> Lines[T]:
    lines = read_lines(content, decode, str(path), whole)
    if lines.end(len(lines)) < len(content):
        notes.append(f"{path.name} is readable up to line {len(lines)}")
    return lines
