"""The command that the user typed, to be recorded with its results."""

from __future__ import annotations

import inspect
import shlex
import sys
from pathlib import Path


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
