"""Plain values of a configuration: held against their types, and written as TOML."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from fedgauge.errors import InputError, nearest

_WORDS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    tuple[int, ...]: "a list of whole numbers",
    tuple[float, ...]: "a list of numbers",
}
_NONE = type(None)


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The types of a union, None left out; a type by itself for any other.

    >>> alternatives(int | None)
    (<class 'int'>,)
    """
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return tuple(each for each in (typing.get_args(hint) if union else (hint,)) if each is not _NONE)


def typed(where: str, hint: Any, value: Any) -> Any:
    """Return the value if it is of one of the types in the hint; whole numbers serve as numbers.

    >>> typed("percent", float | None, 50)
    50.0
    >>> typed("percent", float | None, "half")
    Traceback (most recent call last):
    fedgauge.errors.InputError: percent must be a number, not 'half'.
    """
    words: list[str] = []
    names: list[str] = []
    for each in alternatives(hint):
        origin, arguments = typing.get_origin(each), typing.get_args(each)
        if origin is Literal:
            if value in arguments:
                return value
            names = list(arguments)
            words.append(", ".join(names))
            continue
        words.append(_WORDS[each])
        if origin is tuple:
            if isinstance(value, list | tuple):
                return tuple(typed(where, arguments[0], item) for item in value)
        elif each is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        elif isinstance(value, each) and (each is bool or not isinstance(value, bool)):
            return value
    guess = nearest(value, names) if isinstance(value, str) else ""
    ending = f"; {guess}" if guess.startswith("did you mean") else "."
    raise InputError(f"{where} must be {' or '.join(words)}, not {value!r}{ending}")


def toml_key(key: str) -> str:
    """A key as TOML writes it, in quotes where it needs them."""
    return key if key and all(c.isascii() and (c.isalnum() or c in "_-") for c in key) else toml(key)


def toml(value: Any) -> str:
    r"""A value as TOML writes it.

    >>> print(toml([1, 2.5]), toml("a \"b\""), toml(True))
    [1, 2.5] "a \"b\"" true
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for one character that TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(key)} = {toml(item)}" for key, item in value.items()) + "}"
    raise InputError(f"An experiment must hold text, numbers, truth values and lists of them, not {value!r}.")
