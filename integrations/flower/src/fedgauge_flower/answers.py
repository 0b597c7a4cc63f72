"""What nodes answer, read without trusting it.

A node may be broken, out of date or hostile, and one of them must not end a federation. So every field of every answer
is checked here, before anything uses it: that it belongs to the question, the round and the worker, that each number is
a number, that each array has the expected size, type and shape, and last that all of them are finite. Sizes are checked
before memory is taken. An answer that fails raises :class:`RefusedError`; whoever asked records it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from safetensors.torch import load

import fedgauge_flower.records as records

LARGEST = 1e150
"""The largest absolute value of a number in an answer; the squares of larger ones would not be finite."""
LARGEST_NARROW = 1e15
"""The same for float32 and bfloat16: the squares of a billion such numbers can be added up."""
MOST_EXAMPLES = 10**12
"""The largest number of examples, or weight, of a node."""
FAR = 1e6
"""How many times larger than all others a node's numbers may be; beyond that it would decide alone. For numbers that
are squares of lengths, such as a loss, it is the square of this."""
Key = TypeVar("Key", bound=Hashable)
_HEADERS = 2**20
"""The bytes that an answer may have beside the numbers that were asked for."""
_FLOATS = ("float16", "float32", "float64")


class RefusedError(Exception):
    """An answer that cannot be used; its text says what is wrong with it, in a few words.

    Attributes:
        not_finite: whether nothing else is wrong than numbers that are not finite, as in a run that diverges.
    """

    def __init__(self, text: str, *, not_finite: bool = False) -> None:
        super().__init__(text)
        self.not_finite = not_finite


class Like(NamedTuple):
    """The type and the shape that a tensor in an answer must have.

    >>> Like.of(torch.zeros(3))
    Like(dtype=torch.float32, shape=(3,))
    """

    dtype: torch.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> Like:
        """Like this tensor, perhaps of another type."""
        return cls(dtype or tensor.dtype, tuple(tensor.shape))


@dataclass
class Expected:
    """What a worker's answer must have.

    Attributes:
        echo: values that come back as they were sent, such as the round.
        numbers: the smallest allowed value of each number.
        tensors: the type and the shape of each tensor.
    """

    echo: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    tensors: dict[str, Like] = field(default_factory=dict)


@dataclass(frozen=True)
class Received:
    """A worker's answer, with every field that was expected.

    Attributes:
        numbers: the numbers, by name.
        tensors: the tensors, by name.
        not_finite: which of them is not finite, in a few words; empty if all are.
    """

    numbers: Mapping[str, float]
    tensors: Mapping[str, torch.Tensor]
    not_finite: str = ""


class Greeting(NamedTuple):
    """What a node says of itself before a run.

    Attributes:
        worker: the number of its worker.
        examples: the number of its examples.
        dim: the number of its model's parameters.
        form: a fingerprint of the model, the loss and the batch size.
        digest: a fingerprint of the examples.
    """

    worker: int
    examples: int
    dim: int
    form: str
    digest: str


class GaugeAnswer(NamedTuple):
    """What a node answers a gauge.

    Attributes:
        worker: the number of its worker; -1 if it has none.
        loss: its loss at the global model.
        noise2: the variance of its stochastic gradients there, if it was measured.
        keys: the names of the model's parameters among the strategy's arrays, in order.
        at_global: its gradient at the global model.
        gradient: its gradient at its own model after training, if it has trained.
        look: its gradient at the mean model, if it still had its own model of that round.
        squares: the squared norm of that gradient.
        steepest: how fast its gradient changes from there to its own model.
    """

    worker: int
    loss: float
    noise2: float | None
    keys: tuple[str, ...]
    at_global: torch.Tensor
    gradient: torch.Tensor | None = None
    look: torch.Tensor | None = None
    squares: float = 0.0
    steepest: float = 0.0


# -- whole answers -----------------------------------------------------------------------------------------------------


def read_greeting(content: RecordDict) -> Greeting:
    """Read what a node says of itself."""
    values = records.values_in(content)
    _check_echo(values, {"method": "hello"})
    return Greeting(
        _whole(values, "worker", 0),
        _whole(values, "examples", 1, MOST_EXAMPLES),
        _whole(values, "dim", 1),
        _text(values, "form"),
        _text(values, "digest"),
    )


def read_work(content: RecordDict, expected: Expected) -> Received:
    """Read a worker's answer to a task; numbers that are not finite are named, not refused, as a run may diverge."""
    values = records.values_in(content)
    _check_echo(values, expected.echo)
    numbers = {name: _number(values, name, least) for name, least in expected.numbers.items()}
    tensors = _unpacked(content, expected.tensors)
    return Received(numbers, tensors, _not_finite({**numbers, **tensors}))


