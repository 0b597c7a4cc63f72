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
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    # Every question takes milliseconds of a core to answer, whether there is something to do or not.
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
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
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


class Zygote:
    """The process that forks Flower's; see zygote.py."""

    def __init__(self) -> None:
        script = str(Path(__file__).with_name("zygote.py"))
        self._process = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def start(self, argv: Sequence[object], log: Path, home: Path) -> int:
        """Start one of Flower's commands."""
        assert self._process.stdin is not None
        request = {"argv": [str(part) for part in argv], "log": str(log), "home": str(home)}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._answer()["pid"])

    def close(self) -> None:
        """End it; it has no children of its own to wait for."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()


class Commands:
    """Flower's commands as they are released: each starts anew, and each message starts a process that imports all."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, argv: Sequence[object], log: Path, home: Path) -> int:
        """Start one of Flower's commands."""
        with log.open("ab") as file:
            command = [str(Path(sys.executable).parent / str(argv[0])), *map(str, argv[1:])]
            environment = {**ENVIRONMENT, "FLWR_HOME": str(home)}
            process = subprocess.Popen(
                command, env=environment, cwd=home, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        self._processes.append(process)
        return process.pid

    def close(self) -> None:
        """Wait for what was stopped."""
        for process in self._processes:
            process.wait(timeout=10)


class Fleet:
    """A SuperLink and SuperNodes, with the app of a test.

    Args:
        zygote: what starts them.
        place: for logs, and what Flower keeps.
        certificates: directory of ca.crt, server.crt and server.key, for TLS and nodes that need keys.
        database: whether a SuperLink that is started again knows its nodes and what was sent to them; each request
            then takes three times as long.
    """

    def __init__(
        self, zygote: Zygote | Commands, place: Path, certificates: Path | None = None, *, database: bool = False
    ) -> None:
        self.place, self.port, self._zygote = place, free_port(), zygote
        self.address = f"127.0.0.1:{self.port}"
        self.pids: dict[str, int] = {}
        self._secure: tuple[object, ...] = ("--insecure",)
        link: tuple[object, ...] = ("--insecure",)
        trust = "insecure = true"
        if certificates is not None:
            self._secure = ("--root-certificates", certificates / "ca.crt")
            names = ("--ssl-ca-certfile", "ca.crt"), ("--ssl-certfile", "server.crt"), ("--ssl-keyfile", "server.key")
            link = ("--enable-supernode-auth", *(part for key, name in names for part in (key, certificates / name)))
            trust = f'root-certificates = "{certificates / "ca.crt"}"'
        self._link = link
        self._database = ("--database", place / "link.db") if database else ()
        self.home = place / "home"
        self.home.mkdir()
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{self.address}"\n{trust}\n'
        )

    def __enter__(self) -> Self:
        self.start_link()
        return self

    def start_link(self) -> None:
        """Start the SuperLink, with what runs its apps."""
        place = ("--host", "127.0.0.1", "--port", self.port, "--isolation", "process")
        self.start("link", "flower-superlink", *self._link, *self._database, *place)
        until(lambda: listens(self.port), 60, "the SuperLink")
        self.start("link-exec", "flower-superexec", *self._secure, "--runtime-api-address", self.address)

    def kill_link(self) -> None:
        """Kill the SuperLink, what runs its apps and the app that runs, without a word."""
        self.stop("link")
        self.stop("link-exec")  # its apps die with it
        # The threads of a process that was killed end one by one, and the last of them closes its sockets.
        until(lambda: not listens(self.port), 10, "the end of the SuperLink's threads")

    def __exit__(self, *_: object) -> None:
        for name in list(self.pids):
            self.stop(name)

    def start(self, name: str, *argv: object) -> int:
        """Start one of Flower's commands."""
        self.pids[name] = self._zygote.start(argv, self.place / f"{name}.log", self.home)
        return self.pids[name]

    def stop(self, name: str, how: int = signal.SIGKILL) -> None:
        """Stop a process by its id."""
        pid = self.pids.pop(name)
        with suppress(ProcessLookupError):
            os.kill(pid, how)
        until(lambda: not alive(pid), 10, f"the end of {name}")

    def node(
        self, worker: int, key: Path | None = None, authority: Path | None = None, retries: int = 20, **config: object
    ) -> None:
        """Start the SuperNode of a worker, with what runs its app; ``authority`` is one that is not the SuperLink's."""
        port = free_port()
        trust = self._secure if authority is None else ("--root-certificates", authority)
        given = " ".join(f"{name.replace('_', '-')}={json.dumps(value)}" for name, value in config.items())
        self.start(
            f"node{worker}", "flower-supernode", *trust, "--superlink", self.address, "--max-retries", retries,
            *(("--auth-supernode-private-key", key) if key else ()),
            "--host", "127.0.0.1", "--port", port, "--isolation", "process",
            "--node-config", f"partition-id={worker} {given}".strip(),
        )  # fmt: skip
        self.start(f"exec{worker}", "flower-superexec", "--insecure", "--runtime-api-address", f"127.0.0.1:{port}")

    def flwr(self, name: str, *arguments: object) -> str:
        """Run Flower's own command to its end, and return what it printed."""
        before = len(self.log(name))
        pid = self.start(name, "flwr", *arguments)
        until(lambda: not alive(pid), 60, f"the end of flwr {arguments[0]}")
        del self.pids[name]
        return self.log(name)[before:]

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
        told = self.flwr(name, "run", app, "--run-config", given)
        assert "Successfully started run" in told, told

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
