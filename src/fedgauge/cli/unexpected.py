"""What nobody expected, in one sentence: no memory left, or a mistake in fedgauge or in the user's own code."""

from __future__ import annotations

import os
import platform
import re
import tempfile
import traceback
from importlib.metadata import version

from fedgauge.base.terminal import command_line

_NO_MEMORY = re.compile(r"can't allocate memory|out of memory|not enough memory", re.IGNORECASE)
_TOO_LARGE = re.compile(
    r"array is too big|Maximum allowed (dimension|size) exceeded|Storage size calculation overflowed"
)
_BRIEF = 200


def out_of_memory(error: BaseException) -> str:
    """A sentence if there was not enough memory, and else nothing; numpy and torch have errors of their own for it.

    >>> out_of_memory(MemoryError("Unable to allocate 9 TiB"))[:56]
    'There is not enough memory (Unable to allocate 9 TiB); u'
    >>> out_of_memory(RuntimeError("something else"))
    ''
    """
    match = isinstance(error, RuntimeError | ValueError) and _NO_MEMORY.search(str(error))
    if not (match or isinstance(error, MemoryError)):
        return ""
    return (
        f"There is not enough memory ({_brief(error) or 'none is left'}); use a smaller batch size, fewer local"
        " steps or workers, or a smaller model, and run the command again."
    )


def _brief(error: BaseException) -> str:
    """The first line of what an error says."""
    said = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return said if len(said) <= _BRIEF else f"{said[:_BRIEF]}…"


def save_traceback(error: BaseException) -> str:
    """Save the traceback of an error that nothing handled, and return a sentence that says where it is."""
    if isinstance(error, SystemExit):
        what = f"Something called sys.exit({error.code!r}) in the middle of the command"
    else:
        what = f"Something unexpected happened ({type(error).__name__}: {_brief(error)})"
    about = f"fedgauge {version('fedgauge')}, Python {platform.python_version()}, {platform.platform()}"
    content = "\n".join([command_line(), about, "", *traceback.format_exception(error)])
    try:
        file, path = tempfile.mkstemp(prefix="fedgauge-", suffix=".txt")
        with os.fdopen(file, "w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(content)
    except OSError as failure:
        return f"{what}; its traceback could not be saved ({failure.strerror}): run the command again and report it."
    return f"{what}; its traceback is in {path}: fix it if it is in code of your own, and report it otherwise."
