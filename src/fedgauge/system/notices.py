"""Messages for the user that are not errors: a default was chosen, or something looks like a mistake."""

from __future__ import annotations

import functools
import logging
import multiprocessing

from fedgauge.system.children import is_child

_log = logging.getLogger("fedgauge")


def notify(sentence: str) -> None:
    """Log a sentence as a warning, once per command and only in the process that the user started.

    The command line prints it on stderr; in Python it goes to the logger ``fedgauge``.
    """
    if multiprocessing.parent_process() is None and not is_child():
        _once(sentence)


@functools.cache
def _once(sentence: str) -> None:
    _log.warning(sentence)


def forget_notices() -> None:
    """Forget which sentences were logged, at the beginning of a command."""
    _once.cache_clear()
