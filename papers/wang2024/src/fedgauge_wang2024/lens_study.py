"""Which measure of heterogeneity orders federations as the harm of local steps does.

One data set is divided in many ways. On each partition, FedAvg with gamma 0.1, eta 1 and the paper's MLP runs to a
training loss with I = 1, 10 and 40 local steps, and

    slowdown(I) = I · rounds(I) / rounds(1),

the number of gradient steps to that loss, divided by what it is when the workers average after every step: 1 where
local steps lose nothing. The lenses look at the model after a fixed number of rounds with I = 1, where no worker has
drifted yet; Hessians are taken over some of each worker's examples, and the gauge measures around that model. All
examples have the same weight, so that f is the same on every partition except for examples that are dropped.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedgauge.base.errors import MOST_RUNS, InputError, count, nearest
from fedgauge.base.progress import silent
from fedgauge.base.randomness import Purpose, Streams, check_seed
from fedgauge.base.types import Floats, Progress
from fedgauge.data.dataset import Labels
from fedgauge.data.loader import load_dataset
from fedgauge.data.partition import Partition
from fedgauge.data.scaling import standardise
from fedgauge.data.schemes import SCHEMES
from fedgauge.federation.participation import Participation
from fedgauge.simulation.options import HERE, NEVER, Compute, Recording, StopAt
from fedgauge_planning.jobs import make_pool
from fedgauge_wang2024.cells import CellJob, run_cells
from fedgauge_wang2024.lens_orders import orders
from fedgauge_wang2024.results import LensStudy

if TYPE_CHECKING:
    import torch

    from fedgauge.federation.supervised import SupervisedFederation
    from fedgauge.values import Trace

PARTITIONS: Mapping[str, Mapping[str, Any]] = {
    "iid": {"scheme": "iid"},
    "quantity 0.5": {"scheme": "quantity", "alpha": 0.5, "least": 40},
    "paper 25%": {"scheme": "paper", "percent": 25.0},
    "paper 50%": {"scheme": "paper", "percent": 50.0},
    "paper 75%": {"scheme": "paper", "percent": 75.0},
    "paper 90%": {"scheme": "paper", "percent": 90.0, "fill": True},
    "paper 100%": {"scheme": "paper", "percent": 100.0, "fill": True},
    "dirichlet 1": {"scheme": "dirichlet", "alpha": 1.0, "least": 40},
    "dirichlet 0.3": {"scheme": "dirichlet", "alpha": 0.3, "least": 40},
    "dirichlet 0.1": {"scheme": "dirichlet", "alpha": 0.1, "least": 40},
    "dirichlet 0.05": {"scheme": "dirichlet", "alpha": 0.05, "least": 40},
    "shards 5": {"scheme": "shards", "shards": 5},
    "shards 2": {"scheme": "shards", "shards": 2},
    "shards 1": {"scheme": "shards", "shards": 1},
}
SETTINGS: Mapping[str, Any] = {
    "examples": 15000,
    "workers": 10,
    "gamma": 0.1,
    "batch_size": 20,
    "target": 0.3,
    "local_steps": (10, 40),
    # Gradient steps between two records of the loss; the crossing is interpolated.
    "record": 120,
    "most_slowdown": 5,
    "most_rounds": 4000,
    "measured_at": 300,
    # Examples of each worker that Hessians are taken over.
    "hessian_examples": 100,
    "tolerance": 0.05,
}


def steps_to(trace: Trace, target: float, local_steps: int) -> float:
    """Gradient steps until the loss is at ``target``, interpolated between records; infinite where it never is."""
    before = None
    for record in trace.rounds:
        if record.loss <= target:
            if before is None:
                return float(local_steps * record.round)
            part = (before.loss - target) / (before.loss - record.loss)
            return local_steps * (before.round + part * (record.round - before.round))
        before = record
    return math.inf


class PartitionedProblem(NamedTuple):
    """One partition: the workers, their weights, and the data behind them."""

    federation: SupervisedFederation
    participation: Participation
    partition: Partition
    inputs: Floats
    labels: Labels


@lru_cache(maxsize=1)
def _examples(source: str, data: str | None, number: int) -> tuple[Any, Labels]:
    """Some of the training examples, the same for every partition and seed."""
    dataset = standardise(load_dataset(source, data), "unit")
    chosen = np.sort(Streams(0, Purpose.MEASURE).at(round=8).permutation(dataset.num_train)[:number])
    return dataset.train_inputs[chosen], dataset.train_labels[chosen]


def problem(source: str, data: str | None, name: str, seed: int, settings: Mapping[str, Any]) -> PartitionedProblem:
    """Share the examples out; the seed is that of the partition and of the first model too."""
    import torch

    from fedgauge.federation.models import make_model
    from fedgauge.federation.supervised import SupervisedFederation

    inputs, labels = _examples(source, data or os.environ.get("FEDGAUGE_DATA"), settings["examples"])
    parameters = dict(PARTITIONS[name])
    partition = SCHEMES[parameters.pop("scheme")](labels, settings["workers"], seed=seed, **parameters)
    model = make_model("mlp", inputs.shape[1:], int(labels.max()) + 1)
    federation = SupervisedFederation(
        model.make,
        model.loss,
        torch.from_numpy(np.array(inputs)),
        torch.from_numpy(np.array(labels)),
        partition,
        batch_size=settings["batch_size"],
    )
    return PartitionedProblem(federation, Participation(weights=partition.weights), partition, inputs, labels)


def measure_cell(source: str, data: str | None, name: str, seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run one partition with one seed: the slowdowns, and what every lens shows."""
    shared = problem(source, data, name, seed, settings)
    slowdowns, steps = _slowdowns(shared, seed, settings)
    found = _looked(shared, seed, settings)
    return {"partition": name, "seed": seed, "steps": steps, "slowdown": slowdowns, **found}


