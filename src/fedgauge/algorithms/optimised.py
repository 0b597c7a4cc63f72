"""An algorithm whose workers run a local optimiser instead of plain SGD."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedgauge.algorithms.base import Algorithm, CorrectedStep, SgdStep, Tensors
from fedgauge.algorithms.local_optimisers import OPTIMISERS, make_optimiser, takes
from fedgauge.errors import InputError, nearest

if TYPE_CHECKING:
    import torch

STATES = ("reset", "kept", "averaged")
OPTIONS = ("optimiser", *dict.fromkeys(name for each in OPTIMISERS for name in takes(each)), "clip", "optimiser_state")
"""The parameters that :func:`with_optimiser` adds to an algorithm."""

_REFUSED: Mapping[str, str] = {
    "momentum": "momentum has a local momentum of its own, whose buffer is averaged; use fedavg",
    "minibatch": "minibatch takes no local steps; use fedavg",
    "scaffold": "scaffold estimates its control variates from the changes of plain local SGD; use fedavg",
    "fednova": "fednova counts the steps of plain local SGD; use fedavg",
}
_PREFIX = "optimiser."
_SHARE = "optimiser.share"
"""In an averaged message, the sum of the participants' weights."""


def with_optimiser(
    algorithm: Algorithm, optimiser: str = "sgd", *, optimiser_state: str | None = None, **parameters: Any
) -> Algorithm:
    """Let an algorithm's workers run a local optimiser instead of plain SGD; gamma is its rate.

    Args:
        algorithm: fedavg, fedavgm, fedprox, slowmo, or one of fedadam's family.
        optimiser: ``sgd`` or ``adamw``, each as ``torch.optim`` has it.
        optimiser_state: what becomes of a worker's optimiser state after a round. ``reset`` (the default) forgets it,
            ``kept`` leaves it with the worker for its next round, and ``averaged`` gives every worker the
            participants' average of it in the next round.
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
    if algorithm.name in _REFUSED:
        raise InputError(f"A local optimiser cannot be used here: {_REFUSED[algorithm.name]}.")
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
    found = dict(parameters)
    if "lr" in found:
        raise InputError(
            "The rate of a local optimiser is the algorithm's gamma; give it there, as in fedavg(gamma=0.1)."
        )
    if "betas" in found:
        betas = found.pop("betas")
        if not isinstance(betas, Sequence) or len(betas) != 2:
            raise InputError(f"betas must be a pair of numbers, as in betas=(0.9, 0.999), not {betas!r}.")
        found |= {"beta1": betas[0], "beta2": betas[1]}
    for name in ("momentum", "nesterov", "beta1", "beta2", "epsilon"):
        torch_name = {"epsilon": "eps"}.get(name, name)
        if torch_name in found:
            if f"local_{name}" in found:
                raise InputError(f"{torch_name} and local_{name} are the same parameter; give one of them.")
            found[f"local_{name}"] = found.pop(torch_name)
    return found


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
