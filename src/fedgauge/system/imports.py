"""The user's own functions, named as ``package.module:function``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
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
    except Exception as error:  # whatever a module of the user's own may raise
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"Cannot import {module} for the {what} ({reason}); fix the module.") from error
    found: Callable[..., Any] | None = getattr(place, function, None)
    if found is None:
        raise InputError(f"{module} has no {function}; name a function that makes the {what}.")
    return found