def read_measured(
    content: RecordDict, names: tuple[str, str], echo: Mapping[str, Any], model: ArrayRecord, *, trained: bool
) -> GaugeAnswer:
    """Read a node's answer to a gauge.

    Args:
        content: the answer.
        names: the names of the gauge's two records in it: the values and the arrays.
        echo: values that come back as they were sent.
        model: the global model, with the names and shapes of its arrays.
        trained: whether the node was asked to train.
    """
    values: Any = content.config_records.get(names[0])
    arrays = content.array_records.get(names[1])
    if values is None or arrays is None:
        raise RefusedError("its answer has nothing for the gauge: the ClientApp has no gauge_mod")
    _check_echo(values, echo)
    keys = values.get("keys")
    if not isinstance(keys, list) or not set(keys) <= set(model) or len(set(keys)) < len(keys) or not keys:
        raise RefusedError(f"its keys are {_shown(keys)}, not names of the model's arrays")
    shape = (sum(math.prod(model[key].shape) for key in keys),)
    wanted = ["at_global", *(["gradient"] if trained else []), *(["look"] if "look" in arrays else [])]
    if set(arrays) != set(wanted):
        raise RefusedError(f"it sends {_listed(arrays)}, not {_listed(wanted)}")
    tensors = {name: _vector(name, arrays[name], shape) for name in wanted}
    numbers = {name: _number(values, name, 0.0) for name in (("squares", "steepest") if "look" in tensors else ())}
    numbers["loss"] = _number(values, "loss", -math.inf)
    noise2 = _number(values, "noise2", 0.0) if "noise2" in values else None
    worker = _whole(values, "worker", -1)
    wrong = _not_finite({**numbers, **tensors, **({} if noise2 is None else {"noise2": noise2})})
    if wrong:
        raise RefusedError(wrong, not_finite=True)
    return GaugeAnswer(worker, noise2=noise2, keys=tuple(keys), **numbers, **tensors)  # type: ignore[arg-type]


def check_model(content: RecordDict, model: ArrayRecord, floats: Collection[str]) -> ArrayRecord:
    """A node's model; refused unless it is the only array record and has the global model's arrays, all finite.

    Args:
        content: the answer, without the gauge's own records.
        model: the global model, with the names and shapes of its arrays.
        floats: the names of the arrays that hold floating-point numbers; others, such as counters, may become such
            numbers in a mean.
    """
    if len(content.array_records) != 1:
        raise RefusedError(f"it has {len(content.array_records)} array records, not one")
    (arrays,) = content.array_records.values()
    for key in model:
        if key not in arrays:
            raise RefusedError(f"its model has no {key}")
    for key, array in arrays.items():
        found = read_array(_listed([key]), array)
        if key in model and found.shape != tuple(model[key].shape):
            raise RefusedError(f"its {key} has shape {found.shape}, not {tuple(model[key].shape)}")
        if key in floats and found.dtype.kind != "f":
            raise RefusedError(f"its {key} holds {found.dtype.name}, not floating-point numbers")
        if not np.isfinite(found).all():
            raise RefusedError(f"its {_listed([key])} is not finite", not_finite=True)
        if found.size and found.dtype.kind == "f":
            most = LARGEST_NARROW if found.dtype.itemsize <= 4 else LARGEST
            if max(abs(float(found.min())), abs(float(found.max()))) > most:
                raise RefusedError(f"its {_listed([key])} is beyond {most:g}", not_finite=True)
    return arrays


