"""What is said where Flower, a fitting release of it, or a SuperLink is missing."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from integrations.flower.tests.fleet import free_port

import fedgauge_flower as flower
from fedgauge.base.errors import InputError, MachineError
from fedgauge_flower import requirement
from fedgauge_flower.new import write_project


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(requirement, "version", missing)
    with pytest.raises(InputError, match=r"run: pip install fedgauge-flower\.$"):
        flower.client_app  # noqa: B018


@pytest.mark.parametrize("found", ["1.30.0", "1.40.2", "2.0.0", "2.1.0"])
def test_a_release_that_does_not_fit_says_which_does(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(requirement, "version", lambda name: found)
    with pytest.raises(InputError, match=rf"Flower {found} is not supported: fedgauge needs flwr>=1\.41,<2"):
        requirement.check_flower()


@pytest.mark.parametrize("found", ["1.41.0", "1.42.0", "1.100.1"])
def test_releases_that_fit(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(requirement, "version", lambda name: found)
    requirement.check_flower()


def test_an_address_where_nothing_listens_is_one_sentence_within_seconds() -> None:
    address, began = f"127.0.0.1:{free_port()}", time.monotonic()
    with pytest.raises(MachineError, match=rf"^No SuperLink listens at {address} \(Connection refused\); start one"):
        requirement.check_address(address)
    assert time.monotonic() - began < 5
    with pytest.raises(InputError, match="must be host:port"):
        requirement.check_address("superlink")


def test_a_project_without_its_federation_says_so(tmp_path: Path) -> None:
    write_project(tmp_path / "mine")
    command = [sys.executable, "federation.py", "run"]

    def told() -> tuple[int, str]:
        done = subprocess.run(command, cwd=tmp_path / "mine", capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stderr

    assert told() == (1, "There is no federation yet; start it: python federation.py up.\n")
    home = tmp_path / "mine" / ".federation" / "home"
    home.mkdir(parents=True)
    (home / "config.toml").write_text(f'[superlink]\n[superlink.here]\naddress = "127.0.0.1:{free_port()}"\n')
    status, sentence = told()
    assert status == 1
    assert sentence.startswith("No SuperLink listens at 127.0.0.1:")
    assert sentence.count("\n") == 1
