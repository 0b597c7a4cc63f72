"""A device that is written in Python: it computes on the CPU, and refuses tensors that are on another device.

What runs on it leaves no tensor behind on the CPU, as a real accelerator would refuse it too. Registering it changes
the whole process; tests therefore do so in processes of their own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "distant"


class Distant(torch.Tensor):
    """A tensor on the device, which holds one on the CPU."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> Distant:
        made: Distant = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return computed(func, *args, **(kwargs or {}))

    def tolist(self) -> Any:
        """As a tensor of any other device has it; torch does not give it to classes that are written in Python."""
        return self.held.tolist()

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"Distant({self.held})"


_LEAVING = ("aten::_to_copy", "aten::copy_", "aten::_local_scalar_dense", "aten::item")
"""What takes tensors of two devices."""


def computed(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute on the CPU what was asked for on the device."""
    name = func._schema.name
    given: dict[int, Distant] = {}
    near = [_near(part, name, given) for part in args]
    named = {key: _near(part, name, given) for key, part in kwargs.items()}
    found = func(*near, **named)
    wanted = kwargs.get("device")
    if name == "aten::_to_copy" and wanted is not None and torch.device(wanted).type != NAME:
        return found
    return _far(found, given)


def _near(part: Any, name: str, given: dict[int, Distant]) -> Any:
    """An argument as the CPU takes it."""
    if isinstance(part, Distant):
        given[id(part.held)] = part
        return part.held
    if isinstance(part, torch.Tensor):
        if part.ndim and name not in _LEAVING:
            raise RuntimeError(f"{name}: a tensor of shape {tuple(part.shape)} is on {part.device}")
        return part
    if isinstance(part, torch.device):
        return torch.device("cpu") if part.type == NAME else part
    return [_near(each, name, given) for each in part] if isinstance(part, list | tuple) else part


def _far(found: Any, given: dict[int, Distant]) -> Any:
    """A result on the device; what was changed in place is still the same tensor."""
    if isinstance(found, torch.Tensor):
        return given[id(found)] if id(found) in given else Distant(found)
    return type(found)(_far(each, given) for each in found) if isinstance(found, list | tuple) else found


class Backend(_DummyBackendModule):
    """What torch asks the device's module for."""

    def manual_seed(self, seed: int) -> None:
        torch.default_generator.manual_seed(seed)

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)


def _made(make: Any) -> Any:
    def call(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        found = make(*args, **kwargs)
        return found if device is None else found.to(device)

    return call


def register() -> Any:
    """Let this process have the device; what is returned has to be kept."""
    _setup_privateuseone_for_python_backend(NAME, Backend())
    everything = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
    everything.fallback(computed, "PrivateUse1")  # type: ignore[no-untyped-call]
    # These two put their numbers into a tensor's memory, which a device written in Python has not.
    torch.tensor, torch.as_tensor = _made(torch.tensor), _made(torch.as_tensor)
    return everything