def _train(
    shared: PartitionedProblem,
    seed: int,
    settings: Mapping[str, Any],
    local_steps: int,
    rounds: int,
    every: int,
    stop: StopAt = NEVER,
) -> Trace:
    from fedgauge.algorithms import fedavg
    from fedgauge.simulation.loop import simulate

    return simulate(
        shared.federation,
        fedavg(settings["gamma"]),
        local_steps=local_steps,
        rounds=rounds,
        participation=shared.participation,
        seed=seed,
        stop=stop,
        record=Recording(every=every, watch=False),
        compute=Compute(processes=1),
    )


def _slowdowns(
    shared: PartitionedProblem, seed: int, settings: Mapping[str, Any]
) -> tuple[dict[str, float], dict[str, float | None]]:
    """The slowdown of each I, and the steps behind it; infinite where the run was given up."""
    target = settings["target"]

    def taken(local_steps: int, rounds: int) -> float:
        every = max(settings["record"] // local_steps, 1)
        return steps_to(
            _train(shared, seed, settings, local_steps, rounds, every, StopAt(loss=target)), target, local_steps
        )

    once = taken(1, settings["most_rounds"])
    if math.isinf(once):
        raise InputError(
            f"The loss did not reach {target:g} within {settings['most_rounds']} rounds even with one local step;"
            " set a higher target."
        )
    found, steps = {}, {"1": once}
    for local_steps in settings["local_steps"]:
        number = taken(local_steps, math.ceil(settings["most_slowdown"] * once / local_steps))
        steps[str(local_steps)] = number
        found[str(local_steps)] = number / once
    return found, {local: None if math.isinf(number) else number for local, number in steps.items()}


def _looked(shared: PartitionedProblem, seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What every lens shows at the model after some rounds with one local step."""
    import torch

    from fedgauge.measurement.curvature import curvature
    from fedgauge.measurement.passes import Meter
    from fedgauge.measurement.values import whole
    from fedgauge_wang2024.lens_reading import LENSES, lenses

    rounds, weights = settings["measured_at"], shared.partition.weights
    trace = _train(shared, seed, settings, 1, rounds, rounds)
    model = torch.from_numpy(trace.model).to(shared.federation.start(0))
    found: dict[str, float] = {}
    with Meter(shared.federation, weights=weights, seed=seed, compute=Compute(processes=1)) as meter:
        reading = lenses(
            meter,
            model,
            gamma=settings["gamma"],
            local_steps=max(settings["local_steps"]),
            partition=shared.partition,
            labels=shared.labels,
            only=[name for name, lens in LENSES.items() if lens.needs != "Hessians"],
        )
    names = {"L_h": "L_h seen", "L_tilde": "L_tilde seen"}
    found |= {names.get(one.symbol, one.symbol): one.value for one in whole(reading).estimates}
    smaller = _fewer(shared, seed, settings["hessian_examples"])
    with Meter(smaller, weights=weights, seed=seed, compute=Compute(processes=1)) as meter:
        bent = curvature(meter, model, settings["tolerance"])
        delta = lenses(meter, model, only=["delta"], tolerance=settings["tolerance"])
    found |= {one.symbol: one.value for one in (*whole(bent).estimates, *whole(delta).estimates)}
    # The terms of the bounds that local steps add: zeta L_h in Theorem 4.3, zeta L_tilde in those before it.
    found["zeta_rms L_h seen"] = found["zeta_rms"] * found["L_h seen"]
    found["zeta_rms L_h"] = found["zeta_rms"] * found["L_h"]
    found["zeta_rms L_tilde"] = found["zeta_rms"] * found["L_tilde"]
    found["gauge"] = _gauged(shared, seed, settings, model)
    return {"loss": trace.rounds[-1].loss, "grad2": reading.details["grad2"], "lenses": found}


def _gauged(shared: PartitionedProblem, seed: int, settings: Mapping[str, Any], model: torch.Tensor) -> float:
    """The slowdown that the gauge finds around a model; where it gives no number, the least that is not excluded."""
    from fedgauge.algorithms import fedavg
    from fedgauge.measurement.gauge.gauge import gauge
    from fedgauge.measurement.gauge.result import GaugeOptions

    found = gauge(
        shared.federation,
        fedavg(settings["gamma"]),
        options=GaugeOptions(local_steps=(max(settings["local_steps"]),), around=True),
        participation=shared.participation,
        seed=seed,
        start=model,
        compute=Compute(processes=1),
    ).efficiency[-1]
    return 1 / (found.value or found.high)


def _fewer(shared: PartitionedProblem, seed: int, examples: int) -> SupervisedFederation:
    """The same workers, each with some of its examples: Hessians over all of them take too long."""
    import torch

    from fedgauge.federation.supervised import SupervisedFederation

    streams, kept = Streams(seed, Purpose.MEASURE), []
    for worker in range(shared.partition.num_workers):
        mine = shared.partition.worker(worker)
        kept.append(np.sort(streams.at(round=9, worker=worker).permutation(mine)[:examples]))
    whole = shared.federation
    inputs, labels = torch.from_numpy(np.array(shared.inputs)), torch.from_numpy(np.array(shared.labels))
    return SupervisedFederation(whole.module, whole.loss, inputs, labels, kept)


def run(
    source: str = "mnist",
    data: str | None = None,
    seeds: int = 5,
    seed: int = 0,
    keep: Path | None = None,
    compute: Compute = HERE,
    partitions: Sequence[str] | None = None,
    progress: Progress = silent,
    **changes: Any,
) -> dict[str, Any]:
    """Run every partition with every seed, and compare the lenses' orders with that of the slowdown.

    Args:
        source: the data set.
        data: its directory.
        seeds: how many.
        seed: the first.
        keep: directory where finished cells are kept, so that an interrupted command can be resumed.
        compute: where the work is done, and how many processes at once.
        partitions: which of :data:`PARTITIONS`; all by default.
        progress: called with the cell that was measured last, and the numbers of cells done and of all cells.
        **changes: settings that differ from :data:`SETTINGS`.
    """
    count("seeds", seeds, most=MOST_RUNS)
    check_seed(seed)
    names = list(PARTITIONS) if partitions is None else list(partitions)
    for name in names:
        if name not in PARTITIONS:
            raise InputError(f"There is no partition {name!r}; {nearest(name, PARTITIONS)}")
    settings = {**SETTINGS, **changes}
    wanted = [(name, one) for one in range(seed, seed + seeds) for name in names]
    wanted_cells = {
        _name(source, *key): CellJob([source, data, *key, settings], (source, data, *key, settings)) for key in wanted
    }
    found = run_cells(measure_cell, wanted_cells, keep, make_pool(compute), progress)
    ordered = [*found.values()]
    return LensStudy(
        settings={"source": source, "seeds": seeds, "seed": seed, **settings},
        partitions={name: dict(PARTITIONS[name]) for name in names},
        orders=orders(ordered, names, seed),
        cells=tuple(ordered),
    ).to_json()


def _name(source: str, partition: str, seed: int) -> str:
    return f"{source}-{partition.replace(' ', '-').replace('%', '')}-{seed}"
