"""The user's own functions, named as ``package.module:function``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fedgauge.errors import InputError


def find_own(name: str, what: str) -> Callable[..., Any]:
    """Import the function ``package.module:function``, which makes ``what``.

    >>> find_own("math:hypot", "model")(3, 4)
    5.0
    """
    module, _, function = name.partition(":")
    if not (module and function):
        raise InputError(
            f"{name!r} does not name a function that makes the {what}; write it as package.module:function."
        )
    try:
        place = importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"Cannot import {module} for the {what} ({error}); check the name and the path.") from None
    except (Exception, SystemExit) as error:  # whatever a module of the user's own may raise
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"Cannot import {module} for the {what} ({reason}); fix the module.") from error
    found: Callable[..., Any] | None = getattr(place, function, None)
    if found is None:
        raise InputError(f"{module} has no {function}; name a function that makes the {what}.")
    return found


@contextmanager
def blamed(what: str, remedy: str = "fix it") -> Iterator[None]:
    """Turn whatever the user's own code raises into one sentence; sys.exit there must not end the command unnoticed.

    >>> with blamed("The model mine:net cannot be made"):
    ...     raise SystemExit(0)
    Traceback (most recent call last):
    fedgauge.errors.InputError: The model mine:net cannot be made (SystemExit: 0); fix it.
    """
    try:
        yield
    except InputError:
        raise  # a sentence already
    except (Exception, SystemExit) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())  # a message may have several lines
        raise InputError(f"{what} ({reason}); {remedy}.") from error
