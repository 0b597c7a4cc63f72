"""What is mixed up: small experiments that differ in their data, seed or first model, each with its measured constants.

Every case is made of files, as a user has them: a federation or a data set, ``measure.json``, and a first model where
one is chosen.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedgauge.algorithms import fedavg
from fedgauge.base.files import write_json
from fedgauge.federation.identity import digest_of
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.measurement.session import MeasureOptions, measure
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import prepare
from fedgauge.simulation.loop import simulate
from fedgauge.simulation.options import Compute, Recording
from fedgauge.simulation.setup import Setup
from fedgauge.theory.expectation import expect
from fedgauge.theory.inputs import Quantity

RUNS = 3
"""Runs with mini-batches by which a statement about an expectation is judged: it falls if every one exceeds it."""

_DATA = {
    "source": "digits",
    "partition_seed": 0,
    "workers": 4,
    "per_worker": 100,
    "percent": 50.0,
    "gamma": 0.01,
    "processes": 1,
}


@dataclass(frozen=True)
class AuditCase:
    """An experiment, and the first model with which it is run if that is not the seed's own.

    Attributes:
        name: what it is, for the record.
        experiment: the experiment.
        start: the flat first model; None for the seed's own.
        directory: where its files are.
        prepared: the same federation, prepared for another seed or first model.
    """

    name: str
    experiment: Experiment
    start: torch.Tensor | None
    directory: Path
    prepared: Setup

    @cached_property
    def setup(self) -> Setup:
        """The experiment, prepared, with its first model."""
        experiment = self.experiment
        return replace(self.prepared, seed=experiment.run.seed, start=self.start, experiment=experiment.to_json())

    @cached_property
    def start_digest(self) -> str:
        """The digest of the first model."""
        return digest_of(self.setup.first_model)

    @cached_property
    def constants_file(self) -> Path:
        """The file that ``fedgauge measure`` writes, with all that can be certified."""
        proved = self.experiment.model.name != "mlp"
        readings = ("certified", "divergence") if proved else ("divergence", "noise", "trajectory")
        options = MeasureOptions(readings, rounds=1, seeds=1)
        found = measure(self.setup, model=self.setup.first_model, origin="first model", options=options)
        file = self.directory / "measure.json"
        write_json(file, found.to_json())
        return file

    def constants(self) -> dict[str, Any]:
        """The content of that file."""
        return dict(json.loads(self.constants_file.read_text(encoding="utf-8")))

    def seen(self, gamma: float, eta: float, local_steps: int, rounds: int, quantity: Quantity) -> float:
        """The least E|grad f|^2 or E f - f* of FedAvg over the models that a theorem counts.

        It is exact for quadratics. On data it is the smallest of :data:`RUNS` runs' least values, so that a bound on
        the expectation that is below it is refuted beyond chance. No average is below the least value, so that a bound
        on an average is refuted as well.
        """
        setup, algorithm, loss = self.setup, fedavg(gamma, eta), quantity.measure == "loss"
        counts: dict[str, Any] = {"local_steps": local_steps, "rounds": rounds}
        if isinstance(setup.federation, QuadraticFederation):
            first = setup.first_model.numpy()
            federation = QuadraticFederation.from_json({**setup.federation.to_json(), "start": first.tolist()})
            found = expect(federation, algorithm, **counts, iterations=quantity.models == "local steps")
            least = min((found.loss if loss else found.grad2)[:-1])
            return float(least - federation.constants_at()["f_star"].high) if loss else float(least)
        counts |= {
            "start": setup.first_model,
            "record": Recording(every=1, watch=False),
            "compute": Compute(processes=1),
        }
        traces = [simulate(setup.federation, algorithm, seed=seed, **counts) for seed in range(RUNS)]
        least = min(float((trace.losses if loss else trace.grad2)[:-1].min()) for trace in traces)
        return least - float(self.constants()["constants"]["f_star"]["high"]) if loss else least


def quadratic_cases(directory: Path, generator: np.random.Generator) -> list[AuditCase]:
    """Two federations of quadratics, each from its own first model and from one far away, with two seeds."""
    spread = float(generator.choice([0.0, 0.0, 0.0, 0.0, 1e-13, 0.3]))
    # Hessians that differ in their last digits, and pulls that make up for it.
    pull = 10.0 ** float(generator.uniform(13, 14) if spread == 1e-13 else generator.uniform(-1, 2))
    found = []
    for number in range(2):
        federation = random_quadratics(
            int(generator.integers(2, 5)),
            int(generator.integers(1, 5)),
            hessian_spread=spread,
            linear_spread=pull,
            conditioning=10.0 ** float(generator.uniform(0, 2)),
            smoothness=10.0 ** float(generator.uniform(-1, 1)),
            sigma2=float(generator.choice([0.0, 0.1])),
            seed=int(generator.integers(2**32)),
        )
        file = directory / f"quadratics-{number}.json"
        federation.write(file)
        far = torch.from_numpy(generator.standard_normal(federation.dim) * 10.0 ** float(generator.uniform(1, 4)))
        base = Experiment.of({"source": str(file), "gamma": 0.01, "processes": 1})
        found += _variants(f"quadratics {number}", base, prepare(base), far, directory / str(number))
    return found


def data_cases(directory: Path, generator: np.random.Generator) -> list[AuditCase]:
    """Digits with softmax regression, linear regression and an MLP, with two seeds and first models each."""
    found = []
    for name, changes in (
        ("softmax", {"model": "softmax"}),
        ("softmax, small batches", {"model": "softmax", "batch_size": 5}),
        ("linear", {"model": "linear"}),
        ("mlp", {"model": "mlp"}),
    ):
        base = Experiment.of({**_DATA, **changes})
        made = prepare(base)
        far = torch.from_numpy(generator.standard_normal(made.federation.dim)).float() * 10.0
        found += _variants(name, base, made, far, directory / name.replace(", ", "-").replace(" ", "-"))
    return found


def _variants(name: str, base: Experiment, prepared: Setup, far: torch.Tensor, directory: Path) -> list[AuditCase]:
    made = [
        AuditCase(name, base, None, directory / "own", prepared),
        AuditCase(f"{name}, seed 3", base.changed({"seed": 3}), None, directory / "seed", prepared),
        AuditCase(f"{name}, far start", base, far, directory / "far", prepared),
    ]
    for case in made:
        case.directory.mkdir(parents=True, exist_ok=True)
    return made
