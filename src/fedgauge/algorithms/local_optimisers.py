"""The optimisers that workers can run in place of plain SGD: pure functions on rows, with explicit state.

Each is the optimiser of that name in ``torch.optim``, applied to every row by itself. State is a dict of matrices with
one row per worker, like all local state; a number per worker is a column.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fedgauge.algorithms.base import Algorithm, CorrectedStep, SgdStep, Tensors
from fedgauge.base.errors import InputError, fraction, nearest, non_negative, positive

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
        local_momentum: momentum m of a worker's steps.
        local_nesterov: whether a worker's momentum is Nesterov's; the second form of the step.
        weight_decay: weight decay w of a worker's steps; it is added to the gradient.
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
        local_beta1: decay rate of a worker's first moment m.
        local_beta2: decay rate of a worker's second moment v.
        local_epsilon: small number in the denominator of a worker's step; epsilon.
        weight_decay: weight decay w of a worker's steps.
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
        clip: the length to which longer gradients of the workers are shortened; by default, they are taken as they are.
        **parameters: those of the optimiser.

    >>> make_optimiser("sgd", local_momentum=0.9).parameters
    {'optimiser': 'sgd', 'local_momentum': 0.9, 'local_nesterov': False}
    >>> make_optimiser("adamw", local_momentum=0.9)
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: The local optimiser adamw has no local_momentum; leave it out, or use sgd.
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


STATES = ("reset", "kept", "averaged")
OPTIONS = ("optimiser", *dict.fromkeys(name for each in OPTIMISERS for name in takes(each)), "clip", "optimiser_state")
"""The parameters that :func:`with_optimiser` adds to an algorithm."""

_PREFIX = "optimiser."
_SHARE = "optimiser.share"
"""In an averaged message, the sum of the participants' weights."""


def with_optimiser(
    algorithm: Algorithm, optimiser: str = "sgd", *, optimiser_state: str | None = None, **parameters: Any
) -> Algorithm:
    """Let an algorithm's workers run a local optimiser instead of plain SGD; gamma is its rate.

    Args:
        algorithm: fedavg, fedavgm, fedprox, slowmo, or one of fedadam's family.
        optimiser: optimiser of the workers, ``sgd`` or ``adamw``; each as ``torch.optim`` has it.
        optimiser_state: what becomes of a worker's momentum or moments after a round: ``reset``
            (the default, except for diloco), ``kept`` or ``averaged``; ``reset`` forgets them, ``kept`` leaves them
            with the worker for its next round, and ``averaged`` gives every worker the participants' average of them in
            the next round.
        **parameters: of ``sgd``: ``local_momentum``, ``local_nesterov`` and ``weight_decay``; of ``adamw``:
            ``local_beta1``, ``local_beta2``, ``local_epsilon`` and ``weight_decay``; of both: ``clip``, the norm to
            which longer gradients are shortened. Torch's names (``momentum``, ``nesterov``, ``betas``, ``eps``) will do
            too.

    >>> from fedgauge import fedavg
    >>> made = with_optimiser(fedavg(gamma=0.1), "sgd", local_momentum=0.9, optimiser_state="kept")
    >>> made.parameters["local_momentum"], made.repeats
    (0.9, False)
    """
    options = _renamed(parameters)
    made = make_optimiser(optimiser, **options)
    if optimiser_state is not None and optimiser_state not in STATES:
        raise InputError(f"There is no optimiser_state {optimiser_state!r}; {nearest(str(optimiser_state), STATES)}")
    if not made.has_state and optimiser_state is not None:
        raise InputError(
            "optimiser_state is for optimisers that have a state, and sgd without local_momentum has none; leave it"
            " out, or give local_momentum."
        )
    if made.is_plain:
        return algorithm
    step = algorithm.step
    if algorithm.facts.no_optimiser_because:
        raise InputError(f"A local optimiser cannot be used here: {algorithm.facts.no_optimiser_because}.")
    if not isinstance(step, SgdStep | CorrectedStep) or "optimiser" in algorithm.parameters:
        raise InputError(
            f"{algorithm.name} has local steps of its own, so it takes no local optimiser; leave out"
            f" {next(iter(made.parameters))}, or use fedavg."
        )
    gamma, correction = step.gamma, step.correction if isinstance(step, CorrectedStep) else None
    state = (optimiser_state or "reset") if made.has_state else None

    def optimise(local: Tensors, gradient: torch.Tensor) -> Tensors:
        slope = gradient if correction is None else gradient + correction(local)
        x, remembered = made.step(local["x"], slope, _of(local), gamma)
        return {**local, "x": x, **_named(remembered)}

    extra = {} if state is None else {"optimiser_state": state}
    parameters = {**algorithm.parameters, **made.parameters, **extra}
    base = algorithm.synchronous or (algorithm if state == "reset" else None)
    together = "averaged" if made.has_state else None
    synchronous = None if base is None else with_optimiser(base, optimiser, optimiser_state=together, **options)
    plain = replace(algorithm, parameters=parameters, step=optimise, synchronous=synchronous)
    return plain if state is None else _STATEFUL[state](plain, made.init)


