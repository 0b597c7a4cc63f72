"""A run on disk: settings, environment, append-only rounds, checkpoints and the final model.

    settings.json       the settings of the run; a resumed run must have the same ones
    experiment.toml     the experiment, if the run was made from one: 'fedgauge simulate' runs it again
    start.safetensors   the first model as a flat vector, if the caller chose it
    environment.json    versions, machine and command, for information only
    rounds.jsonl        one line per recorded round; repeating the run gives the same bytes
    timing.jsonl        the wall time of each of those lines
    checkpoints/        the two newest states, each with a digest of its content
    model.safetensors   the final model as a flat vector
    state_dict.safetensors  the final model with named parameters, if it is a torch module
    result.json         how the run ended, with digests of rounds and model; exists only once the run has ended

Each file is written under a temporary name and then renamed, so a reader never sees half a file.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import platform
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load
from safetensors.torch import save

from fedgauge.codec import parse_json
from fedgauge.errors import InputError, MachineError
from fedgauge.system.command_line import command_line
from fedgauge.system.files import (
    NO_SPACE,
    UNFINISHED,
    make_directories,
    make_directory,
    move,
    open_file,
    read_file,
    read_lines,
    regular,
    remedy,
    sync_directory,
    write_atomically,
    write_json,
)
from fedgauge.values import Round, Trace

logger = logging.getLogger(__name__)

_KEPT_CHECKPOINTS = 2


@dataclass(frozen=True)
class State:
    """Everything that the next round needs; randomness is addressed, so no generator is part of it.

    Attributes:
        round: the number of finished rounds.
        model: the global model.
        server: what the server remembers.
        memory: what the workers remember, one row per worker.
        sound: the model of the last record, which becomes the final model if the run diverges; None if it is ``model``.
    """

    round: int
    model: torch.Tensor
    server: Mapping[str, torch.Tensor]
    memory: Mapping[str, torch.Tensor]
    sound: torch.Tensor | None = None


def _digest(round: int, tensors: Mapping[str, torch.Tensor]) -> str:
    sha = hashlib.sha256(str(round).encode())
    for name in sorted(tensors):
        sha.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        sha.update(tensors[name].contiguous().cpu().numpy().tobytes())
    return sha.hexdigest()


def _environment() -> dict[str, Any]:
    return {
        "command": command_line(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("fedgauge", "torch", "numpy", "safetensors")},
    }


def _write(file: IO[bytes], content: bytes) -> None:
    """Write the whole content; the system may accept only a part per call."""
    while content:
        content = content[file.write(content) :]


class RunDirectory:
    """One run's directory, locked against a second writer while it is open."""

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, Any],
        resume: bool,
        description: str | None = None,
        start: torch.Tensor | None = None,
    ) -> None:
        self.path = path
        # The system drops the lock with the process, however it ends.
        self._lock = open_file(path / ".lock", "ab")
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(
                    f"Another process is writing the run in {path}; wait for it or choose another directory."
                ) from None
            # Check again, now that the lock keeps everybody else from beginning a run here.
            _check(path, settings, resume)
            if not (path / "settings.json").exists():
                write_json(path / "settings.json", dict(settings))
            if description is not None and not (path / "experiment.toml").exists():
                write_atomically(path / "experiment.toml", description.encode())
            if start is not None and not (path / "start.safetensors").exists():
                write_atomically(path / "start.safetensors", save({"model": start.cpu().contiguous()}))
            if not (path / "environment.json").exists():
                write_json(path / "environment.json", _environment())
            make_directory(path / "checkpoints")
            for place in (path, path / "checkpoints"):
                for unfinished in place.glob(f".*{UNFINISHED}"):
                    unfinished.unlink()
            # Without a buffer, so that closing the file does not retry a write that failed.
            self._rounds = open_file(path / "rounds.jsonl", "ab", buffering=0)
            try:
                self._timing = open_file(path / "timing.jsonl", "ab", buffering=0)
            except OSError:
                self._rounds.close()
                raise
            sync_directory(path)
        except BaseException:
            self._lock.close()
            raise
        self._begin_digest(b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._rounds, self._timing, self._lock):
            file.close()

    @classmethod
    def open(
        cls,
        path: str | Path,
        settings: Mapping[str, Any],
        resume: bool = False,
        description: str | None = None,
        start: torch.Tensor | None = None,
    ) -> Self:
        """Begin a run in a new or empty directory, or resume the run that is there.

        Args:
            path: the directory.
            settings: the settings of the run.
            resume: resume the run in ``path``, which must have the same settings; begin it if there is none.
            description: the experiment as TOML, saved beside the settings.
            start: the first model, if the caller chose it; saved too, because the experiment does not contain it.
        """
        path = Path(path)
        try:
            _check(path, settings, resume)
            make_directories(path)
            return cls(path, settings, resume, description, start)
        except OSError as error:
            if error.errno in (*NO_SPACE, errno.EFBIG):
                raise MachineError(f"Cannot begin the run in {path}: {error.strerror}; {remedy(error)}.") from None
            raise InputError(
                f"Cannot keep a run in {path}: {error.strerror}; name a directory that you can write to."
            ) from None

    def _begin_digest(self, content: bytes) -> None:
        self._sha = hashlib.sha256(content)
        # The digests after the last two lines: the checkpoint of an interrupted round must not count that round's line.
        self._digests = deque([(-1, self._sha.hexdigest())], maxlen=2)

    def append(self, record: Round, seconds: float) -> None:
        """Add a round; when this returns, the operating system has the line."""
        line = json.dumps(record.to_json()).encode() + b"\n"
        timing = json.dumps({"round": record.round, "seconds": seconds}).encode() + b"\n"
        with self._stopping():
            for file, content in ((self._rounds, line), (self._timing, timing)):
                _write(file, content)
        self._sha.update(line)
        self._digests.append((record.round, self._sha.hexdigest()))

    def checkpoint(self, state: State) -> None:
        """Save a state and delete all but the newest checkpoints."""
        rounds = next(digest for round, digest in reversed(self._digests) if round < state.round)
        tensors = {"model": state.model}
        if state.sound is not None and state.sound is not state.model:
            tensors["sound"] = state.sound
        tensors |= {f"server.{name}": tensor for name, tensor in state.server.items()}
        tensors |= {f"memory.{name}": tensor for name, tensor in state.memory.items()}
        metadata = {"round": str(state.round), "sha256": _digest(state.round, tensors), "rounds": rounds}
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        with self._stopping():
            for file in (self._rounds, self._timing):
                os.fsync(file.fileno())
            write_atomically(self._checkpoint_path(state.round), save(contiguous, metadata))
        for old in self._checkpoints()[_KEPT_CHECKPOINTS:]:
            old.unlink()

    def restore(self, record_every: int) -> tuple[State | None, list[Round], list[float]]:
        """The newest undamaged state and the rounds before it; None as the state if the run has to begin again.

        A damaged checkpoint is logged and renamed, and the one before it is used. Rounds after the state are cut from
        the files: they are run again, and give the same bits.
        """
        # A run that is being repaired has not ended: an interruption must not leave it looking finished.
        (self.path / "result.json").unlink(missing_ok=True)
        content = read_file(self.path / "rounds.jsonl")
        rounds = read_lines(content, Round.from_json)
        timing = read_lines(read_file(self.path / "timing.jsonl"), _seconds)
        state, kept = None, 0
        paths = self._checkpoints()
        for index, path in enumerate(paths):
            try:
                found, digest = _read_checkpoint(path)
                kept = len(range(0, found.round, record_every))
                if min(len(rounds), len(timing)) < kept:
                    raise ValueError("rounds before it are missing from rounds.jsonl or timing.jsonl")
                if digest != hashlib.sha256(content[: rounds[kept - 1].end if kept else 0]).hexdigest():
                    raise ValueError("rounds before it were changed in rounds.jsonl")
            except (OSError, SafetensorError, ValueError, KeyError) as error:
                last = index + 1 == len(paths)
                remedy = "beginning the run again" if last else f"using {paths[index + 1].name}, the one before it"
                logger.warning("The checkpoint %s is damaged (%s); %s.", path, error, remedy)
                # Under its own name it would count as the newest one and crowd out undamaged ones.
                move(path, path.with_suffix(".damaged"))
                kept = 0
                continue
            state = found
            break
        end = rounds[kept - 1].end if kept else 0
        self._rounds.truncate(end)
        self._timing.truncate(timing[kept - 1].end if kept else 0)
        self._begin_digest(content[:end])
        return state, [line.data for line in rounds[:kept]], [line.data for line in timing[:kept]]

    def finish(self, trace: Trace, named: Mapping[str, torch.Tensor] | None = None) -> None:
        """Write the final model, flat and, if its parameters have names, as a state_dict; then how the run ended."""
        model = save({"model": torch.from_numpy(trace.model).contiguous()}, {"round": str(trace.stopped_at)})
        digests = {"rounds.jsonl": self._digests[-1][1], "model.safetensors": hashlib.sha256(model).hexdigest()}
        ending = {"status": trace.status, "stopped_at": trace.stopped_at, "sha256": digests}
        with self._stopping():
            write_atomically(self.path / "model.safetensors", model)
            if named:
                write_atomically(self.path / "state_dict.safetensors", save(dict(named)))
            os.fsync(self._rounds.fileno())
            write_json(self.path / "result.json", ending)

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """Stop the run with one sentence if the disk refuses a write; earlier records stay readable."""
        try:
            yield
        except OSError as error:
            raise MachineError(
                f"The run in {self.path} stopped: {error.strerror}; its records so far are readable"
                f" ('fedgauge runs show'): {remedy(error)}, then repeat the command with --resume."
            ) from None

    @property
    def finished(self) -> bool:
        """Whether the run has ended and its files are undamaged; damage is logged."""
        if not (self.path / "result.json").exists():
            return False
        try:
            read_trace(self.path)
        except InputError as error:
            logger.warning("%s Resuming from the last undamaged checkpoint.", error)
            return False
        return True

    def _checkpoint_path(self, round: int) -> Path:
        return self.path / "checkpoints" / f"{round:09d}.safetensors"

    def _checkpoints(self) -> list[Path]:
        """The checkpoints, newest first."""
        return sorted((self.path / "checkpoints").glob("*.safetensors"), reverse=True)


