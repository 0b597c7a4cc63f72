"""The project that 'fedgauge new flower' writes, on a SuperLink with TLS whose nodes need keys."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.command import Capture, snapshot
from tests.flower.fleet import Fleet, Zygote, alive, until

from fedgauge import Experiment, execute, read_trace
from fedgauge.cli import main
from fedgauge.flower.new import write_project


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


def test_it_runs_as_it_is_with_tls_and_keys(fleet: tuple[Fleet, Path], federation: Any, project: Path) -> None:
    there, place = fleet
    for worker in range(3):
        federation.make_node_key(place / "keys", f"node{worker}")
        told = there.flwr(f"register{worker}", "supernode", "register", place / "keys" / f"node{worker}.pub")
        assert "registered successfully" in told, told
        there.node(worker, key=place / "keys" / f"node{worker}")
    out = place / "run"
    there.run(project, {"out": str(out), "rounds": 1})
    there.finished(out, 120)
    config = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    asked = {key.replace("-", "_"): value for key, value in config.items() if key not in ("out", "wait", "timeout")}
    here = execute(Experiment.of({**asked, "rounds": 1, "chunk": 1, "processes": 1}))
    assert read_trace(out).rounds == here.rounds
    assert np.array_equal(read_trace(out).model, here.model)
    assert oct((place / "certificates" / "server.key").stat().st_mode)[-3:] == "600"


@pytest.mark.parametrize(
    ("stranger", "words"),
    [(False, "must be registered"), (True, "Failed to activate")],
    ids=["no key", "a key that nobody registered"],
)
def test_a_node_without_a_key_is_turned_away(
    fleet: tuple[Fleet, Path], federation: Any, stranger: bool, words: str
) -> None:
    there, place = fleet
    key = place / "keys" / "stranger" if stranger else None
    if stranger:
        federation.make_node_key(place / "keys", "stranger")
    number = 8 + stranger
    there.node(number, key=key)
    pid = there.pids[f"node{number}"]
    until(lambda: not alive(pid), 20, "the end of a node that is turned away")
    assert "SuperNode ID" not in there.log(f"node{number}")
    assert words in there.log(f"node{number}")
    del there.pids[f"node{number}"]
    there.stop(f"exec{number}")


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
