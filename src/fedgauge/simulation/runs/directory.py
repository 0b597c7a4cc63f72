"""A run on disk: settings, environment, append-only rounds, checkpoints and the final model.

    settings.json       the settings of the run; a resumed run must have the same ones
    experiment.toml     the experiment, if the run was made from one: 'fedgauge simulate' runs it again
    federation.json     fingerprints of the federation's parts, by which it is recognised, if it is one of data
    start.safetensors   the first model as a flat vector, if the caller chose it
    environment.json    versions, machine and command, for information only
    rounds.jsonl        one line per recorded round; repeating the run gives the same bytes
    timing.jsonl        the wall time of each of those lines
    checkpoints/        the two newest states, each with a digest of its content
    model.safetensors   the final model as a flat vector
    state_dict.safetensors  the final model with named parameters, if it is a torch module
    result.json         how the run ended; exists only once the run has ended
    manifest.json       digests of all these files, except the checkpoints, which have their own

Each file is written under a temporary name and then renamed, so a reader never sees half a file.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import save

from fedgauge.base.errors import InputError, MachineError
from fedgauge.base.files import (
    NO_SPACE,
    UNFINISHED,
    make_directories,
    make_directory,
    move,
    open_file,
    read_file,
    read_lines,
    remedy,
    sync_directory,
    write_atomically,
    write_json,
)
from fedgauge.base.terminal import command_line
from fedgauge.federation.identity import refuse_other_federation
from fedgauge.simulation.runs.checkpoints import State, read_checkpoint, write_checkpoint
from fedgauge.simulation.runs.manifest import MANIFEST, Log, digest, read_manifest, write_manifest
from fedgauge.simulation.runs.reader import parse_object, read_trace, seconds_of
from fedgauge.values import Round, Trace

logger = logging.getLogger(__name__)

_KEPT_CHECKPOINTS = 2
_BY_NODES = ("events.jsonl", "noise.jsonl")
"""Files that a run writes whose workers are on nodes of their own."""
_MISMATCH = {
    "rounds": "rounds before it were changed in rounds.jsonl",
    "timing": "rounds before it were changed in timing.jsonl",
    "run": "it belongs to another run",
}


def _environment() -> dict[str, Any]:
    return {
        "command": command_line(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("fedgauge", "torch", "numpy", "safetensors")},
    }


class RunDirectory:
    """One run's directory, locked against a second writer while it is open."""

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, Any],
        resume: bool,
        description: str | None = None,
        start: torch.Tensor | None = None,
        federation: Mapping[str, Any] | None = None,
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
            _check(path, settings, resume, federation)
            # Checkpoints of older versions, which wrote no manifest, do not say which run they belong to.
            self._older = (path / "settings.json").exists() and not (path / MANIFEST).exists()
            self._describe(settings, description, start, federation)
            make_directory(path / "checkpoints")
            for place in (path, path / "checkpoints"):
                for unfinished in place.glob(f".*{UNFINISHED}"):
                    unfinished.unlink()
            self._rounds = Log(path / "rounds.jsonl")
            try:
                self._timing = Log(path / "timing.jsonl")
            except OSError:
                self._rounds.close()
                raise
            sync_directory(path)
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._rounds, self._timing, self._lock):
            file.close()

    def _describe(
        self,
        settings: Mapping[str, Any],
        description: str | None,
        start: torch.Tensor | None,
        federation: Mapping[str, Any] | None,
    ) -> None:
        """Write the files that describe the run, and write those again that were changed since it began."""
        files = {"settings.json": _json(settings)}
        if description is not None:
            files["experiment.toml"] = description.encode()
        if federation is not None:
            files["federation.json"] = _json(federation)
        if start is not None:
            files["start.safetensors"] = save({"model": start.cpu().contiguous()})
        try:
            digests = read_manifest(self.path)
        except InputError as error:
            logger.warning("%s", error)
            digests = {}
        self._digests: dict[str, str] = {}
        for name, content in files.items():
            saved = _found(self.path / name)
            if saved is None or digest(saved) != digests.get(name, digest(saved)):
                if name in digests:
                    logger.warning("%s is not what the run wrote; it is written again.", self.path / name)
                write_atomically(self.path / name, content)
                saved = content
            self._digests[name] = digest(saved)
        if not (self.path / "environment.json").exists():
            write_json(self.path / "environment.json", _environment())
            digests.pop("environment.json", None)
        for name in ("experiment.toml", "federation.json", "start.safetensors", "environment.json"):
            if name not in self._digests and (known := digests.get(name) or _digest_of(self.path / name)):
                self._digests[name] = known
        if digests.items() >= self._digests.items():
            return  # it may be the manifest of a run that has ended
        write_manifest(self.path, {**digests, **self._digests})

    def restate(self, settings: Mapping[str, Any]) -> None:
        """Replace the settings, if some of them are only known at the end of the run."""
        content = _json(settings)
        write_atomically(self.path / "settings.json", content)
        self._digests["settings.json"] = digest(content)

    @classmethod
    def open(
        cls,
        path: str | Path,
        settings: Mapping[str, Any],
        resume: bool = False,
        description: str | None = None,
        start: torch.Tensor | None = None,
        federation: Mapping[str, Any] | None = None,
    ) -> Self:
        """Begin a run in a new or empty directory, or resume the run that is there.

        Args:
            path: the directory.
            settings: the settings of the run.
            resume: resume the run in ``path``, which must have the same settings; begin it if there is none.
            description: the experiment as TOML, saved beside the settings.
            start: the first model, if the caller chose it; saved too, because the experiment does not contain it.
            federation: what the federation is recognised by, beside the digest in the settings.
        """
        path = Path(path)
        try:
            _check(path, settings, resume, federation)
            make_directories(path)
            return cls(path, settings, resume, description, start, federation)
        except OSError as error:
            if error.errno in (*NO_SPACE, errno.EFBIG):
                raise MachineError(f"Cannot begin the run in {path}: {error.strerror}; {remedy(error)}.") from None
            raise InputError(
                f"Cannot keep a run in {path}: {error.strerror}; name a directory that you can write to."
            ) from None

    def append(self, record: Round, seconds: float | None) -> None:
        """Add a round, and its time if that is known; when this returns, the operating system has the line."""
        with self._stopping():
            self._rounds.append(record.round, record.to_json())
            if seconds is not None:
                self._timing.append(record.round, {"round": record.round, "seconds": seconds})

    def checkpoint(self, state: State) -> None:
        """Save a state and delete all but the newest checkpoints."""
        about = {
            "rounds": self._rounds.digest_before(state.round),
            "timing": self._timing.digest_before(state.round),
            "run": self._digests["settings.json"],
        }
        with self._stopping():
            self._rounds.sync()
            self._timing.sync()
            write_checkpoint(self._checkpoint_path(state.round), state, about)
        for old in self._checkpoints()[_KEPT_CHECKPOINTS:]:
            old.unlink()

    def restore(self, record_every: int) -> tuple[State | None, list[Round], list[float]]:
        """The newest undamaged state and the rounds before it; None as the state if the run has to begin again.

        A damaged checkpoint is logged and renamed, and the one before it is used. Rounds after the state are cut from
        the files: they are run again, and give the same bits.
        """
        # A run that is being repaired has not ended: an interruption must not leave it looking finished.
        (self.path / "result.json").unlink(missing_ok=True)
        write_manifest(self.path, self._digests)
        written = {"rounds": self._rounds.content(), "timing": self._timing.content()}
        rounds = read_lines(written["rounds"], Round.from_json, "rounds.jsonl")
        timing = read_lines(written["timing"], seconds_of, "timing.jsonl")
        state, count = None, 0
        paths = self._checkpoints()
        for index, path in enumerate(paths):
            try:
                restored, about = read_checkpoint(path)
                count = len(range(0, restored.round, record_every))
                if min(len(rounds), len(timing)) < count:
                    raise ValueError("rounds before it are missing from rounds.jsonl or timing.jsonl")
                own = {
                    "rounds": digest(written["rounds"][: rounds.end(count)]),
                    "timing": digest(written["timing"][: timing.end(count)]),
                    "run": self._digests["settings.json"],
                }
                for name in own if not self._older else own.keys() & about.keys() | {"rounds"}:
                    if about[name] != own[name]:
                        raise ValueError(_MISMATCH[name])
            except (OSError, SafetensorError, ValueError, KeyError) as error:
                last = index + 1 == len(paths)
                instead = "beginning the run again" if last else f"using {paths[index + 1].name}, the one before it"
                logger.warning("The checkpoint %s is damaged (%s); %s.", path, error, instead)
                # Under its own name it would count as the newest one and crowd out undamaged ones.
                move(path, path.with_suffix(".damaged"))
                count = 0
                continue
            state = restored
            break
        self._rounds.cut(written["rounds"][: rounds.end(count)])
        self._timing.cut(written["timing"][: timing.end(count)])
        return state, list(rounds[:count]), list(timing[:count])

    def finish(self, trace: Trace, named: Mapping[str, torch.Tensor] | None = None) -> None:
        """Write the final model, flat and, if its parameters have names, as a state_dict; then how the run ended."""
        model = save({"model": torch.from_numpy(trace.model).contiguous()}, {"round": str(trace.stopped_at)})
        files = {"model.safetensors": model}
        if named:
            files["state_dict.safetensors"] = save(dict(named))
        result = _json({"status": trace.status, "stopped_at": trace.stopped_at})
        digests = {name: digest(content) for name, content in {**files, "result.json": result}.items()}
        with self._stopping():
            for name, content in files.items():
                write_atomically(self.path / name, content)
            for log in (self._rounds, self._timing):
                log.sync()
                if digest(log.content()) != log.digest:
                    log.refuse()
                digests[log.path.name] = log.digest
            for name in _BY_NODES:
                if known_digest := _digest_of(self.path / name):
                    digests[name] = known_digest
            write_manifest(self.path, {**self._digests, **digests})
            # Last, because its presence says that the run has ended.
            write_atomically(self.path / "result.json", result)

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

    def ended(self) -> Trace | None:
        """The run, if it has ended and its files are undamaged; damage is logged."""
        if not (self.path / "result.json").exists():
            return None
        try:
            return read_trace(self.path)
        except InputError as error:
            logger.warning("%s Resuming from the last undamaged checkpoint.", error)
            return None

    def _checkpoint_path(self, round: int) -> Path:
        return self.path / "checkpoints" / f"{round:09d}.safetensors"

    def _checkpoints(self) -> list[Path]:
        """The checkpoints, newest first."""
        return sorted((self.path / "checkpoints").glob("*.safetensors"), reverse=True)


