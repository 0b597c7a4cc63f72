"""What a gauge saves while it goes on, so that an interrupted one is resumed.

Every part has a digest of its content, of its name and of the gauge that it belongs to: a part that is not what this
gauge wrote is computed again, and a warning says so.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fedgauge.base.codec import parse_json
from fedgauge.base.errors import InputError
from fedgauge.base.files import UNREADABLE, make_directories, open_file, read_file, write_json
from fedgauge.simulation.runs.checkpoints import State, read_checkpoint, write_checkpoint

logger = logging.getLogger(__name__)

_SETTINGS = "settings"


class PartStore:
    """The parts of a gauge in a directory.

    Args:
        directory: the directory; without one, nothing is kept.
        settings: everything that determines the parts; a directory with parts of other settings is refused.
    """

    def __init__(self, directory: Path | None, settings: Mapping[str, Any]) -> None:
        self._directory = directory
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
        content = self.read(name)
        if content is None:
            content = compute()
            self.write(name, content)
        return content

    def read_state(self, name: str, round: int) -> State | None:
        """The state of a run after a round; None if there is none that can be read."""
        path = self._place(name)
        if path is None or not os.path.lexists(path):
            return None
        try:
            state, about = read_checkpoint(path)
            if about.get("gauge") != self._gauge or state.round != round:
                raise ValueError("it belongs to another gauge or round")
        except (OSError, SafetensorError, *UNREADABLE) as error:
            logger.warning("%s cannot be used (%s); it is computed again.", path, error)
            return None
        return state

    def write_state(self, name: str, state: State) -> None:
        """Keep the state of an unfinished run."""
        if (path := self._place(name)) is not None:
            write_checkpoint(path, state, {"gauge": self._gauge})

    def forget_state(self, name: str) -> None:
        """Delete the state of a run that has ended."""
        if (path := self._place(name)) is not None:
            path.unlink(missing_ok=True)

    def _place(self, name: str) -> Path | None:
        return None if self._directory is None else self._directory / f"{name}.safetensors"


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