def _renamed(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with torch's names for them replaced by those that they have here."""
    renamed = dict(parameters)
    if "lr" in renamed:
        raise InputError(
            "The rate of a local optimiser is the algorithm's gamma; give it there, as in fedavg(gamma=0.1)."
        )
    if "betas" in renamed:
        betas = renamed.pop("betas")
        if not isinstance(betas, Sequence) or len(betas) != 2:
            raise InputError(f"betas must be a pair of numbers, as in betas=(0.9, 0.999), not {betas!r}.")
        renamed |= {"beta1": betas[0], "beta2": betas[1]}
    for name in ("momentum", "nesterov", "beta1", "beta2", "epsilon"):
        torch_name = {"epsilon": "eps"}.get(name, name)
        if torch_name in renamed:
            if f"local_{name}" in renamed:
                raise InputError(f"{torch_name} and local_{name} are the same parameter; give one of them.")
            renamed[f"local_{name}"] = renamed.pop(torch_name)
    return renamed


def _of(tensors: Tensors) -> dict[str, torch.Tensor]:
    """The optimiser's part of a state, under the optimiser's own names."""
    return {name.removeprefix(_PREFIX): rows for name, rows in tensors.items() if name.startswith(_PREFIX)}


def _named(state: Tensors) -> dict[str, torch.Tensor]:
    return {f"{_PREFIX}{name}": rows for name, rows in state.items()}


def _others(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {name: rows for name, rows in tensors.items() if not name.startswith(_PREFIX)}


def _reset(algorithm: Algorithm, init: Callable[[torch.Tensor], Tensors]) -> Algorithm:
    """Every round begins with a new state."""

    def begin(model: torch.Tensor, server: Tensors, memory: Tensors) -> Tensors:
        return {**algorithm.begin(model, server, memory), **_named(init(model))}

    return replace(algorithm, begin=begin)


def _kept(algorithm: Algorithm, init: Callable[[torch.Tensor], Tensors]) -> Algorithm:
    """A worker's round begins with the state in which its last round ended."""

    def worker_init(model: torch.Tensor) -> Tensors:
        return {**algorithm.worker_init(model), **_named(init(model))}

    def begin(model: torch.Tensor, server: Tensors, memory: Tensors) -> Tensors:
        return {**algorithm.begin(model, server, _others(memory)), **_named(_of(memory))}

    def finish(model: torch.Tensor, local: Tensors, steps: torch.Tensor) -> tuple[Tensors, Tensors]:
        sent, remembered = algorithm.finish(model, _others(local), steps)
        return sent, {**remembered, **_named(_of(local))}

    return replace(algorithm, worker_init=worker_init, begin=begin, finish=finish, repeats=False)


def _averaged(algorithm: Algorithm, init: Callable[[torch.Tensor], Tensors]) -> Algorithm:
    """Every round begins with the average of the states in which the last round's participants ended."""

    def server_init(model: torch.Tensor) -> Tensors:
        return {**algorithm.init(model), **_named(init(model))}

    def begin(model: torch.Tensor, server: Tensors, memory: Tensors) -> Tensors:
        return {**algorithm.begin(model, _others(server), memory), **_named(_of(server))}

    def finish(model: torch.Tensor, local: Tensors, steps: torch.Tensor) -> tuple[Tensors, Tensors]:
        sent, remembered = algorithm.finish(model, _others(local), steps)
        return {**sent, **_named(_of(local)), _SHARE: steps.new_ones(steps.shape)}, remembered

    def update(model: torch.Tensor, server: Tensors, mean: Tensors, fraction: float) -> tuple[torch.Tensor, Tensors]:
        moved, after = algorithm.update(model, _others(server), _others(mean), fraction)
        # The weights of sampled workers add up to one only in expectation; without that, v could become anything.
        return moved, {**after, **{name: mean[name] / mean[_SHARE] for name in server if name.startswith(_PREFIX)}}

    return replace(algorithm, init=server_init, begin=begin, finish=finish, update=update)


_STATEFUL = {"reset": _reset, "kept": _kept, "averaged": _averaged}
