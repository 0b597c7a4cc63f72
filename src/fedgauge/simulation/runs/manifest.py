"""The manifest of a run: the digest of every file that says something about the run.

With it, a reader notices files that were changed, deleted or replaced by those of another run. It cannot protect
against somebody who writes a matching manifest as well.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, NoReturn

from fedgauge.base.codec import parse_json
from fedgauge.base.errors import InputError, MachineError
from fedgauge.base.files import open_file, read_file, write_atomically, write_json
from fedgauge.base.interrupts import held_back

MANIFEST = "manifest.json"

_LEFT = frozenset({"environment.json", "events.jsonl", "noise.jsonl", "measure.json"})
"""Files that a resumed run cannot write again."""


def digest(content: bytes) -> str:
    """The digest of a file's content.

    >>> digest(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(content).hexdigest()


def write_manifest(run: Path, digests: Mapping[str, str]) -> None:
    """Write the manifest of a run."""
    write_json(run / MANIFEST, {"version": 1, "sha256": dict(digests)})


def read_manifest(run: Path) -> dict[str, str]:
    """The digest of each file by its name.

    A run that an older version wrote has no manifest, but digests of its records and its model in ``result.json``.
    """
    older = _digests(run / "result.json") if (run / "result.json").is_file() else None
    if (run / MANIFEST).is_file():
        digests = _digests(run / MANIFEST)
        if digests is None:
            raise InputError(f"{run / MANIFEST} is damaged; resume the run to repair it.")
        return {**(older or {}), **digests}
    if older is None and (run / "result.json").exists():
        raise InputError(f"{run / MANIFEST} is missing; resume the run to repair it.")
    return older or {}


def _digests(path: Path) -> dict[str, str] | None:
    try:
        data: Any = parse_json(read_file(path))
        digests = data["sha256"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    plain = isinstance(digests, dict) and all(isinstance(item, str) for item in digests.values())
    return digests if plain else None


def add_to_manifest(run: Path, name: str) -> None:
    """Add a file that was written after the run ended."""
    write_manifest(run, {**read_manifest(run), name: digest(read_file(run / name))})


def altered(run: Path, names: Iterable[str] | None = None) -> dict[str, str]:
    """The files that are not as the run wrote them: what happened to each, and what to do.

    Args:
        run: the directory of the run.
        names: the files to check; by default, all in the manifest.
    """
    problems = {}
    digests = read_manifest(run)
    for name in digests if names is None else [name for name in names if name in digests]:
        try:
            with open_file(run / name) as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == digests[name]:
                    continue
            what = "is not what the run wrote: its digest differs from the manifest's"
        except OSError:
            what = "is missing"
        problems[name] = what if name in _LEFT else f"{what}; resuming the run repairs it"
    return problems


def verified(path: Path, content: bytes) -> bytes:
    """The content of a file, unless it lies in a run's directory and is not what the run wrote.

    A file that belongs to no run is not checked.
    """
    known = read_manifest(path.parent).get(path.name)
    if known is not None and known != digest(content):
        remedy = "run it again" if path.name in _LEFT else "resume the run to repair it"
        raise InputError(
            f"{path} is not what the run wrote: its digest differs from the manifest's; {remedy}, or copy the file to"
            " another directory if you want to use it as it is."
        )
    return content


logger = logging.getLogger(__name__)


def _write(file: IO[bytes], content: bytes) -> None:
    """Write the whole content; the system may accept only a part per call."""
    while content:
        content = content[file.write(content) :]


class Log:
    """A file that grows by lines while the run goes on, with a digest of all its lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Without a buffer, so that closing the file does not retry a write that failed.
        self._file = open_file(path, "a+b", buffering=0)
        self._begin(b"")

    def _begin(self, content: bytes) -> None:
        self._sha, self._size = hashlib.sha256(content), len(content)
        # The digests after the last two lines: the checkpoint of an interrupted round must not count that round's line.
        self._digests = deque([(-1, self._sha.hexdigest())], maxlen=2)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def digest(self) -> str:
        """The digest of all lines."""
        return self._digests[-1][1]

    def digest_before(self, round: int) -> str:
        """The digest of the lines of earlier rounds."""
        return next(digest for latest, digest in reversed(self._digests) if latest < round)

    def append(self, round: int, data: Any) -> None:
        """Add a line; when this returns, the operating system has it."""
        line = json.dumps(data).encode() + b"\n"
        # Ctrl-C between the line and its size would make the line look like that of another program.
        with held_back():
            _write(self._file, line)
            self._sha.update(line)
            self._size += len(line)
            self._digests.append((round, self._sha.hexdigest()))

    def content(self) -> bytes:
        """What the file holds."""
        self._file.seek(0)
        content: bytes = self._file.read()
        return content

    def cut(self, content: bytes) -> None:
        """Keep only this content, with which the file begins."""
        self._file.truncate(len(content))
        self._begin(content)

    def sync(self) -> None:
        """See to it that the lines are on the disk, under the file's own name."""
        os.fsync(self._file.fileno())
        ours = os.fstat(self._file.fileno())
        if ours.st_size != self._size:
            self.refuse()
        try:
            status = os.lstat(self.path)
        except FileNotFoundError:
            status = None
        if status is None or not os.path.samestat(ours, status):
            logger.warning("%s was deleted or replaced while the run was writing it; it is written again.", self.path)
            write_atomically(self.path, self.content())
            self._file.close()
            self._file = open_file(self.path, "a+b", buffering=0)

    def refuse(self) -> NoReturn:
        """Stop the run because of what another program wrote."""
        raise MachineError(
            f"{self.path} was changed by another program while the run was writing it; resume the run to repair it."
        )
