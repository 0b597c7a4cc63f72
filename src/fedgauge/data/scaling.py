"""How the inputs of a data set are scaled; tokens are not."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

import numpy as np

from fedgauge.base.errors import InputError, nearest
from fedgauge.base.terminal import notify
from fedgauge.data.dataset import Dataset, check_dataset

Scaling = Literal["published", "unit", "measured", "features", "none", "auto"]


def standardise(dataset: Dataset, scaling: Scaling | None = None) -> Dataset:
    """Return the data set with inputs that a model takes, scaled in the way that is chosen.

    Args:
        dataset: the data set, with inputs as they were read.
        scaling: ``unit`` divides by the peak, so that bytes lie in [0, 1]. ``published`` then subtracts the published
            mean of each channel and divides by its published standard deviation. ``measured`` does the same with the
            mean and standard deviation of these training inputs. Channels are axis 1 of images; other inputs count as
            one channel. ``features`` takes the mean and the standard deviation of each feature of these training
            inputs, for rows of features that have units of their own. All of these give float32. ``none`` leaves
            inputs as they are; whole numbers, bytes included, are then tokens. By default, bytes and floats are scaled
            by ``unit``, and other whole numbers are tokens. ``auto`` does the same, except that floats far above 1 are
            scaled by ``features``, or by ``measured`` where inputs are not rows, which it says.

    >>> tiny = Dataset("tiny", np.array([[0], [255]], np.uint8), [0, 1], np.zeros((0, 1), np.uint8), [], ("a", "b"))
    >>> standardise(tiny, "unit").train_inputs.ravel()
    array([0., 1.], dtype=float32)
    >>> standardise(tiny, "measured").train_inputs.ravel()
    array([-1.,  1.], dtype=float32)
    """
    check_dataset(dataset)
    whole = np.issubdtype(dataset.train_inputs.dtype, np.integer)
    tokens = whole and dataset.train_inputs.dtype != np.uint8
    if scaling == "auto":
        return _chosen(dataset)
    scaling = scaling or ("none" if tokens else "unit")
    if scaling not in get_args(Scaling):
        raise InputError(f"There is no scaling {scaling!r}; {nearest(scaling, get_args(Scaling))}")
    if scaling == "none":
        kind = np.int64 if whole else np.float32
        train, test = (part.astype(kind) for part in (dataset.train_inputs, dataset.test_inputs))
        return dataclasses.replace(dataset, train_inputs=train, test_inputs=test, peak=1.0)
    if tokens:
        raise InputError(
            f"The inputs of {dataset.name} are whole numbers, which are tokens and are not scaled; leave scale out, or"
            " convert them to floats if they are features."
        )
    if scaling == "features":
        return _by_feature(dataset)
    mean, std = _moments(dataset, scaling)
    parts = []
    for inputs in (dataset.train_inputs, dataset.test_inputs):
        scaled = inputs.astype(np.float32)
        scaled /= np.float32(dataset.peak or 1.0)
        if mean:
            shape = (1, len(mean)) + (1,) * (inputs.ndim - 2) if len(mean) > 1 else (1,) * inputs.ndim
            scaled -= np.array(mean, np.float32).reshape(shape)
            scaled /= np.array(std, np.float32).reshape(shape)
        parts.append(scaled)
    scaled_set = dataclasses.replace(dataset, train_inputs=parts[0], test_inputs=parts[1], peak=1.0)
    # What is centred has no mean to take off a second time.
    return dataclasses.replace(scaled_set, mean=(), std=()) if mean else scaled_set


_LARGE = 10.0
"""Root mean square of a feature beyond which a network made for inputs of about 1 learns little or nothing."""


def _largest(dataset: Dataset) -> float:
    """The largest root mean square of a feature of the training inputs; 0 for tokens."""
    if np.issubdtype(dataset.train_inputs.dtype, np.integer):
        return 0.0
    inputs = dataset.train_inputs.reshape(dataset.num_train, -1)
    squares = np.einsum("ij,ij->j", inputs, inputs, dtype=np.float64)
    return float(np.sqrt(squares.max(initial=0.0) / dataset.num_train))


def _by_feature(dataset: Dataset) -> Dataset:
    """The data set with every feature scaled by itself; a constant one becomes 0."""
    if dataset.train_inputs.ndim != 2:
        shape = dataset.train_inputs.shape[1:]
        raise InputError(
            f"scale='features' is for rows of features, and inputs of {dataset.name} have shape {shape}; choose"
            " scale='measured'."
        )
    train = dataset.train_inputs.astype(np.float64)
    mean, std = train.mean(axis=0), train.std(axis=0)
    std[std <= 1e-12 * np.maximum(np.abs(mean), 1e-300)] = 1.0
    parts = (((part.astype(np.float64) - mean) / std).astype(np.float32) for part in (train, dataset.test_inputs))
    inputs, tests = parts
    return dataclasses.replace(dataset, train_inputs=inputs, test_inputs=tests, peak=1.0)


def _chosen(dataset: Dataset) -> Dataset:
    """The data set with inputs as networks like them."""
    scaled = standardise(dataset)
    if _largest(scaled) <= _LARGE:
        return scaled
    rows = dataset.train_inputs.ndim == 2
    notify(
        f"The inputs of {dataset.name} are large: the root mean square of one feature is {_largest(scaled):,.4g}."
        f" {'Each feature was scaled by its' if rows else 'They were scaled by their'} mean and standard deviation;"
        " give scale='unit' to leave them large."
    )
    return standardise(dataset, "features" if rows else "measured")


def warn_of_large_inputs(dataset: Dataset) -> None:
    """Say so if a feature of the training inputs is far larger than 1, where networks tend to get stuck."""
    if (largest := _largest(dataset)) > _LARGE:
        notify(
            f"The inputs of {dataset.name} are large: the root mean square of one feature is {largest:,.4g}, and"
            " networks often learn nothing from inputs far above 1; scale them, for example with scale='measured'."
        )


def _moments(dataset: Dataset, scaling: Scaling) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if scaling == "unit":
        return (), ()
    if scaling == "measured":
        mean, std = measure(dataset)
    else:
        mean, std = dataset.mean, dataset.std
    if not mean:
        raise InputError(f"{dataset.name} has no published mean; choose scale='unit' or scale='measured'.")
    if min(std) <= 0:
        raise InputError(
            f"A channel of {dataset.name} is constant, so it cannot be scaled by its deviation; choose scale='unit'."
        )
    return mean, std


def measure(dataset: Dataset) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of the training inputs, after scaling by the peak.

    >>> tiny = Dataset("tiny", np.array([[0], [255]], np.uint8), [0, 1], np.zeros((0, 1), np.uint8), [], ("a", "b"))
    >>> measure(tiny)
    ((0.5,), (0.5,))
    """
    inputs = dataset.train_inputs
    channels = np.moveaxis(inputs, 1, 0) if inputs.ndim == 4 else inputs[np.newaxis]
    means, stds = [], []
    for channel in channels:
        if channel.dtype == np.uint8:
            # Exact, and without a copy in floats: count how often each of the 256 values occurs.
            counts = np.bincount(channel.ravel(), minlength=256) / channel.size
            mean = float(counts @ np.arange(256))
            std = float(np.sqrt(counts @ (np.arange(256) - mean) ** 2))
        else:
            mean, std = float(channel.mean(dtype=np.float64)), float(channel.std(dtype=np.float64))
        means.append(mean / (dataset.peak or 1.0))
        stds.append(std / (dataset.peak or 1.0))
    return tuple(means), tuple(stds)


def warn_of_bytes(dataset: Dataset) -> None:
    """Say that bytes are divided by 255, because they may have been meant as tokens."""
    if dataset.train_inputs.dtype == np.uint8:
        notify(
            f"The inputs of {dataset.name} are bytes, and were divided by {dataset.peak:g} as pictures are; give"
            " scale='none' if they are tokens, or scale='unit' to say that they are not."
        )
