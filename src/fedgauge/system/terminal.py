r"""Text for a terminal, in which nothing but the terminal's own program gives commands.

Names and the contents of files may hold control characters, with which a terminal can be made to hide or to forge
lines. They are shown as Python writes them: ``\x1b``.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap

# Controls (but for tabs and line feeds), marks that turn the direction of writing, and bytes that are no text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text with control characters escaped.

    >>> printable("run\x1b[2J"), printable("caf\udce9")
    ('run\\x1b[2J', 'caf\\xe9')
    """
    return _CONTROLS.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
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
