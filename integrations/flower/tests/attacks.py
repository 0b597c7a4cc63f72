"""Answers that a broken or hostile node may send. Copied into the tests' Flower apps as it is."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord
from safetensors.torch import load, save

Attack = Callable[[Any], None]  # a message's content, whose records it changes

NOT_NUMBERS: Mapping[str, Any] = {"text": "0.5", "true": True, "bytes": b"1", "a list": [0.5], "an empty list": []}
NOT_FINITE = {"NaN": float("nan"), "infinite": float("inf"), "without a finite square": 1e200}
HUGE = {"without a square in float32": 1e19, "almost infinite": 3e38, "far above all others": 1e12}
OTHER_TYPES = {
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8": torch.float8_e4m3fn,
    "whole numbers": torch.int32,
    "bool": torch.bool,
}


def npy(header: str, body: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """The bytes of an array with a header of one's own."""
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header.encode() + body


def described(shape: str, dtype: str = "'<f4'", order: str = "False") -> str:
    return f"{{'descr': {dtype}, 'fortran_order': {order}, 'shape': {shape}}}\n"


def _archive() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, a=np.zeros(3))
    return stream.getvalue()


def _zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("a.txt", "not an array")
    return stream.getvalue()


RAW = {
    "no bytes": b"",
    "zeros": bytes(99),
    "npz": _archive(),
    "zip": _zip(),
    "a pickle": b"\x80\x04K\x01.",
    "objects": npy(described("(1,)", "'|O'"), b"\x80\x04K\x01."),
    "10^15 elements": npy(described("(1000000000000000,)")),
    "10^15 bytes": npy(described("(1000000000000000,)", "'|u1'"), bytes(8)),
    "many axes": npy(described(f"({'9,' * 400})")),
    "a negative axis": npy(described("(-1,)"), bytes(4)),
    "too short": npy(described("(100,)", "'|u1'"), bytes(9)),
    "text": npy(described("(1,)", "'<U4'"), bytes(16)),
    "complex": npy(described("(1,)", "'<c8'"), bytes(8)),
    "fields": npy(described("(1,)", "[('a', '<f4')]"), bytes(4)),
    "no description": npy("{}\n"),
    "nested": npy(described("(" * 300 + ")" * 300)),
    "version 9": npy(described("(1,)"), bytes(4), b"\x09\x00"),
    "a header that is cut": b"\x93NUMPY\x01\x00\xff\xff{",
}


def without(record: str, name: str) -> Attack:
    def change(content: Any) -> None:
        content[record].pop(name)

    return change


def valued(record: str, name: str, value: Any) -> Attack:
    def change(content: Any) -> None:
        content[record][name] = value

    return change


def no_record(record: str) -> Attack:
    def change(content: Any) -> None:
        del content[record]

    return change


def other_record(record: str) -> Attack:
    """A record of another kind under the same name."""

    def change(content: Any) -> None:
        arrays = isinstance(content[record], ArrayRecord)
        del content[record]
        content[record] = ConfigRecord({"a": 1}) if arrays else ArrayRecord({"a": Array(np.zeros(3))})

    return change


def raw(record: str, name: str, data: bytes, stype: str = "numpy.ndarray") -> Attack:
    """An array of these bytes, which says that it has the shape of the honest one."""

    def change(content: Any) -> None:
        honest = content[record][name]
        content[record][name] = Array(honest.dtype, honest.shape, stype, data)

    return change


def packed(change: Callable[[dict[str, torch.Tensor]], None]) -> Attack:
    """A change of the tensors in an answer of fedgauge's own app."""

    def attack(content: Any) -> None:
        tensors = load(content["fedgauge.arrays"]["safetensors"].numpy().tobytes())
        change(tensors)
        content["fedgauge.arrays"]["safetensors"] = Array(np.frombuffer(save(tensors), dtype=np.uint8))

    return attack


def _typed(name: str, dtype: torch.dtype) -> Attack:
    return packed(lambda tensors: tensors.update({name: tensors[name].to(dtype)}))


def _dropped(name: str) -> Attack:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        del tensors[name]

    return packed(change)


def _filled(name: str, value: float) -> Attack:
    return packed(lambda tensors: tensors.update({name: torch.full_like(tensors[name], value)}))


