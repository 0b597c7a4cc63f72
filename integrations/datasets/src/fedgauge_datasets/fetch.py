"""Published files over HTTP: with progress, resumed where they broke off, checked, and in place whole or not at all.

A file is downloaded as ``NAME.part``, which a later call resumes, and gets its name once its checksum is right.
"""

from __future__ import annotations

import fcntl
import http.client
import os
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from fedgauge.base.errors import InputError, MachineError
from fedgauge.base.files import UNFINISHED, make_directories, move, open_file
from fedgauge.base.progress import silent
from fedgauge.base.types import Progress
from fedgauge_datasets import catalogue
from fedgauge_datasets.catalogue import Entry, md5_of

"""Called with a file's name, the bytes downloaded so far and, if the server says so, how many there are."""

_BLOCK = 2**16
_TRIES = 5
_TIMEOUT = 30.0
MOST_BYTES = 2**30
"""The largest file that is downloaded; the largest published one has a sixth of that."""


def fetch(
    name: str,
    data: str | Path | None = None,
    *,
    url: str | None = None,
    force: bool = False,
    progress: Progress = silent,
    pause: float = 1.0,
) -> list[Path]:
    """Bring the published files of a data set into the directory of data; return those that were written.

    A file that is there already with the published checksum is left as it is. One with another checksum is refused,
    because it may be a subset of the user's own, unless ``force``.

    Args:
        name: of the data set.
        data: directory of data.
        url: where to take the files from instead of their publisher; their checksums stay the published ones.
        force: replace files that are not the published ones.
        progress: called with the name of the file, the bytes here and the bytes in total.
        pause: seconds before the second try after a broken connection; it doubles each time.
    """
    known = catalogue.entry(name)
    base = url or known.url
    if not known.files:
        raise InputError(f"{name} is not downloaded as files; {catalogue.remedy(known, data)}.")
    if base is None:
        raise InputError(f"{name} has no address to download from; {catalogue.remedy(known, data)}, or give url.")
    _check_address(base)
    base = base.rstrip("/")
    folder = catalogue.data_directory(data) / known.folders[0]
    wanted = _wanted(known, folder, force)
    if not wanted:
        return []
    make_directories(folder)
    if known.archive is not None:
        return _through_archive(known, folder, base, wanted, progress, pause)
    return [download(f"{base}/{file}", folder / file, known.files[file], progress, pause) for file in wanted]


