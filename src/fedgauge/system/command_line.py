"""The command that the user typed, to be recorded with its results."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def command_line() -> str:
    """The command as it can be typed again; ``python -m fedgauge`` is written as fedgauge too."""
    program = Path(sys.argv[0]).name
    return shlex.join(["fedgauge" if program == "__main__.py" else program, *sys.argv[1:]])
