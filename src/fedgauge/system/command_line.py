"""The command that was given, for the record of what it makes."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def command_line() -> str:
    """The command as it can be given again: ``python -m fedgauge`` is fedgauge too."""
    program = Path(sys.argv[0]).name
    return shlex.join(["fedgauge" if program == "__main__.py" else program, *sys.argv[1:]])
