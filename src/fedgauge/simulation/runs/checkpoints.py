"""The state of a run between two rounds, as a file with a digest of its content."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import nn

from fedgauge.base.errors import InputError
from fedgauge.base.files import read_input, regular, write_atomically
from fedgauge.federation.flat import fixed, trainable
from fedgauge.federation.identity import check_model
from fedgauge.federation.modes import counters
from fedgauge.federation.protocols import HasModule, Rows
from fedgauge.simulation.runs.manifest import verified


@dataclass(frozen=True)
class State:
    """Everything that the next round needs; randomness is addressed, so no generator is part of it.

    Attributes:
        round: the number of finished rounds.
        model: the global model.
        server: what the server remembers.
        memory: what the workers remember, one row per worker.
        last_finite: the model of the last record, which becomes the final model if the run diverges; None if it is
            ``model``.
    """

    round: int
    model: torch.Tensor
    server: Mapping[str, torch.Tensor]
    memory: Mapping[str, torch.Tensor]
    last_finite: torch.Tensor | None = None

    def on(self, device: torch.device) -> State:
        """The state on a device; what is read from a file is on the CPU."""

        def moved(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {name: tensor.to(device) for name, tensor in tensors.items()}

        last_finite = None if self.last_finite is None else self.last_finite.to(device)
        return State(self.round, self.model.to(device), moved(self.server), moved(self.memory), last_finite)


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
    if state.last_finite is not None and state.last_finite is not state.model:
        tensors["last_finite"] = state.last_finite
    tensors |= {f"server.{name}": tensor for name, tensor in state.server.items()}
    tensors |= {f"memory.{name}": tensor for name, tensor in state.memory.items()}
    metadata = {**about, "round": str(state.round), "sha256": _digest(state.round, tensors)}
    write_atomically(path, save(_apart(tensors), metadata))


def _apart(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors on the CPU, in one piece each; what shares memory is copied, because a file holds none twice."""
    apart: dict[str, torch.Tensor] = {}
    seen = set()
    for name, each in tensors.items():
        tensor = each.cpu()
        where = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone(memory_format=torch.contiguous_format) if where in seen else tensor.contiguous()
        seen.add(where)
    return apart


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
        if name not in ("model", "last_finite"):
            part, _, key = name.partition(".")
            parts[part][key] = tensor
    state = State(round, tensors["model"], parts["server"], parts["memory"], tensors.get("last_finite"))
    return state, metadata


Given = torch.Tensor | nn.Module | Mapping[str, torch.Tensor] | str | Path
"""What is taken for a model."""


def given_model(federation: Rows, model: Given) -> torch.Tensor:
    """The flat model of a federation from whatever a user has for it.

    Args:
        federation: the federation that the model is for.
        model: a flat tensor; the federation's module with other parameters, or its ``state_dict``; a ``.safetensors``
            file or one that ``torch.save`` wrote; or the directory of a run, for its final model.

    >>> from fedgauge import federate
    >>> shards = [(torch.randn(8, 3), torch.arange(8) % 2) for _ in range(2)]
    >>> federation = federate(lambda: nn.Linear(3, 2), nn.functional.cross_entropy, shards)
    >>> given_model(federation, nn.Linear(3, 2)).shape
    torch.Size([8])
    """
    if isinstance(model, str | Path):
        return read_model(Path(model) / "model.safetensors" if Path(model).is_dir() else model, federation)
    if isinstance(model, nn.Module):
        parts = {name: tensor.detach() for name, tensor in model.named_parameters(remove_duplicate=False)}
        return from_parts({**model.state_dict(), **parts}, federation, "The module")
    if isinstance(model, Mapping) and all(isinstance(part, torch.Tensor) for part in model.values()):
        return from_parts(model, federation, "The state_dict")
    if isinstance(model, np.ndarray) and model.dtype.kind == "f":
        model = torch.from_numpy(model)
    if not isinstance(model, torch.Tensor):
        raise InputError(
            f"The model must be a flat tensor, a module, its state_dict or the name of a file or run, not of"
            f" type {type(model).__name__}; give trace.model, for example."
        )
    return check_model(federation, model.detach())


def read_model(path: str | Path, federation: Rows) -> torch.Tensor:
    """Read a model for a federation, from a ``.safetensors`` file or from one that ``torch.save`` wrote.

    The file holds a flat vector named ``model``, or a ``state_dict`` of the federation's module. Only tensors are
    unpickled.
    """
    return from_parts(read_tensors(Path(path)), federation, str(path))


def from_parts(tensors: Mapping[str, torch.Tensor], federation: Rows, where: str) -> torch.Tensor:
    """The flat model of a federation from its tensors by name; ``where`` is what a message calls them."""
    if set(tensors) == {"model"} and tensors["model"].ndim == 1:
        return check_model(federation, tensors["model"])
    if not isinstance(federation, HasModule):
        raise InputError(f"{where} must hold one flat model, named model, for a federation without a module.")
    module, not_trained = federation.module, dict(fixed(federation.module))
    statistics: Sequence[str] = getattr(federation, "statistics", ())
    model: dict[str, torch.Tensor] = {**trainable(module), **{name: not_trained.pop(name) for name in statistics}}
    for name, parameter in model.items():
        if name not in tensors:
            raise InputError(f"{where} has no parameter {name}, which the model has; give a state_dict of that model.")
        if tensors[name].shape != parameter.shape:
            raise InputError(
                f"{where}: {name} has the shape {tuple(tensors[name].shape)}, but the model's has"
                f" {tuple(parameter.shape)}; give a state_dict of that model."
            )
    known = {name for name, _ in module.named_parameters(remove_duplicate=False)} | set(module.state_dict())
    if extra := [name for name in tensors if name not in known]:
        raise InputError(f"{where} has {extra[0]}, which the model does not have; give a state_dict of that model.")
    if statistics:
        not_trained = {name: tensor for name, tensor in not_trained.items() if name not in counters(module)}
    for name, tensor in not_trained.items():
        # A file of the trained parameters alone, such as adapters, leaves the others as they are.
        if name in tensors and not torch.equal(tensors[name].to(tensor), tensor):
            raise InputError(
                f"{where}: {name} is not trained, and is not the same there as in the model; load it into the module"
                " before you make the federation."
            )
    return check_model(federation, torch.cat([tensors[name].reshape(-1) for name in model]))


def read_tensors(path: Path) -> Mapping[str, torch.Tensor]:
    """The tensors of a ``.safetensors`` file, or of one that ``torch.save`` wrote; only tensors are unpickled."""
    from safetensors.torch import load

    content = verified(path, read_input(path, "the file of a model"))
    try:
        if path.suffix == ".safetensors":
            return load(content)
        loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception:  # a damaged pickle can raise anything
        raise InputError(f"{path} holds no tensors that can be read; name a .safetensors or .pt file.") from None
    if not isinstance(loaded, Mapping) or not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        raise InputError(f"{path} holds no state_dict; save module.state_dict().")
    return loaded
