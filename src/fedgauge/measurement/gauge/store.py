"""What a gauge keeps on the way, so that an interrupted one is resumed, and so that large states are not in memory.

Every part has a digest of its content, of its name and of the gauge that it belongs to: a part that is not what this
gauge wrote is computed again, and a warning says so.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fedgauge.base.codec import parse_json
from fedgauge.base.errors import InputError
from fedgauge.base.files import UNREADABLE, make_directories, open_file, read_file, write_json
from fedgauge.simulation.runs.checkpoints import State, read_checkpoint, write_checkpoint

logger = logging.getLogger(__name__)

_SMALL = 2**23
"""States of up to this many bytes are held in memory where there is no directory."""
_SETTINGS = "settings"


class PartStore:
    """The finished parts of a gauge in a directory; without a directory, only the states of the base run are kept.

    Large states are then in a temporary directory: a gauge has two dozen, each of which is a model or more.

    Args:
        directory: the directory.
        settings: everything that determines the parts; a directory with parts of other settings is refused.
    """

    def __init__(self, directory: Path | None, settings: Mapping[str, Any]) -> None:
        self._directory = directory
        self._held: dict[int, State] = {}
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._lock: Any = None
        wanted = json.loads(json.dumps(settings))
        self._gauge = ""
        if directory is not None:
            self._begin(directory, wanted)
        self._gauge = _digest(wanted)

    def _begin(self, directory: Path, wanted: Mapping[str, Any]) -> None:
        try:
            make_directories(directory)
            self._lock = open_file(directory / ".lock", "ab")
        except OSError as error:
            raise InputError(
                f"Cannot keep the parts of a gauge in {directory}: {error.strerror}; name a directory that you can"
                " write to."
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise InputError(
                f"Another process is writing the gauge in {directory}; wait for it or choose another directory."
            ) from None
        known = self.read(_SETTINGS)
        if isinstance(known, Mapping) and known != wanted:
            self.close()
            different = next(name for name in {**known, **wanted} if known.get(name) != wanted.get(name))
            raise InputError(
                f"{directory} holds parts of a gauge with another {different}; choose another directory, or delete it."
            )
        self.write(_SETTINGS, wanted)

    def close(self) -> None:
        """Let other processes use the directory."""
        if self._lock is not None:
            self._lock.close()

    def read(self, name: str) -> Any:
        """A part that was finished; None if there is none that this gauge wrote."""
        if self._directory is None:
            return None
        path = self._directory / f"{name}.json"
        if not os.path.lexists(path):
            return None
        try:
            kept = parse_json(read_file(path))
            if kept["digest"] != self._digest(name, kept["content"]):
                raise ValueError("it is not what this gauge wrote")
        except (OSError, *UNREADABLE, RecursionError) as error:
            logger.warning("%s cannot be used (%s); it is computed again.", path, error)
            return None
        return kept["content"]

    def write(self, name: str, data: Any) -> None:
        """Keep a finished part."""
        if self._directory is not None:
            write_json(self._directory / f"{name}.json", {"digest": self._digest(name, data), "content": data})

    def _digest(self, name: str, content: Any) -> str:
        # The settings themselves are read to say in which way another gauge differs.
        return _digest([name, content] if name == _SETTINGS else [self._gauge, name, content])

    def once(self, name: str, compute: Callable[[], Any]) -> Any:
        """A part as JSON: the one that is kept, or a new one."""
        found = self.read(name)
        if found is None:
            found = compute()
            self.write(name, found)
        return found

    def read_state(self, step: int) -> State | None:
        """The state of the base run after a step; None if there is none that can be read."""
        if step in self._held or (self._directory or self._scratch) is None:
            return self._held.get(step)
        path = self._place(step)
        if not os.path.lexists(path):
            return None
        try:
            state, about = read_checkpoint(path)
            if about.get("gauge") != self._gauge or state.round != step:
                raise ValueError("it belongs to another gauge or step")
        except (OSError, SafetensorError, *UNREADABLE) as error:
            logger.warning("%s cannot be used (%s); it is computed again.", path, error)
            return None
        return state

    def write_state(self, step: int, state: State) -> None:
        """Keep the state of the base run after a step."""
        if self._directory is None and _size(state) <= _SMALL:
            self._held[step] = state
            return
        if self._directory is None and self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="fedgauge-gauge-")
        write_checkpoint(self._place(step), state, {"gauge": self._gauge})

    def forget_states(self) -> None:
        """Delete the states, which are large, once no more probes start from them."""
        self._held.clear()
        if self._directory is not None:
            for path in self._directory.glob("state-*.safetensors"):
                path.unlink()
        elif self._scratch is not None:
            self._scratch.cleanup()

    def _place(self, step: int) -> Path:
        where = self._directory or self._scratch
        assert where is not None
        return Path(where if isinstance(where, Path) else where.name) / f"state-{step:09d}.safetensors"


class StoredStates(Mapping[int, State]):
    """The states of a base run after some of its steps, each read when it is asked for."""

    def __init__(self, kept: PartStore, steps: list[int]) -> None:
        self._kept, self._steps = kept, steps

    def __getitem__(self, step: int) -> State:
        if step not in self._steps:
            raise KeyError(step)
        found = self._kept.read_state(step)
        if found is None:
            raise InputError(f"The state of the base run after {step} steps can no longer be read; gauge again.")
        return found

    def until(self, step: int) -> StoredStates:
        """The states after steps up to this one."""
        return StoredStates(self._kept, [each for each in self._steps if each <= step])

    def __iter__(self) -> Iterator[int]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)


def _size(state: State) -> int:
    """The bytes of a state's tensors."""
    return sum(tensor.nbytes for tensor in (state.model, *state.server.values(), *state.memory.values()))


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
