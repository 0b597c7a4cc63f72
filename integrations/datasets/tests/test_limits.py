"""Files that would take far more memory, or time, than they have bytes are refused before they do."""

from __future__ import annotations

import gzip
import struct
import threading
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from integrations.datasets.tests import made

from fedgauge.base.errors import InputError, MachineError
from fedgauge.data import dataset
from fedgauge_datasets import fetch
from fedgauge_datasets.images import read_idx

MEGABYTE = 2**20


@pytest.fixture
def frugal() -> Iterator[None]:
    """A test that takes little memory."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * MEGABYTE


def idx(axes: list[int], body: bytes = b"") -> bytes:
    return bytes([0, 0, 8, len(axes)]) + struct.pack(f">{len(axes)}I", *axes) + body


IDX = {
    "many axes": (idx([1] * 70, b"\0"), "it has 70 axes, and images and labels have at most 8"),
    "huge": (idx([2**32 - 1] * 3), r"would take \d+,[\d,]+ bytes of memory|numbers need \d+ bytes, and it has 16"),
    "huge and zero": (idx([2**32 - 1] * 2 + [0]), r"it has no numbers, and the lengths of its axes are \(42"),
    "zero": (idx([0, 4, 4], b"x"), r"its \(0, 4, 4\) numbers need 16 bytes, and it has 17"),
    "longer than announced": (idx([2, 2], bytes(10**7)), r"its \(2, 2\) numbers need 16 bytes, and it has (17|1000)"),
    "shorter than announced": (idx([2, 3], bytes(5)), r"its \(2, 3\) numbers need 18 bytes, and it has 17"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", IDX)
@pytest.mark.usefixtures("frugal")
def test_idx_files(case: str, packed: bool, tmp_path: Path) -> None:
    content, words = IDX[case]
    path = made.write(tmp_path / "images", gzip.compress(content) if packed else content)
    with pytest.raises(InputError, match=words):
        read_idx(path)


def test_a_gzipped_idx_file_is_not_unpacked_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "_FREELY", MEGABYTE)
    path = made.write(tmp_path / "images.gz", gzip.compress(idx([4 * MEGABYTE], bytes(4 * MEGABYTE))))
    with pytest.raises(InputError, match=r"more than 1 GiB is unpacked only up to 100 times a file's size"):
        read_idx(path)
    made.write(path, idx([4 * MEGABYTE], bytes(4 * MEGABYTE)))
    assert read_idx(path).shape == (4 * MEGABYTE,)


# -- downloads -------------------------------------------------------------------------------------------------------


class Trap(BaseHTTPRequestHandler):
    """Redirects, or sends without end."""

    def do_GET(self) -> None:
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
            return
        self.send_response(200)
        if self.path.startswith("/announced"):
            self.send_header("Content-Length", str(10**15))
        self.end_headers()
        try:
            while self.path.startswith("/endless"):
                self.wfile.write(bytes(2**16))
        except OSError:
            return

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def trap(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Trap) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("kind", ["announced", "endless"])
def test_a_download_has_a_limit(kind: str, trap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MOST_BYTES", MEGABYTE)
    with pytest.raises(MachineError, match=r"it has [\d,]+ bytes or more, and at most 1,048,576 are downloaded"):
        fetch.download(f"{trap}/{kind}", tmp_path / "file", "", lambda *_: None, pause=0)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= MEGABYTE


@pytest.mark.parametrize("address", ["ftp://127.0.0.1:1/file", "file:///etc/passwd", "data:text/plain,x"])
def test_other_schemes_are_not_followed(address: str, trap: str, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=f"redirects to {address}, which is not followed|not allowed"):
        fetch.download(f"{trap}/to/{address}", tmp_path / "file", "", lambda *_: None, pause=0)
    assert list(tmp_path.iterdir()) == []


def test_http_is_followed_to_http_and_to_https_but_not_back() -> None:
    import urllib.request

    handler = fetch._Redirections()
    for old, new, followed in (
        ("http://a/x", "http://b/x", True),
        ("http://a/x", "https://b/x", True),
        ("https://a/x", "https://b/x", True),
        ("https://a/x", "http://b/x", False),
    ):
        request = urllib.request.Request(old)
        if followed:
            assert handler.redirect_request(request, None, 302, "", {}, new) is not None
        else:
            with pytest.raises(MachineError, match="which is not followed"):
                handler.redirect_request(request, None, 302, "", {}, new)
