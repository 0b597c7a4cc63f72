"""What an algorithm is: a few pure functions on explicit state, run by the one round loop in ``simulate``.

In round r the server holds the global model x and its own state s. Each participant i

1. begins:   local state from x, s and what the worker itself remembers;
2. steps:    I times, local state from local state and a stochastic gradient at its model;
3. finishes: a message to the server, and what the worker remembers for its next round.

The server updates (x, s) from the weighted averages of the messages. Local state is a dict of matrices with one row
per participant, its local model under ``"x"``; a vector stands for the same row everywhere. No function changes its
arguments. What algorithms share they share by calling the functions below, never by overriding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import torch

Tensors: TypeAlias = "Mapping[str, torch.Tensor]"


def no_state(model: torch.Tensor) -> Tensors:
    """The server, or a worker, remembers nothing."""
    return {}


def begin_at_model(model: torch.Tensor, server: Tensors, memory: Tensors) -> Tensors:
    """Every participant starts from the global model."""
    return {"x": model}


def sgd_step(gamma: float) -> Callable[[Tensors, torch.Tensor], Tensors]:
    """x_i <- x_i - gamma g_i(x_i)."""

    def step(local: Tensors, gradient: torch.Tensor) -> Tensors:
        return {"x": local["x"].sub(gradient, alpha=gamma)}

    return step


def send_change(model: torch.Tensor, local: Tensors, steps: torch.Tensor) -> tuple[Tensors, Tensors]:
    """Delta_i = x - x_i, and nothing is remembered."""
    return {"change": model - local["x"]}, {}


def move_by(eta: float) -> Callable[[torch.Tensor, Tensors, Tensors, float], tuple[torch.Tensor, Tensors]]:
    """x <- x - eta mean_i Delta_i."""

    def update(model: torch.Tensor, server: Tensors, mean: Tensors, fraction: float) -> tuple[torch.Tensor, Tensors]:
        return model.sub(mean["change"], alpha=eta), {}

    return update


@dataclass(frozen=True)
class Algorithm:
    """An algorithm with its parameters bound.

    Attributes:
        name: its name in the registry.
        parameters: the numbers it was made with, enough to make it again.
        init: server state from the first model.
        worker_init: what one worker remembers before its first round, from the first model.
        begin: local state from (model, server state, the participants' memories).
        step: local state from (local state, stochastic gradients at its ``"x"``).
        finish: (messages, memories) from (model, local state, steps taken by each row as a column).
        update: (model, server state) from (model, server state, averaged messages, fraction M/N of participants).
        sgd_rate: gamma, where ``step`` is a plain SGD step and begins at the model; the federation may then take all
            local steps in one go.
        repeats: whether one worker may run several times in a round; not where workers remember.
    """

    name: str
    parameters: Mapping[str, float]
    step: Callable[[Tensors, torch.Tensor], Tensors]
    update: Callable[[torch.Tensor, Tensors, Tensors, float], tuple[torch.Tensor, Tensors]]
    init: Callable[[torch.Tensor], Tensors] = no_state
    worker_init: Callable[[torch.Tensor], Tensors] = no_state
    begin: Callable[[torch.Tensor, Tensors, Tensors], Tensors] = begin_at_model
    finish: Callable[[torch.Tensor, Tensors, torch.Tensor], tuple[Tensors, Tensors]] = send_change
    sgd_rate: float | None = None
    repeats: bool = True
