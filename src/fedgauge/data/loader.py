"""Data sets by name: digits, text, Tiny Shakespeare, MNIST and its kin, CIFAR, CINIC-10, and any ``.npz`` file."""

from __future__ import annotations

import dataclasses
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedgauge.base.errors import InputError
from fedgauge.base.progress import silent
from fedgauge.base.types import Progress
from fedgauge.data import catalogue
from fedgauge.data.catalogue import Entry
from fedgauge.data.cifar import read_cifar10, read_cifar100
from fedgauge.data.dataset import DamagedFileError, Dataset, read_npz
from fedgauge.data.images import read_folders, read_mnist
from fedgauge.data.shakespeare import read_shakespeare
from fedgauge.data.text import read_text

_EVERY = 5
"""Every fifth of scikit-learn's digits is used for testing, as it has no published split."""


def load_dataset(
    name: str = "digits", data: str | Path | None = None, progress: Progress = silent, *, context: int | None = None
) -> Dataset:
    """Load a data set by name, or from an ``.npz`` file.

    Inputs come as they were published, mostly bytes; :func:`~fedgauge.data.dataset.standardise` scales them.

    Args:
        name: one of ``digits``, ``text`` (with the id ``document``), ``shakespeare`` (with ``role`` and ``play``),
            ``mnist``, ``qmnist`` (MNIST with the id ``writer``), ``fashion-mnist``, ``cifar10``, ``cifar100`` (with the
            id ``coarse``), ``cinic10``; or the path of a file that ends in ``.npz``.
        data: directory that holds the data sets; by default ``FEDGAUGE_DATA``, or the user data directory.
        progress: called with what is read, and how much of it and of how much, where reading takes time.
        context: the number of characters in an example of ``shakespeare``; by default 64.

    >>> digits = load_dataset("digits")
    >>> digits.train_inputs.shape, digits.num_test, digits.num_classes
    ((1438, 1, 8, 8), 359, 10)
    """
    if context is not None and name != "shakespeare":
        raise InputError(f"context is for the data set shakespeare, not for {name}; leave it out.")
    if name.endswith(".npz"):
        return read_npz(name)
    known = catalogue.entry(name)
    if name == "digits":
        return _digits()
    if name == "text":
        return read_text()
    root = catalogue.data_directory(data)
    if data and not root.is_dir():
        raise InputError(f"data must be a directory, not {str(data)!r}; name the directory that holds the data sets.")
    try:
        dataset = _read(known, data, progress, context)
    except DamagedFileError as damage:
        raise _explained(known, damage, data) from None
    return dataclasses.replace(dataset, mean=known.mean, std=known.std)


def _read(known: Entry, data: str | Path | None, progress: Progress, context: int | None) -> Dataset:
    if not known.files:
        folder = catalogue.find_folder(known, data)
        if folder is None:
            place = catalogue.data_directory(data)
            raise InputError(
                f"{known.name} is not in {place}: there are no folders train and test with its classes;"
                f" {catalogue.remedy(known, data)}."
            )
        return read_folders(folder, known.name, known.classes, progress)
    files = catalogue.find(known, data)
    for file, md5 in known.files.items():
        if file not in files:
            raise InputError(
                f"{known.name} is not complete in {catalogue.data_directory(data)}: {file} is missing (MD5 {md5});"
                f" {catalogue.remedy(known, data, file=file)}."
            )
    if known.name == "shakespeare":
        return read_shakespeare(files["input.txt"], context)
    if known.name == "cifar10":
        return read_cifar10(files)
    if known.name == "cifar100":
        return read_cifar100(files)
    return read_mnist(files, known.name, known.classes)


def _explained(known: Entry, damage: DamagedFileError, data: str | Path | None) -> InputError:
    """The damage, with the checksums of the file if one is published, and how to repair it."""
    published = {**known.files, **known.optional}
    name = next((name for name in published if damage.path.name in (name, name.removesuffix(".gz"))), None)
    sums = f" (MD5 {catalogue.md5_of(damage.path)}; published: {published[name]})" if name else ""
    remedy = catalogue.remedy(known, data, force=True, file=name)
    return InputError(f"{damage.path} cannot be read: {damage.reason}{sums}; {remedy}.")


def _digits() -> Dataset:
    rows = _rows_of_digits()
    images, labels = rows[:, :-1].astype(np.uint8).reshape(-1, 1, 8, 8), rows[:, -1].astype(np.int64)
    test = np.arange(len(labels)) % _EVERY == _EVERY - 1
    known = catalogue.entry("digits")
    return Dataset("digits", images[~test], labels[~test], images[test], labels[test], known.classes, peak=16.0)


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
