"""A data set: inputs and labels for training and for testing, as plain arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from fedgauge.errors import InputError, nearest
from fedgauge.system.notices import notify

Array = npt.NDArray[Any]
Labels = npt.NDArray[np.int64]
Scaling = Literal["published", "unit", "measured"]
Progress = Callable[[int, int], None]
"""Called with how many items are done and how many there are."""


MOST_CLASSES = 100_000
"""The largest number of classes of labels that have no names; names for all of them are made."""
_FREELY = 2**30
_TIMES = 100


def check_unpacked(path: Path, packed: int, unpacked: int) -> None:
    """Refuse a compressed file that would take far more memory than it has bytes, before it is unpacked."""
    if unpacked > max(_FREELY, _TIMES * packed):
        raise InputError(
            f"{path} would take {unpacked:,} bytes of memory, {unpacked / max(packed, 1):,.0f} times its size; more"
            f" than 1 GiB is unpacked only up to {_TIMES} times a file's size: save the arrays with np.savez."
        )


class DamagedFileError(InputError):
    """A file whose content does not follow its format."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be read: {reason}; replace the file.")
        self.path, self.reason = path, reason


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and labels for training and for testing; the arrays are read-only.

    Attributes:
        name: the name of the data set.
        train_inputs: one entry per example, as unsigned bytes or floats; an image is (channels, height, width).
        train_labels: the class of each example: 0, 1, ...
        test_inputs: as ``train_inputs``; may be empty.
        test_labels: as ``train_labels``.
        classes: the name of each class.
        ids: other numbers of each training example by which the data may be divided, such as its ``writer``.
        peak: the input value that is scaled to 1; by default 255 for bytes and 1 for floats.
        mean: published mean of each channel, after scaling by the peak.
        std: published standard deviation of each channel.

    >>> tiny = Dataset("tiny", np.zeros((4, 2)), np.array([0, 1, 1, 0]), np.zeros((1, 2)), np.array([1]), ("no", "yes"))
    >>> tiny.num_classes, tiny.num_train
    (2, 4)
    """

    name: str
    train_inputs: Array
    train_labels: Labels
    test_inputs: Array
    test_labels: Labels
    classes: tuple[str, ...]
    ids: Mapping[str, Labels] = field(default_factory=dict)
    peak: float | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            inputs, labels = np.asarray(getattr(self, f"{part}_inputs")), getattr(self, f"{part}_labels")
            self._put(f"{part}_inputs", _check_inputs(f"The {part} inputs of {self.name}", inputs))
            self._put(f"{part}_labels", _check_labels(f"The {part} labels of {self.name}", labels, len(inputs)))
            self._check_range(part)
        if self.num_train == 0:
            raise InputError(f"{self.name} has no training examples; it needs at least one.")
        if len(self.test_inputs) and self.test_inputs.shape[1:] != self.train_inputs.shape[1:]:
            raise InputError(
                f"The test inputs of {self.name} must have the shape {self.train_inputs.shape[1:]} of its training"
                f" inputs, not {self.test_inputs.shape[1:]}; give both the same shape."
            )
        ids = {
            key: _check_labels(f"The {key} ids of {self.name}", ids, self.num_train) for key, ids in self.ids.items()
        }
        self._put("ids", ids)
        self._put("classes", tuple(str(name) for name in self.classes))
        if self.peak is None:
            self._put("peak", 255.0 if self.train_inputs.dtype == np.uint8 else 1.0)

    def _put(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_range(self, part: str) -> None:
        labels = getattr(self, f"{part}_labels")
        wrong = np.flatnonzero((labels < 0) | (labels >= len(self.classes)))
        if len(wrong):
            raise InputError(
                f"The {part} labels of {self.name} must lie in 0 to {len(self.classes) - 1}, its classes, not"
                f" {labels[wrong[0]]} (example {wrong[0]}); correct the labels or name more classes."
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
        """The number of classes."""
        return len(self.classes)

    def labels_by(self, name: str | None = None) -> Labels:
        """The training labels, or one of the other ``ids`` by name.

        >>> tiny = Dataset("tiny", np.zeros((2, 1)), [0, 1], np.zeros((0, 1)), [], ("a", "b"), {"writer": [7, 9]})
        >>> tiny.labels_by("writer")
        array([7, 9])
        """
        if name is None:
            return self.train_labels
        if name not in self.ids:
            known = ", ".join(self.ids) or "none"
            raise InputError(
                f"{self.name} has no ids called {name!r} (it has: {known}); cifar100 has coarse, qmnist has writer, and"
                " an .npz file may have any array with one whole number per example."
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
    if inputs.dtype != np.uint8 and not np.issubdtype(inputs.dtype, np.floating):
        raise InputError(f"{what} must be unsigned bytes or floats, not {inputs.dtype}; convert them to float32.")
    if inputs.ndim == 0:
        raise InputError(f"{what} must have one entry per example, not be a single number; give an array.")
    if 0 in inputs.shape[1:]:
        raise InputError(f"{what} must have at least one number each, not the shape {inputs.shape[1:]}; correct them.")
    # The sum needs no memory, and is finite only if all entries are; as it may overflow, the second check decides.
    if inputs.dtype != np.uint8 and not np.isfinite(inputs.sum()) and not np.isfinite(inputs).all():
        raise InputError(f"{what} must be finite numbers, without infinities or NaN; correct or remove those entries.")
    return _frozen(inputs)


def _check_labels(what: str, labels: npt.ArrayLike, length: int) -> Labels:
    given = np.asarray(labels)
    if given.ndim != 1 or len(given) != length:
        raise InputError(f"{what} must be {length} numbers, one per example, not an array of shape {given.shape}.")
    if given.size and not (np.issubdtype(given.dtype, np.integer) or _all_whole(given)):
        raise InputError(f"{what} must be whole numbers, not {given.dtype}; number the classes 0, 1, ...")
    return _frozen(given.astype(np.int64))


def _all_whole(array: Array) -> bool:
    if not np.issubdtype(array.dtype, np.floating):
        return False
    return bool(np.isfinite(array).all() and (array == np.round(array)).all())


def _frozen(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def standardise(dataset: Dataset, scaling: Scaling = "unit") -> Dataset:
    """Return the data set with float32 inputs, scaled in the way that is chosen.

    Args:
        dataset: the data set, with inputs as they were read.
        scaling: ``unit`` divides by the peak, so that bytes lie in [0, 1]. ``published`` then subtracts the published
            mean of each channel and divides by its published standard deviation. ``measured`` does the same with the
            mean and standard deviation of these training inputs. Channels are axis 1 of images; other inputs count as
            one channel.

    >>> tiny = Dataset("tiny", np.array([[0], [255]], np.uint8), [0, 1], np.zeros((0, 1), np.uint8), [], ("a", "b"))
    >>> standardise(tiny, "unit").train_inputs.ravel()
    array([0., 1.], dtype=float32)
    >>> standardise(tiny, "measured").train_inputs.ravel()
    array([-1.,  1.], dtype=float32)
    """
    check_dataset(dataset)
    if scaling not in get_args(Scaling):
        raise InputError(f"There is no scaling {scaling!r}; {nearest(scaling, get_args(Scaling))}")
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


def warn_of_large_inputs(dataset: Dataset) -> None:
    """Say so if a feature of the training inputs is far larger than 1, where networks tend to get stuck."""
    inputs = dataset.train_inputs.reshape(dataset.num_train, -1)
    squares = np.einsum("ij,ij->j", inputs, inputs, dtype=np.float64)
    largest = float(np.sqrt(squares.max(initial=0.0) / dataset.num_train))
    if largest > _LARGE:
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


def read_npz(path: str | Path) -> Dataset:
    """Read the arrays ``x_train``, ``y_train``, ``x_test``, ``y_test``, or ``x`` and ``y`` without test data.

    Other arrays with one whole number per training example become ``ids``. Pickled data is refused.
    """
    path = Path(path)
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            sizes = [each.file_size for each in file.zip.infolist()]
            check_unpacked(path, path.stat().st_size, sum(sizes))
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise InputError(f"There is no file {path}; name an .npz file.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a directory; name an .npz file.") from None
    except (PermissionError, InputError, MemoryError):
        raise
    except Exception as error:  # zipfile, zlib and numpy each raise their own exceptions for damaged files
        raise DamagedFileError(path, f"not an .npz file of plain arrays ({_first_line(error)})") from None
    if {"x_train", "y_train", "x_test", "y_test"} <= set(arrays):
        x, y, x_test, y_test = (arrays.pop(name) for name in ("x_train", "y_train", "x_test", "y_test"))
    elif {"x", "y"} <= set(arrays):
        x, y = arrays.pop("x"), arrays.pop("y")
        # A single number has no entries to leave out; it is refused below.
        x_test, y_test = (part[:0] if part.ndim else part for part in (x, y))
    else:
        found = ", ".join(arrays) or "nothing"
        raise InputError(
            f"{path} must hold x_train, y_train, x_test and y_test, or x and y, not {found}; rename its arrays."
        )
    per_example = {name: array for name, array in arrays.items() if array.ndim == 1 and array.shape == x.shape[:1]}
    ids = {name: array for name, array in per_example.items() if np.issubdtype(array.dtype, np.integer)}
    return Dataset(path.stem, x, y, x_test, y_test, _numbered(y, y_test), ids)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _numbered(*labels: Array) -> tuple[str, ...]:
    """Names of the classes of unnamed labels: the numbers from 0 to the largest label."""
    # Labels that are no finite numbers are refused, with their place, when the data set is made.
    known = [part[np.isfinite(part)] for part in labels if part.dtype.kind in "iuf"]
    largest = max((int(part.max()) for part in known if part.size), default=0)
    if largest >= MOST_CLASSES:
        raise InputError(
            f"The label {largest} would need {largest + 1:,} classes, and at most {MOST_CLASSES:,} are made; number the"
            " classes 0, 1, ... without gaps."
        )
    return tuple(str(number) for number in range(largest + 1))


def from_torch(train: Any, test: Any | None = None, *, name: str = "torch", classes: Sequence[str] = ()) -> Dataset:
    """Make a data set from torch Datasets, which have a length and whose items are (input, label).

    Inputs may be tensors, arrays or pictures, all of the same shape. Every item is read once, so that a random
    transform is drawn once and not in every epoch.

    >>> from_torch([(np.zeros(3, np.float32), 0), (np.ones(3, np.float32), 1)]).train_inputs.shape
    (2, 3)
    """
    x, y = _stack(train, "train")
    x_test, y_test = (x[:0], y[:0]) if test is None else _stack(test, "test")
    return Dataset(name, x, y, x_test, y_test, tuple(classes) or _numbered(y, y_test))


def _stack(items: Any, what: str) -> tuple[Array, Array]:
    tensors = getattr(items, "tensors", None)
    if tensors is not None and len(tensors) == 2:  # a TensorDataset already has the arrays
        return np.asarray(tensors[0].cpu()), np.asarray(tensors[1].cpu())
    inputs: list[Array] = []
    labels: list[int] = []
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
        labels.append(int(label))
    if not inputs:
        raise InputError(f"{what} must have at least one item; give a dataset that has a length.")
    return np.stack(inputs), np.array(labels)
