"""A cluster of several nodes on this machine gives the local engine's bits, also while nodes are killed.

Everything that needs the cluster is one test, as starting one takes longer than all that is tried on it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.algorithms.own import STEPS, replaced
from tests.cli.command import run as command
from tests.cli.command import start
from tests.federation.networks import federation
from tests.grouped import grouped

from fedgauge import Cost, Experiment, fedavg, prepare, random_quadratics, scaffold, simulate
from fedgauge.base.errors import InputError, MachineError
from fedgauge.cli import main
from fedgauge.federation.participation import Participation
from fedgauge.federation.protocols import Federation
from fedgauge.measurement.passes import Meter
from fedgauge.simulation.options import Compute
from fedgauge_planning import Goal
from fedgauge_planning.candidates import Candidate, Trial
from fedgauge_planning.forecast import Scale
from fedgauge_planning.jobs import make_pool
from fedgauge_planning.pilots import Pilots
from fedgauge_planning.sweep import Sweep, run_sweep
from fedgauge_ray import cluster as ray_cluster

QUADRATIC = random_quadratics(20, 6, sigma2=0.1, seed=3)
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
# A node that is gone is noticed in seconds, not in half a minute.
NOTICE = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}
OF_THE_MOMENT = ("timing.jsonl", "environment.json", "manifest.json")  # the last one holds digests of the others


@contextmanager
def nodes() -> Iterator[Any]:
    """A cluster of one node, which more can be added to and taken from."""
    from ray.cluster_utils import Cluster

    head = {**NODE, "include_dashboard": False, "_system_config": NOTICE}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield cluster
    finally:
        cluster.shutdown()


def kept(directory: Path) -> dict[str, bytes]:
    """What runs leave behind, but for times, the machine's own words, and states (keys in no order)."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
        and not path.name.startswith(".")
        and path.name not in OF_THE_MOMENT
        and path.parent.name != "checkpoints"
    }


def same_rounds(address: str, of: Federation, observer: Callable[[int, Any], None] | None = None) -> None:
    """A run on the cluster has the local one's trace; of an algorithm whose workers remember."""
    how: dict[str, Any] = {"local_steps": 3, "rounds": 5, "chunk": 2, "seed": 1}
    how["participation"] = Participation("without-replacement", 15)
    found = simulate(of, scaffold(0.05), **grouped(observer=observer, engine="ray", address=address, **how))
    assert found == simulate(of, scaffold(0.05), **grouped(processes=1, **how))
    assert found.status == "finished"


def _place(_: int) -> tuple[int, str]:
    import ray

    time.sleep(0.1)
    return torch.get_num_threads(), ray.get_runtime_context().get_node_id()


def _end(directory: str) -> None:
    os._exit(1)


def _refuse(_: int) -> None:
    raise InputError("one is too many; take none.")


@pytest.mark.long
def test_a_cluster_gives_the_local_engines_bits_while_nodes_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    network = federation(workers=20, samples=200)
    with nodes() as cluster, ExitStack() as stack:
        address: str = cluster.address
        same_rounds(address, network)
        # The rest shares the processes that the first to join the cluster starts.
        stack.enter_context(ray_cluster.join(address))
        same_rounds(address, QUADRATIC)
        second = cluster.add_node(**NODE)
        same_rounds(address, network)
        with make_pool(Compute(engine="ray", address=address)) as pool:
            seen: set[str] = set()
            # The first node takes all until the second has started its process.
            for _, (threads, node) in pool.map(_place, {number: (number,) for number in range(200)}):
                assert threads == 1
                if len(seen := seen | {node}) == 2:
                    break
            assert len(seen) == 2, "both nodes take part"
            with pytest.raises(InputError, match="one is too many; take none"):
                list(pool.map(_refuse, {1: (1,)}))
        _same_passes(address, network)
        _same_pilots(address, tmp_path)

        def kill(done: int, _: Any) -> None:
            if done == 3:
                cluster.remove_node(second, allow_graceful=False)

        same_rounds(address, network, observer=kill)
        _same_sweep(cluster, tmp_path)
        _bad_input(address, monkeypatch, tmp_path, stack)
    # What the local engine forks after all this works as before.
    how: dict[str, Any] = {"local_steps": 2, "rounds": 2, "chunk": 2}
    two, one = (simulate(network, fedavg(0.1), **grouped(processes=number, **how)) for number in (2, 1))
    assert two == one


