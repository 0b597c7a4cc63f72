"""The project that 'fedgauge new flower' writes, on a SuperLink with TLS whose nodes need keys."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integrations.flower.tests.fleet import Fleet, Zygote, alive, until
from tests.cli.command import Capture, snapshot

from fedgauge import Experiment, execute, read_trace
from fedgauge.cli import main
from fedgauge_flower.new import write_project
from fedgauge_flower.shard import RUN_KEYS


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("template") / "mine"
    write_project(place)
    return place


@pytest.fixture(scope="module")
def federation(project: Path) -> Any:
    """The project's own script, which makes certificates and keys."""
    spec = importlib.util.spec_from_file_location("federation", project / "federation.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def fleet(
    zygote: Zygote, federation: Any, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Fleet, Path]]:
    place = tmp_path_factory.mktemp("secure")
    federation.make_certificates(place / "certificates")
    with Fleet(zygote, place, place / "certificates") as fleet:
        yield fleet, place


@pytest.fixture(scope="module")
def ran(fleet: tuple[Fleet, Path], federation: Any, project: Path) -> tuple[Fleet, Path]:
    """The federation after a first run; a test may be the only one of this file in its process."""
    there, place = fleet
    for worker in range(3):
        federation.make_node_key(place / "keys", f"node{worker}")
        told = there.flwr(f"register{worker}", "supernode", "register", place / "keys" / f"node{worker}.pub")
        assert "registered successfully" in told, told
        there.node(worker, key=place / "keys" / f"node{worker}")
    there.run(project, {"out": str(place / "run"), "rounds": 1})
    there.finished(place / "run", 120)
    return fleet


def test_it_runs_as_it_is_with_tls_and_keys(ran: tuple[Fleet, Path], project: Path) -> None:
    _, place = ran
    out = place / "run"
    config = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    asked = {key.replace("-", "_"): value for key, value in config.items() if key not in RUN_KEYS}
    here = execute(Experiment.of({**asked, "rounds": 1, "chunk": 1, "processes": 1}))
    assert read_trace(out).rounds == here.rounds
    assert np.array_equal(read_trace(out).model, here.model)
    assert oct((place / "certificates" / "server.key").stat().st_mode)[-3:] == "600"


def test_a_run_is_resumed_by_its_configuration(ran: tuple[Fleet, Path], project: Path) -> None:
    """Flower overrides only keys that the app's configuration has."""
    there, place = ran
    until(lambda: "fedgauge: finished at round 1" in there.log("link-exec"), 60, "the first run's end")
    before = snapshot(place / "run")
    there.run(project, {"out": str(place / "run"), "rounds": 1, "resume": True, "noise": True}, "resumed")
    until(lambda: there.log("link-exec").count("fedgauge: finished at round 1") == 2, 60, "the resumed run's end")
    assert snapshot(place / "run") == before


def _ended(pid: int) -> bool:
    return not alive(pid)


def test_strangers_are_turned_away(fleet: tuple[Fleet, Path], federation: Any) -> None:
    """Each ends by itself, its log says why, and the SuperLink never gives it a number."""
    there, place = fleet
    federation.make_node_key(place / "keys", "stranger")
    federation.make_certificates(place / "elsewhere")
    there.node(7, retries=3)
    there.node(8, retries=3, key=place / "keys" / "stranger")
    there.node(9, retries=3, key=place / "keys" / "stranger", authority=place / "elsewhere" / "ca.crt")
    for number, words in ((7, "must be registered"), (8, "Failed to activate"), (9, "CERTIFICATE_VERIFY_FAILED")):
        pid = there.pids[f"node{number}"]
        until(partial(_ended, pid), 30, f"the end of node {number}, which is turned away")
        log = there.log(f"node{number}")
        assert words in log, log
        assert "SuperNode ID" not in log
        del there.pids[f"node{number}"]
        there.stop(f"exec{number}")


def test_down_leaves_a_process_alone_that_has_got_the_id_since(federation: Any, tmp_path: Path) -> None:
    write_project(tmp_path / "mine")
    (tmp_path / "mine" / ".federation").mkdir()
    with subprocess.Popen(["sleep", "60"]) as ours, subprocess.Popen(["sleep", "60"]) as another:
        try:
            kept = {
                "superlink": {"pid": ours.pid, "began": federation._began(ours.pid)},
                "node0": {"pid": another.pid, "began": federation._began(os.getppid())},
                "node1": {"pid": 2**22, "began": federation._began(os.getpid())},  # no process has so large an id
            }
            (tmp_path / "mine" / ".federation" / "pids.json").write_text(json.dumps(kept))
            command = [sys.executable, "federation.py", "down"]
            done = subprocess.run(command, cwd=tmp_path / "mine", capture_output=True, text=True, check=True)
            assert ours.wait(timeout=5) == -signal.SIGTERM
            assert another.poll() is None
        finally:
            ours.kill()
            another.kill()
    assert done.stdout.splitlines() == [
        f"Not running any more: node1 ({2**22})",
        f"Not running any more: node0 ({another.pid})",
        f"Stopped: superlink ({ours.pid})",
    ]
    assert not (tmp_path / "mine" / ".federation" / "pids.json").exists()


def test_the_last_run_is_the_one_that_is_resumed(
    federation: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(federation, "HERE", tmp_path)
    with pytest.raises(SystemExit, match=r"There is no run in .* to resume"):
        federation.choose_out(("--run-config", "resume=true"))
    for name in ("2026-01-01-000000", "2026-01-02-000000", "2026-01-03-000000"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    for name in ("2026-01-01-000000", "2026-01-02-000000"):  # the third was never begun
        (tmp_path / "runs" / name / "settings.json").touch()
    last = tmp_path / "runs" / "2026-01-02-000000"
    assert federation.choose_out(("--run-config", "resume=true")) == last
    assert federation.choose_out(("--run-config", "gamma=0.1 resume=true rounds=3")) == last
    for arguments in ((), ("--run-config", "resume=false"), ("--run-config", 'resume=true out="/mine"')):
        assert not federation.choose_out(arguments).exists()


def test_nothing_is_overwritten(project: Path, tmp_path: Path, capsys: Capture) -> None:
    before = snapshot(project)
    assert main(["new", "flower", str(project)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert snapshot(project) == before
    (tmp_path / "file").write_text("mine")
    assert main(["new", "flower", str(tmp_path / "file")]) == 2
    assert "is a file" in capsys.readouterr().err


def test_it_says_what_it_wrote(tmp_path: Path, capsys: Capture) -> None:
    assert main(["new", "flower", str(tmp_path / "one"), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["files"]
    assert set(written) == {
        str(path.relative_to(tmp_path / "one")) for path in (tmp_path / "one").rglob("*") if path.is_file()
    }
    for name in written:
        if name.endswith(".py"):
            compile((tmp_path / "one" / name).read_text(), name, "exec")
    assert main(["new", "flower", str(tmp_path / "two")]) == 0
    assert "federation.py up" in capsys.readouterr().out
