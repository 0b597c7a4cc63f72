"""Convert plain data to typed values and back: one validator for JSON, TOML and options, made once for each type.

This module does not import numpy, so that the command's help need not wait for it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import numbers
import re
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from fedgauge.base.errors import InputError, nearest

Decoder = Callable[[Any, str], Any]
"""Makes a typed value from plain data; the second argument is the name of the value in messages."""


class _Alternative(NamedTuple):
    """One type of a union: its name in messages, a test of whether data fits it, and its decoder."""

    words: str
    fits: Callable[[Any], bool]
    make: Decoder


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The types of a union, without None; any other type as the only one.

    >>> alternatives(int | None)
    (<class 'int'>,)
    """
    return tuple(each for each in (typing.get_args(hint) if _is_union(hint) else (hint,)) if each is not type(None))


def _is_whole(data: Any) -> bool:
    return isinstance(data, numbers.Integral) and not isinstance(data, bool)


def _is_number(data: Any) -> bool:
    return isinstance(data, numbers.Real) and not isinstance(data, bool)


def _is_list(data: Any) -> bool:
    return isinstance(data, list | tuple) or _is_array(data)


def _is_array(data: Any) -> bool:
    """Whether data is a numpy array or number; this does not import numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(data, numpy.ndarray | numpy.generic)


def _float(data: Any, where: str) -> float:
    try:
        return float(data)
    except OverflowError:
        raise InputError(f"{where} must be a number below 1.8e308, not a whole number of more digits.") from None


_SCALARS: Mapping[Any, _Alternative] = {
    int: _Alternative("a whole number", _is_whole, lambda data, where: int(data)),
    float: _Alternative("a number", _is_number, _float),
    str: _Alternative("text", lambda data: isinstance(data, str), lambda data, where: data),
    bool: _Alternative("true or false", lambda data: isinstance(data, bool), lambda data, where: data),
}
_ANYTHING = _Alternative("anything", lambda data: True, lambda data, where: data)
_PLURALS = {"a whole number": "whole numbers", "a number": "numbers", "text": "texts"}


def _sequence(arguments: tuple[Any, ...]) -> _Alternative:
    """A tuple whose entries all have one type, or one with a type for each position."""
    if arguments[-1] is Ellipsis:
        each = decoder(arguments[0])
        words = " or ".join(one.words for one in _alternatives(arguments[0]))
        return _Alternative(
            f"a list of {_PLURALS.get(words, 'entries')}",
            _is_list,
            lambda data, where: tuple(each(item, where) for item in data),
        )
    places = [decoder(argument) for argument in arguments]

    def make(data: Any, where: str) -> tuple[Any, ...]:
        if len(data) != len(places):
            raise InputError(f"{where} must have {len(places)} entries, not {len(data)}.")
        return tuple(place(item, where) for place, item in zip(places, data, strict=True))

    return _Alternative(f"a list of {len(places)} entries", _is_list, make)


def _alternative(hint: Any) -> _Alternative:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hasattr(origin, "__value__"):  # an alias of its own kind, which numpy's NDArray is from 2.5 on
        return _alternative(origin.__value__[arguments])
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin is Literal:
        words = ", ".join(map(str, arguments))
        words = words if len(arguments) == 1 else f"one of {words}"
        return _Alternative(words, lambda data: data in arguments, lambda data, where: data)
    if origin is tuple:
        return _sequence(arguments)
    if origin is Sequence:
        return _sequence((*arguments, Ellipsis))
    if origin in (dict, Mapping):
        each = decoder(arguments[1])
        return _Alternative(
            "an object",
            lambda data: isinstance(data, Mapping),
            lambda data, where: {key: each(item, f"{where}.{key}") for key, item in data.items()},
        )
    if getattr(origin, "__module__", "") == "numpy":
        import numpy as np

        kind = np.float64 if np.dtype[np.float64] in arguments else None
        return _Alternative("a list of numbers", _is_list, lambda data, where: np.asarray(data, dtype=kind))
    if isinstance(hint, type) and issubclass(hint, Value):
        return _Alternative("an object", lambda data: True, lambda data, where: hint.from_json(data))
    return _ANYTHING


@functools.cache
def _alternatives(hint: Any) -> tuple[_Alternative, ...]:
    return tuple(_alternative(each) for each in alternatives(hint))


@functools.cache
def decoder(hint: Any) -> Decoder:
    """The decoder for a type hint, which is made only once.

    >>> decoder(float | None)(50, "percent")
    50.0
    >>> decoder(float | None)("half", "percent")
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: percent must be a number, not 'half'.
    """
    options = _alternatives(hint)
    literals = [each for each in alternatives(hint) if typing.get_origin(each) is Literal]
    names = [name for each in literals for name in typing.get_args(each)]
    optional = _is_union(hint) and type(None) in typing.get_args(hint)
    # Most data has such a type already, and a look at the type takes a tenth of the time of the tests below.
    plain = {each for each in alternatives(hint) if each in _SCALARS} | ({type(None)} if optional else set())

    def decode(data: Any, where: str) -> Any:
        if type(data) in plain:
            return data
        for option in options:
            if option.fits(data):
                return option.make(data, where)
        guess = nearest(data, names) if names and isinstance(data, str) else ""
        ending = f"; {guess}" if guess.startswith("did you mean") else "."
        raise InputError(
            f"{where} must be {' or '.join(option.words for option in options)}, not {_brief(data)}{ending}"
        )

    return decode


def _brief(data: Any) -> str:
    """Plain data as Python prints it; only the type of anything else, because an array could fill pages."""
    plain = isinstance(data, str | int | float | list | tuple | dict | None)
    return repr(data) if plain and not _is_array(data) else f"an object of type {type(data).__name__}"


def _encode(value: Any) -> Any:
    if isinstance(value, Value):
        return value.to_json()
    if _is_array(value):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _encode(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_encode(item) for item in value]
    return value


class _Entry(NamedTuple):
    """An entry of a value: its decoder, its name in messages, and whether it is required."""

    decode: Decoder
    where: str
    needed: bool


_ENTRIES: dict[type, dict[str, _Entry]] = {}


def _entries(cls: type[Value]) -> dict[str, _Entry]:
    """The entries of a class of values, cached: reading type hints takes ten times as long as decoding a record."""
    if cls not in _ENTRIES:
        _ENTRIES[cls] = _find_entries(cls)
    return _ENTRIES[cls]


def _find_entries(cls: type[Value]) -> dict[str, _Entry]:
    hints, missing = typing.get_type_hints(cls), dataclasses.MISSING
    return {
        item.name: _Entry(
            decoder(hints[item.name]),
            f"{cls.__name__}.{item.name}",
            item.default is missing and item.default_factory is missing,
        )
        for item in dataclasses.fields(cls)
    }


@dataclass(frozen=True)
class Value:
    """The base of all values: conversion to and from JSON, which refuses unknown and missing names."""

    def to_json(self) -> dict[str, Any]:
        """Return the value as plain lists, objects and numbers."""
        return {name: _encode(getattr(self, name)) for name in _entries(type(self))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Make the value from what :meth:`to_json` returned."""
        if not isinstance(data, Mapping):
            raise InputError(f"{cls.__name__} is read from a JSON object, not from {data!r}.")
        entries = _entries(cls)
        values: dict[str, Any] = {}
        for name, item in data.items():
            entry = entries.get(name)
            if entry is None:
                raise InputError(f"{cls.__name__} has no entry {name!r}; {nearest(name, entries)}")
            values[name] = entry.decode(item, entry.where)
        if len(values) < len(entries):
            for name, entry in entries.items():
                if entry.needed and name not in values:
                    raise InputError(f"{cls.__name__} needs the entry {name!r}.")
        return cls(**values)


