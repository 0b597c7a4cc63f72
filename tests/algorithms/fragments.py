"""A network of two equal fragments, and DiLoCo on it in torch's own optimisers, worker by worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.supervised import SupervisedFederation

GAMMA, SEED, STEPS, WORKERS = 0.01, 3, 4, 3


def fragmented() -> SupervisedFederation:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(6, (60,), generator=generator)

    def module() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 6, bias=False), nn.Tanh(), nn.Linear(6, 6, bias=False)).double()

    shards = [range(10), range(10, 30), range(30, 60)]
    return SupervisedFederation(module, nn.functional.cross_entropy, x, y, shards, batch_size=5)


def gradients(federation: SupervisedFederation, worker: int, round: int, steps: int) -> Any:
    """The stochastic gradient of each step of a worker's round, as a function of its model."""
    for draw in federation.draws(Streams(SEED, Purpose.NOISE), round, np.array([worker]), np.array([0]), steps):

        def gradient(model: torch.Tensor, draw: Any = draw) -> torch.Tensor:
            return federation.stochastic_gradients(model.detach().unsqueeze(0), np.array([worker]), draw)[0]

        yield gradient
