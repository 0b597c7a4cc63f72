"""A data set: inputs and labels to train and to test on, as plain arrays."""

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
Told = Callable[[int, int], None]
"""Called with how much is done and how much there is."""


class DamagedFileError(InputError):
    """A file whose content is not what its format demands."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be read: {reason}; replace the file.")
        self.path, self.reason = path, reason


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and labels to train and to test on; the arrays are read-only.

    Attributes:
        name: what it is called.
        train_inputs: one entry an example, of unsigned bytes or floats; images are (channels, height, width).
        train_labels: the class of each, 0, 1, ...
        test_inputs: as ``train_inputs``; may be empty.
        test_labels: as ``train_labels``.
        classes: the name of each class.
        ids: further numbers of each training example by which it may be shared out, such as its ``writer``.
        peak: the input that stands for 1: 255 for bytes, 1 for floats, unless given.
        mean: published mean of each channel, where the peak is 1.
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
            raise InputError(f"{self.name} has no training examples; give at least one.")
        if len(self.test_inputs) and self.test_inputs.shape[1:] != self.train_inputs.shape[1:]:
            raise InputError(
                f"The test inputs of {self.name} must have the shape {self.train_inputs.shape[1:]} of its training"
                f" inputs, not {self.test_inputs.shape[1:]}; give both in one shape."
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
                f" {labels[wrong[0]]} (example {wrong[0]}); mend the labels or name more classes."
            )

    @property
    def num_train(self) -> int:
        """How many examples there are to train on."""
        return len(self.train_inputs)

    @property
    def num_test(self) -> int:
        """How many examples there are to test on."""
        return len(self.test_inputs)

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    def labels_by(self, name: str | None = None) -> Labels:
        """The training labels, or one of the further ``ids`` by name.

        >>> tiny = Dataset("tiny", np.zeros((2, 1)), [0, 1], np.zeros((0, 1)), [], ("a", "b"), {"writer": [7, 9]})
        >>> tiny.labels_by("writer")
        array([7, 9])
        """
        if name is None:
            return self.train_labels
        if name not in self.ids:
            known = ", ".join(self.ids) or "none"
            raise InputError(
                f"{self.name} has no {name!r} beside its labels (it has: {known}); coarse labels come with cifar100,"
                " writers with qmnist, and any whole numbers with an .npz file."
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
        raise InputError(f"{what} must be unsigned bytes or floats, not {inputs.dtype}; convert them.")
    if inputs.ndim == 0:
        raise InputError(f"{what} must have one entry an example, not be a single number; give an array.")
    # The sum is finite only if everything is, and needs no memory; it may overflow, so the second look decides.
    if inputs.dtype != np.uint8 and not np.isfinite(inputs.sum()) and not np.isfinite(inputs).all():
        raise InputError(f"{what} must be finite numbers, without infinities or NaN; mend or drop them.")
    return _frozen(inputs)


def _check_labels(what: str, labels: npt.ArrayLike, length: int) -> Labels:
    given = np.asarray(labels)
    if given.ndim != 1 or len(given) != length:
        raise InputError(f"{what} must be {length} numbers, one an example, not of shape {given.shape}; give each one.")
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
    """Give the data set with float32 inputs, scaled in a way that is said.

    Args:
        dataset: with inputs as they were found.
        scaling: ``unit``: divided by the peak, so that bytes lie in [0, 1]. ``published``: then the published mean of
            each channel taken off, and divided by the published standard deviation. ``measured``: the same with the
            mean and deviation of these training inputs; a channel is axis 1 of images, and without such an axis all
            inputs are one channel.

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
        raise InputError(f"{dataset.name} has no published mean; choose the scaling unit or measured.")
    if min(std) <= 0:
        raise InputError(f"A channel of {dataset.name} is constant, so it has no scale; choose the scaling unit.")
    return mean, std