# -- JSON and TOML as they are read ------------------------------------------------------------------------------------

_DEEPEST = 100
"""The deepest nesting that is read; nothing that fedgauge writes comes near, and Python gives up at about 1000."""
_DIGITS = 308
"""The largest number of digits of a whole number that is read: every such number can become a float."""


def _whole(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"a whole number of {len(text)} digits is too large")
    return int(text)


_JSON = json.JSONDecoder(parse_int=_whole)


def parse_json(content: str | bytes) -> Any:
    """Parse JSON; whatever is wrong with it is a ValueError, and what is not can be computed with.

    >>> parse_json(b'{"round": 1}')
    {'round': 1}
    >>> parse_json("[" * 10**5)
    Traceback (most recent call last):
    ValueError: it is nested too deeply
    """
    text = content.decode() if isinstance(content, bytes) else content
    try:
        data = _JSON.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if text.count("[") + text.count("{") > _DEEPEST:
        _containers(data)
    return data


_NOT_FINITE = re.compile(r'"(?:[^"\\]|\\.)*"|Infinity|NaN')


def json_text(data: Any, indent: int | None = None) -> str:
    """JSON that every reader takes: Python writes ``Infinity`` and ``NaN``, which JSON does not have.

    An infinite number is written as 1e999, which readers take for infinity; what is not a number is null.

    >>> json_text({"Infinity": [float("-inf"), float("nan"), 0.1]})
    '{"Infinity": [-1e999, null, 0.1]}'
    >>> parse_json(json_text(float("-inf")))
    -inf
    """
    text = json.dumps(data, indent=indent)
    if "Infinity" not in text and "NaN" not in text:
        return text
    names = {"Infinity": "1e999", "NaN": "null"}
    return _NOT_FINITE.sub(lambda match: names.get(match[0], match[0]), text)


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; whatever is wrong with it is a ValueError, and what is not can be computed with.

    >>> parse_toml("rounds = 1" + "0" * 400)
    Traceback (most recent call last):
    ValueError: a whole number of 401 digits is too large
    """
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    for each in _containers(data):
        for item in each.values() if isinstance(each, dict) else each:
            if type(item) is int:  # True is an int too
                _whole(str(item))
    return data


def _containers(data: Any) -> list[Any]:
    """All objects and lists in plain data; refuses those that are nested too deeply for what follows."""
    containers: list[Any] = []
    level = [data]
    for _ in range(_DEEPEST):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return containers
        containers += level
        level = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
    raise ValueError("it is nested too deeply")


# -- TOML as it is written ---------------------------------------------------------------------------------------------


def toml_key(key: str) -> str:
    """A key in TOML syntax, in quotes if it needs them."""
    return key if key and all(c.isascii() and (c.isalnum() or c in "_-") for c in key) else toml(key)


def toml(value: Any) -> str:
    r"""A value in TOML syntax.

    >>> print(toml([1, 2.5]), toml("a \"b\""), toml(True))
    [1, 2.5] "a \"b\"" true
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise InputError(f"{value!r} is not UTF-8, so an experiment cannot name it; rename the file.")
        # TOML has the same escapes as JSON, and requires one more character to be escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(key)} = {toml(item)}" for key, item in value.items()) + "}"
    raise InputError(f"An experiment must hold text, numbers, truth values and lists of them, not {value!r}.")
