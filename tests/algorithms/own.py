"""Algorithms of a user's own, as they would write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from fedgauge.algorithms import Algorithm, fedavg
from fedgauge.algorithms.base import SgdStep, Tensors, move_by

RATE = 0.05


def helper(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.sign() * RATE


def sign_step(local: Tensors, gradient: torch.Tensor) -> Tensors:
    """A function of a module, with a global number and another function of it."""
    return {"x": local["x"] - helper(gradient)}


def scaled(scale: float) -> Callable[[Tensors, torch.Tensor], Tensors]:
    """A closure."""

    def step(local: Tensors, gradient: torch.Tensor) -> Tensors:
        return {"x": local["x"] - scale * gradient / (1 + gradient.norm(dim=-1, keepdim=True))}

    return step


class Clipped:
    """An object that is called."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def __call__(self, local: Tensors, gradient: torch.Tensor) -> Tensors:
        return {"x": local["x"] - RATE * gradient.clamp(-self.limit, self.limit)}


def with_rate(rate: float, local: Tensors, gradient: torch.Tensor) -> Tensors:
    return {"x": local["x"] - rate * gradient.tanh()}


STEPS: dict[str, Callable[[Tensors, torch.Tensor], Tensors]] = {
    "function": sign_step,
    "closure": scaled(0.1),
    "lambda": lambda local, gradient: {"x": local["x"] - 0.1 * gradient.sign()},
    "object": Clipped(0.5),
    "partial": partial(with_rate, 0.2),
}


def replaced(step: Any) -> Algorithm:
    return replace(fedavg(gamma=0.1), step=step)


def signed(gamma: float, *, power: float = 0.5) -> Algorithm:
    """A factory that a user names as tests.algorithms.own:signed."""

    def step(local: Tensors, gradient: torch.Tensor) -> Tensors:
        return {"x": local["x"] - gamma * gradient.sign() * gradient.abs() ** power}

    return Algorithm("signed", {"gamma": gamma}, step=step, update=move_by(1.0))


def rateless(steps_per_epoch: float, decay: float = 0.9) -> Algorithm:
    """A factory without a gamma."""
    return Algorithm("rateless", {}, step=SgdStep(decay / steps_per_epoch), update=move_by(1.0))


def wrong(gamma: float) -> dict[str, float]:
    return {"gamma": gamma}


NUMBER = 3
