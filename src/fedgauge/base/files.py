"""Files that are written completely or not at all, and files that are appended to.

A directory of results may have been prepared by somebody else. Whatever fedgauge reads or writes in one is opened by
:func:`open_file`, which follows no symbolic link and waits for no pipe.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, overload

from fedgauge.base.codec import json_text, parse_json
from fedgauge.base.errors import InputError

T = TypeVar("T")

UNFINISHED = ".part"
"""The ending of a file's name while it is being written; such a file remains only if the process was killed."""
_OLD = 60.0
"""Seconds after which an unfinished file whose process is gone is taken to be left over."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""The errors that making space resolves."""
UNREADABLE = (ValueError, TypeError, KeyError, ArithmeticError)
"""What decoding a damaged file may raise."""


def remedy(error: OSError) -> str:
    """What to do about a write that failed."""
    return "free some space" if error.errno in NO_SPACE else "fix that"


def open_file(path: Path, mode: str = "rb", buffering: int = -1) -> Any:
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
        status = os.fstat(file)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(status.st_mode):
            raise _unsafe(path, "is not a regular file")
        if status.st_nlink > 1 and flags & (os.O_WRONLY | os.O_RDWR):
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


def open_named(path: str | Path) -> Any:
    """Open a file that the user named for reading, which may be a link to one, but no pipe and no device."""
    # A link to a file that is not there keeps its own name in the message.
    path = Path(path)
    return open_file(path.resolve() if path.exists() else path)


def read_named(path: str | Path) -> bytes:
    """The content of a file that :func:`open_named` opens."""
    with open_named(path) as file:
        content: bytes = file.read()
    return content


def read_input(path: str | Path, what: str) -> bytes:
    """The content of a file that the user named as ``what``, such as "a TOML file"; a sentence if it cannot be read."""
    try:
        return read_named(path)
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}; name {what}.") from None


def read_json_input(path: str | Path, what: str, parse: Callable[[str], Any] = json.loads) -> Any:
    """The JSON in a file that the user named as ``what``; a sentence where there is none."""
    try:
        return parse(read_input(path, what).decode())
    except UnicodeDecodeError:
        raise InputError(f"Cannot read {path}: it is not text; name {what}.") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON ({error}); fix the file, or write it again.") from None


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
    paths: list[Path] = []
    below = [str(directory)]
    while below:
        place = below.pop()
        # What may not be read, or has too long a path, is passed over.
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
                elif entry.name == name:
                    paths.append(Path(entry.path))
    return sorted(paths)


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
        _remove_left_over(path)
        with open_file(beside, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        move(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _remove_left_over(path: Path) -> None:
    """Remove what processes of this machine that were killed have left of the same file.

    Another machine may write the same file with a process number that is not in use here, so only old ones go.
    """
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{UNFINISHED}"):
        with suppress(OSError, ValueError):
            number = int(left.name.removesuffix(UNFINISHED).rpartition(".")[2])
            try:
                os.kill(number, 0)
            except ProcessLookupError:
                if time.time() - left.stat().st_mtime > _OLD:
                    left.unlink()


def write_page(path: Path, text: str) -> None:
    """Write a page completely or not at all; names of files that are not UTF-8 appear in it escaped."""
    write_atomically(path, text.encode(errors="backslashreplace"))


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file completely or not at all."""
    write_atomically(path, (json_text(data, indent=2) + "\n").encode())


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
                self._known[index] = self._decode(parse_json(self._texts[index]))
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
            known[index] = decode(parse_json(texts[index]))
        except UNREADABLE:
            texts = texts[:index]
            break
    lines = Lines(texts, decode, name)
    lines._known = known
    return lines
