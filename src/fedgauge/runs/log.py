"""A file that grows by one line per record while a run goes on."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import deque
from pathlib import Path
from typing import IO, Any, NoReturn

from fedgauge.errors import MachineError
from fedgauge.system.files import open_file, write_atomically
from fedgauge.system.interrupts import held_back

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
            found = os.lstat(self.path)
        except FileNotFoundError:
            found = None
        if found is None or not os.path.samestat(ours, found):
            logger.warning("%s was deleted or replaced while the run was writing it; it is written again.", self.path)
            write_atomically(self.path, self.content())
            self._file.close()
            self._file = open_file(self.path, "a+b", buffering=0)

    def refuse(self) -> NoReturn:
        """Stop the run because of what another program wrote."""
        raise MachineError(
            f"{self.path} was changed by another program while the run was writing it; resume the run to repair it."
        )
