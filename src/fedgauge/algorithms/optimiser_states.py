"""What becomes of a local optimiser's state after a round: it is reset, kept by the worker, or averaged.

Each makes an algorithm whose local state also has the optimiser's, under names that begin with ``optimiser.``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fedgauge.algorithms.base import Algorithm, Tensors

if TYPE_CHECKING:
    import torch

_PREFIX = "optimiser."
_SHARE = "optimiser.share"
"""In an averaged message, the sum of the participants' weights."""


def of(tensors: Tensors) -> dict[str, torch.Tensor]:
    """The optimiser's part of a state, under the optimiser's own names."""
    return {name.removeprefix(_PREFIX): rows for name, rows in tensors.items() if name.startswith(_PREFIX)}


def named(state: Tensors) -> dict[str, torch.Tensor]:
    """The optimiser's part of a state, under the names that it has there."""
    return {f"{_PREFIX}{name}": rows for name, rows in state.items()}


def _others(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {name: rows for name, rows in tensors.items() if not name.startswith(_PREFIX)}


def _reset(algorithm: Algorithm, init: Callable[[torch.Tensor], Tensors]) -> Algorithm:
    """Every round begins with a new state."""

    def begin(model: torch.Tensor, server: Tensors, memory: Tensors) -> Tensors:
        return {**algorithm.begin(model, server, memory), **named(init(model))}

    return replace(algorithm, begin=begin)


def _kept(algorithm: Algorithm, init: Callable[[torch.Tensor], Tensors]) -> Algorithm:
    """A worker's round begins with the state in which its last round ended."""

    def worker_init(model: torch.Tensor) -> Tensors:
        return {**algorithm.worker_init(model), **named(init(model))}

    def begin(model: torch.Tensor, server: Tensors, memory: Tensors) -> Tensors:
        return {**algorithm.begin(model, server, _others(memory)), **named(of(memory))}

    def finish(model: torch.Tensor, local: Tensors, steps: torch.Tensor) -> tuple[Tensors, Tensors]:
        sent, remembered = algorithm.finish(model, _others(local), steps)
        return sent, {**remembered, **named(of(local))}

    return replace(algorithm, worker_init=worker_init, begin=begin, finish=finish, repeats=False)


def _averaged(algorithm: Algorithm, init: Callable[[torch.Tensor], Tensors]) -> Algorithm:
    """Every round begins with the average of the states in which the last round's participants ended."""

    def server_init(model: torch.Tensor) -> Tensors:
        return {**algorithm.init(model), **named(init(model))}

    def begin(model: torch.Tensor, server: Tensors, memory: Tensors) -> Tensors:
        return {**algorithm.begin(model, _others(server), memory), **named(of(server))}

    def finish(model: torch.Tensor, local: Tensors, steps: torch.Tensor) -> tuple[Tensors, Tensors]:
        sent, remembered = algorithm.finish(model, _others(local), steps)
        return {**sent, **named(of(local)), _SHARE: steps.new_ones(steps.shape)}, remembered

    def update(model: torch.Tensor, server: Tensors, mean: Tensors, fraction: float) -> tuple[torch.Tensor, Tensors]:
        moved, after = algorithm.update(model, _others(server), _others(mean), fraction)
        # The weights of sampled workers add up to one only in expectation; without that, v could become anything.
        return moved, {**after, **{name: mean[name] / mean[_SHARE] for name in server if name.startswith(_PREFIX)}}

    return replace(algorithm, init=server_init, begin=begin, finish=finish, update=update)


STATEFUL = {"reset": _reset, "kept": _kept, "averaged": _averaged}