def _check_address(url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise InputError(f"url must begin with http:// or https://, not {url!r}; give the address of the folder.")
    try:
        parts = urllib.parse.urlsplit(url)
        fits = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fits = False
    if not fits:
        raise InputError(f"url must be an address, as in https://example.org/mnist, not {url!r}; correct it.")


class _Redirections(urllib.request.HTTPRedirectHandler):
    """Follows a server's redirection only to what is at least as safe: to https, or from http to http."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """The request for the new address."""
        if not newurl.startswith(("https://", f"{req.type}://")):
            raise MachineError(
                f"{req.full_url} redirects to {newurl}, which is not followed, because it does not begin with https://;"
                " give another address with url=ADDRESS."
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_size(url: str, size: int) -> None:
    if size > MOST_BYTES:
        raise MachineError(
            f"{url} is not the published file: it has {size:,} bytes or more, and at most {MOST_BYTES:,} are"
            " downloaded; give another address with url=ADDRESS."
        )


def _wanted(known: Entry, folder: Path, force: bool) -> list[str]:
    wanted = []
    for file in known.files:
        path = folder / file
        status = catalogue.file_status(known, file, path if path.is_file() else None)
        if status.state == "differs" and not force:
            raise InputError(
                f"{path} exists and is not the published file (MD5 {status.md5_found}; published: {status.md5});"
                " move it away or replace it with force=True."
            )
        if status.state != "published":
            wanted.append(file)
    return wanted


def download(url: str, path: Path, md5: str, progress: Progress, pause: float = 1.0) -> Path:
    """Download one file to ``path``, resuming what an earlier call left."""
    part = path.with_name(path.name + UNFINISHED)
    with open_file(part, "ab") as file, _nothing_left(part):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise MachineError(f"Another process is downloading {path}; wait for it to end.") from None
        resumed = file.tell() > 0
        if not (resumed and md5_of(part) == md5):
            _complete(url, file, path.name, progress, pause)
            if resumed and md5_of(part) != md5:
                # The part may belong to another file; start once more from the beginning.
                file.truncate(0)
                _complete(url, file, path.name, progress, pause)
        digest = md5_of(part)
        if digest != md5:
            part.unlink()
            raise MachineError(
                f"{url} is not the published {path.name}: its MD5 is {digest}, not {md5}; try again later or from"
                " another address with url=ADDRESS."
            )
        os.fsync(file.fileno())
        move(part, path)
    return path


@contextmanager
def _nothing_left(part: Path) -> Iterator[None]:
    """Leave no empty file behind."""
    try:
        yield
    finally:
        if part.exists() and part.stat().st_size == 0:
            part.unlink()


def _complete(url: str, file: BinaryIO, name: str, progress: Progress, pause: float) -> None:
    """Append to ``file`` until it is as long as the server says, over several connections if need be."""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(pause * 2 ** (attempt - 1))
        try:
            if _append(url, file, name, progress):
                return
            reason = "the connection broke off"
        except urllib.error.HTTPError as error:
            reason = f"the server answers {error.code} {error.reason}"
            if error.code < 500 and error.code not in (408, 429):
                break
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            reason = str(getattr(error, "reason", "") or error or type(error).__name__)
    here = file.seek(0, os.SEEK_END)
    kept = f"run the command again to resume after the first {here:,} bytes" if here else "try again later"
    raise MachineError(f"{url} cannot be downloaded: {reason}; {kept}, or give another address with url=ADDRESS.")


def _append(url: str, file: BinaryIO, name: str, progress: Progress) -> bool:
    """Ask for what is missing, append it, and say whether that was all."""
    start = file.seek(0, os.SEEK_END)
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", "User-Agent": "fedgauge"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        answer = urllib.request.build_opener(_Redirections).open(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not start:
            raise
        # More is here than there: it is of another file, so begin again.
        file.truncate(0)
        return _append(url, file, name, progress)
    with answer:
        if not str(answer.headers.get("Content-Range", "")).startswith(f"bytes {start}-"):
            # The server sends the whole file, although only the rest was requested.
            file.truncate(0)
            start = 0
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else None
        here = start
        _check_size(url, total or 0)
        progress(name, here, total)
        while block := answer.read(_BLOCK):
            here += len(block)
            _check_size(url, here)
            file.write(block)
            progress(name, here, total)
        file.flush()
    return total is None or here == total


def _through_archive(
    known: Entry, folder: Path, base: str, wanted: list[str], progress: Progress, pause: float
) -> list[Path]:
    assert known.archive is not None
    name, md5 = known.archive
    archive = folder.parent / name
    brought = not (archive.is_file() and md5_of(archive) == md5)
    if brought:
        download(f"{base}/{name}", archive, md5, progress, pause)
    extra = [file for file in known.optional if not (folder / file).exists()]
    written = unpack(archive, folder, {file: {**known.files, **known.optional}[file] for file in [*wanted, *extra]})
    if brought:
        archive.unlink()
    return written


def unpack(archive: Path, folder: Path, wanted: dict[str, str]) -> list[Path]:
    """Take the wanted files, each with its MD5, out of ``folder.name`` in a tar archive, and nothing else."""
    written = []
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                place, _, file = member.name.removeprefix("./").rpartition("/")
                content = tar.extractfile(member) if member.isreg() else None
                if place != folder.name or file not in wanted or content is None:
                    continue
                part = folder / (file + UNFINISHED)
                with open_file(part, "wb") as out:
                    while block := content.read(_BLOCK):
                        out.write(block)
                    out.flush()
                    os.fsync(out.fileno())
                digest = md5_of(part)
                if digest != wanted[file]:
                    part.unlink()
                    raise MachineError(
                        f"{archive} holds a {file} that is not the published one: its MD5 is {digest}, not"
                        f" {wanted[file]}; remove {archive} and run again."
                    )
                move(part, folder / file)
                written.append(folder / file)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # a full disk, not a damaged archive
            raise
        raise MachineError(f"{archive} is damaged ({error}); remove it and run again.") from None
    missing = [file for file in wanted if folder / file not in written]
    if missing:
        raise MachineError(f"{archive} does not hold {missing[0]}; remove it and run again.")
    return written
