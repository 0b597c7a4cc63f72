"""Local steps that adapt themselves against every fixed number of them, in seconds of a cost model.

    python benchmarks/auto.py --out DIR [--only digits-iid quadratic-noise ...] [--seeds 1] [--json]

A cell is a federation with a rate gamma and a goal, a loss to come to. For each cost model the table gives the rounds
and seconds to the goal of the best fixed I of 1, 2, 4, ..., 128, of ``--local-steps auto`` and of IBM's adaptive tau,
and the ratio of auto's seconds to the best fixed I's. The demand is a ratio of at most 1.10 everywhere. A fixed run
does not depend on the cost model, so it is run once and read three times; ``*`` is a goal that was not reached in
the rounds allowed. Every run is kept as JSON in DIR, and what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fedgauge
from fedgauge.cost import Cost
from fedgauge.execution import prepare
from fedgauge.experiment import Experiment
from fedgauge.federation.base import Federation
from fedgauge.files import write_json
from fedgauge.report import terminal

GRID = tuple(2**k for k in range(8))
COSTS = ("cross-device", "cross-silo", "local,step=0.001,fixed=0.01")
GAMMAS = (0.05, 0.3)
ROUNDS, STEPS = 4000, 40_000
"""Limits of a fixed run: a goal that takes more is not reached by it, whatever it would cost."""

PARTITIONS: dict[str, dict[str, Any]] = {
    "iid": {"scheme": "iid"},
    "paper50": {"percent": 50.0},
    "paper100": {"percent": 100.0, "per_worker": 127},
    "dirichlet0.1": {"scheme": "dirichlet", "alpha": 0.1},
    "shards2": {"scheme": "shards", "shards": 2},
    "quantity": {"scheme": "quantity"},
}
QUADRATICS: dict[str, dict[str, Any]] = {
    # The workers' Hessians differ not at all, a little, and as much as they can.
    "equal": {"hessian_spread": 0.0},
    "small": {"hessian_spread": 0.05},
    "large": {"hessian_spread": 1.0},
}
# Losses that take some ten to some hundred rounds at moderate I; for quadratics the part of the first gap f - f* left.
DIGITS_GOALS = {0.05: 0.2, 0.3: 0.05}
QUADRATIC_GOALS = {0.05: 0.03, 0.3: 0.003}


@dataclass(frozen=True)
class Cell:
    """A federation, a rate and a goal."""

    name: str
    gamma: float
    goal: float
    federation: Federation


def _digits(partition: str) -> Federation:
    return prepare(Experiment.of({"source": "digits", "gamma": 0.1, **PARTITIONS[partition]})).federation


def cells(only: Sequence[str]) -> Iterator[Cell]:
    """All of them, or those whose federation is named."""
    for gamma in GAMMAS:
        for name, spread in QUADRATICS.items():
            if not only or f"quadratic-{name}" in only:
                federation = fedgauge.random_quadratics(10, 20, conditioning=100.0, sigma2=1.0, **spread)
                least = federation.minimiser()[1]
                first, _ = federation.pooled(federation.start(0), np.arange(10), np.full(10, 0.1))
                goal = least + QUADRATIC_GOALS[gamma] * (first - least)
                yield Cell(f"quadratic-{name}", gamma, goal, federation)
        for name in PARTITIONS:
            if not only or f"digits-{name}" in only:
                yield Cell(f"digits-{name}", gamma, DIGITS_GOALS[gamma], _digits(name))


def _kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What is in the file, or is made and written there."""
    if not path.exists():
        write_json(path, make())
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def fixed(cell: Cell, local_steps: int, seed: int) -> dict[str, Any]:
    """The losses of a run with so many local steps, round by round."""
    rounds = min(ROUNDS, max(STEPS // local_steps, 1))
    trace = fedgauge.simulate(
        cell.federation,
        fedgauge.fedavg(gamma=cell.gamma),
        local_steps=local_steps,
        rounds=rounds,
        seed=seed,
        target_loss=cell.goal,
        watch=False,
        processes=1,
    )
    return {"status": trace.status, "losses": trace.losses.tolist()}
