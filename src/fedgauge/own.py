"""Functions of the user's own, named as ``package.module:function``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from fedgauge.errors import InputError


def find_own(name: str, what: str) -> Callable[..., Any]:
    """The function of that name, which makes ``what``.

    >>> find_own("math:hypot", "model")(3, 4)
    5.0
    """
    module, _, function = name.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except ImportError as error:
        raise InputError(f"Cannot import {module} for the {what} ({error}); check the name and the path.") from None
    except AttributeError:
        raise InputError(f"{module} has no {function}; name a function that makes the {what}.") from None
    return found
