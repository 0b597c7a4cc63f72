"""Sentences for the user that are no errors: something was decided, or looks like a mistake, and the work goes on."""

from __future__ import annotations

import functools
import logging
import multiprocessing

_log = logging.getLogger("fedgauge")


def notify(sentence: str) -> None:
    """Log a sentence as a warning, once per command and only in the process that the user started.

    The command line prints it on stderr; in Python it goes to the logger ``fedgauge``.
    """
    if multiprocessing.parent_process() is None:
        _once(sentence)


@functools.cache
def _once(sentence: str) -> None:
    _log.warning(sentence)


def forget_notices() -> None:
    """Let every sentence be said again, as at the beginning of a command."""
    _once.cache_clear()