def read_weight(content: RecordDict, name: str) -> float:
    """Read a node's weight, which is one of its metrics."""
    found = [metrics for metrics in content.metric_records.values() if name in metrics]
    if len(found) > 1:
        raise RefusedError(f"{len(found)} of its metric records have a {name}, not one")
    weight = _number(found[0] if found else {}, name, 0.0)
    if weight == 0 or not weight <= MOST_EXAMPLES:
        raise RefusedError(f"its {name} is {weight:g}, not a number above 0 and of at most {MOST_EXAMPLES:g}")
    return weight


def combined_names(content: RecordDict, weight: str) -> Hashable:
    """The names in an answer, and the lengths of its lists of metrics; refused if it has no weight.

    Flower's own strategies raise an error, which ends the training, unless these are the same for all nodes.
    """
    if len(content.metric_records) != 1:
        raise RefusedError(f"it has {len(content.metric_records)} metric records, not one")
    read_weight(content, weight)
    return (
        tuple((name, frozenset(arrays)) for name, arrays in content.array_records.items()),
        tuple(
            (name, frozenset((key, len(value) if isinstance(value, list) else None) for key, value in metrics.items()))
            for name, metrics in content.metric_records.items()
        ),
    )


def far_from_others(answers: Mapping[Key, Mapping[str, float | torch.Tensor]]) -> dict[Key, str]:
    """Whose answer has a number or tensor far larger than the same one of all others, and which, in a few words.

    Nobody is far from others who is alone, or whose numbers are below 1 times the factor. No mean resists one answer
    without bounds, whatever its weight.

    >>> far_from_others({"a": {"x": torch.tensor([1e9])}, "b": {"x": torch.tensor([2.0])}})
    {'a': 'its x is 1e+09, more than a million times as large as that of any other'}
    """
    found: dict[Key, str] = {}
    for name in dict.fromkeys(name for each in answers.values() for name in each):
        sizes = {key: _size(each[name]) for key, each in answers.items() if name in each}
        if len(sizes) < 2:
            continue
        (_, second), (first, largest) = sorted(sizes.items(), key=lambda item: item[1])[-2:]
        factor, words = (FAR, "a million") if isinstance(answers[first][name], torch.Tensor) else (FAR**2, "10^12")
        if largest > factor * max(second, 1.0):
            found.setdefault(first, f"its {name} is {largest:g}, more than {words} times as large as that of any other")
    return found


def _size(value: float | torch.Tensor) -> float:
    if isinstance(value, torch.Tensor):
        return max(abs(float(end)) for end in value.aminmax()) if value.numel() else 0.0
    return abs(value)


# -- fields ------------------------------------------------------------------------------------------------------------


def read_array(name: str, array: Array) -> npt.NDArray[Any]:
    """Read an array of real numbers; nothing is copied.

    Flower's own method asks numpy to load whatever the bytes are, and takes as much memory as their header asks for.
    """
    if array.stype != "numpy.ndarray":
        raise RefusedError(f"its {name} is of type {_shown(array.stype)}, not numpy.ndarray")
    stream = io.BytesIO(array.data)
    try:
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        read, by_columns, dtype = header[np.lib.format.read_magic(stream)](stream)
    except Exception as error:  # a stranger's bytes: numpy may raise anything
        raise RefusedError(f"its {name} cannot be read as an array ({type(error).__name__})") from None
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise RefusedError(f"its {name} holds {_shown(str(dtype))}, not real numbers")
    shape = tuple(map(int, read))
    size, there = math.prod(shape) * dtype.itemsize, len(array.data) - stream.tell()
    if min(shape, default=0) < 0 or size != there or tuple(array.shape) != shape:
        raise RefusedError(f"its {name} says that it has shape {_shown(shape)}, but has {there} bytes")
    flat = np.frombuffer(array.data, dtype, offset=stream.tell())
    return flat.reshape(shape, order="F" if by_columns else "C")


