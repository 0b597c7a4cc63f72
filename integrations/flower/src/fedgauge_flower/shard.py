"""The data and model of one node of a federation, and the worker that the node represents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Streams
from fedgauge.federation.kernels.base import Loss
from fedgauge.federation.modes import Augment, BatchNorm
from fedgauge.federation.protocols import Indices
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import prepare
from fedgauge.simulation.experiment.user_data import TestSet
from fedgauge.simulation.setup import Setup

RUN_KEYS = ("out", "resume", "timeout", "wait", "noise")
"""The keys of a run's configuration that are about the server, not the experiment."""


@dataclass(frozen=True)
class Shard:
    """The model that all nodes share, and the examples of one node.

    On a SuperNode, these are the examples on which its worker trains. On the server, they are the test examples of the
    global model, or any one example, which is enough to find the model's shapes.

    Attributes:
        model: a function that makes the module, or a module whose present parameters are the first model.
        loss: a function that returns the mean loss from (outputs, targets).
        inputs: the examples; the first axis runs over samples.
        targets: the labels or values, one per example.
        batch_size: the number of samples in a mini-batch.
        l2: the weight of half the squared norm in the objective.
        device: the device on which to compute.
        test: on the server, whether the examples are test examples.
        augment: a function that changes the inputs of a mini-batch at random in local steps.
        batch_norm: by whose statistics BatchNorm layers normalise: frozen or local.
    """

    model: nn.Module | Callable[[], nn.Module]
    loss: Loss
    inputs: torch.Tensor
    targets: torch.Tensor
    batch_size: int = 20
    l2: float = 0.0
    device: str = "cpu"
    test: bool = False
    augment: Augment | None = None
    batch_norm: BatchNorm = "frozen"

    def __post_init__(self) -> None:
        if self.batch_norm == "averaged":
            raise InputError(
                "Flower's messages hold parameters only, so BatchNorm's statistics cannot be averaged; choose"
                " batch_norm='frozen' or 'local'."
            )

    def federation(self) -> SupervisedFederation:
        """A federation with this node as its only worker."""
        return SupervisedFederation(
            self.model,
            self.loss,
            self.inputs,
            self.targets,
            [np.arange(len(self.targets))],
            batch_size=self.batch_size,
            l2=self.l2,
            augment=self.augment,
            batch_norm=self.batch_norm,
            device=self.device,
        )


def shard_of(experiment: Experiment, worker: int) -> Shard:
    """The shard of one worker of an experiment, for a node that can read the whole data set.

    >>> shard = shard_of(Experiment.of({"source": "digits", "scheme": "iid", "workers": 3, "gamma": 0.1}), 2)
    >>> len(shard.targets) in (479, 480), shard.test
    (True, False)
    """
    whole = _supervised(prepare(experiment))
    if not 0 <= worker < whole.num_workers:
        raise InputError(
            f"partition-id must be the number of a worker, from 0 to {whole.num_workers - 1}, not {worker}; start the"
            " node with another."
        )
    inputs, targets = whole.shard(worker)
    return _like(whole, inputs.clone(), targets.clone())


def held_out(experiment: Experiment) -> Shard:
    """The test examples of an experiment; if it has none, one of its training examples.

    >>> shard = held_out(Experiment.of({"source": "digits", "gamma": 0.1, "test_examples": 50}))
    >>> len(shard.targets), shard.test
    (50, True)
    """
    setup = prepare(experiment)
    whole = _supervised(setup)
    if not isinstance(setup.evaluator, TestSet):
        inputs, targets = whole.shard(0)
        return _like(whole, inputs[:1].clone(), targets[:1].clone())
    return _like(whole, setup.evaluator.inputs, setup.evaluator.labels, test=True)


def _supervised(setup: Setup) -> SupervisedFederation:
    if not isinstance(setup.federation, SupervisedFederation):
        raise InputError("Nodes need their own data, which a federation of quadratics does not have; name a data set.")
    return setup.federation


