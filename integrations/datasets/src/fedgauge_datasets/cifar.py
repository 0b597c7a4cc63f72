"""The published Python files of CIFAR-10 and CIFAR-100, read without trusting them.

They are pickles, and a pickle may name any function and have it called. Here every name that such a file needs stands
for a small inert object of this module, and every other name is refused before anything is called. Not even numpy's
own constructors are reached: an array's bytes are laid out by this module, after their number was checked.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedgauge.base.files import read_named
from fedgauge.base.types import Array
from fedgauge.data.dataset import Dataset, Labels
from fedgauge_datasets.catalogue import CIFAR10_CLASSES, DamagedFileError

_SIDE, _CHANNELS = 32, 3
_NUMBERS = re.compile(r"[<>|=]?[iuf][1248]")


class _RefusedError(Exception):
    """The pickle named something that no CIFAR file needs."""


class _Type:
    """Stands for numpy.dtype of plain numbers."""

    def __init__(self, code: Any) -> None:
        code = code.decode("latin1") if isinstance(code, bytes) else code
        if not isinstance(code, str) or not _NUMBERS.fullmatch(code):
            raise ValueError(f"an array of {code!r}, which are not plain numbers")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode("latin1") if isinstance(state[1], bytes) else state[1]
        if order == ">":
            self.dtype = self.dtype.newbyteorder(">")


class _Numbers:
    """Stands for a numpy array; :attr:`array` is set when its state has come."""

    array: Array | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, content = state
        self.array = _lay_out(content, kind, shape, "F" if fortran else "C")


def _lay_out(content: Any, kind: Any, shape: Any, order: Any) -> Array:
    if not isinstance(kind, _Type) or not isinstance(content, bytes | bytearray):
        raise ValueError("an array without plain numbers")
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape) or order not in ("C", "F"):
        raise ValueError("an array without a shape")
    if math.prod(shape) * kind.dtype.itemsize != len(content):
        raise ValueError(f"an array of shape {shape} in {len(content)} bytes")
    return np.frombuffer(content, kind.dtype).reshape(shape, order=order)


def _from_buffer(content: Any, kind: Any, shape: Any, order: Any) -> _Numbers:
    numbers = _Numbers()
    numbers.array = _lay_out(content, kind, shape, order)
    return numbers


def _encode(text: Any, codec: Any) -> bytes:
    if not isinstance(text, str) or codec not in ("latin1", b"latin1"):
        raise ValueError("bytes in an unknown form")
    return text.encode("latin1")


def _buffer(content: Any = b"") -> bytes:
    if not isinstance(content, bytes | bytearray):
        raise ValueError("a buffer that is not bytes")
    return bytes(content)


class _Maker:
    """Stands for a function or class that a pickle names; it can be called and nothing else."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *arguments: Any) -> Any:
        return self._make(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise _RefusedError("changes a function")


# What numpy, old (core) and new (_core), and the pickling of bytes in protocol 2 name.
_ALLOWED: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): lambda code, *_: _Type(code),
    ("numpy", "ndarray"): lambda *_: _Numbers(),
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: _Numbers(),
    ("numpy._core.multiarray", "_reconstruct"): lambda *_: _Numbers(),
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
    ("builtins", "bytearray"): _buffer,
    ("__builtin__", "bytearray"): _buffer,
    ("__builtin__", "bytes"): _buffer,
}


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise _RefusedError(f"asks for {module}.{name}")
        return _Maker(_ALLOWED[module, name])

    def persistent_load(self, pid: Any) -> Any:
        raise _RefusedError("asks for an object from elsewhere")


def read_pickle(path: Path) -> dict[str, Any]:
    """Read a pickled dictionary of arrays, lists, strings and numbers; nothing that it names is executed.

    Keys become strings; arrays become numpy arrays.
    """
    try:
        content = _RestrictedUnpickler(io.BytesIO(read_named(path)), encoding="bytes").load()
    except _RefusedError as refused:
        raise DamagedFileError(path, f"it {refused}, which no data set needs, and nothing was executed") from None
    except OSError:
        raise
    except Exception as error:  # a damaged pickle may fail in any way at all
        raise DamagedFileError(path, f"its pickle is damaged ({error or type(error).__name__})") from None
    if not isinstance(content, dict):
        raise DamagedFileError(path, f"it holds a {type(content).__name__.strip('_').lower()}, not a dictionary")
    return {_text(key): value.array if isinstance(value, _Numbers) else value for key, value in content.items()}


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _images(path: Path, content: Mapping[str, Any]) -> Array:
    data = content.get("data")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (_CHANNELS * _SIDE * _SIDE,):
        raise DamagedFileError(path, "its entry 'data' is not an array of bytes with 3072 columns")
    return data.reshape(-1, _CHANNELS, _SIDE, _SIDE)


def _labels(path: Path, content: Mapping[str, Any], key: str, length: int, num_classes: int) -> Labels:
    given = content.get(key)
    given = given.tolist() if isinstance(given, np.ndarray) else given
    if not isinstance(given, list) or len(given) != length or not all(type(label) is int for label in given):
        raise DamagedFileError(path, f"its entry {key!r} is not one whole number for each of {length} images")
    if given and not 0 <= min(given) <= max(given) < num_classes:
        wrong = next(label for label in given if not 0 <= label < num_classes)
        raise DamagedFileError(path, f"the label {wrong} in {key!r} is outside its classes 0 to {num_classes - 1}")
    return np.array(given, np.int64)


def read_cifar10(files: Mapping[str, Path]) -> Dataset:
    """Read CIFAR-10 from its five training batches and its test batch."""
    parts = {}
    for name, path in files.items():
        if name.startswith(("data_batch_", "test_batch")):
            content = read_pickle(path)
            images = _images(path, content)
            parts[name] = images, _labels(path, content, "labels", len(images), len(CIFAR10_CLASSES))
    train = [parts[name] for name in sorted(parts) if name != "test_batch"]
    return Dataset(
        "cifar10",
        np.concatenate([images for images, _ in train]),
        np.concatenate([labels for _, labels in train]),
        *parts["test_batch"],
        CIFAR10_CLASSES,
    )


def read_cifar100(files: Mapping[str, Path]) -> Dataset:
    """Read CIFAR-100, with its fine labels as classes and the coarse ones among ``ids``."""
    parts = []
    for name in ("train", "test"):
        content = read_pickle(files[name])
        images = _images(files[name], content)
        fine = _labels(files[name], content, "fine_labels", len(images), 100)
        parts.append((images, fine, content))
    (x, y, content), (x_test, y_test, _) = parts
    coarse = _labels(files["train"], content, "coarse_labels", len(x), 20)
    names = [str(number) for number in range(100)]
    if "meta" in files:
        meta = read_pickle(files["meta"]).get("fine_label_names")
        if not isinstance(meta, list) or len(meta) != 100 or not all(isinstance(name, bytes | str) for name in meta):
            raise DamagedFileError(files["meta"], "its entry 'fine_label_names' is not 100 names")
        names = [_text(name) for name in meta]
    return Dataset("cifar100", x, y, x_test, y_test, tuple(names), {"coarse": coarse})
