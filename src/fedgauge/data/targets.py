"""The targets of examples: classes, sequences of classes, or values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauge.errors import InputError

Array = npt.NDArray[Any]

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
