"""The user's own code: functions named as ``package.module:function``, what they hold, and whose a mistake is."""

from __future__ import annotations

import importlib
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from fedgauge.base.errors import InputError


@cache
def _installed() -> tuple[Path, ...]:
    """Where packages are installed."""
    paths = sysconfig.get_paths()
    places = [paths["purelib"], paths["platlib"], *site.getsitepackages(), site.getusersitepackages()]
    return tuple(Path(path).resolve() for path in places)


@cache
def _is_installed(file: str) -> bool:
    place = Path(file).resolve()
    return any(place.is_relative_to(installed) for installed in _installed())


def is_user_code(module: str | None) -> bool:
    """Whether a module is the user's own: neither Python's nor an installed package's nor fedgauge's.

    A module that this process does not know is one whose functions came here by value.

    >>> is_user_code("__main__"), is_user_code("json"), is_user_code("numpy"), is_user_code("fedgauge.algorithms")
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

    names = {instruction.argval for instruction in dis.get_instructions(code) if instruction.opname == "LOAD_GLOBAL"}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= set(global_names(constant))
    return sorted(names)


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


def find_user_code(name: str, what: str) -> Callable[..., Any]:
    """Import the function ``package.module:function``, which makes ``what``.

    >>> find_user_code("math:hypot", "model")(3, 4)
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
    named: Callable[..., Any] | None = getattr(place, function, None)
    if named is None:
        raise InputError(f"{module} has no {function}; name a function that makes the {what}.")
    return named


@contextmanager
def error_context(what: str, remedy: str = "fix it") -> Iterator[None]:
    """Turn whatever the user's own code raises into one sentence; sys.exit there must not end the command unnoticed.

    >>> with error_context("The model mine:net cannot be made"):
    ...     raise SystemExit(0)
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: The model mine:net cannot be made (SystemExit: 0); fix it.
    """
    try:
        yield
    except InputError:
        raise  # a sentence already
    except (Exception, SystemExit) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())  # a message may have several lines
        raise InputError(f"{what} ({reason}); {remedy}.") from error


COMMANDS = "fedgauge.commands"
"""The group of functions and typer groups that become commands of ``fedgauge``, each under its entry's name, such as
``new``, or ``theory.explore`` for a command in the group ``theory``."""
RESULTS = "fedgauge.results"
"""The group of tuples of :class:`~fedgauge.values.Result` types, which reports can read; their modules register the
views of these types."""
SECTIONS = "fedgauge.sections"
"""The group of tuples of sections, which reports show too."""
ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "fedgauge-planning": ("plan", "runs sweep", "theory-plan", "sweep"),
    "fedgauge-wang2024": (
        *("paper", "certified-bounds", "table1", "table2", "ledger", "figure", "sketch", "sampling"),
        *("lens-study", "decisive-study", "data design", "design", "reading lenses"),
    ),
    "fedgauge-verification": ("falsify", "theory worst-case", "falsification", "reading certified"),
    "fedgauge-explorer": ("theory explore", "theory region"),
    "fedgauge-inspection": ("runs inspect", "inspection"),
    "fedgauge-flower": ("new",),
    "fedgauge-datasets": ("data list", "data get"),
}
"""The commands, the kinds of results and the readings that come with other distributions of ours."""
READINGS = "fedgauge.readings"
"""The group of functions of a :class:`~fedgauge.measurement.session.Session` that measure, each under the name that
``--readings`` takes; ``certified`` is a :class:`~fedgauge.measurement.proofs.Prover`."""
DATASETS = "fedgauge.datasets"
"""The group of functions that read data sets, each under the name of its data set; they are called with the arguments
of :func:`~fedgauge.data.loader.load_dataset`, in their order, and return a :class:`~fedgauge.data.dataset.Dataset`."""
ENGINES = "fedgauge.engines"
"""The group of functions that join a cluster (see :mod:`fedgauge.simulation.engines.cluster`), each under its name as
an engine, such as ``ray``."""


def plugin_names(group: str) -> list[str]:
    """The names of what the installed packages offer in a group, none of which is loaded."""
    return sorted(entry_points(group=group).names)


@cache
def plugins(group: str) -> dict[str, Any]:
    """Load what the installed packages offer in a group, by name and in the order of names.

    >>> sorted(plugins("fedgauge.nothing"))
    []
    """
    return {entry.name: entry.load() for entry in sorted(entry_points(group=group), key=lambda entry: entry.name)}


def remedy(name: str) -> str:
    """How to get a command, a kind of result or a reading that another distribution brings; empty where none does.

    >>> remedy("theory region"), remedy("theory bound")
    ('install it: pip install fedgauge-explorer.', '')
    """
    return next((f"install it: pip install {each}." for each, names in ELSEWHERE.items() if name in names), "")
