"""Test examples: what the global model is tested on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fedgauge.base.errors import InputError, count
from fedgauge.base.fingerprints import fingerprint
from fedgauge.base.user_code import error_context, find_user_code
from fedgauge.data.dataset import Dataset, from_torch
from fedgauge.data.scaling import standardise, warn_of_bytes, warn_of_large_inputs
from fedgauge.federation.models import Accuracy
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.simulation.experiment.sections import DataSection

_BLOCK = 2048
"""Number of test examples that are evaluated at once."""


class TestSet:
    """Examples that no worker trains on, to test a federation's global model with.

    Attributes:
        inputs: the examples, first axis over samples.
        labels: the label of each example.
        digest: a fingerprint of inputs, labels and a model's own accuracy.
    """

    __test__ = False  # pytest must not collect it

    def __init__(
        self,
        federation: SupervisedFederation,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        accuracy: Accuracy | None = None,
    ) -> None:
        device = federation.inputs.device
        self._federation, self._accuracy = federation, accuracy
        self.inputs, self.labels = inputs.to(device), labels.to(device)
        sha = hashlib.sha256(inputs.cpu().numpy().tobytes())
        sha.update(labels.cpu().numpy().tobytes())
        if accuracy is not None:
            sha.update(fingerprint(accuracy).digest.encode())
        self.digest = sha.hexdigest()

    @property
    def num_examples(self) -> int:
        """The number of test examples."""
        return len(self.labels)

    def part(self, number: int) -> TestSet:
        """That many of the test examples, always the same ones, evenly from all over the test set."""
        chosen = torch.linspace(0, len(self.labels) - 1, number).long().to(self.labels.device)
        return TestSet(self._federation, self.inputs[chosen], self.labels[chosen], self._accuracy)

    def accuracy(self, model: torch.Tensor) -> float:
        """The fraction of examples whose label has the largest output, or the mean of the model's own accuracy."""
        right = 0.0
        with torch.no_grad():
            for first in range(0, len(self.labels), _BLOCK):
                labels = self.labels[first : first + _BLOCK]
                outputs = self._federation.outputs(model, self.inputs[first : first + _BLOCK])
                if self._accuracy is None:
                    right += int((outputs.argmax(dim=1) == labels).sum())
                else:
                    right += float(self._accuracy(outputs, labels)) * len(labels)
        return right / len(self.labels)


@dataclass(frozen=True, eq=False)
class PerWorker:
    """Each worker's own data, for an experiment.

    Attributes:
        shards: as for :func:`fedgauge.federate`: one torch Dataset, DataLoader or function that makes either per
            worker, which are read lazily; or one (inputs, targets) pair per worker.
        classes: the number of classes or outputs that the model's function is called with.
        test: examples to test the global model on, as one (inputs, targets) pair, if there are any.

    >>> import torch
    >>> PerWorker([(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64))], classes=2).classes
    2
    """

    shards: Sequence[Any]
    classes: int
    test: tuple[Any, Any] | None = None

    def __post_init__(self) -> None:
        count("classes", self.classes)
        if not isinstance(self.shards, Sequence) or not len(self.shards):
            raise InputError("shards must be a list with the data of each worker, one worker at least.")


def load_user_data(name: str) -> Dataset | PerWorker:
    """Call the user's function ``package.module:function``, without arguments, for a data set or each worker's own."""
    function = find_user_code(name, "data set")
    with error_context(f"The data set {name} cannot be made", "its function is called without arguments"):
        return as_data(function(), name)


def as_data(made: Any, name: str) -> Dataset | PerWorker:
    """What a function or a user gave, as data: a torch data set, or one to train and one to test on, is read whole."""
    if isinstance(made, Dataset | PerWorker):
        return made
    parts = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(made, str) and all(part is None or _is_numbered(part) for part in parts):
        return from_torch(*parts, name=name)
    raise InputError(
        f"{name} must return a fedgauge Dataset, a torch Dataset, a pair of them to train and to test on, or a"
        f" PerWorker with each worker's own data, not a {type(made).__name__}."
    )


def _is_numbered(items: Any) -> bool:
    return hasattr(items, "__len__") and hasattr(items, "__getitem__")


def prepared(dataset: Dataset, data: DataSection) -> Dataset:
    """A data set of the user's own, with targets of the chosen kind and inputs that are scaled as chosen."""
    if data.targets is not None:
        dataset = replace(dataset, values=data.targets == "values", classes=())
    scaled = standardise(dataset, data.scale)
    if data.scale is None:
        warn_of_bytes(dataset)
        warn_of_large_inputs(scaled)
    return scaled


def refuse_division(data: DataSection) -> None:
    """Refuse keys about dividing and scaling data that are divided already."""
    unused = [key for key, value in vars(data).items() if key != "name" and value is not None]
    if unused:
        raise InputError(
            f"{data.name} gives every worker its own data, for which data.{unused[0]} means nothing; leave it out."
        )
