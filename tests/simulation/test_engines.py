from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.algorithms.own import STEPS, replaced
from tests.federation.networks import chained, convolutional, data, federation
from tests.grouped import grouped
from tests.strategies import PARAMETERS
from torch.nn.functional import cross_entropy

from fedgauge import MeasureOptions, fedavg, measure, random_quadratics, with_optimiser
from fedgauge.algorithms import ALGORITHMS, make_algorithm
from fedgauge.base.errors import InputError, MachineError
from fedgauge.federation.participation import Participation
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.measurement.divergence import divergence
from fedgauge.measurement.local_steps import LocalSteps
from fedgauge.measurement.passes import Meter
from fedgauge.simulation.engines import local
from fedgauge.simulation.engines.local import Inline, Processes
from fedgauge.simulation.loop import simulate
from fedgauge.simulation.options import Compute
from fedgauge.simulation.workers import LANES, Remembering, Work, lanes
from fedgauge.values import Trace

pytestmark = pytest.mark.usefixtures("one_thread")
FEDAVG = make_algorithm("fedavg", gamma=0.1)


def run(of: SupervisedFederation, name: str = "fedavg", **how: Any) -> Trace:
    return simulate(
        of, make_algorithm(name, **PARAMETERS[name]), **grouped(**{"local_steps": 3, "rounds": 3, "chunk": 2, **how})
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_gives_the_same_bits_in_two_processes_and_close_to_them_in_other_chunks(name: str) -> None:
    of = federation(workers=5)
    one = run(of, name, processes=1)
    assert one.status == "finished"
    assert run(of, name, processes=2) == one
    other = run(of, name, processes=1, chunk=5)
    np.testing.assert_allclose(other.model, one.model, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(other.losses, one.losses, rtol=1e-5)


@pytest.mark.parametrize("path", ["dense", "plain", "convolutional", "normalised"])
def test_the_bits_are_the_same_for_any_number_of_processes(path: str) -> None:
    if path == "convolutional":
        of = federation(chained(), shape=(2, 4, 4), workers=20, path=path)
    elif path == "normalised":
        of = federation(convolutional(), shape=(2, 4, 4), workers=20)
    else:
        of = federation(path=path, workers=20)
    how: dict[str, Any] = {"participation": Participation("with-replacement", 11), "chunk": 1}
    one = run(of, processes=1, **how)
    for processes in (2, 3):
        assert run(of, processes=processes, **how) == one


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 100])
def test_lanes_hold_every_participant_once_in_whole_chunks(chunk: int) -> None:
    cohort = Participation("with-replacement", 50).cohort(30, 0, 0)
    memory = {"c": torch.arange(30.0).unsqueeze(1)}
    dealt = Remembering(lanes(cohort, chunk), memory)
    assert len(dealt) == min(LANES, -(-50 // chunk))
    found: dict[int, list[int]] = {}
    for index, lane in enumerate(dealt):
        assert lane.memory["c"].squeeze(1).tolist() == lane.cohort.workers.tolist()
        for number, part in enumerate(lane.chunks(chunk)):
            assert part.memory["c"].squeeze(1).tolist() == part.cohort.workers.tolist()
            found[index + number * LANES] = part.cohort.workers.tolist()
    whole = [part.workers.tolist() for part in cohort.chunks(chunk)]
    assert [found[index] for index in range(len(whole))] == whole


def test_chunks_are_chosen_for_the_model_and_not_for_the_machine() -> None:
    small, images = federation(), federation(convolutional(), shape=(2, 4, 4))
    assert small.chunk(10) == 5, "two processes can share"
    assert small.chunk(1000) == 32
    assert small.chunk(1) == 1
    assert images.chunk(10) == 1


# -- processes ----------------------------------------------------------------------------------------------------


def _work(**how: Any) -> Work:
    return Work(federation(**how), FEDAVG, 3, 0, 2)


def _phase(work: Work) -> tuple[Any, ...]:
    model = work.federation.start(0)
    return lanes(Participation().cohort(5, 0, 0), work.chunk), 0, model, {}, False


class Echo(Work):
    def echo(self, lane: Any, *arguments: Any) -> Any:
        return lane, arguments


@pytest.mark.parametrize("room", [2**14, 2**26])
def test_messages_arrive_whole_whether_they_fit_the_shared_memory_or_not(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_SHARED", room)
    lanes = [
        {
            "long": torch.arange(3000.0) + lane,
            "wide": torch.arange(4000.0, dtype=torch.float64).view(2, 2000).t() * lane,
            "short": torch.tensor([lane]),
            "none": torch.empty(0, 2000),
            "half": torch.ones(5000, dtype=torch.bfloat16) * lane,
            "bits": torch.arange(9000) % 2 == 0,
            "text": "of a lane",
        }
        for lane in range(3)
    ]
    with Processes(Echo(federation(), FEDAVG, 3, 0, 2), 2, method="fork") as engine:
        first = engine.map(Echo.echo, lanes, torch.ones(2000))
        # What arrived is not overwritten by what arrives after it.
        engine.map(Echo.echo, lanes[::-1], torch.zeros(2000))
        for (found, (one,)), lane in zip(first, lanes, strict=True):
            assert torch.equal(one, torch.ones(2000))
            assert found.keys() == lane.keys()
            for name, value in lane.items():
                assert torch.equal(found[name], value) if isinstance(value, torch.Tensor) else found[name] == value
                assert getattr(found[name], "dtype", None) == getattr(value, "dtype", None)


def test_spawned_processes_do_the_same() -> None:
    work = _work()
    dealt, *arguments = _phase(work)
    expected = Inline(work).map(Work.local_phase, dealt, *arguments)
    with Processes(work, 1, method="spawn") as engine:
        found = engine.map(Work.local_phase, dealt, *arguments)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.message["change"], other.message["change"])


def test_spawned_processes_have_the_same_number_type_by_default() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        x, y = data(20, 6)
        shards = [range(first, first + 4) for first in range(0, 20, 4)]
        of = SupervisedFederation(lambda: torch.nn.Linear(6, 3), cross_entropy, x.double(), y, shards)
        work = Work(of, FEDAVG, 3, 0, 2)
        dealt, *arguments = _phase(work)
        expected = Inline(work).map(Work.local_phase, dealt, *arguments)
        with Processes(work, 1, method="spawn") as engine:
            found = engine.map(Work.local_phase, dealt, *arguments)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found[0].message["change"], expected[0].message["change"])


class Several(Work):
    """The work of several algorithms, so that a process, which takes seconds to import torch, is started once."""

    def __init__(self, *of: Work) -> None:
        super().__init__(of[0].federation, FEDAVG, 3, 0, 2)
        self.of = of

    def __reduce__(self) -> tuple[Any, ...]:
        return Several, self.of

    def each(self, lane: Any, *arguments: Any) -> list[Any]:
        return [one.local_phase(lane, *arguments) for one in self.of]


def test_spawned_processes_take_ones_own_steps() -> None:
    works = [Work(federation(), replaced(step), 3, 0, 2) for step in STEPS.values()]
    dealt, *arguments = _phase(works[0])
    plain = Inline(_work()).map(Work.local_phase, dealt, *arguments)
    with Processes(Several(*works), 2, method="spawn") as engine:
        found = engine.map(Several.each, dealt, *arguments)
    for place, step in enumerate(STEPS):
        expected = Inline(works[place]).map(Work.local_phase, dealt, *arguments)
        for lane, other, third in zip(found, expected, plain, strict=True):
            one = lane[place]
            assert torch.equal(one.message["change"], other.message["change"]), step
            assert not torch.equal(one.message["change"], third.message["change"]), step


def test_local_models_of_ones_own_steps_are_looked_at_in_other_processes() -> None:
    of, steps = federation(), LocalSteps(replaced(STEPS["closure"]), 4)
    found = []
    for processes in (1, 2):
        with Meter(of, compute=Compute(processes=processes)) as meter:
            found.append(divergence(meter, of.start(0), iterates=steps).constants["zeta_local"].value)
    with Meter(of, compute=Compute(processes=1)) as meter:
        plain = divergence(meter, of.start(0), iterates=LocalSteps(FEDAVG, 4)).constants["zeta_local"].value
    assert found[0] == found[1] != plain


def test_what_cannot_be_sent_to_a_spawned_process_is_refused_before_it_starts() -> None:
    lock = threading.Lock()

    def step(local: Any, gradient: torch.Tensor) -> Any:
        with lock:
            return {"x": local["x"] - 0.1 * gradient}

    work = Work(federation(), replaced(step), 3, 0, 2)
    with pytest.raises(InputError, match="cannot be sent to other processes"):
        Processes(work, 2, method="spawn")
    # What is forked is not sent.
    dealt, *arguments = _phase(work)
    with Processes(work, 2, method="fork") as engine:
        assert len(engine.map(Work.local_phase, dealt, *arguments)) == 3


def test_a_mistake_in_a_process_is_raised_here_and_the_process_goes_on() -> None:
    work = _work()
    dealt, round, model, server, watch = _phase(work)
    with Processes(work, 2) as engine, pytest.raises(RuntimeError):
        engine.map(Work.local_phase, dealt, round, model[:-1], server, watch)
    with Processes(work, 2) as engine:
        assert len(engine.map(Work.local_phase, dealt, round, model, server, watch)) == 3


class Slow(Work):
    def local_phase(self, lane: Any, *arguments: Any) -> Any:
        time.sleep(60)


def test_a_killed_process_is_reported_at_once_while_the_others_compute() -> None:
    work = Slow(federation(), FEDAVG, 3, 0, 2)
    began = time.perf_counter()
    engine = Processes(work, 2)
    threading.Timer(0.3, os.kill, (engine.pids[1], signal.SIGKILL)).start()
    with pytest.raises(MachineError, match=r"died \(signal 9\); resume the run"), engine:
        engine.map(Slow.local_phase, *_phase(work))
    assert time.perf_counter() - began < 10
    assert all(not Path(f"/proc/{pid}").exists() for pid in engine.pids)


def test_a_run_whose_process_was_killed_is_resumed_to_the_same_bits(tmp_path: Path, monkeypatch: Any) -> None:
    of = federation(workers=5)
    how: dict[str, Any] = {"rounds": 8, "processes": 2}
    whole = run(of, **how)
    made: list[Processes] = []

    def make(work: Work, number: int, method: str | None) -> Processes:
        made.append(Processes(work, number, method))
        return made[-1]

    monkeypatch.setattr(local, "Processes", make)

    def kill(done: int, _: object) -> None:
        if done == 5:
            os.kill(made[-1].pids[0], signal.SIGKILL)

    with pytest.raises(MachineError, match="signal 9"):
        run(of, **how, run=tmp_path / "run", checkpoint_every=2, observer=kill)
    assert run(of, **how, run=tmp_path / "run", checkpoint_every=2, resume=True) == whole


def test_processes_end_when_their_parent_is_killed() -> None:
    code = (
        "import time, sys; sys.path.insert(0, '.');"
        "from tests.simulation.test_engines import _work; from fedgauge.simulation.engines.local import Processes;"
        "engine = Processes(_work(), 2); print(*engine.pids, flush=True); time.sleep(60)"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.kill()
    for _ in range(100):
        if not any(_alive(pid) for pid in pids):
            return
        time.sleep(0.1)
    pytest.fail("processes outlive their parent")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("how", [{"processes": 0}, {"chunk": 0}])
def test_engines_refuse_numbers_that_are_none(how: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must be a whole number of at least 1"):
        run(federation(), **how)


@pytest.mark.parametrize("processes", [1, 2])
def test_results_of_lanes_that_are_added_up_as_they_come_have_the_same_bits(
    processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = random_quadratics(20, 3, hessian_spread=0.5, sigma2=0.1)
    how: dict[str, Any] = {"compute": Compute(processes=processes, chunk=1)}

    def results() -> tuple[Any, ...]:
        trace = simulate(of, fedavg(0.1), local_steps=3, rounds=3, **how)
        found = measure(
            of, fedavg(0.1), local_steps=3, model=of.start(0), options=MeasureOptions(("divergence",)), **how
        )
        return trace, [reading.to_json() for reading in found.readings]

    together = results()
    monkeypatch.setattr("fedgauge.simulation.workers._TOGETHER_BYTES", 0)
    assert results() == together


def test_what_workers_remember_is_let_go_of_as_it_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """With large states of local optimisers, those of one lane at a time are held beside the states of all workers."""
    monkeypatch.setattr("fedgauge.simulation.workers._TOGETHER_BYTES", 0)
    algorithm, alive = with_optimiser(fedavg(0.01), "adamw", optimiser_state="kept"), list[int]()
    sent: list[weakref.ref[torch.Tensor]] = []

    def finish(*arguments: Any) -> Any:
        alive.append(sum(each() is not None for each in sent))
        message, remembered = algorithm.finish(*arguments)
        sent.extend(weakref.ref(rows) for rows in remembered.values())
        return message, remembered

    watched = replace(algorithm, finish=finish)
    of = federation(workers=20)
    here = Compute(processes=1, chunk=1)
    trace = simulate(of, watched, local_steps=1, rounds=2, compute=here)
    assert len(alive) == 40
    # Each lane has two or three workers here, one after the other, with three vectors each.
    assert max(alive) <= 2 * 3
    usual = simulate(of, algorithm, local_steps=1, rounds=2, compute=here)
    assert np.array_equal(trace.model, usual.model)
