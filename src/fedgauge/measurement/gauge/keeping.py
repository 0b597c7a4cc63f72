"""What a gauge keeps on the way, so that an interrupted one is resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fedgauge.errors import InputError
from fedgauge.runs.checkpoints import State, read_checkpoint, write_checkpoint
from fedgauge.system.files import write_json


class Kept:
    """The finished parts of a gauge in a directory; without a directory, nothing is kept.

    Args:
        directory: the directory.
        settings: everything that determines the parts; a directory with parts of other settings is refused.
    """

    def __init__(self, directory: Path | None, settings: Mapping[str, Any]) -> None:
        self._directory = directory
        if directory is None:
            return
        directory.mkdir(parents=True, exist_ok=True)
        known, wanted = self.read("settings"), json.loads(json.dumps(settings))
        if known is not None and known != wanted:
            different = next(name for name in {**known, **wanted} if known.get(name) != wanted.get(name))
            raise InputError(
                f"{directory} holds parts of a gauge with another {different}; choose another directory, or delete it."
            )
        self.write("settings", wanted)

    def read(self, name: str) -> Any:
        """A part that was finished; None if there is none that can be read."""
        if self._directory is None:
            return None
        try:
            return json.loads((self._directory / f"{name}.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return None

    def write(self, name: str, data: Any) -> None:
        """Keep a finished part."""
        if self._directory is not None:
            write_json(self._directory / f"{name}.json", data)

    def once(self, name: str, compute: Callable[[], Any]) -> Any:
        """A part as JSON: the one that is kept, or a new one."""
        found = self.read(name)
        if found is None:
            found = compute()
            self.write(name, found)
        return found

    def read_state(self, step: int) -> State | None:
        """The state of the base run after a step; None if there is none that can be read."""
        if self._directory is None:
            return None
        try:
            return read_checkpoint(self._place(step))[0]
        except (OSError, SafetensorError, ValueError, KeyError):
            return None

    def write_state(self, step: int, state: State) -> None:
        """Keep the state of the base run after a step."""
        if self._directory is not None:
            write_checkpoint(self._place(step), state, {})

    def forget_states(self) -> None:
        """Delete the states, which are large, once no more probes start from them."""
        if self._directory is not None:
            for path in self._directory.glob("state-*.safetensors"):
                path.unlink()

    def _place(self, step: int) -> Path:
        assert self._directory is not None
        return self._directory / f"state-{step:09d}.safetensors"
