"""Run the steps of Containerfile in an empty Debian, where there is no container engine.

Usage: python try_container.py DIRECTORY, as root, with debootstrap. The root is made in DIRECTORY; it gets this
machine's own way to the network (name servers, certificates, settings of pip). At the end, the entry point runs the
demo.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/etc/pip.conf", str(Path.home() / ".config/pip"))
LEFT_OUT = {
    ".git",
    ".venv",
    ".peers",
    "build",
    "dist",
    "demo",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
}
"""What .containerignore leaves out, and caches: at the top of the clone alone, as packages may have such names too."""


def left_out(directory: str, names: list[str]) -> set[str]:
    """Which of the names in a directory are not copied."""
    return {"__pycache__"} | (LEFT_OUT if Path(directory) == ROOT else set())


def instructions(path: Path) -> list[tuple[str, str]]:
    """The instructions of a file and what follows them."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def main() -> None:
    """Follow every instruction; stop at the first that fails."""
    place = Path(sys.argv[1]).resolve()
    steps = instructions(ROOT / "Containerfile")
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    # pip's own settings are part of the way to the network; directories of this machine are not.
    reach = {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_")) and "FIND" not in name
    }
    entry: list[str] = []
    directory = "/"
    with ExitStack() as stack:

        def inside(*command: str) -> None:
            line = ["chroot", str(place), "/usr/bin/env", "-i", f"--chdir={directory}"]
            line += [f"{name}={value}" for name, value in {**environment, **reach}.items()]
            subprocess.run([*line, *command], check=True)

        for name, value in steps:
            print(f"{name} {value}", flush=True)
            if name == "FROM":
                (suite,) = re.findall(r"^debian:(\w+)-slim$", value)
                subprocess.run(["debootstrap", "--variant=minbase", suite, str(place)], check=True)
                for each in map(Path, NETWORK):
                    if each.is_dir():
                        shutil.copytree(each, place / each.relative_to("/"), dirs_exist_ok=True)
                    elif each.exists():
                        shutil.copy(each, place / each.relative_to("/"))
                for kernel in ("proc", "dev"):
                    subprocess.run(["mount", "--bind", f"/{kernel}", str(place / kernel)], check=True)
                    stack.callback(subprocess.run, ["umount", str(place / kernel)], check=True)
            elif name == "RUN":
                inside("/bin/sh", "-c", value)
            elif name == "COPY":
                source, target = value.split()
                shutil.copytree((ROOT / source).resolve(), place / target.lstrip("/"), ignore=left_out)
            elif name == "ENV":
                environment.update([value.split("=", 1)])  # type: ignore[list-item]
            elif name == "WORKDIR":
                directory = value
                (place / value.lstrip("/")).mkdir(parents=True, exist_ok=True)
            elif name == "ENTRYPOINT":
                entry = json.loads(value)
            elif name == "CMD":
                inside(*entry, *json.loads(value))
            else:
                sys.exit(f"Containerfile has {name}, which is not known here.")
        inside(*entry, "demo", "--out", "demo")
    print(f"Every step of Containerfile ran in {place}.")


if __name__ == "__main__":
    main()
