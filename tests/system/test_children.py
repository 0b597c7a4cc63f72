"""Processes of a user's script: it needs no guard, is not run again, and leaves none of them behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedgauge.base.errors import MachineError
from fedgauge_planning.jobs import ProcessPool

# A script as a beginner writes it: no guard, and everything of its own is defined in it.
SCRIPT = """
import json
from pathlib import Path
import torch
from torch import nn
import fedgauge as fg
import fedgauge_planning as fp

print("the script runs")
RATE = 0.1

def squashed(x):
    return torch.tanh(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(squashed(x))

draw = torch.Generator().manual_seed(0)
inputs = [torch.randn(30, 4, generator=draw) + worker / 5 for worker in range(4)]
shards = [(x, (x[:, 0] > x[:, 1]).long()) for x in inputs]
federation = fg.federate(Net, lambda out, y: nn.functional.cross_entropy(out, y), shards)
algorithm = fg.fedavg(gamma=RATE)

found = []
for number in (1, 2):
    trace = fg.simulate(federation, algorithm, local_steps=4, rounds=3, compute=fg.Compute(processes=number))
    plan = fp.plan(
        federation, algorithm, goal=fp.Goal("loss", 0.6), cost=fg.Cost("given", fixed=1.0, step=0.1),
        over={"local_steps": [2, 4], "gamma": [0.3, 0.9]}, options=fp.PlanOptions(jobs=number),
    )
    fg.random_quadratics(4, 3, sigma2=0.1, seed=1).write("fed.json")
    base = fg.Experiment.of({"source": "fed.json", "gamma": 0.1, "rounds": 5})
    sweep = fp.run_sweep(fp.Sweep(base, {"local_steps": [1, 2]}), Path(f"sweep-{number}"), jobs=number)
    losses = [each["loss"] for each in sweep.to_json()["combinations"]]
    found.append([trace.losses.tolist(), plan.to_json()["race"]["entries"], losses])
Path("found.json").write_text(json.dumps(found))
"""


def test_a_script_without_a_guard_runs_once_with_the_same_bits(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("the script runs\n", "", 0)
    one, two = json.loads((tmp_path / "found.json").read_text())
    assert one == two


POOL = """
import os, time
from pathlib import Path
from fedgauge_planning.jobs import ProcessPool

def job(number):
    Path(f"pid-{number}").write_text(str(os.getpid()))
    Path(f"pid-{number}").rename(f"began-{number}")
    while True:
        sum(range(10**5))

with ProcessPool(2) as pool:
    list(pool.map(job, {number: (number,) for number in range(2)}))
"""
ENGINE = """
import os
from pathlib import Path
import fedgauge as fg
from fedgauge.simulation.engines.local import Processes
from fedgauge.simulation.workers import Work

class Endless(Work):
    def busy(self, lane):
        Path(f"pid-{lane}").write_text(str(os.getpid()))
        Path(f"pid-{lane}").rename(f"began-{lane}")
        while True:
            sum(range(10**5))

with Processes(Endless(fg.random_quadratics(4, 3, seed=1), fg.fedavg(gamma=0.1), 1, 0, 2), 2) as engine:
    engine.map(Endless.busy, [0, 1])
"""


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("script", [POOL, ENGINE], ids=["pool", "engine"])
def test_children_end_with_their_parent(script: str, number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(script)
    with subprocess.Popen([sys.executable, "script.py"], cwd=tmp_path, stderr=subprocess.PIPE) as process:
        began = [tmp_path / f"began-{child}" for child in range(2)]
        while not all(path.exists() for path in began):
            assert process.poll() is None
            time.sleep(0.02)
        pids = [int(path.read_text()) for path in began]
        assert all(map(_lives, pids))
        process.send_signal(number)
        process.wait(10)
        limit = time.monotonic() + 5
        while any(map(_lives, pids)) and time.monotonic() < limit:
            time.sleep(0.05)
        left = [pid for pid in pids if _lives(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left
        assert process.stderr is not None
        assert process.stderr.read() == b""


class UnsendableError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} {two}")


def _fail(how: str) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "odd":
        raise UnsendableError(1, 2)
    raise ZeroDivisionError("of a job")


def test_an_error_of_a_job_is_raised_here_with_its_trace() -> None:
    with ProcessPool(2) as pool:
        with pytest.raises(ZeroDivisionError, match="of a job") as raised:
            list(pool.map(_fail, {0: ("plain",)}))
        assert "in _fail" in raised.value.__notes__[0]
        with pytest.raises(RuntimeError, match="UnsendableError: 1 2"):
            list(pool.map(_fail, {0: ("odd",)}))
        assert dict(pool.map(pow, {"a": (2, 3), "b": (3, 2)})) == {"a": 8, "b": 9}  # the pool goes on
        with pytest.raises(MachineError, match=r"ended by signal 9, as when memory runs out; .* jobs=1"):
            list(pool.map(_fail, {0: ("killed",)}))


def test_what_a_consumer_does_not_want_is_ended_and_the_pool_goes_on() -> None:
    began = time.monotonic()
    with ProcessPool(2, patience=0.5) as pool:
        for key, _ in pool.map(time.sleep, {"short": (0,), "long": (60,)}):
            assert key == "short"
            break
        assert dict(pool.map(pow, {"a": (2, 3)})) == {"a": 8}
    assert time.monotonic() - began < 30