def _like(whole: SupervisedFederation, inputs: torch.Tensor, targets: torch.Tensor, test: bool = False) -> Shard:
    make = whole.module if whole._make is None else whole._make
    device = str(whole.inputs.device)
    return Shard(
        make, whole.loss, inputs, targets, whole.batch_size, whole.l2, device, test, whole._augment, whole.batch_norm
    )


class _Readdressed:
    """Random streams that always give the draws of one worker, whichever worker is requested."""

    def __init__(self, streams: Streams, worker: int) -> None:
        self._streams, self._worker = streams, worker

    def at(self, round: int = 0, worker: int = 0, copy: int = 0) -> np.random.Generator:
        """The generator at this worker's address."""
        return self._streams.at(round, self._worker, copy)


class OwnWorker:
    """Worker i of a federation of N, as its own node sees it: only its own data, and the same draws as in a local run.

    It has the operations on rows that local steps and exact passes need. All rows belong to this worker.
    """

    def __init__(self, federation: SupervisedFederation, worker: int, num_workers: int) -> None:
        self._alone, self._worker = federation, worker
        self.num_workers, self.dim, self.digest = num_workers, federation.dim, federation.digest

    def __getattr__(self, name: str) -> Any:
        """Every other attribute comes from the node's own federation."""
        return getattr(self._alone, name)

    @staticmethod
    def _own(workers: Indices) -> Indices:
        return np.zeros_like(workers)

    def gradients(self, models: torch.Tensor, workers: Indices) -> torch.Tensor:
        """The exact gradients, one per row."""
        return self._alone.gradients(models, self._own(workers))

    def pooled(
        self, model: torch.Tensor, workers: Indices, weights: npt.NDArray[np.float64]
    ) -> tuple[float, torch.Tensor]:
        """Weighted sums of losses and gradients at one model, in float64."""
        return self._alone.pooled(model, self._own(workers), weights)

    def draws(self, streams: Any, round: int, workers: Indices, copies: Indices, steps: int) -> Sequence[Any]:
        """The random draws of the round, addressed by this worker's number."""
        return self._alone.draws(
            _Readdressed(streams, self._worker),  # type: ignore[arg-type]  # has the one method that is used
            round,
            self._own(workers),
            copies,
            steps,
        )

    def stochastic_gradients(self, models: torch.Tensor, workers: Indices, draws: Any) -> torch.Tensor:
        """The gradients of the mini-batches, one per row."""
        return self._alone.stochastic_gradients(models, self._own(workers), draws)

    def local_sgd(self, models: torch.Tensor, workers: Indices, draws: Sequence[Any], gamma: float) -> torch.Tensor:
        """Take all local steps of plain SGD at once."""
        return self._alone.local_sgd(models, self._own(workers), draws, gamma)

    def noise2(self, model: torch.Tensor) -> float:
        """The variance of a stochastic gradient at a model, over all mini-batches."""
        return float(self._alone.sample_variances(model, np.zeros(1, dtype=np.int64))[0]) / self._alone.batch_size


def experiment_of(config: Mapping[str, Any]) -> Experiment:
    """The experiment that a Flower run's configuration describes; its keys may have hyphens instead of underscores.

    ``model-option.width = 200`` is an option of the model. The keys about the server (``RUN_KEYS``) are ignored, and so
    are all other keys with a dot, such as ``own.path``, which the app may use for itself.

    >>> experiment_of({"source": "digits", "gamma": 0.1, "local-steps": 5, "timeout": 60.0}).run.local_steps
    5
    """
    changes: dict[str, Any] = {}
    for key, value in config.items():
        name = key.replace("-", "_")
        if name.startswith("model_option."):
            changes.setdefault("model_option", {})[name.removeprefix("model_option.")] = value
        elif name not in RUN_KEYS and "." not in name:
            changes[name] = value
    return Experiment.of(changes)
