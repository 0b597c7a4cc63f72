"""Flower's processes for tests: started on loopback with free ports, stopped by their own ids."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
    "HF_HUB_OFFLINE": "1",
    "NO_COLOR": "1",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(true: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for something, for so long at most."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"{what} did not come within {seconds} s"
        time.sleep(0.05)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


class Fleet:
    """A SuperLink and SuperNodes, with the app of a test."""

    def __init__(self, place: Path) -> None:
        self.place, self.port = place, free_port()
        self.pids: dict[str, int] = {}
        (place / "home").mkdir()
        (place / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        self._zygote = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("zygote.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=place,
            env={**ENVIRONMENT, "FLWR_HOME": str(place / "home")},
        )
        self._answer()

    def __enter__(self) -> Self:
        self.start(
            "link",
            "flower-superlink",
            "--insecure",
            "--host",
            "127.0.0.1",
            "--port",
            self.port,
            "--isolation",
            "process",
        )
        until(lambda: listens(self.port), 30, "the SuperLink")
        self.start("link-exec", "flower-superexec", "--insecure", "--runtime-api-address", f"127.0.0.1:{self.port}")
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.pids):
            self.stop(name)
        assert self._zygote.stdin is not None
        self._zygote.stdin.close()
        self._zygote.wait(timeout=10)
        assert self._zygote.stdout is not None
        self._zygote.stdout.close()

    def _answer(self) -> Any:
        assert self._zygote.stdout is not None
        return json.loads(self._zygote.stdout.readline())

    def start(self, name: str, *argv: object) -> int:
        """Start one of Flower's commands."""
        assert self._zygote.stdin is not None
        request = {"argv": [str(part) for part in argv], "log": str(self.place / f"{name}.log")}
        self._zygote.stdin.write(json.dumps(request) + "\n")
        self._zygote.stdin.flush()
        self.pids[name] = int(self._answer()["pid"])
        return self.pids[name]

    def stop(self, name: str, how: int = signal.SIGKILL) -> None:
        """Stop a process by its id."""
        pid = self.pids.pop(name)
        if alive(pid):
            os.kill(pid, how)
        until(lambda: not alive(pid), 10, f"the end of {name}")

    def node(self, worker: int, **config: object) -> None:
        """Start the SuperNode of a worker, with what runs its app."""
        port = free_port()
        given = " ".join(f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in config.items())
        self.start(
            f"node{worker}", "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{self.port}",
            "--host", "127.0.0.1", "--port", port, "--isolation", "process",
            "--node-config", f"partition-id={worker} {given}".strip(),
        )  # fmt: skip
        self.start(f"exec{worker}", "flower-superexec", "--insecure", "--runtime-api-address", f"127.0.0.1:{port}")

    def kill_node(self, worker: int) -> None:
        """Kill a worker's SuperNode and what runs its app, without a word."""
        self.stop(f"node{worker}")
        self.stop(f"exec{worker}")

    def log(self, name: str) -> str:
        path = self.place / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def run(self, app: Path, config: Mapping[str, object], name: str = "run") -> None:
        """Submit a run with Flower's own command, and return at once."""
        given = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        pid = self.start(name, "flwr", "run", str(app), "--run-config", given)
        until(lambda: not alive(pid), 30, "the submission")
        assert "Successfully started run" in self.log(name), self.log(name)

    def finished(self, out: Path, seconds: float) -> None:
        """Wait for a run's result."""
        end = time.monotonic() + seconds
        while not (out / "measure.json").exists():
            assert "ServerApp raised an exception" not in self.log("link-exec"), self.log("link-exec")[-3000:]
            assert time.monotonic() < end, f"no result within {seconds} s: {self.log('link-exec')[-3000:]}"
            time.sleep(0.05)


def write_app(place: Path, client: str, server: str, config: Mapping[str, object], more: Sequence[str] = ()) -> Path:
    """A Flower app of these two modules."""
    package = place / "measured"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "client_app.py").write_text(client)
    (package / "server_app.py").write_text(server)
    keys = "\n".join(f"{key} = {json.dumps(value)}" for key, value in config.items())
    (place / "pyproject.toml").write_text(
        f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "measured"
version = "1.0.0"
description = "An app of a test"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedgauge"

[tool.flwr.app.components]
serverapp = "measured.server_app:app"
clientapp = "measured.client_app:app"

[tool.flwr.app.config]
{keys}
"""
    )
    return place
