"""The federations on which plans are compared: quadratics with known constants, digits, MNIST and CIFAR-10."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedgauge.algorithms.cost import Cost
from fedgauge.data.loader import load_dataset
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.simulation.experiment.config import Experiment
from fedgauge_planning.goal import Goal

COSTS = {
    "cross-device": Cost.parse("cross-device"),
    "cross-silo": Cost.parse("cross-silo"),
    # Workers on one machine: a little coordination, no network.
    "near": Cost.parse("fixed=0.01,step=0.001"),
}
STEPS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Case:
    """A federation with its goal.

    Attributes:
        name: its name.
        options: the options of the experiment.
        goal: what to reach.
        gammas: the rates of the exhaustive grid.
        steps: the local steps of the grid.
        seeds: the number of seeds with which each cell of the grid is run.
        limit: rounds after which a cell with I = 1 is given up in any case; others after this number over sqrt(I).
        quadratic: how to draw the federation, if it is one of quadratics.
        narrow: whether the plan may choose only among the cells of the grid, because a run takes long.
        fresh: whether it was looked at only once the method was fixed.
    """

    name: str
    options: Mapping[str, Any]
    goal: Goal
    gammas: tuple[float, ...] = (0.1 / 9, 0.1 / 3, 0.1, 0.3, 0.9)
    steps: tuple[int, ...] = STEPS
    seeds: int = 3
    limit: int = 4000
    quadratic: Mapping[str, Any] = field(default_factory=dict)
    narrow: bool = False
    fresh: bool = False

    @property
    def over(self) -> dict[str, list[Any]]:
        """The values to which the plan is restricted."""
        return {"local_steps": [*self.steps], "gamma": [*self.gammas], "eta": [1.0]} if self.narrow else {}

    def experiment(self, place: Path) -> Experiment:
        """The experiment, with its files in a directory; the user's own rate is the middle one of the grid."""
        own = {"gamma": self.gammas[len(self.gammas) // 2], "local_steps": 16 if self.narrow else 10}
        if self.quadratic:
            path = place / f"{self.name}.json"
            if not path.exists():
                random_quadratics(**self.quadratic).write(path)
            return Experiment.of({"source": str(path), **own})
        return Experiment.of({**self.options, **own, "source": source(str(self.options["source"]), place)})


def source(name: str, place: Path) -> str:
    """The name of a data set, or the path of the file that holds part of it."""
    return str(place / f"{name}.npz") if name in ("mnist", "cifar10") else name


def make_parts(data: str, place: Path) -> None:
    """Save 6,000 examples of MNIST and 600 of CIFAR-10 for training, and a third as many for testing, to save time."""
    for name, train in (("mnist", 6000), ("cifar10", 600)):
        path = place / f"{name}.npz"
        if not path.exists():
            whole = load_dataset(name, data)
            pick = np.random.default_rng(0).permutation(whole.num_train)[:train]
            np.savez(
                path,
                x_train=whole.train_inputs[pick],
                y_train=whole.train_labels[pick],
                x_test=whole.test_inputs[: train // 3],
                y_test=whole.test_labels[: train // 3],
            )


def _pictures(name: str, model: Mapping[str, Any], goals: Mapping[str, str]) -> list[Case]:
    kinds: dict[str, dict[str, Any]] = {
        "iid": {"scheme": "iid"},
        "paper": {"scheme": "paper", "percent": 75},
        "dirichlet": {"scheme": "dirichlet", "alpha": 0.1},
        "shards": {"scheme": "shards", "shards": 2},
        "quantity": {"scheme": "quantity"},
    }
    return [
        Case(f"{name}-{kind}", {"source": name, **model, **kinds[kind]}, Goal.parse(goal))
        for kind, goal in goals.items()
    ]


def _quadratics(name: str, goal: str, fresh: bool = False, **options: Any) -> Case:
    return Case(name, {}, Goal.parse(goal), gammas=(0.02, 0.06, 0.18, 0.54, 1.62), quadratic=options, fresh=fresh)


def _fresh(name: str, goal: str, **options: Any) -> Case:
    return Case(name, options, Goal.parse(goal), fresh=True)


_WIDE = {"model": "mlp", "model_option": {"width": 200}}
CASES = {
    case.name: case
    for case in (
        _quadratics("quad-equal", "grad2=1e-3", hessian_spread=0.0, linear_spread=5.0, sigma2=1.0, seed=1),
        _quadratics("quad-mild", "grad2=3e-4", hessian_spread=0.1, linear_spread=2.0, sigma2=0.1, seed=2),
        _quadratics("quad-strong", "grad2=1e-3", hessian_spread=0.8, linear_spread=2.0, sigma2=0.1, seed=3),
        *_pictures(
            "digits",
            {},
            {
                "iid": "loss=0.03",
                "paper": "loss=0.08",
                "dirichlet": "accuracy=0.945",
                "shards": "loss=0.12",
                "quantity": "accuracy=0.96",
            },
        ),
        *_pictures(
            "mnist",
            {"model": "mlp", "model_option": {"width": 64}},
            {
                "iid": "accuracy=0.91",
                "paper": "loss=0.2",
                "dirichlet": "accuracy=0.87",
                "shards": "loss=0.35",
                "quantity": "loss=0.12",
            },
        ),
        Case(
            "cifar10-cnn",
            {"source": "cifar10", "model": "cnn", "model_option": {"filters": 16}}
            | {"scheme": "paper", "percent": 50, "fill": True, "workers": 3},
            Goal("loss", 1.9),
            gammas=(0.03, 0.1, 0.3),
            steps=(4, 16, 64),
            seeds=1,
            limit=100,
            narrow=True,
        ),
        _quadratics("quad-fresh", "grad2=1e-2", fresh=True, hessian_spread=0.3, linear_spread=3.0, sigma2=0.3, seed=17),
        _fresh("digits-softmax", "loss=0.5", source="digits", model="softmax", scheme="dirichlet", alpha=0.3),
        _fresh("digits-twenty", "loss=0.1", source="digits", scheme="paper", percent=60, workers=20, batch_size=10),
        _fresh("digits-few", "accuracy=0.93", source="digits", scheme="shards", shards=4, workers=5),
        _fresh("mnist-softmax", "loss=0.6", source="mnist", model="softmax", scheme="dirichlet", alpha=0.5),
        # This one showed that a smaller rate with more local steps was left out too soon.
        _quadratics("quad-later", "grad2=3e-3", hessian_spread=0.5, linear_spread=1.0, sigma2=0.2, seed=23),
        # Looked at only after that.
        _quadratics("quad-last", "grad2=5e-3", fresh=True, hessian_spread=0.4, linear_spread=4.0, sigma2=0.5, seed=31),
        _fresh("digits-rotated", "loss=0.4", source="digits", scheme="iid", shift="rotation=0.6"),
        _fresh("digits-half", "loss=0.08", source="digits", percent=40, batch_size=40),
        _fresh("digits-wide", "loss=0.1", source="digits", scheme="dirichlet", alpha=0.2, workers=15, **_WIDE),
        _fresh("digits-swapped", "loss=1.6", source="digits", scheme="iid", shift="swap=0.5", workers=8),
    )
}
