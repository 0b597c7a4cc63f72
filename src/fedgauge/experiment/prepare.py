"""Turn an experiment into a federation, and run it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from fedgauge.algorithms import make_algorithm
from fedgauge.algorithms.base import Algorithm
from fedgauge.data.dataset import Dataset, standardise, warn_of_large_inputs
from fedgauge.data.loading import load_dataset
from fedgauge.data.partition import Partition
from fedgauge.data.schemes import make_partition
from fedgauge.errors import InputError
from fedgauge.experiment.config import Experiment
from fedgauge.experiment.sections import DataSection
from fedgauge.federation.models import Model, make_model
from fedgauge.federation.participation import Participation, check_draws
from fedgauge.federation.protocols import Federation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.pace.adaptive import CAP, adaptive_pace
from fedgauge.simulation.loop import simulate
from fedgauge.simulation.options import Evaluator, Keep, Observer, Recording
from fedgauge.simulation.setup import Setup, Steps
from fedgauge.values import Trace

_BLOCK = 2048
"""Number of test examples that are evaluated at once."""


class TestSet:
    """Examples that no worker trains on, to test a federation's global model with.

    Attributes:
        inputs: the examples, first axis over samples.
        labels: the label of each example.
        digest: a fingerprint of inputs and labels.
    """

    __test__ = False  # pytest must not collect it

    def __init__(self, federation: SupervisedFederation, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        device = federation.inputs.device
        self._federation, self.inputs, self.labels = federation, inputs.to(device), labels.to(device)
        sha = hashlib.sha256(inputs.cpu().numpy().tobytes())
        sha.update(labels.cpu().numpy().tobytes())
        self.digest = sha.hexdigest()

    def accuracy(self, model: torch.Tensor) -> float:
        """The fraction of examples whose label has the largest output."""
        parameters, right = self._federation.unflatten(model), 0
        with torch.no_grad():
            for first in range(0, len(self.labels), _BLOCK):
                part = slice(first, first + _BLOCK)
                outputs = torch.func.functional_call(self._federation.module, parameters, (self.inputs[part],))
                right += int((outputs.argmax(dim=1) == self.labels[part]).sum())
        return right / len(self.labels)


def prepare(experiment: Experiment) -> Setup:
    """Read the data, divide it among the workers, make the model, and check that everything fits together.

    >>> setup = prepare(Experiment.of({"source": "digits", "gamma": 0.1}))
    >>> setup.federation.num_workers, setup.federation.dim
    (10, 7510)
    """
    if experiment.data.is_quadratic:
        return _setup(experiment, QuadraticFederation.read(experiment.data.name))
    dataset, partition = share_out(experiment)
    supervised = _federation(experiment, dataset, partition)
    evaluator = None
    if dataset.num_test:
        part = slice(experiment.data.test_examples)
        evaluator = TestSet(supervised, _tensor(dataset.test_inputs[part]), _tensor(dataset.test_labels[part]))
    elif experiment.run.target_accuracy is not None:
        raise InputError(
            f"target_accuracy needs test examples, but {dataset.name} has none; leave it out, or add x_test and y_test"
            " to the data."
        )
    return _setup(experiment, supervised, evaluator, dataset, partition)


def _setup(
    experiment: Experiment,
    federation: Federation,
    evaluator: Evaluator | None = None,
    dataset: Dataset | None = None,
    partition: Partition | None = None,
) -> Setup:
    run = experiment.run
    check_draws(run.participants, run.sampling, federation.num_workers)
    participation = participation_of(experiment, partition)
    participation.check(federation.num_workers)
    return Setup(
        federation,
        algorithm_of(experiment),
        local_steps=_steps(experiment, federation, participation),
        rounds=run.rounds,
        participation=participation,
        seed=run.seed,
        compute=run.compute,
        evaluator=evaluator,
        dataset=dataset,
        partition=partition,
        experiment=_described(experiment, partition).to_json(),
    )


def prepare_again(experiment: Experiment, setup: Setup) -> Setup:
    """The set-up of an experiment with the same data and model as an earlier set-up, which are not read again."""
    before = Experiment.from_json(setup.experiment)
    kept = ("batch_size", "device") if before.data.partition_seed is not None else ("batch_size", "device", "seed")
    same = before.data == _described(experiment, setup.partition).data and before.model == experiment.model
    if not same or any(getattr(before.run, name) != getattr(experiment.run, name) for name in kept):
        raise InputError(
            "The set-up was made for an experiment with other data or another model; call prepare for this experiment."
        )
    return _setup(experiment, setup.federation, setup.evaluator, setup.dataset, setup.partition)


def setup_of(source: Federation | Experiment | Setup, algorithm: Algorithm | None = None, **how: Any) -> Setup:
    """Make a set-up from an experiment, or from a federation, an algorithm and further fields of :class:`Setup`.

    Fields that are None keep their defaults.

    >>> from fedgauge import fedavg, random_quadratics
    >>> setup_of(random_quadratics(4, 3), fedavg(gamma=0.1), local_steps=5, seed=None).local_steps
    5
    """
    chosen = {name: value for name, value in how.items() if value is not None}
    if isinstance(source, Experiment | Setup):
        if algorithm is not None or chosen:
            name = "algorithm" if algorithm is not None else next(iter(chosen))
            what = "experiment" if isinstance(source, Experiment) else "set-up"
            raise InputError(f"The {what} already says its {name}; change it there, or pass a federation instead.")
        return source if isinstance(source, Setup) else prepare(source)
    if algorithm is None:
        raise InputError("A federation needs an algorithm; pass one as well, such as fedavg(gamma=0.1).")
    return Setup(source, algorithm, **chosen)


def algorithm_of(experiment: Experiment) -> Algorithm:
    """The algorithm of an experiment, with its parameters."""
    return make_algorithm(experiment.algorithm.name, **experiment.algorithm.parameters)


def share_out(experiment: Experiment) -> tuple[Dataset, Partition]:
    """Read the data of an experiment, which must not be quadratic, and divide it among the workers.

    >>> dataset, partition = share_out(Experiment.of({"source": "digits", "gamma": 0.1}))
    >>> dataset.num_classes, partition.num_workers
    (10, 10)
    """
    data = experiment.data
    # A user's own file may change from one experiment to the next; published data sets do not.
    load = _load.__wrapped__ if data.name.endswith(".npz") else _load
    dataset = load(data.name, data.dir or os.environ.get("FEDGAUGE_DATA"), data.scale)
    if data.scale is None and data.name.endswith(".npz"):
        warn_of_large_inputs(dataset)
    return dataset, _partition(experiment, dataset)


@lru_cache(maxsize=1)
def _load(name: str, directory: str | None, scale: str | None) -> Dataset:
    """Load a data set; the last one is cached for the next experiment."""
    return standardise(load_dataset(name, directory), scale or "unit")  # type: ignore[arg-type]  # validated there


def partition_parameters(data: DataSection) -> dict[str, Any]:
    """The parameters of the partition scheme that have a value."""
    names = ("percent", "labels_per_worker", "per_worker", "fill", "alpha", "least", "shards")
    return {name: getattr(data, name) for name in names if getattr(data, name) is not None}


def _partition(experiment: Experiment, dataset: Dataset) -> Partition:
    data = experiment.data
    seed = experiment.run.seed if data.partition_seed is None else data.partition_seed
    scheme, parameters = data.scheme or "paper", partition_parameters(data)
    return make_partition(dataset, scheme, data.num_workers, labels=data.labels, seed=seed, **parameters)


def participation_of(experiment: Experiment, partition: Partition | None = None) -> Participation:
    """Who takes part, and with which weights."""
    run = experiment.run
    weights = partition.weights if run.weights == "sizes" and partition else run.weights
    sampling = run.sampling or ("full" if run.participants is None else "with-replacement")
    return Participation(sampling, run.participants, cast("tuple[float, ...] | None", weights))


def _tensor(array: Any) -> torch.Tensor:
    """A tensor with a copy of the array: the arrays of a data set are read-only."""
    return torch.from_numpy(np.array(array))


def _model(experiment: Experiment, dataset: Dataset) -> Model:
    name = experiment.model.name or "mlp"
    shape = dataset.train_inputs.shape[1:]
    try:
        return make_model(name, shape, dataset.num_classes, **experiment.model.options)
    except InputError:
        raise
    except Exception as error:  # a user's own factory may raise anything
        raise InputError(
            f"The model {name} cannot be made: {_summary(error)}; its factory is called with the shape {tuple(shape)},"
            f" the number {dataset.num_classes} of classes and its options."
        ) from error


def _federation(experiment: Experiment, dataset: Dataset, partition: Partition) -> SupervisedFederation:
    run, model = experiment.run, _model(experiment, dataset)
    device = run.device or "cpu"
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {device!r} cannot be used: {_summary(error)}; leave it out for the CPU.") from None
    shards = [partition.worker(number) for number in range(partition.num_workers)]
    inputs, labels = _tensor(dataset.train_inputs), _tensor(dataset.train_labels)
    try:
        return SupervisedFederation(
            model.make, model.loss, inputs, labels, shards, batch_size=run.batch_size or 20, l2=model.l2, device=device
        )
    except InputError as error:
        raise InputError(f"{model.name} on {dataset.name}: {error}") from None
    except Exception as error:  # the model's own code, tried on one example
        raise InputError(
            f"The model {model.name} does not work on {dataset.name}, with inputs of shape {tuple(inputs.shape[1:])}"
            f" and {dataset.num_classes} classes: {_summary(error)}; fix it or choose another."
        ) from error


def _summary(error: Exception) -> str:
    """The type of an error and the first line of its message."""
    first = (str(error).strip().splitlines() or [""])[0].rstrip(".;")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _steps(experiment: Experiment, federation: Federation, participation: Participation) -> Steps:
    """The local steps in the form that ``simulate`` takes."""
    run = experiment.run
    if run.local_steps != "auto":
        return run.local_steps
    return adaptive_pace(run.round_cost, federation, participation, run.most_local_steps or CAP)


def execute(
    experiment: Experiment,
    *,
    keep: str | Path | Keep | None = None,
    pause: int | None = None,
    start: torch.Tensor | None = None,
    observer: Observer | None = None,
    setup: Setup | None = None,
) -> Trace:
    """Run an experiment.

    Args:
        experiment: what to run.
        keep: the directory in which to save the run, or a :class:`~fedgauge.Keep` to resume one; by default, nothing is
            written.
        pause: pause at the first record at or after this round, to resume later.
        start: the first global model; by default, the federation's own for the seed.
        observer: function that is called after every round.
        setup: what :func:`prepare` returned for this experiment or for one with the same data and model; by default,
            ``prepare`` is called.

    >>> trace = execute(Experiment.of({"source": "digits", "gamma": 0.1, "rounds": 2, "processes": 1}))
    >>> trace.status, bool(trace.losses[-1] < trace.losses[0]), bool(trace.accuracies[-1] > 0)
    ('finished', True, True)
    """
    setup, run = prepare_again(experiment, setup) if setup else prepare(experiment), experiment.run
    kept = Keep.of(keep)
    if kept is not None:
        kept = replace(
            kept, checkpoint_every=run.checkpoint_every, description=_described(experiment, setup.partition).to_toml()
        )
    return simulate(
        setup.federation,
        setup.algorithm,
        local_steps=setup.local_steps,
        rounds=run.rounds,
        participation=setup.participation,
        seed=setup.seed,
        start=start,
        stop=replace(run.stop, round=pause),
        record=Recording(run.record_every, run.watch is not False, setup.evaluator, observer),
        compute=setup.compute,
        keep=kept,
    )


def _described(experiment: Experiment, partition: Partition | None) -> Experiment:
    """The experiment with ``fill`` set if the partition chose it by itself, because a label had too few examples."""
    filled = partition is not None and experiment.data.fill is None and partition.parameters.get("fill")
    return experiment.changed({"fill": True}) if filled else experiment
