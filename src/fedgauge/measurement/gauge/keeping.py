"""What a gauge keeps on the way, so that an interrupted one is resumed, and so that large states are not in memory."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fedgauge.errors import InputError
from fedgauge.runs.checkpoints import State, read_checkpoint, write_checkpoint
from fedgauge.system.files import write_json

_SMALL = 2**23
"""States of up to this many bytes are held in memory where there is no directory."""


class Kept:
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
        if step in self._held or (self._directory or self._scratch) is None:
            return self._held.get(step)
        try:
            return read_checkpoint(self._place(step))[0]
        except (OSError, SafetensorError, ValueError, KeyError):
            return None

    def write_state(self, step: int, state: State) -> None:
        """Keep the state of the base run after a step."""
        if self._directory is None and _size(state) <= _SMALL:
            self._held[step] = state
            return
        if self._directory is None and self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="fedgauge-gauge-")
        write_checkpoint(self._place(step), state, {})

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


class KeptStates(Mapping[int, State]):
    """The states of a base run after some of its steps, each read when it is asked for."""

    def __init__(self, kept: Kept, steps: list[int]) -> None:
        self._kept, self._steps = kept, steps

    def __getitem__(self, step: int) -> State:
        if step not in self._steps:
            raise KeyError(step)
        found = self._kept.read_state(step)
        if found is None:
            raise InputError(f"The state of the base run after {step} steps can no longer be read; gauge again.")
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)


def _size(state: State) -> int:
    """The bytes of a state's tensors."""
    return sum(tensor.nbytes for tensor in (state.model, *state.server.values(), *state.memory.values()))
