"""Data sets by name: digits, text, those that other distributions bring, and any ``.npz`` file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedgauge.base.errors import InputError, nearest
from fedgauge.base.progress import silent
from fedgauge.base.types import Progress
from fedgauge.base.user_code import DATASETS, plugins
from fedgauge.data.dataset import Dataset, read_npz
from fedgauge.data.text import read_text

PUBLISHED = (
    "shakespeare",
    "mnist",
    "qmnist",
    "fashion-mnist",
    "cifar10",
    "cifar100",
    "cinic10",
)
"""The data sets of our own distribution fedgauge-datasets, which need not be installed."""
_EVERY = 5
"""Every fifth of scikit-learn's digits is used for testing, as it has no published split."""


def load_dataset(
    name: str = "digits", data: str | Path | None = None, progress: Progress = silent, *, context: int | None = None
) -> Dataset:
    """Load a data set by name, or from an ``.npz`` file.

    Inputs come as they were published, mostly bytes; :func:`~fedgauge.data.dataset.standardise` scales them.

    Args:
        name: ``digits`` or ``text`` (with the id ``document``); with ``fedgauge-datasets``, also ``shakespeare`` (with
            ``role`` and ``play``), ``mnist``, ``qmnist`` (MNIST with the id ``writer``), ``fashion-mnist``,
            ``cifar10``, ``cifar100`` (with the id ``coarse``), ``cinic10``; or the path of a file that ends in
            ``.npz``.
        data: directory that holds the data sets; by default ``FEDGAUGE_DATA``, or the user data directory.
        progress: called with what is read, and how much of it and of how much, where reading takes time.
        context: the number of characters in an example of ``shakespeare``; by default 64.

    >>> digits = load_dataset("digits")
    >>> digits.train_inputs.shape, digits.num_test, digits.num_classes
    ((1438, 1, 8, 8), 359, 10)
    >>> load_dataset("digit")
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: There is no data set 'digit'; did you mean digits?
    """
    if context is not None and name != "shakespeare":
        raise InputError(f"context is for the data set shakespeare, not for {name}; leave it out.")
    if name.endswith(".npz"):
        return read_npz(name)
    if name == "digits":
        return _digits()
    if name == "text":
        return read_text()
    readers = plugins(DATASETS)
    if name in readers:
        dataset: Dataset = readers[name](name, data, progress, context)
        return dataset
    if name in PUBLISHED:
        raise InputError(f"The data set {name} comes with another package; install it: pip install fedgauge-datasets.")
    names = dict.fromkeys(["digits", "text", *PUBLISHED, *readers])
    raise InputError(f"There is no data set {name!r}; {nearest(name, names)}")


def _digits() -> Dataset:
    rows = _rows_of_digits()
    images, labels = rows[:, :-1].astype(np.uint8).reshape(-1, 1, 8, 8), rows[:, -1].astype(np.int64)
    test = np.arange(len(labels)) % _EVERY == _EVERY - 1
    classes = tuple("0123456789")
    return Dataset("digits", images[~test], labels[~test], images[test], labels[test], classes, peak=16.0)


def _rows_of_digits() -> np.ndarray:
    """The 64 pixels of every digit and its label, one row each.

    The file is read as scikit-learn's own loader reads it, which takes more than a second to import.
    """
    spec = find_spec("sklearn")
    for place in (spec and spec.submodule_search_locations) or ():
        if (file := Path(place, "datasets", "data", "digits.csv.gz")).is_file():
            return np.loadtxt(file, delimiter=",")
    try:
        from sklearn.datasets import load_digits  # where a release keeps the file elsewhere
    except ImportError:
        raise InputError(
            "The data set digits comes with scikit-learn, which is not installed; run: pip install 'fedgauge[data]'."
        ) from None
    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target])
