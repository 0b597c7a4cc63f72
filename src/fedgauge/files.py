"""Files that are there whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

UNFINISHED = ".part"
"""How the name of a file ends while it is being written; one left behind belongs to a process that was killed."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, even if the machine stops."""
    beside = path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file whole or not at all."""
    write_atomically(path, (json.dumps(data, indent=2) + "\n").encode())
