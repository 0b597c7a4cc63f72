"""Features with units of their own, and the scaling of somebody who names none."""

from __future__ import annotations

import numpy as np
import pytest

from fedgauge import Dataset
from fedgauge.base.errors import InputError
from fedgauge.data.scaling import standardise

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(200, 3)) * [1.0, 50.0, 1e4] + [0.0, 10.0, 3e4]


def made(inputs: np.ndarray) -> Dataset:
    labels = RNG.integers(2, size=len(inputs))
    return Dataset("rows", inputs.astype(np.float32), labels, inputs[:20].astype(np.float32), labels[:20], ("a", "b"))


def test_every_feature_is_scaled_by_its_own_training_inputs() -> None:
    scaled = standardise(made(ROWS), "features")
    assert scaled.train_inputs.dtype == np.float32
    assert scaled.train_inputs.mean(axis=0) == pytest.approx(np.zeros(3), abs=1e-5)
    assert scaled.train_inputs.std(axis=0) == pytest.approx(np.ones(3), rel=1e-5)
    assert np.array_equal(scaled.test_inputs, scaled.train_inputs[:20])
    constant = standardise(made(np.hstack([ROWS, np.full((200, 1), 7.0)])), "features")
    assert not constant.train_inputs[:, 3].any()
    with pytest.raises(InputError, match=r"scale='features' is for rows of features, .* choose scale='measured'"):
        standardise(made(np.zeros((5, 2, 2))), "features")


def test_auto_leaves_small_inputs_and_scales_large_ones_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    small = made(RNG.normal(size=(200, 3)))
    assert np.array_equal(standardise(small, "auto").train_inputs, standardise(small).train_inputs)
    assert caplog.text == ""
    large = made(ROWS)
    assert np.array_equal(standardise(large, "auto").train_inputs, standardise(large, "features").train_inputs)
    assert "Each feature was scaled by its mean and standard deviation" in caplog.text
    images = made(1e3 * RNG.normal(size=(50, 1, 4, 4)))
    assert np.array_equal(standardise(images, "auto").train_inputs, standardise(images, "measured").train_inputs)
