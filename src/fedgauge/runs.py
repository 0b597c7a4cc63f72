"""A run on disk: settings, environment, append-only rounds, checkpoints and the final model.

    settings.json       what was asked; a resumed run must ask the same
    environment.json    versions, machine and command, for the record
    rounds.jsonl        one line a recorded round, the same bits whenever the run is repeated
    timing.jsonl        wall time of each of those lines
    checkpoints/        the two newest states, each with a digest of its content
    model.safetensors   the final model
    result.json         how the run ended; its presence means that it did

Files are written beside their place and then moved into it, so a reader never sees half a file.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from fedgauge.errors import InputError
from fedgauge.values import Round, Trace

logger = logging.getLogger(__name__)

_KEPT_CHECKPOINTS = 2


@dataclass(frozen=True)
class State:
    """Everything that the next round needs; randomness is addressed, so no generator is part of it."""

    round: int
    model: torch.Tensor
    server: Mapping[str, torch.Tensor]
    memory: Mapping[str, torch.Tensor]


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, even if the machine stops."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file whole or not at all."""
    write_atomically(path, (json.dumps(data, indent=2) + "\n").encode())


def _digest(round: int, tensors: Mapping[str, torch.Tensor]) -> str:
    sha = hashlib.sha256(str(round).encode())
    for name in sorted(tensors):
        sha.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        sha.update(tensors[name].contiguous().numpy().tobytes())
    return sha.hexdigest()


def _environment() -> dict[str, Any]:
    return {
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("fedgauge", "torch", "numpy", "safetensors")},
    }


class RunDirectory:
    """One run's directory, locked against a second writer while it is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        # The system drops the lock with the process, however it ends.
        self._lock = (path / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise InputError(f"Another process is writing the run in {path}; wait for it or choose another.") from None
        self._rounds = (path / "rounds.jsonl").open("ab")
        self._timing = (path / "timing.jsonl").open("ab")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._rounds, self._timing, self._lock):
            file.close()

    @classmethod
    def open(cls, path: str | Path, settings: Mapping[str, Any], resume: bool = False) -> Self:
        """Begin a run in a new or empty directory, or go on with the one that is there.

        Args:
            path: the directory.
            settings: what is asked.
            resume: go on with the run in ``path``, which must have been asked the same; begin it if there is none.
        """
        path = Path(path)
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is a file; name a directory for the run.")
        found = path / "settings.json"
        if found.exists():
            if not resume:
                raise InputError(f"{path} already holds a run; resume it (--resume) or choose another directory.")
            old = read_json(found)
            differing = [key for key in {**old, **settings} if old.get(key) != settings.get(key)]
            if differing:
                key = differing[0]
                raise InputError(
                    f"The run in {path} has {key} = {old.get(key)!r}, not {settings.get(key)!r};"
                    " resume it with the same settings or choose another directory."
                )
            return cls(path)
        # A process killed at its first moment may leave a hidden file behind, and nothing else.
        if path.exists() and any(not item.name.startswith(".") for item in path.iterdir()):
            raise InputError(f"{path} holds files but no run; choose an empty or new directory.")
        path.mkdir(parents=True, exist_ok=True)
        write_json(found, dict(settings))
        write_json(path / "environment.json", _environment())
        return cls(path)

    def append(self, record: Round, seconds: float) -> None:
        """Add a round; the line has reached the system before this returns."""
        for file, data in (
            (self._rounds, record.to_json()),
            (self._timing, {"round": record.round, "seconds": seconds}),
        ):
            file.write(json.dumps(data).encode() + b"\n")
            file.flush()

    def checkpoint(self, state: State) -> None:
        """Save a state and drop all but the newest ones."""
        os.fsync(self._rounds.fileno())
        tensors = {"model": state.model}
        tensors |= {f"server.{name}": tensor for name, tensor in state.server.items()}
        tensors |= {f"memory.{name}": tensor for name, tensor in state.memory.items()}
        metadata = {"round": str(state.round), "sha256": _digest(state.round, tensors)}
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        write_atomically(self._checkpoint_path(state.round), save(contiguous, metadata))
        for old in self._checkpoints()[_KEPT_CHECKPOINTS:]:
            old.unlink()

    def restore(self, record_every: int) -> tuple[State | None, list[Round], list[float]]:
        """The newest sound state with the rounds before it; no state where the run has to begin again.

        A damaged checkpoint is named in the log and the one before it is used. Rounds after the state are cut from
        the files: they are run again, to the same bits.
        """
        rounds, timing = (read_lines(self.path / name) for name in ("rounds.jsonl", "timing.jsonl"))
        for path in self._checkpoints():
            try:
                state = _read_checkpoint(path)
                kept = len(range(0, state.round, record_every))
                if min(len(rounds), len(timing)) < kept:
                    raise ValueError("rounds before it are missing from rounds.jsonl")
            except (OSError, SafetensorError, ValueError, KeyError) as error:
                logger.warning("%s is damaged (%s); using the checkpoint before it.", path, error)
                continue
            break
        else:
            state, kept = None, 0
        for file, lines in ((self._rounds, rounds), (self._timing, timing)):
            file.truncate(lines[kept - 1].end if kept else 0)
        records = [Round.from_json(line.data) for line in rounds[:kept]]
        return state, records, [float(line.data["seconds"]) for line in timing[:kept]]

    def finish(self, trace: Trace) -> None:
        """Write the final model, then how the run ended."""
        model = {"model": torch.from_numpy(trace.model).contiguous()}
        write_atomically(self.path / "model.safetensors", save(model, {"round": str(trace.stopped_at)}))
        write_json(self.path / "result.json", {"status": trace.status, "stopped_at": trace.stopped_at})

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end."""
        return (self.path / "result.json").exists()

    def _checkpoint_path(self, round: int) -> Path:
        return self.path / "checkpoints" / f"{round:09d}.safetensors"

    def _checkpoints(self) -> list[Path]:
        """Newest first."""
        return sorted((self.path / "checkpoints").glob("*.safetensors"), reverse=True)


