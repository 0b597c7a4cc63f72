"""Whether a network has learned anything: only then does an order of its curves, or a constant, say something.

The loss of the best constant guess is the entropy of the labels that all workers hold together: log 10 = 2.303 for ten
labels that are equally many. A network gets there by learning how frequent each label is, without looking at a single
image. It counts as trained when its loss is at least a tenth below that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

FALL = 0.1
"""The part of the best constant guess's loss by which a trained network is below it."""


def guess_loss(data: Mapping[str, Any], classes: int, percent: float) -> float:
    """The loss of the best constant guess, about: the entropy of the labels under the paper's partition.

    Without ``per_worker`` the workers hold all examples, and every label is taken to be equally frequent, as it nearly
    is in MNIST. With it, a worker's own labels are more frequent if other labels have no worker.

    Args:
        data: the section of an experiment that says how the data is divided.
        classes: the number of labels.
        percent: X.

    >>> round(guess_loss({"workers": 10}, 10, 50), 3)
    2.303
    >>> round(guess_loss({"workers": 10, "per_worker": 100}, 100, 75), 2)
    3.33
    """
    if data.get("per_worker") is None:
        return math.log(classes)
    number = data.get("workers", 10) * data.get("labels_per_worker", 1)
    own = np.bincount(np.arange(number) % classes, minlength=classes) / number
    shares = percent / 100 * own + (1 - percent / 100) / classes
    held = shares[shares > 0]
    return float(-(held * np.log(held)).sum())


def is_trained(loss: float, guess: float) -> bool:
    """Whether a loss is at least a tenth below that of the best constant guess.

    >>> is_trained(2.25, guess=math.log(10)), is_trained(2.0, guess=math.log(10))
    (False, True)
    """
    return loss <= (1 - FALL) * guess