def _shaped(name: str, *shape: int) -> Attack:
    return packed(lambda tensors: tensors.update({name: torch.zeros(shape, dtype=tensors[name].dtype)}))


def _safetensors(data: bytes) -> Attack:
    def change(content: Any) -> None:
        content["fedgauge.arrays"]["safetensors"] = Array(np.frombuffer(data, dtype=np.uint8))

    return change


NUMBERS = {"evaluate.0.loss": False, "evaluate.0.noise2": True, "secants.0.squares": True, "secants.0.steepest": True}
"""The numbers in an answer of fedgauge's own app, and whether they cannot be negative."""
TENSORS = {
    "evaluate.0.gradient": torch.float64,
    "secants.0.gradient": torch.float32,
    "local_phase.0.message.change": torch.float32,
    "local_phase.0.x": torch.float32,
}
"""Its tensors, and their types."""


def own_attacks() -> Iterator[tuple[str, Attack]]:
    """Answers of fedgauge's own app, each of which has to be refused."""
    said, arrays, one = "fedgauge.said", "fedgauge.arrays", "safetensors"
    for name, is_square in NUMBERS.items():
        yield f"{name} missing", without(said, name)
        for what, value in {**NOT_NUMBERS, **NOT_FINITE, **({"negative": -1.0} if is_square else {})}.items():
            yield f"{name} {what}", valued(said, name, value)
    for name, right in TENSORS.items():
        for what, dtype in {**OTHER_TYPES, "float32": torch.float32}.items():
            if dtype != right:
                yield f"{name} {what}", _typed(name, dtype)
        for value in (float("nan"), float("-inf")):
            yield f"{name} {value}", _filled(name, value)
        for what, value in HUGE.items():
            yield f"{name} {what}", _filled(name, value)
        for shape in ((), (7,), (1210, 1), (0,)):
            yield f"{name} {shape}", _shaped(name, *shape)
        yield f"{name} missing", _dropped(name)
    for name in NUMBERS:
        yield f"{name} far above all others", valued(said, name, 1e100)
    yield "one more tensor", packed(lambda tensors: tensors.update({"more": torch.zeros(3)}))
    yield "a million tensors", packed(lambda tensors: tensors.update({str(n): torch.zeros(1) for n in range(20000)}))
    for what, data in RAW.items():
        yield f"bytes: {what}", raw(arrays, one, data)
    yield "bytes: of another kind", raw(arrays, one, b"1", "pickle")
    for what, data in {
        "a header of 10^15 bytes": (10**15).to_bytes(8, "little") + b"{}",
        "no JSON": (4).to_bytes(8, "little") + b"\xff\xff\xff\xff",
        "10^15 numbers": (72).to_bytes(8, "little")
        + b'{"a":{"dtype":"F32","shape":[1000000000000000],"data_offsets":[0,4]}}'.ljust(72)
        + bytes(4),
        "a type of its own": (60).to_bytes(8, "little")
        + b'{"a":{"dtype":"X9","shape":[1],"data_offsets":[0,4]}}'.ljust(60)
        + bytes(4),
    }.items():
        yield f"safetensors: {what}", _safetensors(data)
    for record in (said, arrays):
        yield f"no record {record}", no_record(record)
        yield f"another record {record}", other_record(record)
    for name, wrong in {"round": 1, "asked": "0000.1", "worker": 0}.items():
        yield f"{name} of another", valued(said, name, wrong)
        yield f"{name} negative", valued(said, name, -1)
        yield f"{name} list", valued(said, name, [1])
        yield f"{name} float", valued(said, name, 1.0)
        yield f"{name} missing", without(said, name)


def hello_attacks() -> Iterator[tuple[str, Attack]]:
    """Greetings, each of which has to be refused."""
    said = "fedgauge.said"
    for name in ("worker", "examples", "dim", "form", "digest", "method"):
        yield f"{name} missing", without(said, name)
        yield f"{name} list", valued(said, name, [1])
        yield f"{name} float", valued(said, name, 1.0)
        yield f"{name} bytes", valued(said, name, b"1")
    for name in ("worker", "examples", "dim"):
        yield f"{name} -1", valued(said, name, -1)
        yield f"{name} true", valued(said, name, True)
        yield f"{name} text", valued(said, name, "1")
    yield "no examples", valued(said, "examples", 0)
    yield "absurdly many examples", valued(said, "examples", 10**15)
    yield "one worker too many", valued(said, "worker", 3)
    yield "the number of another", valued(said, "worker", 0)
    yield "another model", valued(said, "form", "0" * 64)
    yield "a long digest", valued(said, "digest", "0" * 10**6)
    yield "no record", no_record(said)
    yield "another record", other_record(said)


