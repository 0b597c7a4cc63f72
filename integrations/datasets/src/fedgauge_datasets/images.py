"""Published pictures: the idx files of MNIST and its relatives, and folders with one class each, like CINIC-10."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from fedgauge.base.errors import InputError
from fedgauge.base.files import open_named
from fedgauge.base.progress import silent
from fedgauge.base.types import Array, Progress
from fedgauge.data.dataset import Dataset, Labels, check_unpacked
from fedgauge_datasets.catalogue import DamagedFileError

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
            return _read_numbers(path, plain, path.stat().st_size)
        try:
            with gzip.open(plain) as unpacked:
                return _read_numbers(path, unpacked, None)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DamagedFileError(path, f"its gzip compression is damaged ({error})") from None


def _read_numbers(path: Path, file: IO[bytes] | gzip.GzipFile, size: int | None) -> Array:
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
    end = size or start + len(raw)
    if end != start + wanted:
        more = " or more" if size is None and len(raw) > wanted else ""
        raise DamagedFileError(path, f"its {shape} numbers need {start + wanted} bytes, and it has {end}{more}")
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


_PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".webp"}


def read_folders(root: Path, name: str, classes: tuple[str, ...] = (), progress: Progress = silent) -> Dataset:
    """Read ``root/train/CLASS/*.png`` to train on and ``root/test/CLASS/*.png`` to test on, as RGB.

    A folder ``valid`` beside them is left alone. Classes are numbered in the order of their names.
    """
    classes = classes or tuple(sorted(path.name for path in (root / "train").iterdir() if path.is_dir()))
    pictures = {part: _pictures(root / part, classes) for part in ("train", "test")}
    total = sum(len(paths) for paths, _ in pictures.values())
    train = _read_pictures(pictures["train"][0], None, 0, total, progress)
    test = _read_pictures(pictures["test"][0], train.shape[1:], len(train), total, progress)
    return Dataset(name, train, pictures["train"][1], test, pictures["test"][1], classes)


def _pictures(folder: Path, classes: tuple[str, ...]) -> tuple[list[Path], Labels]:
    paths: list[Path] = []
    labels: list[int] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and path.name not in classes:
            raise InputError(f"{path} is not one of the classes {', '.join(classes)}; remove or rename the folder.")
    for label, name in enumerate(classes):
        inside = sorted(p for p in (folder / name).glob("*") if p.suffix.lower() in _PICTURES)
        if not inside:
            raise InputError(f"{folder / name} holds no pictures; put those of the class {name!r} there.")
        paths += inside
        labels += [label] * len(inside)
    return paths, np.array(labels, np.int64)


def _read_pictures(
    paths: list[Path], shape: tuple[int, ...] | None, done: int, total: int, progress: Progress
) -> Array:
    from PIL import Image

    images: Array | None = None
    for index, path in enumerate(paths):
        try:
            with open_named(path) as file, Image.open(file) as picture:
                array = np.moveaxis(np.asarray(picture.convert("RGB")), -1, 0)
        except PermissionError:
            raise
        except Exception as error:  # pillow raises what its many decoders raise
            raise DamagedFileError(path, f"it is not a picture ({error})") from None
        if images is None:
            images = np.empty((len(paths), *(shape or array.shape)), np.uint8)
        if array.shape != images.shape[1:]:
            raise InputError(
                f"{path} must be of {images.shape[3]} by {images.shape[2]} pixels like the first picture, not"
                f" {array.shape[2]} by {array.shape[1]}; resize it."
            )
        images[index] = array
        if index % 500 == 0:
            progress("pictures", done + index, total)
    assert images is not None  # _pictures refuses an empty class
    return images
