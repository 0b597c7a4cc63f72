"""By what a resumed run recognises its federation and its first model.

A part is known by its data or its code. What code cannot say, such as another release of an installed package, shows in
the losses and gradients of a few samples. Those are kept as numbers and compared with a tolerance, not as a digest:
another processor or another number of threads changes their last bits, and such a run may well be resumed.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import torch
from torch import nn

from fedgauge.base.errors import InputError
from fedgauge.base.fingerprints import Fingerprint, reached
from fedgauge.federation.kernels.base import Loss
from fedgauge.federation.protocols import HasLosses, Indices, Rows

MOST_WORKERS, SAMPLES = 16, 2
"""How many workers are compared, and how many samples of each: a few milliseconds with a small network."""


@dataclass(frozen=True)
class Identity:
    """Fingerprints of what a federation consists of, by the name of each part.

    >>> Identity({"l2": Fingerprint("ab", ())}).digest[:8] == Identity({"l2": Fingerprint("ac", ())}).digest[:8]
    False
    """

    parts: Mapping[str, Fingerprint]

    @property
    def digest(self) -> str:
        """SHA-256 of all parts."""
        text = "".join(f"{name}:{part.digest};" for name, part in sorted(self.parts.items()))
        return hashlib.sha256(text.encode()).hexdigest()

    def check(self) -> None:
        """Refuse what could not be recognised in another process."""
        for name, part in self.parts.items():
            if part.unknown:
                raise InputError(
                    f"The {name} holds a {part.unknown[0]}, which cannot be compared when the run is resumed; keep such"
                    " things out of it, or run without keep."
                )


def looked_at(num_workers: int) -> Indices:
    """Which workers' samples are compared: all, or a few from the first to the last."""
    return np.unique(np.linspace(0, num_workers - 1, MOST_WORKERS).astype(np.int64))


def described(identity: Identity, model: torch.Tensor, few: HasLosses, num_workers: int) -> dict[str, Any]:
    """What is saved with a run: the parts, and the losses and gradients of a few samples at the first model.

    Args:
        identity: the parts.
        model: the first model.
        few: the workers that are compared, with a few samples of each.
        num_workers: how many they are.
    """
    identity.check()
    direction = torch.arange(len(model), dtype=torch.float64).cos_().to(model.device)
    values: dict[str, list[float | None]] = {"loss": [], "gradient": [], "along": []}
    for worker in range(num_workers):
        loss, gradient = few.evaluate(model.unsqueeze(0), np.array([worker]))
        slope = gradient[0].double()
        for name, value in (("loss", loss[0]), ("gradient", slope.norm()), ("along", slope @ direction)):
            # JSON has no infinities, and no NaN.
            values[name].append(float(value) if math.isfinite(value) else None)
    return {
        "parts": {name: part.digest for name, part in identity.parts.items()},
        "number_type": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),  # for information only
        "values": values,
    }


def check_model(federation: Rows, model: torch.Tensor) -> torch.Tensor:
    """Return a model in the federation's number type and on its device; refuse one of another shape or not finite."""
    like = federation.start(0)
    if model.shape != like.shape:
        raise InputError(
            f"The model has {model.numel()} parameters, but the federation's has {len(like)}; give one of that size."
        )
    if not torch.isfinite(model).all():
        raise InputError(
            "The model is not finite: it has diverged; give an earlier one, or train with a smaller learning rate."
        )
    # A tensor that was made under inference_mode can be changed only there.
    return (model.clone() if model.is_inference() else model).to(like)


def digest_of(model: torch.Tensor) -> str:
    """SHA-256 of a flat model's bytes, by which a constant or a run says which first model it belongs to."""
    return hashlib.sha256(model.detach().cpu().contiguous().numpy().tobytes()).hexdigest()


_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def _tolerance(number_type: Any) -> float:
    """How far values may differ, relative to the largest of their kind.

    Sixteen roots of the rounding unit (0.006 in float32): other processors and their libraries add up in another order
    and multiply with fewer digits, which changes less than that, while another loss changes more.
    """
    return 16 * math.sqrt(_EPSILON.get(str(number_type), 2.0**-7))


def refuse_other_federation(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse to resume a run with another federation, naming its parts that are others.

    Args:
        path: the run's directory.
        old: what the run's federation was described as.
        new: what this one is described as.
    """
    parts, others = (each.get("parts", {}) for each in (old, new))
    differing = [name for name in {**parts, **others} if parts.get(name) != others.get(name)]
    if differing:
        what = ", ".join(f"another {name}" for name in differing)
        raise InputError(
            f"The run in {path} was made with {what}; resume it with what it was made with, or choose another"
            " directory."
        )
    for name, values in old.get("values", {}).items():
        if not _close(values, new.get("values", {}).get(name), _tolerance(new.get("number_type"))):
            raise InputError(
                f"The run in {path} was made with a federation that has other losses or gradients, although its code"
                " and data look the same; use the releases of installed packages that environment.json names, or"
                " choose another directory."
            )


def _close(old: Any, new: Any, tolerance: float) -> bool:
    if not (isinstance(old, Sequence) and isinstance(new, Sequence) and len(old) == len(new)):
        return False
    scale = max((abs(value) for value in (*old, *new) if value is not None), default=0.0)
    return all(
        one is other if one is None or other is None else abs(one - other) <= tolerance * scale
        for one, other in zip(old, new, strict=True)
    )


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


def copied_module(module: nn.Module, make: Callable[[], nn.Module] | None) -> nn.Module:
    """A module that nobody else has, from a user's module or the function that has made it."""
    copied = copy_of(module)
    if copied is None and make is not None and (another := make()) is not module:
        return another
    if copied is None:
        raise InputError(
            "The model cannot be copied, so that whatever happens to it later could change the results; give a function"
            " that makes a new one whenever it is called."
        )
    return copied


def copied_loss(loss: Loss, device: torch.device) -> Loss:
    """A loss that is a module, copied to the device; any other as it is."""
    if not isinstance(loss, nn.Module):
        return loss
    copied = copy_of(loss)
    if copied is None:
        raise InputError(
            "The loss cannot be copied, so that whatever happens to it later could change the results; write it as a"
            " function."
        )
    return copied.to(device)


def copied_tensor(tensor: torch.Tensor, given: Any) -> torch.Tensor:
    """A tensor in memory of its own, if it still shares that of what was given.

    >>> array = np.zeros(2)
    >>> copied_tensor(torch.from_numpy(array), array).add_(1.0).sum().item(), array.sum().item()
    (2.0, 0.0)
    """
    if isinstance(given, np.ndarray):
        shared = tensor.device.type == "cpu" and np.may_share_memory(tensor.detach().numpy(), given)
    else:
        shared = tensor is given or (tensor.device.type == "cpu" and tensor.data_ptr() == given.data_ptr())
    return tensor.detach().clone() if shared else tensor.detach()