def gauge_attacks() -> Iterator[tuple[str, Attack]]:
    """Answers of an app with gauge_mod, each of which has to be refused and kept from the strategy."""
    said, seen = "fedgauge.gauge.said", "fedgauge.gauge.seen"
    for name in ("loss", "squares", "steepest"):
        yield f"{name} missing", without(said, name)
    for name in ("loss", "noise2", "squares", "steepest"):
        for what, value in {**NOT_NUMBERS, **NOT_FINITE, **({} if name == "loss" else {"negative": -1.0})}.items():
            yield f"{name} {what}", valued(said, name, value)
    for name, wrong in {"round": 1, "asked": "0000.1"}.items():
        yield f"{name} of another", valued(said, name, wrong)
        yield f"{name} list", valued(said, name, [1])
        yield f"{name} missing", without(said, name)
    for what, value in {**NOT_NUMBERS, "-2": -2, "float": 1.0}.items():
        if what != "true":
            yield f"worker {what}", valued(said, "worker", value)
    yield "worker missing", without(said, "worker")
    for what, value in {
        "text": "1.weight",
        "numbers": [1, 2],
        "empty": [],
        "unknown": ["x"],
        "one": ["1.weight"],
    }.items():
        yield f"keys {what}", valued(said, "keys", value)
    yield "keys twice", valued(said, "keys", ["1.weight", "1.weight"])
    yield "keys in another order", valued(said, "keys", ["3.weight", "3.bias", "1.weight", "1.bias"])
    yield "keys missing", without(said, "keys")
    for name in ("at_global", "gradient"):
        yield f"{name} missing", without(seen, name)
        vectors: dict[str, Any] = {
            "NaN": np.full(1210, np.nan, dtype=np.float32),
            "whole": np.zeros(1210, dtype=np.int64),
            "short": np.zeros(7, dtype=np.float32),
            "square": np.zeros((1210, 1), dtype=np.float32),
            "complex": np.zeros(1210, dtype=np.complex64),
        }
        for what, array in vectors.items():
            yield f"{name} {what}", valued(seen, name, Array(array))
    yield "one more array", valued(seen, "more", Array(np.zeros(3)))
    for what, data in RAW.items():
        yield f"seen: {what}", raw(seen, "gradient", data)
        yield f"arrays: {what}", raw("arrays", "1.weight", data)
    yield "seen: of another kind", raw(seen, "gradient", b"1", "pickle")
    for record in (said, seen, "arrays", "metrics"):
        yield f"no record {record}", no_record(record)
        yield f"another record {record}", other_record(record)
    yield "no weight", without("metrics", "num-examples")
    for what, heavy in {"absurd": 1e100, "far above all others": 1e11}.items():
        yield f"weight {what}", valued("metrics", "num-examples", heavy)
    for what, number in HUGE.items():
        yield f"gradient {what}", valued(seen, "gradient", Array(np.full(1210, number, dtype=np.float32)))
        yield f"model {what}", valued("arrays", "1.weight", Array(np.full((16, 64), number, dtype=np.float32)))
    yield "a loss far above all others", valued(said, "loss", 1e100)
    for what, weight in {"NaN": float("nan"), "negative": -1.0, "zero": 0, "a list": [1.0]}.items():
        yield f"weight {what}", valued("metrics", "num-examples", weight)
    yield "one more metric", valued("metrics", "more", 1.0)
    yield "one more array of the model", valued("arrays", "more", Array(np.zeros(3)))
    yield "model missing", without("arrays", "1.weight")
    models: dict[str, Any] = {
        "NaN": np.full((16, 64), np.nan, dtype=np.float32),
        "transposed": np.zeros((64, 16), dtype=np.float32),
        "complex": np.zeros((16, 64), dtype=np.complex64),
        "whole": np.zeros((16, 64), dtype=np.int64),
    }
    for what, model in models.items():
        yield f"model {what}", valued("arrays", "1.weight", Array(model))
