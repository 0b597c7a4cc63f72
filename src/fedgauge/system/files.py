"""Files that are written completely or not at all, and files that are appended to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")

UNFINISHED = ".part"
"""The ending of a file's name while it is being written; such a file remains only if the process was killed."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all, even if the machine stops."""
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
    """Write a JSON file completely or not at all."""
    write_atomically(path, (json.dumps(data, indent=2) + "\n").encode())


class Line(NamedTuple, Generic[T]):
    """A line of a file that is appended to: its content, and where it ends."""

    data: T
    end: int


def read_lines(content: bytes, decode: Callable[[Any], T]) -> list[Line[T]]:
    """The valid lines of a file that is appended to, up to the first that is cut short or damaged."""
    lines: list[Line[T]] = []
    end = 0
    for text in content.split(b"\n")[:-1]:
        end += len(text) + 1
        try:
            lines.append(Line(decode(json.loads(text)), end))
        except (ValueError, TypeError, KeyError):
            break
    return lines
