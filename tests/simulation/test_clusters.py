"""A cluster is a distribution of its own: with an entry point it computes rounds and jobs, and without it is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.grouped import grouped

from fedgauge import Experiment, fedavg, random_quadratics, simulate
from fedgauge.base import user_code
from fedgauge.base.errors import InputError
from fedgauge.cli import main
from fedgauge.simulation.engines.cluster import Cluster
from fedgauge.simulation.options import Compute
from fedgauge_planning.jobs import make_pool

QUADRATIC = random_quadratics(20, 6, sigma2=0.1, seed=3)
joined: list[tuple[str | None, int | None]] = []


class Desk:
    """The smallest cluster: its only machine is this process, which runs a task when it is submitted."""

    cpus = 2

    def place(self, value: Any) -> Any:
        return value

    def submit(self, function: Callable[..., Any], *arguments: Any, placed: Any = None, shared: Any = None) -> Any:
        return function(*(each for each in (placed, shared) if each is not None), *arguments)

    def first(self, pending: Sequence[Any]) -> Any:
        return pending[-1]

    def result(self, task: Any) -> Any:
        return task


@contextmanager
def join(address: str | None, cpus: int | None) -> Iterator[Cluster]:
    joined.append((address, cpus))
    yield Desk()


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What pip writes where a distribution with the engine ``desk`` is installed."""
    facts = tmp_path / "installed" / "fedgauge_desk-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: fedgauge-desk\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[{user_code.ENGINES}]\ndesk = {__name__}:join\n")
    monkeypatch.syspath_prepend(facts.parent)
    user_code.plugins.cache_clear()
    joined.clear()
    yield
    user_code.plugins.cache_clear()


def test_a_cluster_that_is_installed_computes_rounds_and_jobs(desk: None, tmp_path: Path) -> None:
    how: dict[str, Any] = {"local_steps": 3, "rounds": 5, "chunk": 2}
    there = simulate(QUADRATIC, fedavg(0.05), **grouped(engine="desk", address="here", processes=3, **how))
    assert there == simulate(QUADRATIC, fedavg(0.05), **grouped(processes=1, **how))
    with make_pool(Compute(engine="desk")) as pool:
        assert dict(pool.map(pow, {"a": (2, 3), "b": (3, 2), "c": (5, 2)})) == {"a": 8, "b": 9, "c": 25}
    QUADRATIC.write(tmp_path / "fed.json")
    line = ["simulate", str(tmp_path / "fed.json"), "--gamma", "0.1", "--rounds", "3", "--out", str(tmp_path / "run")]
    assert main([*line, "--engine", "desk"]) == 0
    assert Experiment.read(tmp_path / "run" / "experiment.toml").run.engine == "desk"
    assert joined == [("here", 3), (None, None), (None, None)]


def test_a_cluster_that_is_not_installed_is_named_when_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fedgauge.simulation.engines.cluster.plugins", lambda group: {})
    words = r"^engine = ray needs fedgauge-ray, which is not installed; run: pip install fedgauge-ray\.$"
    with pytest.raises(InputError, match=words):
        simulate(QUADRATIC, fedavg(0.1), local_steps=1, rounds=1, compute=Compute(engine="ray"))
    with pytest.raises(InputError, match=words), make_pool(Compute(engine="ray")):
        pass
    QUADRATIC.write(tmp_path / "fed.json")
    assert main(["simulate", str(tmp_path / "fed.json"), "--gamma", "0.1", "--engine", "ray"]) == 2
    said = "fedgauge: --engine ray needs fedgauge-ray, which is not installed; run: pip install fedgauge-ray.\n"
    assert capsys.readouterr() == ("", said)
    # An experiment that ran there can be read here.
    assert Experiment.of({"source": "digits", "gamma": 0.1, "engine": "ray"}).run.engine == "ray"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"engine": "rey"}, "no engine 'rey'; did you mean ray"),
        ({"address": "head:1"}, "needs engine = ray; set the engine too"),
    ],
)
def test_engines_that_there_are_not(how: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        simulate(QUADRATIC, fedavg(0.1), local_steps=1, rounds=1, **grouped(**how))
    with pytest.raises(InputError, match=words):
        Experiment.of({"source": "digits", "gamma": 0.1, **how})
