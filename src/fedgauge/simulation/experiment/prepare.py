"""Turn an experiment into a federation, and run it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from fedgauge.algorithms import make_algorithm
from fedgauge.algorithms.adaptive_pace import CAP, Pace, adaptive_pace
from fedgauge.algorithms.base import Algorithm
from fedgauge.algorithms.paces import Chosen, Live, Rule, parse_rule
from fedgauge.base.devices import choose_device
from fedgauge.base.errors import InputError, nearest
from fedgauge.base.threads import undisturbed
from fedgauge.data.dataset import Dataset
from fedgauge.data.loader import load_dataset
from fedgauge.data.partition import Partition
from fedgauge.data.scaling import standardise
from fedgauge.data.schemes import make_partition
from fedgauge.data.shifts import changes_inputs, shift_data
from fedgauge.federation.checks import as_tensor
from fedgauge.federation.factory import federate
from fedgauge.federation.lazy import shape_of
from fedgauge.federation.models import Model, make_model
from fedgauge.federation.participation import Participation, check_draws
from fedgauge.federation.protocols import Federation, HasSamples
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.user_data import (
    PerWorker,
    TestSet,
    as_data,
    load_user_data,
    prepared,
    refuse_division,
)
from fedgauge.simulation.loop import simulate
from fedgauge.simulation.options import Evaluator, Keep, Recording
from fedgauge.simulation.setup import Setup, Steps, steps_of_epochs
from fedgauge.values import Observer, Trace

_PAIR = ("inputs", "targets")


@undisturbed
def prepare(experiment: Experiment, data: Any = None) -> Setup:
    """Read the data, divide it among the workers, make the model, and check that everything fits together.

    Args:
        experiment: what to run.
        data: a :class:`Dataset`, a torch data set or a :class:`PerWorker`, instead of what the experiment names.

    >>> setup = prepare(Experiment.of({"source": "digits", "gamma": 0.1}))
    >>> setup.federation.num_workers, setup.federation.dim
    (10, 7510)
    """
    experiment, given = _given(experiment.check_rate(), data)
    if experiment.data.is_quadratic:
        return _setup(experiment, QuadraticFederation.read(experiment.data.name))
    if isinstance(given, PerWorker):
        return _of_workers(experiment, given)
    dataset, partition = share_out(experiment, given)
    model = _model(experiment, dataset.train_inputs.shape[1:], dataset.num_classes)
    shards = [partition.worker(number) for number in range(partition.num_workers)]
    changed = experiment.data.shift is not None and changes_inputs(experiment.data.shift)
    inputs, labels = _tensor(dataset.train_inputs, changed), _tensor(dataset.train_labels)

    def make(**how: Any) -> SupervisedFederation:
        return SupervisedFederation(model.make, model.loss, inputs, labels, shards, **how)

    supervised = _federation(experiment, model, dataset.name, f"inputs of shape {tuple(inputs.shape[1:])}", make)
    part, evaluator = slice(experiment.data.test_examples), None
    if dataset.num_test and (dataset.has_labels or model.accuracy):
        tests = _tensor(dataset.test_inputs[part]), _tensor(dataset.test_labels[part])
        evaluator = TestSet(supervised, *tests, model.accuracy)
    _check_target(experiment, dataset.name, bool(dataset.num_test), evaluator)
    return _setup(experiment, supervised, evaluator, dataset, partition)


def _given(experiment: Experiment, data: Any) -> tuple[Experiment, Dataset | PerWorker | None]:
    """The data of the user's own, if it is that, and the experiment with its name."""
    if data is not None:
        data_set = as_data(data, "data")
        name = data_set.name if isinstance(data_set, Dataset) else "data"
        return experiment.changed({"source": name}), data_set
    return experiment, load_user_data(experiment.data.name) if experiment.data.is_user_code else None


def _of_workers(experiment: Experiment, given: PerWorker) -> Setup:
    """The set-up of an experiment on data that are divided already."""
    refuse_division(experiment.data)
    shape = shape_of(given.shards[0])
    model, name = _model(experiment, shape, given.classes), experiment.data.name

    def make(**how: Any) -> SupervisedFederation:
        return federate(model.make, model.loss, given.shards, **how)

    supervised = _federation(experiment, model, name, f"inputs of shape {shape}", make)
    evaluator = None
    if given.test is not None:
        number = supervised.start(0).dtype
        inputs, labels = (
            as_tensor(f"The test {what}", part, number) for what, part in zip(_PAIR, given.test, strict=True)
        )
        if model.accuracy or (labels.ndim == 1 and not labels.is_floating_point()):
            evaluator = TestSet(supervised, inputs, labels, model.accuracy)
    _check_target(experiment, name, given.test is not None, evaluator)
    return _setup(experiment, supervised, evaluator)


