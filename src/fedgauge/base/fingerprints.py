"""Fingerprints of functions, modules and values, by which a resumed run recognises what is the user's own.

They cover the functions' bytecode, constants, default values, closures and the globals that they read, with functions
and classes of the user's own modules followed by their code, and everything that is installed by its name; and torch
modules by their class, their layers, attributes, buffers, parameters and hooks. No memory address enters them, so they
are the same in every process; where code is the user's own, they change with the release of Python, whose bytecode
changes.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import _lru_cache_wrapper, cached_property, partial
from logging import Logger
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from fedgauge.base.user_code import contents, is_user_code

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_METHODS = (FunctionType, staticmethod, classmethod)
_UNSEEN = ("_abc_impl", "_backward_cls")
"""Members that Python and torch add to classes, with numbers of their own in every process."""
_LAYER = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_non_persistent_buffers_set",
    "_compiled_call_impl",
)
"""Attributes of a torch module that do not change what it computes."""


class Fingerprint(NamedTuple):
    """SHA-256 of a value, and the kinds of things in it that have nothing to compare by, such as locks and files."""

    digest: str
    unknown: tuple[str, ...]


def digest(value: Any) -> str:
    """SHA-256 of a value by what it is and holds.

    >>> digest(lambda x: x + 1) == digest(lambda x: x + 1), digest(lambda x: x + 1) == digest(lambda x: x + 2)
    (True, False)
    """
    return _Digests().of(value)


def fingerprint(value: Any, trained: bool = True) -> Fingerprint:
    """A value's digest, and what in it the digest does not cover.

    Args:
        value: anything.
        trained: whether the numbers in parameters that are trained count; their names and shapes always do.

    >>> import threading
    >>> fingerprint([1, threading.Lock()]).unknown
    ('lock',)
    """
    digests = _Digests(trained)
    return Fingerprint(digests.of(value), tuple(dict.fromkeys(digests.unknown)))


def reached(value: Any) -> list[Any]:
    """All objects that a value's digest covers, with those in closures, attributes and globals of the user's own code.

    >>> part = [1]
    >>> any(each is part for each in reached(lambda: part))
    True
    """
    digests = _Digests(trained=False)  # the numbers of a large model lead nowhere, and take long
    digests.of(value)
    return digests.kept


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
    """Digests of values and of what they hold; each value is read once."""

    def __init__(self, trained: bool = True) -> None:
        self.unknown: list[str] = []
        self._trained = trained
        self._stack: list[int] = []
        self._known: dict[int, str] = {}
        self.kept: list[Any] = []  # an address is not used again while its value is kept

    def of(self, value: Any) -> str:
        if type(value) in _PLAIN:
            return _hash(type(value).__name__, repr(value))
        key = id(value)
        if key in self._known:
            return self._known[key]
        if key in self._stack:
            return _hash("above", str(len(self._stack) - self._stack.index(key)))
        self._stack.append(key)
        self.kept.append(value)
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
        if _is_made_by_torch(value, "Tensor"):
            return self._tensor(value)
        if _is_made_by_torch(value, "nn.Module"):
            return self._layer(value)
        if isinstance(value, CodeType):
            return self._code(value)
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, MethodType):
            return self._each("method", value.__func__, value.__self__)
        if isinstance(value, staticmethod | classmethod):
            return self.of(value.__func__)
        if isinstance(value, property):
            return self._each("property", value.fget, value.fset, value.fdel)
        if isinstance(value, cached_property):
            return self._each("property", value.func)
        if isinstance(value, ref):
            return self._each("reference", value())
        if isinstance(value, _lru_cache_wrapper):
            return self.of(value.__wrapped__)
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
            owner = value.__self__
            bound = None if isinstance(owner, ModuleType | type(None)) else owner
            return self._each("builtin", str(value.__module__), value.__qualname__, bound)
        if isinstance(value, type):
            return self._class(value)
        return self._object(value)

    def _code(self, code: CodeType) -> str:
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        return self._each("code", code.co_code, code.co_consts, *names, *counts)

    def _function(self, function: FunctionType) -> str:
        if compiled := getattr(function, "_torchdynamo_orig_callable", None):
            return self.of(compiled)
        if "<" not in function.__qualname__ and not is_user_code(function.__module__):
            return _hash("function", function.__module__, function.__qualname__)
        parts: list[Any] = [function.__code__]
        for name, part in contents(function):
            parts += [name, part]
            if isinstance(part, ModuleType) and is_user_code(part.__name__):
                parts.append({used: vars(part)[used] for used in _names(function.__code__) if used in vars(part)})
        if vars(function):
            parts.append(vars(function))
        return self._each("function", *parts)

    def _class(self, kind: type) -> str:
        if not is_user_code(kind.__module__):
            # A class that a library makes from the user's own, as parametrizations are, has that among its bases.
            own = [base for base in kind.__mro__[1:] if is_user_code(base.__module__)]
            return self._each("class", kind.__module__, kind.__qualname__, own)
        # Dunders that are no methods say where a class was written, not what it does.
        members = {
            name: part
            for name, part in vars(kind).items()
            if not isinstance(part, GetSetDescriptorType | MemberDescriptorType)
            and name not in _UNSEEN
            and (isinstance(part, _METHODS) or not name.startswith("__"))
        }
        return self._each("class", kind.__qualname__, members, kind.__bases__)

    def _object(self, value: Any) -> str:
        kind = type(value)
        for plain in (int, float, complex, str, bytes):
            if isinstance(value, plain):
                return self._each("object", kind, plain.__repr__(value), getattr(value, "__dict__", None))
        if isinstance(value, Logger):
            return self._each("object", kind, value.name)
        slots = [name for base in kind.__mro__ for name in _texts(vars(base).get("__slots__", ()))]
        slots = [name for name in slots if name not in ("__dict__", "__weakref__")]
        held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        held |= getattr(value, "__dict__", {})
        if held or is_user_code(kind.__module__):
            return self._each("object", kind, held)
        try:
            # What pickling would send is what the object is; only its own level is asked for here.
            reduced = value.__reduce_ex__(4)
        except Exception:  # whatever an object says that cannot be sent
            reduced = None
        if isinstance(reduced, str):
            return self._each("object", kind, reduced)
        if isinstance(reduced, tuple):
            first, rest = reduced[:3], [None if part is None else list(part) for part in reduced[3:5]]
            return self._each("object", kind, *first, *rest)
        if " at 0x" not in (text := repr(value)):
            return self._each("object", kind, text)
        self.unknown.append(kind.__qualname__)
        return self._each("object", kind)

    def _layer(self, module: Any) -> str:
        """A torch module."""
        if "_orig_mod" in module._modules:  # made by torch.compile
            return self.of(module._orig_mod)
        # Hooks are held by numbers that are counted through the process.
        held = {
            name: list(part.values()) if name.endswith("_hooks") and isinstance(part, dict) else part
            for name, part in vars(module).items()
            if name not in _LAYER and not name.startswith("_forward_hooks_") and not name.endswith("_with_kwargs")
        }
        counts = [len(part) for name, part in vars(module).items() if name.endswith("_with_kwargs")]
        return self._each("layer", type(module), held, list(module._modules), counts)

    def _tensor(self, tensor: Any) -> str:
        import torch

        if not self._trained and isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad:
            return _hash("trained", str(tensor.dtype), str(tuple(tensor.shape)))
        if isinstance(tensor, torch.nn.UninitializedParameter | torch.nn.UninitializedBuffer):
            return _hash("uninitialised")
        if tensor.layout is not torch.strided:
            tensor = tensor.to_dense()
        flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return _hash("tensor", str(tensor.dtype), str(tuple(tensor.shape)), str(tensor.requires_grad), flat)


def _names(code: CodeType) -> list[str]:
    """The global names and attributes that a function uses, with those of the functions inside it."""
    inside = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in _names(constant)]
    return sorted({*code.co_names, *inside})


def _texts(slots: Any) -> tuple[str, ...]:
    """The names in a class's ``__slots__``, which may be one string."""
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_made_by_torch(value: Any, kind: str) -> bool:
    # What torch has made was made after it was imported.
    torch = sys.modules.get("torch")
    for name in kind.split("."):
        torch = getattr(torch, name, None)
    return torch is not None and isinstance(value, torch)  # type: ignore[arg-type]


def _hash(*parts: str | bytes) -> str:
    return hashlib.sha256(b"".join(_framed(part) for part in parts)).hexdigest()


def _framed(part: str | bytes) -> bytes:
    """A part with its length before it, so that no two lists of parts look alike."""
    content = part.encode() if isinstance(part, str) else part
    return f"{len(content)}:".encode() + content
