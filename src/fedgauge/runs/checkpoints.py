"""The state of a run between two rounds, as a file with a digest of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save

from fedgauge.system.files import regular, write_atomically


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

    def on(self, device: torch.device) -> State:
        """The state on a device; what is read from a file is on the CPU."""

        def moved(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {name: tensor.to(device) for name, tensor in tensors.items()}

        sound = None if self.sound is None else self.sound.to(device)
        return State(self.round, self.model.to(device), moved(self.server), moved(self.memory), sound)


def _digest(round: int, tensors: Mapping[str, torch.Tensor]) -> str:
    sha = hashlib.sha256(str(round).encode())
    for name in sorted(tensors):
        sha.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        sha.update(tensors[name].cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()


def write_checkpoint(path: Path, state: State, about: Mapping[str, str]) -> None:
    """Write a state.

    Args:
        path: the file.
        state: the state.
        about: what the state belongs to, as :func:`read_checkpoint` returns it.
    """
    tensors = {"model": state.model}
    if state.sound is not None and state.sound is not state.model:
        tensors["sound"] = state.sound
    tensors |= {f"server.{name}": tensor for name, tensor in state.server.items()}
    tensors |= {f"memory.{name}": tensor for name, tensor in state.memory.items()}
    metadata = {**about, "round": str(state.round), "sha256": _digest(state.round, tensors)}
    write_atomically(path, save(_apart(tensors), metadata))


def _apart(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors on the CPU, in one piece each; what shares memory is copied, because a file holds none twice."""
    found: dict[str, torch.Tensor] = {}
    seen = set()
    for name, each in tensors.items():
        tensor = each.cpu()
        where = tensor.untyped_storage().data_ptr()
        found[name] = tensor.clone(memory_format=torch.contiguous_format) if where in seen else tensor.contiguous()
        seen.add(where)
    return found


def read_checkpoint(path: Path) -> tuple[State, Mapping[str, str]]:
    """Read a state, and what it belongs to; a ValueError says what is wrong with the file."""
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
    return state, metadata