@pytest.mark.long
def test_an_algorithm_of_ones_own_runs_on_a_cluster_as_it_is(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    import ray

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    network = federation(workers=6, samples=60)
    how: dict[str, Any] = {"local_steps": 3, "rounds": 3, "chunk": 2}
    lock = threading.Lock()

    def locked(local: Any, gradient: torch.Tensor) -> Any:
        with lock:
            return {"x": local["x"] - 0.1 * gradient}

    with pytest.raises(InputError, match="cannot be sent to other processes"):
        simulate(network, replaced(locked), **grouped(engine="ray", processes=1, **how))
    assert not ray.is_initialized(), "the cluster that was started is stopped"
    with ray_cluster.join(None, 2):
        for name, step in STEPS.items():
            found = simulate(network, replaced(step), **grouped(engine="ray", processes=2, **how))
            assert found == simulate(network, replaced(step), **grouped(processes=1, **how)), name
            assert found != simulate(network, fedavg(0.1), **grouped(processes=1, **how)), name


def _same_passes(address: str, of: Federation) -> None:
    model = of.start(0)
    vector = torch.linspace(-1, 1, len(model))
    with (
        Meter(of, compute=Compute(chunk=3, processes=1)) as here,
        Meter(of, compute=Compute(chunk=3, engine="ray", address=address)) as there,
    ):
        assert torch.equal(there.evaluate(model)[1], here.evaluate(model)[1])
        assert torch.equal(there.hessian(model, vector), here.hessian(model, vector))


def _same_pilots(address: str, place: Path) -> None:
    QUADRATIC.write(place / "fed.json")
    experiment = Experiment.of({"source": str(place / "fed.json"), "gamma": 0.1})
    trials = [Trial(Candidate(steps, 0.1, 1.0, 20), seed) for steps in (1, 4) for seed in (0, 1)]
    curves, places = [], [place / "here", place / "there"]
    for changes, out in (({}, places[0]), ({"engine": "ray", "address": address}, places[1])):
        scale, cost = Scale(Goal("grad2", 1e-9)), Cost("given", fixed=1.0, step=0.5)
        with Pilots(prepare(experiment.changed(changes)), scale, cost, out, jobs=1 if not changes else None) as at:
            curves.append([at.run(trials, [seconds] * 4) for seconds in (10.0, 40.0)])
    assert curves[0] == curves[1]
    assert kept(places[0]) == kept(places[1])


def _same_sweep(cluster: Any, place: Path) -> None:
    third = cluster.add_node(**NODE)
    base = Experiment.of({"source": str(place / "fed.json"), "gamma": 0.05, "rounds": 15})
    over = {"local_steps": [1, 2, 4, 8]}
    here, there = place / "sweep-here", place / "sweep-there"
    killed: list[int] = []

    def kill(done: int, total: int, ended: int) -> None:
        if ended >= 15 and not killed:
            killed.append(ended)
            cluster.remove_node(third, allow_graceful=False)

    on_ray = base.changed({"engine": "ray", "address": cluster.address})
    found = run_sweep(Sweep(on_ray, over, seeds=10), there, report=kill)
    assert killed
    expected = run_sweep(Sweep(base, over, seeds=10), here, jobs=1)
    assert found is not None
    assert expected is not None
    assert len(list(there.iterdir())) == 40
    assert kept(there) == kept(here)
    assert [each.loss for each in found.combinations] == [each.loss for each in expected.combinations]
    # Once more: all of it is there and stays as it is.
    before = {path: path.read_bytes() for path in there.rglob("*") if path.is_file()}
    run_sweep(Sweep(on_ray, over, seeds=10), there)
    assert {path: path.read_bytes() for path in there.rglob("*") if path.is_file()} == before


def _bad_input(address: str, monkeypatch: pytest.MonkeyPatch, place: Path, joined: ExitStack) -> None:
    import ray

    with monkeypatch.context() as patch:
        patch.setattr(ray_cluster, "_TRIES", 0)
        with make_pool(Compute(1, "ray", address)) as pool:
            with pytest.raises(MachineError, match="could not run a task"):
                list(pool.map(_end, {0: ()}, {0: place / "dead"}))
            with pytest.raises(InputError, match=f"joined the cluster at {address} already"):
                make_pool(Compute(1, "ray", "127.0.0.1:1")).__enter__()
    with monkeypatch.context() as patch:
        patch.setattr(ray_cluster, "version", lambda name: "0.0")
        with (
            make_pool(Compute(1, "ray", address)) as pool,
            pytest.raises(InputError, match="install the same version on both"),
        ):
            list(pool.map(_place, {0: (0,)}))
    joined.close()
    with monkeypatch.context() as patch:
        patch.setattr(ray, "__version__", "2.59.0")
        words = (
            r"runs Ray \S+ on Python \S+, which does not work with Ray 2.59.0 .*; install the same release: pip install"
            " 'ray=="
        )
        with pytest.raises(InputError, match=words):
            make_pool(Compute(1, "ray", address)).__enter__()


def test_without_an_address_a_cluster_is_started_and_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    QUADRATIC.write(tmp_path / "fed.json")
    line = ["simulate", "fed.json", "--gamma", "0.1", "--rounds", "3", "--processes", "1", "--json"]
    done = command(*line, "--engine", "ray", "--out", "far", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert _working_in(tmp_path) == [str(os.getpid())]
    assert main([*line, "--out", "near"]) == 0
    found, expected = (json.loads(text) for text in (done.stdout, capsys.readouterr().out))
    assert {**found, "seconds": 0} == {**expected, "seconds": 0}
    here = {name: content for name, content in kept(tmp_path / "near").items() if name != "experiment.toml"}
    assert {name: content for name, content in kept(tmp_path / "far").items() if name != "experiment.toml"} == here
    # Where it ran is not what it is: the other engine goes on with it.
    assert main([*line, "--resume", "--out", "far"]) == 0
    assert json.loads(capsys.readouterr().out) == found


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_cluster_ends_with_the_command_that_started_it(number: int, tmp_path: Path) -> None:
    QUADRATIC.write(tmp_path / "fed.json")
    line = ("simulate", "fed.json", "--gamma", "0.01", "--rounds", "1000000", "--processes", "1", "--engine", "ray")
    with start(*line, "--out", "run", cwd=tmp_path) as process:
        records = tmp_path / "run" / "rounds.jsonl"
        while process.poll() is None and not (records.exists() and records.stat().st_size > 500):
            time.sleep(0.2)
        assert len(_working_in(tmp_path)) > 5, "the command, the cluster's processes and what ends them"
        process.send_signal(number)
        process.communicate(timeout=60)
    # Ray's own agents would live on for a minute.
    end = time.monotonic() + 10
    while _working_in(tmp_path) and time.monotonic() < end:
        time.sleep(0.2)
    assert _working_in(tmp_path) == []
    assert process.returncode == (-9 if number == signal.SIGKILL else 143)
    assert bool(list((tmp_path / "run" / "checkpoints").glob("*.safetensors"))) == (number == signal.SIGTERM)


def _working_in(place: Path) -> list[str]:
    return [path.name for path in Path("/proc").glob("[0-9]*") if _works_in(path, place)]


def _works_in(process: Path, place: Path) -> bool:
    """Whether a process works in a directory, as the cluster's do in the one of whoever started it."""
    try:
        return (process / "cwd").resolve() == place
    except OSError:
        return False


# -- what needs no cluster -----------------------------------------------------------------------------------------


@contextmanager
def listening(answer: bytes) -> Iterator[str]:
    """Something that listens, and is no cluster."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            line, _ = server.accept()
            with line:
                line.recv(100)
                line.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_an_address_where_no_cluster_answers_is_refused_in_seconds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = f"127.0.0.1:{server.getsockname()[1]}"
    QUADRATIC.write(tmp_path / "fed.json")
    began = time.perf_counter()
    line = ["simulate", str(tmp_path / "fed.json"), "--gamma", "0.1", "--engine", "ray", "--address", free]
    assert main(line) == 2
    assert time.perf_counter() - began < 10
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"Nothing listens at --address {free} (Connection refused); name the address" in err
    with (
        listening(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        pytest.raises(InputError, match="not a Ray cluster"),
    ):
        ray_cluster.check_address(address)


@pytest.mark.parametrize("address", ["ray://head:10001", "head", "head:x", "http://head:1", "head:99999"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match=r"address must be HOST:PORT|Nothing listens"):
        ray_cluster.check_address(address)


def test_a_release_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    old = types.ModuleType("ray")
    old.__version__ = "2.9.3"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", old)
    with pytest.raises(InputError, match=r"Ray 2\.9\.3 is too old; run: pip install 'ray>=2\.55'\."):
        simulate(QUADRATIC, fedavg(0.1), local_steps=1, rounds=1, compute=Compute(engine="ray"))


def test_ray_itself_is_imported_when_a_cluster_is_joined() -> None:
    code = (
        "import sys, fedgauge as fg;"
        "fg.simulate(fg.random_quadratics(3, 2), fg.fedavg(0.1), local_steps=2, rounds=2);"
        "import fedgauge_planning.sweep, fedgauge_ray.cluster;"
        "sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
