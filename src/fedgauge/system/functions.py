"""What functions hold beside their code, and which modules are the user's own."""

from __future__ import annotations

import site
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any


@cache
def _installed() -> tuple[Path, ...]:
    """Where packages are installed."""
    paths = sysconfig.get_paths()
    found = [paths["purelib"], paths["platlib"], *site.getsitepackages(), site.getusersitepackages()]
    return tuple(Path(path).resolve() for path in found)


@cache
def _is_installed(file: str) -> bool:
    place = Path(file).resolve()
    return any(place.is_relative_to(installed) for installed in _installed())


def is_own(module: str | None) -> bool:
    """Whether a module is the user's own: neither Python's nor an installed package's nor fedgauge's.

    A module that this process does not know is one whose functions came here by value.

    >>> is_own("__main__"), is_own("json"), is_own("numpy"), is_own("fedgauge.algorithms")
    (True, False, False, False)
    """
    if module is None or module == "__main__":
        return True
    package = module.partition(".")[0]
    if package == "fedgauge" or package in sys.stdlib_module_names:
        return False
    for name in (package, module):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None:  # a namespace package has none
            return not _is_installed(file)
    return True


def global_names(code: CodeType) -> list[str]:
    """The global names that a function reads, with those of the functions inside it, in alphabetical order."""
    import dis

    found = {instruction.argval for instruction in dis.get_instructions(code) if instruction.opname == "LOAD_GLOBAL"}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= set(global_names(constant))
    return sorted(found)


def contents(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function holds beside its code, each with a name: defaults, closure cells and the globals it reads."""
    yield "defaults", function.__defaults__
    yield "keyword defaults", function.__kwdefaults__
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"cell {name}", cell.cell_contents
        except ValueError:  # a cell that is filled later
            yield f"cell {name}", None
    for name in global_names(function.__code__):
        if name in function.__globals__:
            yield f"global {name}", function.__globals__[name]