def _check(path: Path, settings: Mapping[str, Any], resume: bool) -> None:
    """Refuse a directory in which this run can be neither begun nor resumed."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; name a directory for the run.")
    found = path / "settings.json"
    if found.exists():
        if not resume:
            raise InputError(
                f"{path} already holds a run; resume it with Keep(..., resume=True) or choose another directory."
            )
        _refuse_other(path, read_json(found, "begin the run in another directory"), settings)
    # A process that is killed right at its start may leave hidden files behind, and nothing else.
    elif path.exists() and any(not item.name.startswith(".") for item in path.iterdir()):
        raise InputError(f"{path} holds files but no run; choose an empty or new directory.")


def _refuse_other(path: Path, old: Any, new: Any, name: str = "") -> None:
    """Refuse settings that differ from those of the run, naming the first difference."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in {**old, **new}:
            _refuse_other(path, old.get(key), new.get(key), f"{name} {key}")
    elif old != new:
        raise InputError(
            f"The run in {path} has{name} = {old!r}, not {new!r};"
            " resume it with the same settings or choose another directory."
        )


def _seconds(data: Mapping[str, Any]) -> float:
    return float(data["seconds"])


def _read_checkpoint(path: Path) -> tuple[State, str]:
    """The state, and the digest of the rounds before it."""
    with safe_open(regular(path), framework="pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    round = int(metadata["round"])
    if metadata["sha256"] != _digest(round, tensors):
        raise ValueError("its content does not match its digest")
    parts: dict[str, dict[str, torch.Tensor]] = {"server": {}, "memory": {}}
    for name, tensor in tensors.items():
        if name not in ("model", "sound"):
            part, _, key = name.partition(".")
            parts[part][key] = tensor
    state = State(round, tensors["model"], parts["server"], parts["memory"], tensors.get("sound"))
    return state, metadata["rounds"]


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Read one of a run's JSON files."""
    content = _read(path)
    try:
        data = parse_json(content)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise InputError(f"{path} is damaged; {remedy}.")
    return data


def _read(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}; name a directory that holds a finished run.") from None


def read_trace(path: str | Path) -> Trace:
    """Read a finished run."""
    path = Path(path)
    remedy = "resume the run to repair it"
    result = read_json(path / "result.json", remedy)
    content = {name: _read(path / name) for name in ("rounds.jsonl", "model.safetensors", "timing.jsonl")}
    try:
        for name, digest in result["sha256"].items():
            if hashlib.sha256(content[name]).hexdigest() != digest:
                raise InputError(f"{path / name} is damaged; {remedy}.")
        return Trace(
            settings=read_json(path / "settings.json", remedy),
            status=result["status"],
            stopped_at=result["stopped_at"],
            rounds=tuple(line.data for line in read_lines(content["rounds.jsonl"], Round.from_json)),
            model=load(content["model.safetensors"])["model"],
            seconds=tuple(line.data for line in read_lines(content["timing.jsonl"], _seconds)),
        )
    except (KeyError, AttributeError):
        raise InputError(f"{path / 'result.json'} is damaged; {remedy}.") from None
