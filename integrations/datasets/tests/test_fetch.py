"""Downloads, from a server on this machine that can be told to misbehave."""

from __future__ import annotations

import dataclasses
import fcntl
import gzip
import hashlib
import io
import re
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from integrations.datasets.tests import made

from fedgauge.base.errors import InputError, MachineError
from fedgauge.cli import main
from fedgauge.data.loader import load_dataset
from fedgauge_datasets import catalogue
from fedgauge_datasets.catalogue import ENTRIES
from fedgauge_datasets.fetch import fetch


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves ``files``, but fails the next ``failures`` requests and cuts the next ``cuts`` answers in the middle."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.cuts = self.failures = 0
        self.ranges = self.lengths = True
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append((self.path, asked))
        content = self.server.files.get(self.path)
        if self.server.failures:
            self.server.failures -= 1
            return self.send_error(503)
        if content is None:
            return self.send_error(404)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.ranges else 0
        if start and start >= len(content):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if self.server.lengths:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = len(content)
        if self.server.cuts:
            self.server.cuts -= 1
            end = (start + end) // 2
        self.wfile.write(content[start:end])
        return None

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def mnist(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A made MNIST whose checksums are taken for the published ones."""
    made.mnist(tmp_path / "made", number=4000)
    files = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    server.files = {f"/mnist/{name}": content for name, content in files.items()}
    sums = {name: md5(files[name]) for name in ENTRIES["mnist"].files}
    entry = dataclasses.replace(ENTRIES["mnist"], files=sums, url=f"{server.url}/mnist")
    monkeypatch.setattr(catalogue, "ENTRIES", {"mnist": entry})
    return files


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_files_come_whole_and_are_left_alone_the_second_time(
    server: Server, mnist: dict[str, bytes], tmp_path: Path
) -> None:
    calls: list[tuple[str, int, int | None]] = []
    written = fetch("mnist", tmp_path / "data", progress=lambda *call: calls.append(call))
    assert {path.name: path.read_bytes() for path in written} == mnist
    assert names(tmp_path / "data/MNIST/raw") == sorted(mnist)
    sizes = {name: len(content) for name, content in mnist.items()}
    assert {name: (here, total) for name, here, total in calls} == {name: (n, n) for name, n in sizes.items()}
    assert load_dataset("mnist", tmp_path / "data").num_train == 4000
    assert fetch("mnist", tmp_path / "data") == []
    assert len(server.asked) == 4


def test_another_address_serves_as_well(server: Server, mnist: dict[str, bytes], tmp_path: Path) -> None:
    server.files = {path.replace("/mnist", "/mirror"): content for path, content in server.files.items()}
    assert len(fetch("mnist", tmp_path / "data", url=f"{server.url}/mirror/")) == 4


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_connection_is_taken_up_where_it_broke(
    server: Server, mnist: dict[str, bytes], tmp_path: Path, ranges: bool
) -> None:
    server.cuts, server.ranges = 2, ranges
    written = fetch("mnist", tmp_path / "data", pause=0)
    assert {path.name: path.read_bytes() for path in written} == mnist
    first = [asked for path, asked in server.asked if path.endswith("train-images-idx3-ubyte.gz")]
    assert first[0] is None
    assert all(re.fullmatch(r"bytes=\d+-", asked or "") for asked in first[1:])
    assert len(first) == 3


def test_a_download_that_gave_up_goes_on_the_next_time(server: Server, mnist: dict[str, bytes], tmp_path: Path) -> None:
    server.cuts = 5
    with pytest.raises(
        MachineError, match=r"the connection broke off; run the command again to resume after the first [\d,]+ bytes"
    ):
        fetch("mnist", tmp_path / "data", pause=0)
    (part,) = (tmp_path / "data/MNIST/raw").iterdir()
    kept = part.stat().st_size
    assert part.name == "train-images-idx3-ubyte.gz.part"
    assert 0 < kept < len(mnist["train-images-idx3-ubyte.gz"])
    server.asked.clear()
    assert len(fetch("mnist", tmp_path / "data", pause=0)) == 4
    assert server.asked[0][1] == f"bytes={kept}-"


@pytest.mark.parametrize("left", ["other", "complete", "too long"])
def test_what_an_earlier_call_left_is_checked(
    server: Server, mnist: dict[str, bytes], tmp_path: Path, left: str
) -> None:
    name = "train-images-idx3-ubyte.gz"
    content = {"other": b"x" * 100, "complete": mnist[name], "too long": mnist[name] + b"x"}[left]
    made.write(tmp_path / "data/MNIST/raw" / f"{name}.part", content)
    written = fetch("mnist", tmp_path / "data", pause=0)
    assert {path.name: path.read_bytes() for path in written} == mnist
    assert names(tmp_path / "data/MNIST/raw") == sorted(mnist)


def test_a_server_that_is_busy_is_asked_again(server: Server, mnist: dict[str, bytes], tmp_path: Path) -> None:
    server.failures = 4
    assert len(fetch("mnist", tmp_path / "data", pause=0)) == 4
    server.failures = 5
    with pytest.raises(MachineError, match="the server answers 503 Service Unavailable; try again later"):
        fetch("mnist", tmp_path / "other", pause=0)
    assert names(tmp_path / "other/MNIST/raw") == []


def test_no_length_is_no_hindrance(server: Server, mnist: dict[str, bytes], tmp_path: Path) -> None:
    server.lengths = False
    assert len(fetch("mnist", tmp_path / "data", pause=0)) == 4


def test_wrong_content_is_thrown_away(server: Server, mnist: dict[str, bytes], tmp_path: Path) -> None:
    name = "train-labels-idx1-ubyte.gz"
    server.files[f"/mnist/{name}"] = b"<html>sign in</html>"
    expected = f"its MD5 is {md5(b'<html>sign in</html>')}, not {md5(mnist[name])}; try again later or"
    with pytest.raises(MachineError, match=expected):
        fetch("mnist", tmp_path / "data", pause=0)
    assert names(tmp_path / "data/MNIST/raw") == ["train-images-idx3-ubyte.gz"]


def test_what_is_not_there_is_asked_for_once(server: Server, mnist: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"/none/train-images-idx3-ubyte.gz cannot be .*: the server answers 404"):
        fetch("mnist", tmp_path / "data", url=f"{server.url}/none")
    assert len(server.asked) == 1
    assert names(tmp_path / "data/MNIST/raw") == []


def test_nobody_answers(mnist: dict[str, bytes], tmp_path: Path) -> None:
    closed = Server()
    url = closed.url
    closed.server_close()
    with pytest.raises(MachineError, match=r"cannot be downloaded: .*refused"):
        fetch("mnist", tmp_path / "data", url=url, pause=0)


def test_a_file_of_the_users_own_is_replaced_only_by_force(
    server: Server, mnist: dict[str, bytes], tmp_path: Path
) -> None:
    name = "train-images-idx3-ubyte.gz"
    path = made.write(tmp_path / "data/MNIST/raw" / name, b"my subset")
    with pytest.raises(InputError, match=f"{md5(b'my subset')}; published: {md5(mnist[name])}.*force=True"):
        fetch("mnist", tmp_path / "data")
    assert path.read_bytes() == b"my subset"
    assert server.asked == []
    fetch("mnist", tmp_path / "data", force=True)
    assert path.read_bytes() == mnist[name]


def test_two_at_once_do_not_mix(server: Server, mnist: dict[str, bytes], tmp_path: Path) -> None:
    part = made.write(tmp_path / "data/MNIST/raw/train-images-idx3-ubyte.gz.part", b"abc")
    with part.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(MachineError, match="Another process is downloading"):
            fetch("mnist", tmp_path / "data")
    assert part.read_bytes() == b"abc"


@pytest.mark.parametrize(
    ("name", "url", "sentence"),
    [
        ("digits", None, r"digits is not downloaded as files; run: pip install"),
        ("text", None, "text is not downloaded as files; it is generated, so that there is nothing to get"),
        ("cinic10", None, "cinic10 is not downloaded as files; get it from the project BayesWatch/cinic-10"),
        ("qmnist", None, "qmnist has no address to download from; get it from the project facebookresearch/qmnist"),
        ("mnist", "file:///etc", "url must begin with http:// or https://, not 'file:///etc'"),
        ("mnits", None, "did you mean mnist"),
    ],
)
def test_what_cannot_be_fetched_is_refused(tmp_path: Path, name: str, url: str | None, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        fetch(name, tmp_path, url=url)


# -- archives -------------------------------------------------------------------------------------------------------


def tar(members: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return out.getvalue()


def serve_cifar100(
    server: Server, monkeypatch: pytest.MonkeyPatch, archive: bytes, files: dict[str, bytes]
) -> dict[str, bytes]:
    server.files = {"/cifar-100-python.tar.gz": archive}
    sums = {name: md5(content) for name, content in files.items()}
    optional = {"meta": sums.pop("meta")} if "meta" in sums else {}
    entry = dataclasses.replace(
        ENTRIES["cifar100"],
        files=sums,
        optional=optional,
        url=server.url,
        archive=("cifar-100-python.tar.gz", md5(archive)),
    )
    monkeypatch.setattr(catalogue, "ENTRIES", {"cifar100": entry})
    return files


def test_only_what_is_expected_is_unpacked(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"train": b"t" * 100_000, "test": b"s" * 1000, "meta": b"m"}
    members = {f"cifar-100-python/{name}": content for name, content in files.items()}
    outside = {"../evil": b"x", "/tmp/evil": b"x", "cifar-100-python/../../evil": b"x"}
    extra = {**outside, "cifar-100-python/file.txt~": b"x", "elsewhere/train": b"x", "train": b"x"}
    archive = tar({**extra, **members}, {"cifar-100-python/link": "/etc/passwd"})
    serve_cifar100(server, monkeypatch, archive, files)
    written = fetch("cifar100", tmp_path / "data")
    assert {path.name: path.read_bytes() for path in written} == files
    assert names(tmp_path / "data") == ["cifar-100-python"]
    assert names(tmp_path / "data/cifar-100-python") == ["meta", "test", "train"]
    assert names(tmp_path) == ["data"]
    assert fetch("cifar100", tmp_path / "data") == []


def test_an_archive_that_is_here_already_is_used_and_kept(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"train": b"t", "test": b"s"}
    archive = tar({f"cifar-100-python/{name}": content for name, content in files.items()})
    serve_cifar100(server, monkeypatch, archive, files)
    made.write(tmp_path / "cifar-100-python.tar.gz", archive)
    assert len(fetch("cifar100", tmp_path)) == 2
    assert server.asked == []
    assert names(tmp_path) == ["cifar-100-python", "cifar-100-python.tar.gz"]


@pytest.mark.parametrize(
    ("archive", "sentence"),
    [
        (tar({"cifar-100-python/train": b"wrong", "cifar-100-python/test": b"s"}), "holds a train that is not the"),
        (tar({"cifar-100-python/train": b"t"}), "does not hold test"),
        (tar({"cifar-100-python/train": b"t"}, {"cifar-100-python/test": "/etc/passwd"}), "does not hold test"),
        (b"no archive", "is damaged"),
        (gzip.compress(b"x" * 2000)[:-10], "is damaged"),
        (tar({"cifar-100-python/train": b"t", "cifar-100-python/test": bytes(10**5)})[:-60], "is damaged"),
    ],
    ids=["wrong", "lacking", "link", "text", "cut", "cut late"],
)
def test_a_bad_archive_leaves_no_bad_file(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: bytes, sentence: str
) -> None:
    files = serve_cifar100(server, monkeypatch, archive, {"train": b"t", "test": b"s"})
    with pytest.raises(MachineError, match=sentence):
        fetch("cifar100", tmp_path)
    for path in (tmp_path / "cifar-100-python").iterdir():
        assert path.suffix == ".part" or path.read_bytes() == files[path.name]


# -- from the command line ------------------------------------------------------------------------------------------


def test_the_command_downloads_and_reports(
    server: Server, mnist: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "data")
    assert main(["data", "get", "mnist", "--data", data]) == 0
    assert "Written: " in capsys.readouterr().out
    assert main(["data", "get", "mnist", "--data", data]) == 0
    assert capsys.readouterr().out == f"mnist is complete in {data}.\n"
    assert main(["data", "get", "mnist", "--data", data + "2", "--url", f"{server.url}/none"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("fedgauge: http://127.0.0.1")
    assert said.err.count("\n") == 1
