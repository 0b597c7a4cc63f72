"""The page on gauging one's own training loop: its programs and the answer that it shows."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "live.md").read_text("utf-8")


def program(name: str) -> str:
    """A program of the page, without the line that names it."""
    (code,) = re.findall(rf"^```python\n# {re.escape(name)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(code)


def shown_after(command: str) -> str:
    """The output that the page shows for a command."""
    found = re.search(rf"^\$ {re.escape(command)}\n```.*?^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found, command
    return found[1]


def run_program(name: str, place: Path, *arguments: str) -> str:
    """Save a program of the page and run it; what it prints."""
    (place / name).write_text(program(name), encoding="utf-8")
    command = [sys.executable, name, *arguments]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=570, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])