def _vector(name: str, array: Array, shape: tuple[int, ...]) -> torch.Tensor:
    """A vector of floating-point numbers, with its own memory."""
    found = read_array(name, array)
    if found.dtype.name not in _FLOATS:
        raise RefusedError(f"its {name} holds {found.dtype.name}, not floating-point numbers")
    if found.shape != shape:
        raise RefusedError(f"its {name} has shape {found.shape}, not {shape}")
    return torch.from_numpy(found.astype(found.dtype.newbyteorder("=")))


def _unpacked(content: RecordDict, expected: Mapping[str, Like]) -> dict[str, torch.Tensor]:
    """The tensors that are packed into one array of bytes."""
    arrays: Mapping[str, Array] = content.array_records.get(records.ARRAYS) or {}
    if not expected and not arrays:
        return {}
    if set(arrays) != {records.PACKED}:
        raise RefusedError(f"it sends {_listed(arrays)}, not {_listed(expected)}")
    array = arrays[records.PACKED]
    most = sum(math.prod(like.shape) * like.dtype.itemsize for like in expected.values()) + _HEADERS
    if len(array.data) > most:
        raise RefusedError(f"its tensors have {len(array.data)} bytes, more than {most}")
    packed = read_array("bytes", array)
    try:
        tensors = load(packed.tobytes())
    except Exception as error:  # a stranger's bytes: a decoder may raise anything
        raise RefusedError(f"its tensors cannot be read ({type(error).__name__})") from None
    if set(tensors) != set(expected):
        raise RefusedError(f"it sends {_listed(tensors)}, not {_listed(expected)}")
    for name, (dtype, shape) in expected.items():
        if tensors[name].dtype != dtype:
            raise RefusedError(f"its {name} holds {tensors[name].dtype}, not {dtype}")
        if tuple(tensors[name].shape) != shape:
            raise RefusedError(f"its {name} has shape {tuple(tensors[name].shape)}, not {shape}")
    return tensors


def _check_echo(values: Mapping[str, Any], echo: Mapping[str, Any]) -> None:
    for name, sent in echo.items():
        found = values.get(name)
        if type(found) is not type(sent) or found != sent:
            raise RefusedError(f"it answers {name} {_shown(found)}, not {sent!r}")


def _number(values: Mapping[str, Any], name: str, least: float) -> float:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedError(f"its {name} is {_shown(value)}, not a number")
    if value < least:
        raise RefusedError(f"its {name} is {value:g}, below {least:g}")
    return float(value)


def _whole(values: Mapping[str, Any], name: str, least: int, most: int | None = None) -> int:
    value = values.get(name)
    if isinstance(value, int) and most is not None and value > most:
        raise RefusedError(f"its {name} is {_shown(value)}, more than {most}")
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise RefusedError(f"its {name} is {_shown(value)}, not a whole number of at least {least}")
    return value


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= 200:
        raise RefusedError(f"its {name} is {_shown(value)}, not a short text")
    return value


def _not_finite(found: Mapping[str, float | torch.Tensor]) -> str:
    """Which number or tensor is not finite, or so large that its square is not; empty if none is."""
    for name, value in found.items():
        narrow = isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.bfloat16)
        most = LARGEST_NARROW if narrow else LARGEST
        ends = value.aminmax() if isinstance(value, torch.Tensor) and value.numel() else (value, value)
        if not all(abs(float(end)) <= most for end in ends):
            return f"its {name} {f'is beyond {most:g}' if all(map(math.isfinite, ends)) else 'is not finite'}"
    return ""


def _shown(value: object) -> str:
    """A value of a stranger's, on one line that is not long."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _listed(names: Collection[str]) -> str:
    text = ", ".join(repr(name)[1:-1] for name in sorted(names)[:20])
    return (text if len(text) <= 400 else f"{text[:397]}...") or "nothing"