def _check(path: Path, settings: Mapping[str, Any], resume: bool, federation: Mapping[str, Any] | None = None) -> None:
    """Refuse a directory in which this run can be neither begun nor resumed."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; name a directory for the run.")
    settings_file = path / "settings.json"
    if settings_file.exists():
        if not resume:
            raise InputError(
                f"{path} already holds a run; resume it with Keep(..., resume=True) or choose another directory."
            )
        if federation is not None and (other := _federation_of(path)) is not None:
            refuse_other_federation(path, other, federation)
        known, content = _digest_known(path), read_file(settings_file)
        if known == digest(_json(settings)):
            return  # whatever the file says now: it is written again
        if known not in (None, digest(content)):
            raise InputError(
                f"{settings_file} is not what the run wrote, and these settings are not the run's own; resume it with"
                " its own settings to repair the file, or choose another directory."
            )
        _refuse_other(path, parse_object(settings_file, content, "begin the run in another directory"), settings)
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


def _json(data: Mapping[str, Any]) -> bytes:
    return (json.dumps(dict(data), indent=2) + "\n").encode()


def _found(path: Path) -> bytes | None:
    return read_file(path) if path.exists() else None


def _digest_of(path: Path) -> str | None:
    content = _found(path)
    return None if content is None else digest(content)


def _federation_of(path: Path) -> Mapping[str, Any] | None:
    """What the run's federation was described as; nothing if that was changed, and will be written again."""
    content = _found(path / "federation.json")
    if content is None or _digest_known(path, "federation.json") != digest(content):
        return None
    return parse_object(path / "federation.json", content, "begin the run in another directory")


def _digest_known(path: Path, name: str = "settings.json") -> str | None:
    """The digest of the run's settings, or of another file, if its manifest can be read."""
    try:
        return read_manifest(path).get(name)
    except InputError:
        return None
