"""The optimisers that workers can run: pure functions on rows, one row per worker, with explicit state.

Each is the optimiser of that name in ``torch.optim``, applied to every row by itself. State is a dict of matrices with
one row per worker, like all local state; a number per worker is a column.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedgauge.algorithms.base import Tensors
from fedgauge.errors import InputError, fraction, nearest, non_negative, positive

if TYPE_CHECKING:
    import torch

_CLIPPING = 1e-6
"""What torch.nn.utils.clip_grad_norm_ adds to the norm."""


def _nothing(model: torch.Tensor) -> Tensors:
    return {}


@dataclass(frozen=True)
class LocalOptimiser:
    """A local optimiser with its parameters bound, except for its rate.

    Attributes:
        parameters: what it was made with, under the names that an algorithm and an experiment have for them.
        step: (models, state) from (models, gradients, state, gamma).
        init: the state of one worker before its first step, from its model.
    """

    parameters: Mapping[str, Any]
    step: Callable[[torch.Tensor, torch.Tensor, Tensors, float], tuple[torch.Tensor, Tensors]]
    init: Callable[[torch.Tensor], Tensors] = field(default=_nothing)

    @property
    def is_plain(self) -> bool:
        """Whether it is plain SGD."""
        return self.parameters == {"optimiser": "sgd"}

    @property
    def has_state(self) -> bool:
        """Whether it remembers anything from one step to the next."""
        return self.init is not _nothing


def clip_rows(gradients: torch.Tensor, most: float) -> torch.Tensor:
    """Shorten the rows that are longer than ``most``, as ``torch.nn.utils.clip_grad_norm_`` does."""
    norms: torch.Tensor = gradients.norm(dim=1, keepdim=True)
    return gradients * (most / (norms + _CLIPPING)).clamp(max=1.0)


def sgd(
    local_momentum: float = 0.0,
    local_nesterov: bool = False,
    weight_decay: float = 0.0,
) -> LocalOptimiser:
    """SGD with momentum u and weight decay w: d = g + w x; u <- m u + d; x <- x - gamma u, or gamma (d + m u).

    Args:
        local_momentum: m.
        local_nesterov: take the second form of the step, Nesterov's.
        weight_decay: w; it is added to the gradient.
    """
    local_momentum = fraction("local_momentum", local_momentum)
    weight_decay = non_negative("weight_decay", weight_decay)
    if not isinstance(local_nesterov, bool):
        raise InputError(f"local_nesterov must be true or false, not {local_nesterov!r}.")
    if local_nesterov and not local_momentum:
        raise InputError("local_nesterov needs local_momentum above 0; give it, as in local_momentum=0.9.")

    def init(model: torch.Tensor) -> Tensors:
        return {"u": model.new_zeros(model.shape)}

    def step(x: torch.Tensor, gradient: torch.Tensor, state: Tensors, gamma: float) -> tuple[torch.Tensor, Tensors]:
        direction = gradient.add(x, alpha=weight_decay) if weight_decay else gradient
        if not local_momentum:
            return x.sub(direction, alpha=gamma), {}
        u = direction.add(state["u"], alpha=local_momentum)
        direction = direction.add(u, alpha=local_momentum) if local_nesterov else u
        return x.sub(direction, alpha=gamma), {"u": u}

    parameters: dict[str, Any] = {"optimiser": "sgd"}
    if local_momentum:
        parameters |= {"local_momentum": local_momentum, "local_nesterov": local_nesterov}
    if weight_decay:
        parameters["weight_decay"] = weight_decay
    return LocalOptimiser(parameters, step, init if local_momentum else _nothing)


def adamw(
    local_beta1: float = 0.9,
    local_beta2: float = 0.999,
    local_epsilon: float = 1e-8,
    weight_decay: float = 0.01,
) -> LocalOptimiser:
    """AdamW with bias correction: x <- (1 - gamma w) x - gamma m̂ / (sqrt(v̂) + epsilon).

    Args:
        local_beta1: decay rate of the first moment m.
        local_beta2: decay rate of the second moment v.
        local_epsilon: epsilon.
        weight_decay: w.
    """
    local_beta1, local_beta2 = fraction("local_beta1", local_beta1), fraction("local_beta2", local_beta2)
    local_epsilon = positive("local_epsilon", local_epsilon)
    weight_decay = non_negative("weight_decay", weight_decay)

    def init(model: torch.Tensor) -> Tensors:
        m, v = (model.new_zeros(model.shape) for _ in range(2))
        return {"m": m, "v": v, "steps": model.new_zeros(1)}

    def step(x: torch.Tensor, gradient: torch.Tensor, state: Tensors, gamma: float) -> tuple[torch.Tensor, Tensors]:
        steps = state["steps"] + 1
        m = state["m"].lerp(gradient, 1 - local_beta1)
        v = (local_beta2 * state["v"]).addcmul_(gradient, gradient, value=1 - local_beta2)
        # In float64, as 1 - 0.999 has only four digits in float32.
        first, second = ((1 - beta ** steps.double()).to(x.dtype) for beta in (local_beta1, local_beta2))
        root = (v / second).sqrt_().add_(local_epsilon)
        return (x * (1 - gamma * weight_decay)).sub_(m / first / root, alpha=gamma), {"m": m, "v": v, "steps": steps}

    parameters = {
        "optimiser": "adamw",
        "local_beta1": local_beta1,
        "local_beta2": local_beta2,
        "local_epsilon": local_epsilon,
        "weight_decay": weight_decay,
    }
    return LocalOptimiser(parameters, step, init)


OPTIMISERS: Mapping[str, Callable[..., LocalOptimiser]] = {"sgd": sgd, "adamw": adamw}


def make_optimiser(optimiser: str = "sgd", clip: float | None = None, **parameters: Any) -> LocalOptimiser:
    """Make a local optimiser by name.

    Args:
        optimiser: ``sgd`` or ``adamw``.
        clip: the length to which longer gradients are shortened; by default, they are taken as they are.
        **parameters: those of the optimiser.

    >>> make_optimiser("sgd", local_momentum=0.9).parameters
    {'optimiser': 'sgd', 'local_momentum': 0.9, 'local_nesterov': False}
    >>> make_optimiser("adamw", local_momentum=0.9)
    Traceback (most recent call last):
    fedgauge.errors.InputError: The local optimiser adamw has no local_momentum; leave it out, or use sgd.
    """
    if isinstance(optimiser, str) and optimiser.lower() in OPTIMISERS:
        optimiser = optimiser.lower()
    if optimiser not in OPTIMISERS:
        raise InputError(f"There is no local optimiser {optimiser!r}; {nearest(str(optimiser), OPTIMISERS)}")
    for name in parameters:
        if name not in takes(optimiser):
            others = [other for other in OPTIMISERS if name in takes(other)]
            remedy = f"leave it out, or use {others[0]}." if others else "leave it out."
            raise InputError(f"The local optimiser {optimiser} has no {name}; {remedy}")
    made = OPTIMISERS[optimiser](**parameters)
    if clip is None:
        return made
    most = positive("clip", clip)

    def step(x: torch.Tensor, gradient: torch.Tensor, state: Tensors, gamma: float) -> tuple[torch.Tensor, Tensors]:
        return made.step(x, clip_rows(gradient, most), state, gamma)

    return LocalOptimiser({**made.parameters, "clip": most}, step, made.init)


def takes(optimiser: str) -> tuple[str, ...]:
    """The parameters of an optimiser."""
    return tuple(inspect.signature(OPTIMISERS[optimiser]).parameters)
