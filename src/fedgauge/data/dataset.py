"""A data set: inputs and targets for training and for testing, as plain arrays that are checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauge.base.errors import InputError
from fedgauge.base.files import open_named
from fedgauge.base.types import Array

MOST_CLASSES = 100_000
"""The largest number of classes of labels that have no names; names for all of them are made."""


def are_values(targets: Array) -> bool:
    """Whether targets look like values rather than classes: fractions, tables of floats, and tables of truth values.

    >>> [are_values(np.array(each)) for each in ([0, 2], [0.0, 2.0], [0.5, 2.0], [[1.0, 0.0]], [[True, False]], [[1]])]
    [False, False, True, True, True, False]
    """
    if targets.dtype.kind == "b":
        return targets.ndim > 1
    return targets.dtype.kind == "f" and (targets.ndim > 1 or not _all_whole(targets))


def check_classes(what: str, labels: npt.ArrayLike, length: int, flat: bool = False) -> npt.NDArray[np.int64]:
    """Return classes as whole numbers of 64 bits: one per example, or, unless ``flat``, a sequence of them."""
    given = _entries(what, labels, length, flat)
    if given.size and given.dtype.kind not in "biu" and not _all_whole(given):
        raise InputError(f"{what} must be whole numbers, not {given.dtype}; number the classes 0, 1, ...")
    if given.size and given.dtype.kind == "f":
        _check_number(int(given.max()))  # before it is too large for a whole number of 64 bits
    return given.astype(np.int64)


def check_values(what: str, values: npt.ArrayLike, length: int) -> npt.NDArray[np.float32]:
    """Return values, one or several per example, as float32."""
    given = _entries(what, values, length)
    if given.size and (given.dtype.kind not in "biuf" or not np.isfinite(given).all()):
        raise InputError(f"{what} must be finite numbers; correct or remove the others.")
    return given.astype(np.float32)


def _entries(what: str, targets: npt.ArrayLike, length: int, flat: bool = False) -> Array:
    given = np.asarray(targets)
    if given.ndim == 0 or len(given) != length or (flat and given.ndim != 1):
        raise InputError(f"{what} must be {length} numbers, one per example, not an array of shape {given.shape}.")
    return given


def _all_whole(array: Array) -> bool:
    if not np.issubdtype(array.dtype, np.floating):
        return False
    return bool(np.isfinite(array).all() and (array == np.round(array)).all())


def numbered(*targets: Array) -> tuple[str, ...]:
    """Names of what a model puts out: the numbers from 0 to the largest class, or one for each column of values.

    >>> numbered(np.array([0, 2])), numbered(np.zeros((4, 2), np.float32)), numbered(np.zeros(4, np.float32))
    (('0', '1', '2'), ('0', '1'), ('0',))
    """
    if targets[0].dtype.kind == "f":
        return tuple(str(number) for number in range(math.prod(targets[0].shape[1:])))
    largest = max((int(part.max()) for part in targets if part.size), default=0)
    _check_number(largest)
    return tuple(str(number) for number in range(largest + 1))


def _check_number(largest: int) -> None:
    if largest >= MOST_CLASSES:
        raise InputError(
            f"The label {largest} would need {largest + 1:,} classes, and at most {MOST_CLASSES:,} are made; number the"
            " classes 0, 1, ... without gaps."
        )


Labels = npt.NDArray[np.int64]

_FREELY = 2**30
_TIMES = 100


def check_unpacked(path: Path, packed: int, unpacked: int) -> None:
    """Refuse a compressed file that would take far more memory than it has bytes, before it is unpacked."""
    if unpacked > max(_FREELY, _TIMES * packed):
        raise InputError(
            f"{path} would take {unpacked:,} bytes of memory, {unpacked / max(packed, 1):,.0f} times its size; more"
            f" than 1 GiB is unpacked only up to {_TIMES} times a file's size: save the arrays with np.savez."
        )


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and labels for training and for testing; the arrays are read-only.

    Attributes:
        name: the name of the data set.
        train_inputs: one entry per example, as unsigned bytes or floats; an image is (channels, height, width). Other
            whole numbers are tokens.
        train_labels: the target of each example. Mostly its class: 0, 1, ... A sequence has a class for each place,
            where a negative one is masked; regression and several labels have values, one column per output.
        test_inputs: as ``train_inputs``; may be empty.
        test_labels: as ``train_labels``.
        classes: the name of each class, or of each column of values; by default they are numbered.
        ids: other numbers of each training example by which the data may be divided, such as its ``writer``.
        peak: the input value that is scaled to 1; by default 255 for bytes and 1 for floats.
        mean: published mean of each channel, after scaling by the peak.
        std: published standard deviation of each channel.
        usual_id: the name of the ids that the scheme ``id`` divides by if none are named; by default the only one.
        values: whether the targets are values rather than classes. By default, fractions and tables of truth values
            are, and whole numbers are classes.

    >>> tiny = Dataset("tiny", np.zeros((4, 2)), np.array([0, 1, 1, 0]), np.zeros((1, 2)), np.array([1]), ("no", "yes"))
    >>> tiny.num_classes, tiny.num_train
    (2, 4)
    """

    name: str
    train_inputs: Array
    train_labels: Labels
    test_inputs: Array
    test_labels: Labels
    classes: tuple[str, ...] = ()
    ids: Mapping[str, Labels] = field(default_factory=dict)
    peak: float | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    values: bool | None = None
    usual_id: str | None = None

    def __post_init__(self) -> None:
        if self.values is None:
            self._put("values", are_values(np.asarray(self.train_labels)))
        for part in ("train", "test"):
            inputs, labels = np.asarray(getattr(self, f"{part}_inputs")), getattr(self, f"{part}_labels")
            self._put(f"{part}_inputs", _check_inputs(f"The {part} inputs of {self.name}", inputs))
            check = check_values if self.values else check_classes
            self._put(f"{part}_labels", _frozen(check(f"The {part} labels of {self.name}", labels, len(inputs))))
        if len(self.test_labels) and self.test_labels.shape[1:] != self.train_labels.shape[1:]:
            raise InputError(
                f"The test labels of {self.name} must have the shape {self.train_labels.shape[1:]} of its training"
                f" labels, not {self.test_labels.shape[1:]}; give both the same shape."
            )
        if not self.classes:
            self._put("classes", numbered(self.train_labels, self.test_labels))
        for part in ("train", "test"):
            self._check_range(part)
        if self.num_train == 0:
            raise InputError(f"{self.name} has no training examples; it needs at least one.")
        if len(self.test_inputs) and self.test_inputs.shape[1:] != self.train_inputs.shape[1:]:
            raise InputError(
                f"The test inputs of {self.name} must have the shape {self.train_inputs.shape[1:]} of its training"
                f" inputs, not {self.test_inputs.shape[1:]}; give both the same shape."
            )
        ids = {
            key: _frozen(check_classes(f"The {key} ids of {self.name}", ids, self.num_train, flat=True))
            for key, ids in self.ids.items()
        }
        self._put("ids", ids)
        self._put("classes", tuple(str(name) for name in self.classes))
        if self.peak is None:
            self._put("peak", 255.0 if self.train_inputs.dtype == np.uint8 else 1.0)

    def _put(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_range(self, part: str) -> None:
        labels = getattr(self, f"{part}_labels")
        if self.values:
            return
        # In a sequence, negative numbers are places without a target.
        outside = labels >= len(self.classes) if labels.ndim > 1 else (labels < 0) | (labels >= len(self.classes))
        if not outside.any():
            return
        wrong = np.flatnonzero(outside.reshape(len(labels), -1).any(axis=1))
        if len(wrong):
            raise InputError(
                f"The {part} labels of {self.name} must lie in 0 to {len(self.classes) - 1}, its classes, not"
                f" {labels[wrong[0]].max()} (example {wrong[0]}); correct the labels or name more classes."
            )

    @property
    def num_train(self) -> int:
        """The number of training examples."""
        return len(self.train_inputs)

    @property
    def num_test(self) -> int:
        """The number of test examples."""
        return len(self.test_inputs)

    @property
    def num_classes(self) -> int:
        """The number of classes, or of columns of values: how many outputs a model needs."""
        return len(self.classes)

    @property
    def has_labels(self) -> bool:
        """Whether every example has one class, by which the data may be divided."""
        return not self.values and self.train_labels.ndim == 1

    def counted(self) -> tuple[Labels, tuple[str, ...]]:
        """What to count each worker's examples by, and its names: the classes, or nothing but the examples."""
        if self.has_labels:
            return self.train_labels, self.classes
        return np.zeros(self.num_train, np.int64), ("examples",)

    def labels_by(self, name: str | None = None) -> Labels:
        """The training labels, or one of the other ``ids`` by name.

        >>> tiny = Dataset("tiny", np.zeros((2, 1)), [0, 1], np.zeros((0, 1)), [], ("a", "b"), {"writer": [7, 9]})
        >>> tiny.labels_by("writer")
        array([7, 9])
        """
        if name is None and not self.has_labels:
            raise InputError(
                f"{self.name} has no class per example to divide it by; choose the scheme iid or quantity, or name ids"
                " of its examples with labels."
            )
        if name is None:
            return self.train_labels
        if name not in self.ids:
            known = ", ".join(self.ids) or "none"
            raise InputError(
                f"{self.name} has no ids called {name!r} (it has: {known}); cifar100 has coarse, qmnist has writer,"
                " shakespeare has role and play, and an .npz file may have any array with one whole number per example."
            )
        return self.ids[name]


def check_dataset(value: object) -> None:
    """Refuse what is not a :class:`Dataset`, and say how to make one from it."""
    if not isinstance(value, Dataset):
        raise InputError(
            f"dataset must be a fedgauge Dataset, not {type(value).__name__}; make one with from_torch(...) from torch"
            " data, with Dataset(...) from arrays, or with load_dataset(...) by name."
        )


def _check_inputs(what: str, inputs: Array) -> Array:
    if not (np.issubdtype(inputs.dtype, np.integer) or np.issubdtype(inputs.dtype, np.floating)):
        raise InputError(f"{what} must be bytes, floats or tokens, not {inputs.dtype}; convert them to float32.")
    if inputs.ndim == 0:
        raise InputError(f"{what} must have one entry per example, not be a single number; give an array.")
    if 0 in inputs.shape[1:]:
        raise InputError(f"{what} must have at least one number each, not the shape {inputs.shape[1:]}; correct them.")
    # The sum needs no memory, and is finite only if all entries are; as it may overflow, the second check decides.
    if not np.issubdtype(inputs.dtype, np.integer) and not np.isfinite(inputs.sum()) and not np.isfinite(inputs).all():
        raise InputError(f"{what} must be finite numbers, without infinities or NaN; correct or remove those entries.")
    return _frozen(inputs)


def _frozen(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def read_npz(path: str | Path) -> Dataset:
    """Read the arrays ``x_train``, ``y_train``, ``x_test``, ``y_test``, or ``x`` and ``y`` without test data.

    Other arrays with one whole number per training example become ``ids``. Pickled data is refused.
    """
    path = Path(path)
    try:
        with open_named(path) as raw, np.load(raw, allow_pickle=False) as file:
            sizes = [each.file_size for each in file.zip.infolist()]
            check_unpacked(path, path.stat().st_size, sum(sizes))
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise InputError(f"There is no file {path}; name an .npz file.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a directory; name an .npz file.") from None
    except (PermissionError, InputError, MemoryError):
        raise
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}; name an .npz file.") from None
    except Exception as error:  # zipfile, zlib and numpy each raise their own exceptions for damaged files
        reason = f"not an .npz file of plain arrays ({_first_line(error)})"
        raise InputError(f"{path} cannot be read: {reason}; replace the file.") from None
    if {"x_train", "y_train", "x_test", "y_test"} <= set(arrays):
        x, y, x_test, y_test = (arrays.pop(name) for name in ("x_train", "y_train", "x_test", "y_test"))
    elif {"x", "y"} <= set(arrays):
        x, y = arrays.pop("x"), arrays.pop("y")
        # A single number has no entries to leave out; it is refused below.
        x_test, y_test = (part[:0] if part.ndim else part for part in (x, y))
    else:
        names = ", ".join(arrays) or "nothing"
        raise InputError(
            f"{path} must hold x_train, y_train, x_test and y_test, or x and y, not {names}; rename its arrays."
        )
    per_example = {name: array for name, array in arrays.items() if array.ndim == 1 and array.shape == x.shape[:1]}
    ids = {name: array for name, array in per_example.items() if np.issubdtype(array.dtype, np.integer)}
    return Dataset(path.stem, x, y, x_test, y_test, (), ids)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def from_torch(train: Any, test: Any | None = None, *, name: str = "torch", classes: Sequence[str] = ()) -> Dataset:
    """Make a data set from torch Datasets, which have a length and whose items are (input, label).

    Inputs may be tensors, arrays or pictures, all of the same shape. Every item is read once, so that a random
    transform is drawn once and not in every epoch.

    >>> from_torch([(np.zeros(3, np.float32), 0), (np.ones(3, np.float32), 1)]).train_inputs.shape
    (2, 3)
    """
    x, y = _stack(train, "train")
    x_test, y_test = (x[:0], y[:0]) if test is None else _stack(test, "test")
    return Dataset(name, x, y, x_test, y_test, tuple(classes))


def _stack(items: Any, what: str) -> tuple[Array, Array]:
    tensors = getattr(items, "tensors", None)
    if tensors is not None and len(tensors) == 2:  # a TensorDataset already has the arrays
        return np.asarray(tensors[0].cpu()), np.asarray(tensors[1].cpu())
    inputs: list[Array] = []
    labels: list[Array] = []
    for index in range(len(items)):
        try:
            value, label = items[index]
        except (TypeError, ValueError):
            raise InputError(f"Item {index} of {what} must be a pair (input, label); wrap the dataset.") from None
        array = np.asarray(value)
        if hasattr(value, "getbands"):  # a picture's channels come last, and a single one has no axis
            array = array[np.newaxis] if array.ndim == 2 else np.moveaxis(array, -1, 0)
        if inputs and array.shape != inputs[0].shape:
            raise InputError(
                f"Item {index} of {what} must have the shape {inputs[0].shape} of the first, not {array.shape};"
                " resize the inputs."
            )
        inputs.append(array)
        target = np.asarray(label)
        if labels and target.shape != labels[0].shape:
            raise InputError(
                f"The label of item {index} of {what} must have the shape {labels[0].shape} of the first, not"
                f" {target.shape}; pad the labels."
            )
        labels.append(target)
    if not inputs:
        raise InputError(f"{what} must have at least one item; give a dataset that has a length.")
    return np.stack(inputs), np.stack(labels)
