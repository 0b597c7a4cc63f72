r"""Text for a terminal: what is safe to print, notices that are not errors, and the command that the user typed.

Names and the contents of files may hold control characters, with which a terminal can be made to hide or to forge
lines. They are shown as Python writes them: ``\x1b``.
"""

from __future__ import annotations

import functools
import inspect
import logging
import multiprocessing
import re
import shlex
import shutil
import sys
import textwrap
from pathlib import Path

from fedgauge.base.processes import is_child

# Controls (but for tabs and line feeds), marks that turn the direction of writing, and bytes that are no text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text with control characters escaped.

    >>> printable("run\x1b[2J"), printable("caf\udce9")
    ('run\\x1b[2J', 'caf\\xe9')
    """
    return _CONTROLS.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    # Python reads a byte of a file name that is not UTF-8 as U+DC00 plus the byte.
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def say(text: str, error: bool = False) -> None:
    """Print a line, on the standard error if it is not part of the result; a terminal's lines end between words."""
    stream = sys.stderr if error else sys.stdout
    lines = printable(text).split("\n")
    if stream.isatty():
        lines = [folded(line, shutil.get_terminal_size().columns) for line in lines]
    print("\n".join(lines), file=stream)


def folded(line: str, width: int) -> str:
    r"""A line in pieces that end between words; a word that is too long, such as a path, stays whole.

    >>> folded("Written: one/two-three.html", 12)
    'Written:\none/two-three.html'
    """
    return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False, drop_whitespace=True)


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


def command_line() -> str:
    """The command as it can be typed again; ``python -m fedgauge`` is written as fedgauge too."""
    program = Path(sys.argv[0]).name
    start = ["fedgauge"] if program == "__main__.py" else ["python", program] if program.endswith(".py") else [program]
    return shlex.join([*start, *sys.argv[1:]])


def flowing(text: str) -> str:
    r"""A docstring whose lines are folded where a terminal ends rather than where a line of the source does.

    >>> flowing("A sentence that\n    goes on.\n\n    Example: one\n    Example: two")
    'A sentence that goes on.\n\nExample: one\nExample: two'
    """
    paragraphs = [block.splitlines() for block in inspect.cleandoc(text).split("\n\n")]
    return "\n\n".join(
        "".join(("\n" if line.startswith("Example:") else " ") + line for line in lines).strip() for lines in paragraphs
    )