def _read_checkpoint(path: Path) -> State:
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    round = int(metadata["round"])
    if metadata["sha256"] != _digest(round, tensors):
        raise ValueError("its content does not match its digest")
    parts: dict[str, dict[str, torch.Tensor]] = {"server": {}, "memory": {}}
    for name, tensor in tensors.items():
        if name != "model":
            part, _, key = name.partition(".")
            parts[part][key] = tensor
    return State(round, tensors["model"], parts["server"], parts["memory"])


class Line(NamedTuple):
    """A line of a file that is appended to: its content, and where it ends."""

    data: dict[str, Any]
    end: int


def read_lines(path: Path) -> list[Line]:
    """The sound lines of a file that is appended to, up to the first that was cut short or damaged."""
    lines: list[Line] = []
    end = 0
    for text in path.read_bytes().split(b"\n")[:-1]:
        end += len(text) + 1
        try:
            lines.append(Line(json.loads(text), end))
        except ValueError:
            break
    return lines


def read_json(path: Path) -> dict[str, Any]:
    """Read one of a run's JSON files."""
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}; name a directory that holds a run.") from None
    except ValueError:
        raise InputError(f"{path} is damaged; the run cannot be resumed, begin it in another directory.") from None
    return data


def read_trace(path: str | Path) -> Trace:
    """Read a finished run."""
    path = Path(path)
    result = read_json(path / "result.json")
    with safe_open(path / "model.safetensors", framework="np") as file:
        model = file.get_tensor("model")
    return Trace(
        settings=read_json(path / "settings.json"),
        status=result["status"],
        stopped_at=result["stopped_at"],
        rounds=tuple(Round.from_json(line.data) for line in read_lines(path / "rounds.jsonl")),
        model=model,
        seconds=tuple(float(line.data["seconds"]) for line in read_lines(path / "timing.jsonl")),
    )
