"""Files that are written completely or not at all, and files that are appended to.

A directory of results may have been prepared by somebody else. Whatever fedgauge reads or writes in one is opened by
:func:`open_file`, which follows no symbolic link and waits for no pipe.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Generic, NamedTuple, TypeVar

from fedgauge.codec import parse_json

T = TypeVar("T")

UNFINISHED = ".part"
"""The ending of a file's name while it is being written; such a file remains only if the process was killed."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""The errors that making space resolves."""


def remedy(error: OSError) -> str:
    """What to do about a write that failed."""
    return "free some space" if error.errno in NO_SPACE else "fix that"


def open_file(path: Path, mode: str = "rb", buffering: int = -1) -> IO[Any]:
    """Open a regular file, as ``open`` does; an OSError refuses anything else.

    Symbolic links are refused, because what they point to may belong to somebody else; so are pipes and devices, which
    may block for ever. A file with a second name (a hard link) is refused for writing, as both would change. The
    directory itself may be reached through a link: it is what the user named.
    """
    return open(path, mode, buffering, opener=_open_regular)


def _open_regular(path: str, flags: int) -> int:
    try:
        # Without O_NONBLOCK, opening a pipe waits for its other end.
        file = os.open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if os.path.islink(path):
            raise _unsafe(path, "is a symbolic link, not a regular file") from None
        if error.errno in (errno.ENXIO, errno.EOPNOTSUPP):  # a pipe that nobody reads, or a socket
            raise _unsafe(path, "is not a regular file") from None
        raise
    try:
        found = os.fstat(file)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(found.st_mode):
            raise _unsafe(path, "is not a regular file")
        if found.st_nlink > 1 and flags & (os.O_WRONLY | os.O_RDWR):
            raise _unsafe(path, "has a second name (a hard link), and both would change")
        if flags & os.O_TRUNC:
            os.ftruncate(file, 0)
    except BaseException:
        os.close(file)
        raise
    return file


def _unsafe(path: str, what: str) -> OSError:
    return OSError(errno.EINVAL, f"{os.path.basename(path)} {what}", path)


def read_file(path: Path) -> bytes:
    """The content of a regular file."""
    with open_file(path) as file:
        content: bytes = file.read()
    return content


def regular(path: Path) -> Path:
    """Return the path of a regular file, for a library that opens files by itself; refuse any other."""
    open_file(path).close()
    return path


def make_directory(path: Path) -> None:
    """Make a directory inside one of results; one that is there already must not be a symbolic link."""
    with suppress(FileExistsError):
        path.mkdir()
    if not stat.S_ISDIR(path.lstat().st_mode):
        raise _unsafe(str(path), "is not a directory")


def make_directories(path: Path) -> None:
    """Make a directory and those above it, however many; ``Path.mkdir`` gives up at about a thousand."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)


def find_files(directory: Path, name: str) -> list[Path]:
    """The files of a name in a directory and below, however deep, ordered by path; links are not followed."""
    found: list[Path] = []
    below = [str(directory)]
    while below:
        place = below.pop()
        # What may not be read, or has too long a path, is passed over.
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
                elif entry.name == name:
                    found.append(Path(entry.path))
    return sorted(found)


def move(source: Path, target: Path) -> None:
    """Rename a file, or replace another by it, so that the new name survives if the machine stops."""
    os.replace(source, target)
    sync_directory(target.parent)


def sync_directory(path: Path) -> None:
    """Write a directory's names to the disk, which writing its files does not."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Some file systems cannot, and keep names in order by themselves.
        with suppress(OSError):
            os.fsync(directory)
    finally:
        os.close(directory)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all, even if the machine stops."""
    beside = path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        # Whatever has this name is left over, or a trap; the new file is no one else's.
        beside.unlink(missing_ok=True)
        with open_file(beside, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        move(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_page(path: Path, text: str) -> None:
    """Write a page completely or not at all; names of files that are not UTF-8 appear in it escaped."""
    write_atomically(path, text.encode(errors="backslashreplace"))


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
            lines.append(Line(decode(parse_json(text)), end))
        except (ValueError, TypeError, KeyError, ArithmeticError):
            break
    return lines
