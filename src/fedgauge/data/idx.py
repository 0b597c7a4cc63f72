"""The idx files of MNIST and its relatives, plain or gzipped."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from fedgauge.data.dataset import Array, DamagedFileError, Dataset, Labels, check_unpacked
from fedgauge.errors import InputError
from fedgauge.system.files import open_named

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP = b"\x1f\x8b"
_MOST_AXES = 8
_LONGEST = 2**40  # far beyond any data, and far below what numpy refuses


def read_idx(path: Path) -> Array:
    """Read an idx file: two zeros, the type, the number of axes, each axis's length, then the numbers."""
    with open_named(path) as plain:
        packed = plain.read(2) == _GZIP
        plain.seek(0)
        if not packed:
            return _read(path, plain, path.stat().st_size)
        try:
            with gzip.open(plain) as unpacked:
                return _read(path, unpacked, None)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DamagedFileError(path, f"its gzip compression is damaged ({error})") from None


def _read(path: Path, file: IO[bytes] | gzip.GzipFile, size: int | None) -> Array:
    """Read the numbers, and no more than the lengths of the axes announce; ``size`` is that of a file as it is."""
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES:
        raise DamagedFileError(path, f"it begins with {magic.hex() or 'nothing'}, which is not the magic of idx")
    dtype, axes = np.dtype(_TYPES[magic[2]]), magic[3]
    if axes > _MOST_AXES:
        raise DamagedFileError(path, f"it has {axes} axes, and images and labels have at most {_MOST_AXES}")
    lengths = file.read(4 * axes)
    if len(lengths) < 4 * axes:
        raise DamagedFileError(path, f"it ends within the lengths of its {axes} axes")
    shape = tuple(int(n) for n in np.frombuffer(lengths, ">u4"))
    if 0 in shape and math.prod(filter(None, shape)) > _LONGEST:
        raise DamagedFileError(path, f"it has no numbers, and the lengths of its axes are {shape}")
    start, wanted = 4 + 4 * axes, math.prod(shape) * dtype.itemsize
    if size is None:
        check_unpacked(path, path.stat().st_size, start + wanted)
    raw = file.read(wanted + 1) if size in (None, start + wanted) else b""
    found = size or start + len(raw)
    if found != start + wanted:
        more = " or more" if size is None and len(raw) > wanted else ""
        raise DamagedFileError(path, f"its {shape} numbers need {start + wanted} bytes, and it has {found}{more}")
    return np.frombuffer(raw, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def read_mnist(files: Mapping[str, Path], name: str, classes: tuple[str, ...]) -> Dataset:
    """Read MNIST or a data set in its files, given by their published names.

    ``qmnist-train-labels-idx2-int.gz``, where it is among them, adds the writer of each training digit.
    """
    train = _pair(files["train-images-idx3-ubyte.gz"], files["train-labels-idx1-ubyte.gz"], len(classes))
    test = _pair(files["t10k-images-idx3-ubyte.gz"], files["t10k-labels-idx1-ubyte.gz"], len(classes))
    table = files.get("qmnist-train-labels-idx2-int.gz")
    ids = {} if table is None else {"writer": _writers(table, train[1])}
    return Dataset(name, *train, *test, classes, ids)


def _pair(images: Path, labels: Path, num_classes: int) -> tuple[Array, Labels]:
    x, y = read_idx(images), read_idx(labels)
    if x.ndim != 3 or x.dtype != np.uint8:
        raise DamagedFileError(images, f"it must hold images of bytes, not {x.dtype} of shape {x.shape}")
    if y.ndim != 1 or y.dtype != np.uint8:
        raise DamagedFileError(labels, f"it must hold labels of bytes, not {y.dtype} of shape {y.shape}")
    if len(x) != len(y):
        raise DamagedFileError(labels, f"it has {len(y)} labels, and {images.name} has {len(x)} images")
    if y.size and y.max() >= num_classes:
        raise DamagedFileError(labels, f"the label {y.max()} is outside its classes 0 to {num_classes - 1}")
    return x[:, np.newaxis], y.astype(np.int64)


def _writers(path: Path, labels: Labels) -> Labels:
    """Column 2 of QMNIST's table, whose column 0 repeats MNIST's labels in order."""
    table = read_idx(path)
    if table.ndim != 2 or table.shape[1] < 3:
        raise DamagedFileError(path, f"it must be a table of at least 3 columns, not of shape {table.shape}")
    if len(table) != len(labels) or (table[:, 0] != labels).any():
        raise InputError(
            f"{path} does not belong to these images: its digits are not MNIST's training labels in order;"
            " use it with MNIST's own training files."
        )
    return table[:, 2].astype(np.int64)