def measure(dataset: Dataset) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of the training inputs, where the peak is 1.

    >>> tiny = Dataset("tiny", np.array([[0], [255]], np.uint8), [0, 1], np.zeros((0, 1), np.uint8), [], ("a", "b"))
    >>> measure(tiny)
    ((0.5,), (0.5,))
    """
    inputs = dataset.train_inputs
    channels = np.moveaxis(inputs, 1, 0) if inputs.ndim == 4 else inputs[np.newaxis]
    means, stds = [], []
    for channel in channels:
        if channel.dtype == np.uint8:
            # Exact, and without a copy in floats: 256 values and how often each occurs.
            counts = np.bincount(channel.ravel(), minlength=256) / channel.size
            mean = float(counts @ np.arange(256))
            std = float(np.sqrt(counts @ (np.arange(256) - mean) ** 2))
        else:
            mean, std = float(channel.mean(dtype=np.float64)), float(channel.std(dtype=np.float64))
        means.append(mean / (dataset.peak or 1.0))
        stds.append(std / (dataset.peak or 1.0))
    return tuple(means), tuple(stds)


def read_npz(path: str | Path) -> Dataset:
    """Read arrays ``x_train``, ``y_train``, ``x_test``, ``y_test``, or ``x`` and ``y`` with nothing to test on.

    Further arrays of one whole number a training example become ``ids``. Nothing pickled is read.
    """
    path = Path(path)
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise InputError(f"There is no file {path}; give the path of an .npz file.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a directory; give the path of an .npz file.") from None
    except PermissionError:
        raise
    except Exception as error:  # zipfile, zlib and numpy each have their own way to find a file damaged
        raise DamagedFileError(path, f"not an .npz file of plain arrays ({_first_line(error)})") from None
    if {"x_train", "y_train", "x_test", "y_test"} <= set(arrays):
        x, y, x_test, y_test = (arrays.pop(name) for name in ("x_train", "y_train", "x_test", "y_test"))
    elif {"x", "y"} <= set(arrays):
        x, y = arrays.pop("x"), arrays.pop("y")
        x_test, y_test = x[:0], y[:0]
    else:
        found = ", ".join(arrays) or "nothing"
        raise InputError(
            f"{path} must hold x_train, y_train, x_test and y_test, or x and y, not {found}; rename its arrays."
        )
    ids = {name: a for name, a in arrays.items() if a.shape == (len(x),) and np.issubdtype(a.dtype, np.integer)}
    return Dataset(path.stem, x, y, x_test, y_test, _numbered(y, y_test), ids)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _numbered(*labels: Array) -> tuple[str, ...]:
    """The classes of labels without names: 0 up to the largest."""
    whole = [int(part.max()) for part in labels if part.size and np.issubdtype(part.dtype, np.number)]
    return tuple(str(number) for number in range(max(whole, default=0) + 1))


def from_torch(train: Any, test: Any | None = None, *, name: str = "torch", classes: Sequence[str] = ()) -> Dataset:
    """Make a data set from torch Datasets, which have a length and whose items are (input, label).

    Inputs may be tensors, arrays or pictures, all of one shape; every item is asked for once. Transforms with
    randomness are therefore drawn once, not anew in each epoch.

    >>> from_torch([(np.zeros(3, np.float32), 0), (np.ones(3, np.float32), 1)]).train_inputs.shape
    (2, 3)
    """
    x, y = _stack(train, "train")
    x_test, y_test = (x[:0], y[:0]) if test is None else _stack(test, "test")
    return Dataset(name, x, y, x_test, y_test, tuple(classes) or _numbered(y, y_test))


def _stack(items: Any, what: str) -> tuple[Array, Array]:
    tensors = getattr(items, "tensors", None)
    if tensors is not None and len(tensors) == 2:  # a TensorDataset has the arrays already
        return np.asarray(tensors[0].cpu()), np.asarray(tensors[1].cpu())
    inputs: list[Array] = []
    labels: list[int] = []
    for index in range(len(items)):
        try:
            value, label = items[index]
        except (TypeError, ValueError):
            raise InputError(f"Item {index} of {what} must be a pair (input, label); wrap the dataset.") from None
        array = np.asarray(value)
        if hasattr(value, "getbands"):  # a picture has its channels last, or no axis for a single one
            array = array[np.newaxis] if array.ndim == 2 else np.moveaxis(array, -1, 0)
        if inputs and array.shape != inputs[0].shape:
            raise InputError(
                f"Item {index} of {what} must have the shape {inputs[0].shape} of the first, not {array.shape};"
                " resize the inputs."
            )
        inputs.append(array)
        labels.append(int(label))
    if not inputs:
        raise InputError(f"{what} must have at least one item, not none; give a dataset with a length.")
    return np.stack(inputs), np.array(labels)
