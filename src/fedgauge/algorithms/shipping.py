"""Algorithms on their way to other processes and machines: their functions travel as they are.

An algorithm holds functions, often closures, and a user may have replaced any of them. So it is not made again from its
name on the other side: its functions are sent by value. Functions of fedgauge, of installed packages and of Python
itself are there already and are sent by name, as :mod:`cloudpickle` does. Functions of the user's own modules are sent
by value too, so that a cluster's machines do not need those modules. Only a module that a function uses as a whole
(``import helpers`` and then ``helpers.clip``) is sent by name, and has to be there.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from fedgauge.errors import InputError
from fedgauge.system.functions import contents, is_own

_registering = threading.RLock()
"""Held again where an algorithm's functions hold another algorithm, as with a local optimiser or a schedule."""


def _own_modules(values: Iterable[Any]) -> set[str]:
    """The user's own modules whose functions and classes are reached from these values."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, partial):
            waiting += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, MethodType):
            waiting += [value.__func__, value.__self__]
        elif isinstance(value, list | tuple | set | frozenset):
            waiting += value
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, FunctionType):
            if is_own(value.__module__):
                found.add(value.__module__)
            waiting += [part for _, part in contents(value)]
        elif is_own((value if isinstance(value, type) else type(value)).__module__):
            kind = value if isinstance(value, type) else type(value)
            found.add(kind.__module__)
            waiting += [part for part in vars(kind).values() if isinstance(part, FunctionType)]
            waiting += getattr(value, "__dict__", {}).values() if kind is not value else []
    return found


@contextmanager
def _by_value(modules: set[str]) -> Iterator[None]:
    """Let cloudpickle send these modules' functions by value meanwhile."""
    import cloudpickle

    with _registering:
        already = cloudpickle.list_registry_pickle_by_value()
        names = [name for name in sorted(modules - {"__main__"} - set(already)) if name in sys.modules]
        for name in names:
            cloudpickle.register_pickle_by_value(sys.modules[name])
        try:
            yield
        finally:
            for name in names:
                cloudpickle.unregister_pickle_by_value(sys.modules[name])


def pack(name: str, fields: Mapping[str, Any]) -> bytes:
    """An algorithm's fields as bytes, or one sentence why they cannot be sent."""
    import cloudpickle

    try:
        with _by_value(_own_modules(fields.values())):
            content: bytes = cloudpickle.dumps(dict(fields))
    except Exception as error:  # whatever pickling an object of the user's own may raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InputError(
            f"The algorithm {name} cannot be sent to other processes ({reason}); keep locks, open files and the like"
            " out of its functions, or compute in this process alone with processes = 1."
        ) from None
    return content


def unpack(content: bytes) -> dict[str, Any]:
    """The fields that :func:`pack` sent."""
    import cloudpickle

    fields: dict[str, Any] = cloudpickle.loads(content)
    return fields
