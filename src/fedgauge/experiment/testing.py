"""Test examples: what the global model is tested on."""

from __future__ import annotations

import hashlib

import torch

from fedgauge.federation.models import Accuracy
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.system.fingerprints import fingerprint

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
