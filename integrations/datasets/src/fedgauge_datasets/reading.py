"""What reads a published data set by its name: its files are looked up in the catalogue, read, and named if damaged."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fedgauge.base.errors import InputError
from fedgauge.base.types import Progress
from fedgauge.data.dataset import Dataset
from fedgauge_datasets import catalogue
from fedgauge_datasets.catalogue import DamagedFileError, Entry
from fedgauge_datasets.cifar import read_cifar10, read_cifar100
from fedgauge_datasets.images import read_folders, read_mnist
from fedgauge_datasets.shakespeare import read_shakespeare


def read(name: str, data: str | Path | None, progress: Progress, context: int | None) -> Dataset:
    """Read a data set of the catalogue; the arguments are those of :func:`fedgauge.load_dataset`."""
    known = catalogue.entry(name)
    if data and not catalogue.data_directory(data).is_dir():
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