def _check_target(experiment: Experiment, name: str, tested: bool, evaluator: Evaluator | None) -> None:
    if experiment.run.stop.accuracy is None or evaluator is not None:
        return
    if tested:
        raise InputError(
            f"The goal accuracy needs one class per example, which {name} does not have; leave it out, or return a"
            " Model with an accuracy of its own."
        )
    raise InputError(
        f"The goal accuracy needs test examples, but {name} has none; leave it out, or add x_test and y_test to the"
        " data."
    )


def _setup(
    experiment: Experiment,
    federation: Federation,
    evaluator: Evaluator | None = None,
    dataset: Dataset | None = None,
    partition: Partition | None = None,
) -> Setup:
    run = experiment.run
    check_draws(run.participants, run.sampling, federation.num_workers)
    sizes: tuple[float, ...] | None = None
    if partition is None and isinstance(federation, HasSamples):
        each = federation.sizes(np.arange(federation.num_workers))
        sizes = tuple((each / each.sum()).tolist())
    participation = participation_of(experiment, partition, sizes)
    participation.check(federation.num_workers)
    steps = local_steps_of(experiment, federation, participation)
    return Setup(
        federation,
        algorithm_of(experiment, steps),
        local_steps=steps,
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
    fixed = ("batch_size", "device") if before.data.partition_seed is not None else ("batch_size", "device", "seed")
    same = before.data == _described(experiment, setup.partition).data and before.model == experiment.model
    if not same or any(getattr(before.run, name) != getattr(experiment.run, name) for name in fixed):
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
    allowed = [each.name for each in fields(Setup) if each.name not in ("federation", "algorithm")]
    for name in chosen:
        if name not in allowed:
            raise InputError(f"A set-up has no {name!r}; {nearest(name, allowed)}")
    return Setup(source, algorithm, **chosen)


def algorithm_of(experiment: Experiment, local_steps: Steps) -> Algorithm:
    """The algorithm of an experiment, with its parameters; schedules that do not say when they end go over the run."""
    rounds = experiment.run.rounds
    if isinstance(local_steps, Pace | Chosen):
        steps: float | None = local_steps.steps if isinstance(local_steps, Rule) else None
        if isinstance(local_steps, Live):
            steps = local_steps.total(rounds)
    else:
        steps = rounds * float(np.mean(local_steps))
    return make_algorithm(experiment.algorithm.name, **experiment.algorithm.parameters_in(rounds, steps))


def share_out(experiment: Experiment, given: Dataset | PerWorker | None = None) -> tuple[Dataset, Partition]:
    """Read the data of an experiment, which must not be quadratic, divide it among the workers, and shift it.

    Args:
        experiment: what to run.
        given: data of the user's own, if it has been read already.

    >>> dataset, partition = share_out(Experiment.of({"source": "digits", "gamma": 0.1}))
    >>> dataset.num_classes, partition.num_workers
    (10, 10)
    """
    data, directory = experiment.data, experiment.data.dir or os.environ.get("FEDGAUGE_DATA")
    if given is None and data.is_user_code:
        given = load_user_data(data.name)
    if isinstance(given, PerWorker):
        raise InputError(f"{data.name} gives every worker its own data, so that there is nothing to divide.")
    if given is None and not data.name.endswith(".npz") and data.targets != "values":
        dataset = _load(data.name, directory, data.scale, data.context)
    else:
        # A user's own file may change from one experiment to the next; published data sets do not.
        dataset = prepared(load_dataset(data.name, directory, context=data.context) if given is None else given, data)
    partition = _partition(experiment, dataset)
    if data.shift is not None:
        test = bool(data.shift_test)
        dataset = shift_data(dataset, partition, data.shift, seed=partition.seed, test=test).dataset
    return dataset, partition


@lru_cache(maxsize=1)
def _load(name: str, directory: str | None, scale: str | None, context: int | None) -> Dataset:
    """Load a published data set; the last one is cached for the next experiment."""
    return standardise(load_dataset(name, directory, context=context), scale)  # type: ignore[arg-type]  # validated there


def _partition(experiment: Experiment, dataset: Dataset) -> Partition:
    data = experiment.data
    seed = experiment.run.seed if data.partition_seed is None else data.partition_seed
    usual = "paper" if dataset.has_labels or data.divide_by else "iid"
    how: dict[str, Any] = {"divide_by": data.divide_by, "seed": seed, **data.scheme_parameters}
    return make_partition(dataset, data.scheme or usual, data.num_workers, **how)


def participation_of(
    experiment: Experiment, partition: Partition | None = None, sizes: tuple[float, ...] | None = None
) -> Participation:
    """Who takes part, and with which weights; without a partition, the workers' sizes are given."""
    run = experiment.run
    weights: Any = run.weights
    if weights == "sizes":
        weights = sizes if partition is None else partition.weights
    sampling = run.sampling or ("full" if run.participants is None else "with-replacement")
    return Participation(sampling, run.participants, cast("tuple[float, ...] | None", weights))


def _tensor(array: Any, made_here: bool = False) -> torch.Tensor:
    """A tensor with a copy of the array, as data sets are read-only and may be cached.

    An array that was made for this experiment alone is not copied once more: it may take most of the memory.
    """
    if made_here and array.base is not None and array.base.flags.writeable:
        return torch.from_numpy(array.base)
    return torch.from_numpy(np.array(array))


def _model(experiment: Experiment, shape: Sequence[int], classes: int) -> Model:
    name = experiment.model.name or "mlp"
    try:
        return make_model(name, shape, classes, **experiment.model.options)
    except InputError:
        raise
    except Exception as error:  # a user's own factory may raise anything
        raise InputError(
            f"The model {name} cannot be made: {_summary(error)}; its factory is called with the shape {tuple(shape)},"
            f" the number {classes} of classes and its options."
        ) from error


def _federation(
    experiment: Experiment, model: Model, name: str, given: str, make: Callable[..., SupervisedFederation]
) -> SupervisedFederation:
    run = experiment.run
    device = str(choose_device(run.device or "cpu"))
    try:
        return make(
            batch_size=run.batch_size or 20,
            l2=model.l2,
            augment=model.augment,
            batch_norm=experiment.model.batch_norm or model.batch_norm,
            device=device,
        )
    except InputError as error:
        raise InputError(f"{model.name} on {name}: {error}") from None
    except Exception as error:  # the model's own code, tried on a few examples
        raise InputError(
            f"The model {model.name} does not work on {name}, with {given}: {_summary(error)}; fix it or choose"
            " another."
        ) from error


def _summary(error: Exception) -> str:
    """The type of an error and the first line of its message."""
    first = (str(error).strip().splitlines() or [""])[0].rstrip(".;")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def local_steps_of(experiment: Experiment, federation: Federation, participation: Participation) -> Steps:
    """The local steps in the form that ``simulate`` takes."""
    run = experiment.run
    if run.local_epochs is not None:
        return steps_of_epochs(federation, run.local_epochs)
    if not isinstance(run.local_steps, str):
        return run.local_steps
    if run.local_steps != "auto":
        chosen = parse_rule(run.local_steps)
        if isinstance(chosen, Live) and chosen.cost is None and run.cost is not None:
            price = run.round_cost
            price.refuse_overlap("A live gauge")
            if price.steps is None and price.step is None:
                raise InputError(
                    f"local_steps = live needs the seconds that a local step takes, which the cost {run.cost} leaves"
                    " open; add them, as in local,step=0.001."
                )
            M = participation.num_participants(federation.num_workers)
            chosen = replace(chosen, cost=price.in_local_steps(federation, M))
        return chosen
    return adaptive_pace(run.round_cost, federation, participation, run.most_local_steps or CAP)


@undisturbed
def execute(
    experiment: Experiment,
    *,
    keep: str | Path | Keep | None = None,
    pause: int | None = None,
    start: torch.Tensor | None = None,
    observer: Observer | None = None,
    setup: Setup | None = None,
    data: Any = None,
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
        data: as for :func:`prepare`, instead of what the experiment names.

    >>> trace = execute(Experiment.of({"source": "digits", "gamma": 0.1, "rounds": 2, "processes": 1}))
    >>> trace.status, bool(trace.losses[-1] < trace.losses[0]), bool(trace.accuracies[-1] > 0)
    ('finished', True, True)
    """
    if setup is None and data is not None:
        setup = prepare(experiment, data)
        experiment = Experiment.from_json(setup.experiment)
    setup, run = prepare_again(experiment, setup) if setup else prepare(experiment), experiment.run
    directory = Keep.of(keep)
    if directory is not None:
        directory = replace(
            directory,
            checkpoint_every=run.checkpoint_every,
            description=_described(experiment, setup.partition).to_toml(),
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
        record=Recording(
            run.record_every,
            run.watch is not False,
            setup.evaluator,
            observer,
            run.record_sample,
            getattr(observer, "on_progress", None),
        ),
        compute=setup.compute,
        keep=directory,
    )


def _described(experiment: Experiment, partition: Partition | None) -> Experiment:
    """The experiment with what the partition chose by itself: to fill up a label with too few examples, or iid."""
    if partition is None:
        return experiment
    changes: dict[str, Any] = {}
    if experiment.data.fill is None and partition.parameters.get("fill"):
        changes["fill"] = True
    if experiment.data.scheme is None and partition.scheme != "paper":
        changes["scheme"] = partition.scheme
    return experiment.changed(changes) if changes else experiment
