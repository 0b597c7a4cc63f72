"""A fingerprint of an algorithm's functions, by which a resumed run recognises an algorithm of the user's own.

It covers the functions' bytecode, constants, default values, closures and the globals that they read, with functions of
the user's own modules followed by their code, and everything that is installed by its name. No memory address enters
it, so it is the same in every process; it changes with the release of Python, whose bytecode changes.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from fedgauge.algorithms.shipping import contents, is_own

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_MEMBERS = (FunctionType, staticmethod, classmethod, property, *_PLAIN)


def digest(value: Any) -> str:
    """SHA-256 of a value by what it is and holds.

    >>> digest(lambda x: x + 1) == digest(lambda x: x + 1), digest(lambda x: x + 1) == digest(lambda x: x + 2)
    (True, False)
    """
    return _Digests().of(value)


def alike(one: Any, other: Any) -> bool:
    """Whether a factory's two results have the same digest for sure; ``False`` where only their digests can tell.

    A factory makes its functions anew from the same code every time, so that it is enough to compare what they hold.

    >>> def adding(number):
    ...     return lambda x: x + number
    >>> alike(adding(1), adding(1)), alike(adding(1), adding(2))
    (True, False)
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if type(one) in _PLAIN:
        return repr(one) == repr(other)
    if isinstance(one, FunctionType):
        same = one.__code__ is other.__code__ and one.__globals__ is other.__globals__
        return same and all(alike(*pair) for pair in zip(_held(one), _held(other), strict=True))
    if isinstance(one, partial):
        return all(alike(getattr(one, name), getattr(other, name)) for name in ("func", "args", "keywords"))
    if type(one) in (list, tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if type(one) is dict:
        return list(one) == list(other) and all(alike(one[key], other[key]) for key in one)
    if is_dataclass(one):
        return alike(vars(one), vars(other))
    return False


def _held(function: FunctionType) -> list[Any]:
    """What two functions of the same code and globals may differ in."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return [function.__defaults__, function.__kwdefaults__, *cells]


class _Digests:
    """Digests of values and of what they hold; each value is looked at once."""

    def __init__(self) -> None:
        self._stack: list[int] = []
        self._known: dict[int, str] = {}
        self._kept: list[Any] = []  # an address is not used again while its value is kept

    def of(self, value: Any) -> str:
        if type(value) in _PLAIN:
            return _hash(type(value).__name__, repr(value))
        key = id(value)
        if key in self._known:
            return self._known[key]
        if key in self._stack:
            return _hash("above", str(len(self._stack) - self._stack.index(key)))
        self._stack.append(key)
        self._kept.append(value)
        self._known[key] = self._composed(value)
        self._stack.pop()
        return self._known[key]

    def _each(self, kind: str, *values: Any) -> str:
        return _hash(kind, *map(self.of, values))

    def _composed(self, value: Any) -> str:
        if isinstance(value, np.generic):
            return _hash("number", str(value.dtype), repr(value.item()))
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return _hash("array", str(value.dtype), str(value.shape), np.ascontiguousarray(value).tobytes())
        if _is_tensor(value):
            return self._tensor(value)
        if isinstance(value, CodeType):
            return self._code(value)
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, MethodType):
            return self._each("method", value.__func__, value.__self__)
        if isinstance(value, partial):
            return self._each("partial", value.func, value.args, value.keywords)
        if isinstance(value, list | tuple):
            return self._each(type(value).__name__, *value)
        if isinstance(value, set | frozenset):
            return _hash("set", *sorted(map(self.of, value)))
        if isinstance(value, Mapping):
            return _hash("mapping", *sorted(_hash(self.of(key), self.of(part)) for key, part in value.items()))
        if isinstance(value, ModuleType):
            return _hash("module", value.__name__)
        if isinstance(value, BuiltinFunctionType):
            return _hash("builtin", str(value.__module__), value.__qualname__)
        if isinstance(value, type):
            return self._class(value)
        return self._object(value)

    def _code(self, code: CodeType) -> str:
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        return self._each("code", code.co_code, code.co_consts, *names, *counts)

    def _function(self, function: FunctionType) -> str:
        if "<" not in function.__qualname__ and not is_own(function.__module__):
            return _hash("function", function.__module__, function.__qualname__)
        parts: list[Any] = [function.__code__]
        for name, part in contents(function):
            parts += [name, part]
            if isinstance(part, ModuleType) and is_own(part.__name__):
                parts.append({used: vars(part)[used] for used in _names(function.__code__) if used in vars(part)})
        return self._each("function", *parts)

    def _class(self, kind: type) -> str:
        if not is_own(kind.__module__):
            return _hash("class", kind.__module__, kind.__qualname__)
        # Dunders that are no methods say where a class was written, not what it does.
        members = {
            name: part.fget if isinstance(part, property) else getattr(part, "__func__", part)
            for name, part in vars(kind).items()
            if isinstance(part, _MEMBERS) and (isinstance(part, FunctionType) or not name.startswith("__"))
        }
        return self._each("class", kind.__qualname__, members, kind.__bases__)

    def _object(self, value: Any) -> str:
        if isinstance(getattr(value, "__dict__", None), dict):
            return self._each("object", type(value), vars(value))
        text = repr(value)
        return self._each("object", type(value), "" if " at 0x" in text else text)

    def _tensor(self, tensor: Any) -> str:
        import torch

        flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return _hash("tensor", str(tensor.dtype), str(tuple(tensor.shape)), flat)


def _names(code: CodeType) -> list[str]:
    """The global names and attributes that a function uses, with those of the functions inside it."""
    inside = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in _names(constant)]
    return sorted({*code.co_names, *inside})


def _is_tensor(value: Any) -> bool:
    # What is a tensor has been made by torch, which is then imported already.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _hash(*parts: str | bytes) -> str:
    return hashlib.sha256(b"".join(_framed(part) for part in parts)).hexdigest()


def _framed(part: str | bytes) -> bytes:
    """A part with its length before it, so that no two lists of parts look alike."""
    content = part.encode() if isinstance(part, str) else part
    return f"{len(content)}:".encode() + content
