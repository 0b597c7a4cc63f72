"""The best constant guess, against the entropy of the labels that workers really hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauge.data.mixture import paper
from fedgauge_wang2024.trained import guess_loss, is_trained

CLASSES, WORKERS = st.integers(2, 10), st.integers(1, 12)


@given(CLASSES, WORKERS, st.integers(1, 3), st.floats(0, 100))
def test_it_is_the_entropy_of_the_labels_that_a_partition_hands_out(
    classes: int, workers: int, own: int, percent: float
) -> None:
    own = min(own, classes)
    labels = np.arange(classes * 40_000) % classes
    held = labels[paper(labels, workers, percent=percent, labels_per_worker=own, per_worker=1000, seed=1).indices]
    shares = np.bincount(held, minlength=classes) / len(held)
    entropy = -sum(share * math.log(share) for share in shares if share)
    data = {"workers": workers, "per_worker": 1000, "labels_per_worker": own}
    # Labels outside a worker's own are drawn: shares of a thousand draws are off by about 0.016, and the entropy by a
    # few times that where a share is small.
    assert guess_loss(data, classes, percent) == pytest.approx(entropy, abs=0.1)


@given(CLASSES, WORKERS, st.floats(0, 100), st.floats(0, 100))
def test_it_never_exceeds_that_of_equal_labels_and_falls_with_the_percentage(
    classes: int, workers: int, one: float, other: float
) -> None:
    data = {"workers": workers, "per_worker": 60}
    few, many = sorted((one, other))
    assert guess_loss(data, classes, many) <= guess_loss(data, classes, few) + 1e-9
    assert guess_loss(data, classes, few) <= guess_loss({"workers": workers}, classes, few) + 1e-9
    # Where every label belongs to equally many workers, all are equally frequent.
    even = guess_loss({"workers": classes * workers, "per_worker": 60}, classes, one)
    assert even == pytest.approx(math.log(classes), rel=1e-9)


@given(st.floats(0.1, 10))
def test_learning_how_frequent_labels_are_is_no_training(guess: float) -> None:
    assert not is_trained(guess, guess)
    assert not is_trained(0.91 * guess, guess)
    assert is_trained(0.89 * guess, guess)
