"""Errors for users: one sentence that names the argument, what is allowed and what was given."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable


class InputError(ValueError):
    """A mistake in the user's input; its text is one sentence with a remedy.

    The command line prints the sentence and exits with status 2.
    """


class UnknownNameError(InputError, KeyError):
    """A name that a mapping does not have: a ``KeyError`` whose text is a sentence."""

    __str__ = InputError.__str__  # a KeyError would print its text in quotes


class MachineError(Exception):
    """A failure of the machine or the network, not of the user's input; its text is one sentence with a remedy.

    The command line prints the sentence and exits with status 1.
    """


class InterruptedCommandError(Exception):
    """Ctrl-C during a command that can be resumed or continued; its text is one sentence that says how.

    The command line prints the sentence and exits with status 130.
    """


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Say which of ``allowed`` was probably meant, or list them all.

    >>> nearest("fedavgg", ["fedavg", "fedadam"])
    'did you mean fedavg?'
    >>> nearest("x", ["fedavg", "fedadam"])
    'choose one of fedavg, fedadam.'
    """
    allowed = list(allowed)
    close = difflib.get_close_matches(name, allowed, n=1)
    return f"did you mean {close[0]}?" if close else f"choose one of {', '.join(allowed)}."


def _number(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputError(f"{name} must be a number, not {value!r}.")
    return float(value)


def positive(name: str, value: float) -> float:
    """Return ``value`` as a float if it is finite and above zero."""
    number = _number(name, value)
    if not (math.isfinite(number) and number > 0):
        raise InputError(f"{name} must be a finite number above 0, not {value!r}.")
    return number


def non_negative(name: str, value: float) -> float:
    """Return ``value`` as a float if it is finite and at least zero."""
    number = _number(name, value)
    if not (math.isfinite(number) and number >= 0):
        raise InputError(f"{name} must be a finite number of at least 0, not {value!r}.")
    return number


def fraction(name: str, value: float) -> float:
    """Return ``value`` as a float if it lies in [0, 1)."""
    number = _number(name, value)
    if not 0 <= number < 1:
        raise InputError(f"{name} must be at least 0 and below 1, not {value!r}.")
    return number


def count(name: str, value: int, least: int = 1, most: int = 10**12) -> int:
    """Return ``value`` as an int if it is a whole number (of Python or numpy) from ``least`` to ``most``.

    What is counted is made, run or drawn, so that there is a limit even where none is named.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}.")
    if value > most:
        raise InputError(f"{name} must be at most {most:,}, not {value}.")
    return int(value)


MOST_RUNS = 100_000
"""The largest number of runs that one command makes; each of them is listed before the first one begins."""
