"""Files that are written completely or not at all, and files that are appended to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

from fedgauge.errors import InputError

T = TypeVar("T")

UNFINISHED = ".part"
"""The ending of a file's name while it is being written; such a file remains only if the process was killed."""

UNREADABLE = (ValueError, TypeError, KeyError, RecursionError)
"""What decoding a damaged file may raise."""


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


class Lines(Sequence[T]):
    r"""The lines of a file that is appended to; each is decoded when it is first used.

    A run may have a hundred thousand records of which a reader wants the last one.

    >>> lines = read_lines(b'{"a": 1}\n{"a": 2}\n{"a', lambda data: data["a"], "a.jsonl")
    >>> len(lines), lines[-1], lines.end(1)
    (2, 2, 9)
    """

    def __init__(self, texts: Sequence[bytes], decode: Callable[[Any], T], name: str) -> None:
        self._texts, self._decode, self._name = texts, decode, name
        self._known: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        places = range(len(self))[index]
        return self._line(places) if isinstance(places, int) else tuple(map(self._line, places))

    def _line(self, index: int) -> T:
        if index not in self._known:
            try:
                self._known[index] = self._decode(json.loads(self._texts[index]))
            except UNREADABLE:
                raise InputError(
                    f"Line {index + 1} of {self._name} cannot be read; use the version of fedgauge that wrote it."
                ) from None
        return self._known[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)

    def end(self, count: int) -> int:
        """The number of bytes of the first ``count`` lines."""
        return sum(map(len, self._texts[:count])) + count


def read_lines(content: bytes, decode: Callable[[Any], T], name: str, verified: int = 0) -> Lines[T]:
    """The lines of a file that is appended to, up to the first that is cut short or damaged.

    Args:
        content: the content of the file.
        decode: makes a value from the JSON of a line.
        name: the name of the file in messages.
        verified: the number of lines at the beginning that are known to be undamaged, and need not be decoded now.
    """
    texts = content.split(b"\n")[:-1]
    known: dict[int, T] = {}
    for index in range(verified, len(texts)):
        try:
            known[index] = decode(json.loads(texts[index]))
        except UNREADABLE:
            texts = texts[:index]
            break
    lines = Lines(texts, decode, name)
    lines._known = known
    return lines
