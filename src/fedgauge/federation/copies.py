"""A federation's own copies of what a user gives, so that a later change to the originals changes no result."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import torch
from torch import nn

from fedgauge.errors import InputError
from fedgauge.federation.kernels.losses import Loss
from fedgauge.system.fingerprints import reached

M = TypeVar("M", bound=nn.Module)
P = ParamSpec("P")
T = TypeVar("T")


def alone(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A method of a federation, called as its ``_alone`` says, and with tensors that autograd can use."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._alone():
            return method(self, *map(_usable, args), **{name: _usable(value) for name, value in kwargs.items()})

    return call


def _usable(value: Any) -> Any:
    """A tensor that was made under inference_mode, as one that was not; anything else as it is."""
    return value.clone() if isinstance(value, torch.Tensor) and value.is_inference() else value


def copy_of(module: M) -> M | None:
    """A copy that shares no layer and no tensor with a module; ``None`` if there is no way to make one.

    A function that was put in place of a layer's ``forward`` may hold the layer itself. Python copies no functions, but
    sends them to other processes with what they hold.

    >>> layer = nn.Linear(3, 2)
    >>> layer.forward = lambda x: 2 * nn.functional.linear(x, layer.weight)
    >>> made = copy_of(layer)
    >>> with torch.no_grad():
    ...     bool((made(torch.ones(1, 3)) == layer(torch.ones(1, 3))).all()), made.weight.zero_().any().item()
    ...     made(torch.ones(1, 3)).any().item(), layer(torch.ones(1, 3)).any().item()
    (True, False)
    (False, True)
    """
    own = {id(part) for parts in (module.modules(), module.parameters(), module.buffers()) for part in parts}
    for make in (copy.deepcopy, _sent):
        try:
            made: M = make(module)
        except Exception:  # whatever the user's own objects raise when they are copied
            continue
        if not any(id(part) in own for part in reached(made)):
            return made
    return None


def _sent(module: Any) -> Any:
    """A module as another process would get it."""
    import cloudpickle

    return cloudpickle.loads(cloudpickle.dumps(module))


def own_module(module: nn.Module, make: Callable[[], nn.Module] | None) -> nn.Module:
    """A module that nobody else has, from a user's module or the function that has made it."""
    found = copy_of(module)
    if found is None and make is not None and (another := make()) is not module:
        return another
    if found is None:
        raise InputError(
            "The model cannot be copied, so that whatever happens to it later could change the results; give a function"
            " that makes a new one whenever it is called."
        )
    return found


def own_loss(loss: Loss, device: torch.device) -> Loss:
    """A loss that is a module, copied to the device; any other as it is."""
    if not isinstance(loss, nn.Module):
        return loss
    found = copy_of(loss)
    if found is None:
        raise InputError(
            "The loss cannot be copied, so that whatever happens to it later could change the results; write it as a"
            " function."
        )
    return found.to(device)


def own_tensor(found: torch.Tensor, given: Any) -> torch.Tensor:
    """A tensor in memory of its own, if it still shares that of what was given.

    >>> array = np.zeros(2)
    >>> own_tensor(torch.from_numpy(array), array).add_(1.0).sum().item(), array.sum().item()
    (2.0, 0.0)
    """
    if isinstance(given, np.ndarray):
        shared = found.device.type == "cpu" and np.may_share_memory(found.detach().numpy(), given)
    else:
        shared = found is given or (found.device.type == "cpu" and found.data_ptr() == given.data_ptr())
    return found.detach().clone() if shared else found.detach()
