"""Small mistakes of a user, and of the world around a command, have small consequences."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Capture, answer

import fedgauge as fg
import fedgauge_planning as fp
from fedgauge.base.codec import json_text, parse_json
from fedgauge.base.files import write_atomically
from fedgauge.cli import main
from fedgauge_explorer.serving import PageServer

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a federation, in which nothing may wait for ever."""

    def late(*_: Any) -> None:
        raise TimeoutError

    monkeypatch.chdir(tmp_path)
    fg.random_quadratics(3, 2, sigma2=0.1, seed=0).write("fed.json")
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield tmp_path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("what", ["fifo", "zero"])
@pytest.mark.parametrize(
    "command",
    [
        "simulate {}.toml",
        "simulate {}.json --gamma 0.1",
        "simulate {}.npz --gamma 0.1",
        "simulate fed.json --gamma 0.1 --rounds 1 --at {}.safetensors",
        "theory expect {}.json --gamma 0.1",
        "theory bound nonconvex --values {}.json",
        "plan {}.toml --goal loss=1 --cost local",
        "report {}.json",
    ],
)
def test_a_pipe_or_a_device_is_no_input_file(command: str, what: str, place: Path, capsys: Capture) -> None:
    for ending in ("toml", "json", "npz", "safetensors"):
        if what == "fifo":
            os.mkfifo(f"fifo.{ending}")
        else:
            Path(f"zero.{ending}").symlink_to("/dev/zero")
    assert main(command.format(what).split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"fedgauge: .*is not a regular file; .*\.\n", err)


def test_a_link_to_a_file_is_an_input_file(place: Path, capsys: Capture) -> None:
    Path("link.json").symlink_to("fed.json")
    assert answer(capsys, "theory expect link.json --gamma 0.1") == answer(capsys, "theory expect fed.json --gamma 0.1")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("theory expect fed.json --gamma 0.1 --rounds 99999999999", "--rounds must be at most 10,000,000"),
        ("theory expect fed.json --gamma 1e300", "--gamma must be at most 1e+150 here"),
    ],
)
def test_numbers_that_are_too_large(line: str, says: str, place: Path, capsys: Capture) -> None:
    assert main(line.split()) == 2
    assert says in capsys.readouterr().err


def test_options_of_an_algorithm_may_begin_or_end_with_a_point(place: Path, capsys: Capture) -> None:
    long, short = (
        answer(capsys, f"simulate fed.json --rounds 2 --algorithm-option gamma={gamma} --algorithm-option eta={eta}")
        for gamma, eta in (("0.1", "2.0"), (".1", "2."))
    )
    assert short["settings"] == long["settings"]
    assert short["settings"]["algorithm"] == {"name": "fedavg", "gamma": 0.1, "eta": 2.0}


def test_a_sweep_of_losses_below_zero_has_a_picture_without_a_warning(place: Path) -> None:
    federation = fg.QuadraticFederation([[[1.0]], [[1.0]]], [[1.0], [1.0]], constant=[-9.0, -9.0])
    federation.write("below.json")
    line = "runs sweep below.json --gamma 0.1 --over local-steps=1,2 --rounds 2 --out sweep --jobs 1"
    assert main(line.split()) == 0


def _strict(token: str) -> float:
    raise AssertionError(f"{token} is not JSON")


def test_json_has_no_infinity_and_no_nan(place: Path, capsys: Capture) -> None:
    data = {"NaN and Infinity": ['"-Infinity', float("inf"), -float("inf")], "none": float("nan")}
    text = json_text(data, indent=2)
    assert json.loads(text, parse_constant=_strict) == parse_json(text) == {**data, "none": None}
    # A plan by theory has an infinite bandwidth, which the file and the option print alike.
    line = "plan fed.json --gamma 0.1 --goal grad2=0.1 --cost fixed=1,step=0.1 --over local-steps=2 --jobs 1 --out plan"
    assert main([*line.split(), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out, parse_constant=_strict)
    written = Path("plan/plan.json").read_text()
    assert fp.Plan.from_json(printed).cost.bandwidth == fp.Plan.from_json(parse_json(written)).cost.bandwidth
    assert fp.Plan.from_json(printed).cost.bandwidth == float("inf")
    json.loads(written, parse_constant=_strict)


def test_what_a_killed_process_left_unfinished_is_removed(tmp_path: Path) -> None:
    dead = 2**22 + 1  # above the largest number of a process
    left, own = (tmp_path / f".result.json.{number}.part" for number in (dead, os.getppid()))
    for path in (left, own, tmp_path / f".other.json.{dead}.part"):
        path.touch()
        os.utime(path, (time.time() - 3600,) * 2)
    write_atomically(tmp_path / "result.json", b"{}")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted([own.name, f".other.json.{dead}.part", "result.json"])


def test_a_browser_that_goes_away_is_not_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with PageServer("x" * 2**25) as server:
        port = server.server_address[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            server.handle_request()
            client.recv(10)
            # Closing with this option resets the connection at once.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.block_on_close = True
        server.daemon_threads = False
        time.sleep(0.5)
    assert capfd.readouterr() == ("", "")


def test_the_example_of_the_readme_can_be_run_twice(place: Path, capsys: Capture) -> None:
    (example,) = re.findall(r"```python\n(from torch.*?)```", README.read_text(), re.DOTALL)
    Path("example.py").write_text("import torch\ntorch.manual_seed(0)\n" + example.replace("rounds=100", "rounds=20"))
    runpy.run_path("example.py")
    first = capsys.readouterr().out
    runpy.run_path("example.py")
    assert capsys.readouterr().out == first
