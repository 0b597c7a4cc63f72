"""A run is resumed with the federation that it began with, in any process, and with no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.federation import kept
from torch.nn import functional

from fedgauge import Compute, Keep, SupervisedFederation, Trace, fedavg, simulate
from fedgauge.base.errors import InputError
from fedgauge.simulation.options import StopAt
from fedgauge.simulation.runs.manifest import digest

ROOT = Path(__file__).parents[2]
AGAIN = """
import sys
from pathlib import Path
from tests.federation import kept
from tests.federation.test_identity import resumed
for name, federation in kept.each():
    assert resumed(federation, Path(sys.argv[1]) / name).status == "finished", name
"""


def resumed(federation: SupervisedFederation, place: Path, stop: int | None = None) -> Trace:
    return simulate(
        federation,
        fedavg(gamma=0.1),
        local_steps=2,
        rounds=4,
        stop=StopAt(round=stop),
        compute=Compute(processes=1),
        keep=Keep(place, resume=True),
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that stopped half-way, one for each case."""
    place = tmp_path_factory.mktemp("kept")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, federation in kept.each():
            assert resumed(federation, place / name, stop=2).status == "stopped"
    return place


@pytest.mark.parametrize("name", kept.CASES)
def test_a_run_is_not_resumed_with_something_else(name: str, runs: Path) -> None:
    what, _, change = kept.CASES[name]
    with pytest.raises(InputError, match=f"was made with another {what}; resume it with what it was made with") as said:
        resumed(change(), runs / name)
    assert len(str(said.value).split(". ")) == 1


@pytest.mark.slow
def test_every_run_is_resumed_by_another_process(runs: Path) -> None:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", AGAIN, str(runs)], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def _locking() -> Any:
    lock = threading.Lock()

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with lock:
            return functional.cross_entropy(outputs, targets)

    return loss


def test_what_has_no_fingerprint_is_refused_when_a_run_is_kept(tmp_path: Path) -> None:
    federation = kept.of(_locking())
    with pytest.raises(InputError, match=r"^The loss holds a lock, which cannot be compared .* or run without keep"):
        simulate(federation, fedavg(0.1), local_steps=1, rounds=1, keep=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert simulate(federation, fedavg(0.1), local_steps=1, rounds=1).status == "finished"


def _times(factor: float) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        data["values"]["gradient"] = [factor * value for value in data["values"]["gradient"]]

    return change


def _nan(data: dict[str, Any]) -> None:
    data["values"]["loss"][0] = None


@pytest.mark.parametrize(
    ("change", "allowed"),
    [(_times(1 + 1e-4), True), (_times(1.05), False), (_nan, False)],
    ids=["little", "much", "nan"],
)
def test_values_may_differ_by_what_another_machine_rounds(
    change: Callable[[dict[str, Any]], None], allowed: bool, tmp_path: Path
) -> None:
    resumed(kept.of(), tmp_path / "run", stop=2)
    path = tmp_path / "run" / "federation.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data, indent=2) + "\n")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    manifest["sha256"]["federation.json"] = digest(path.read_bytes())
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest))
    if allowed:
        assert resumed(kept.of(), tmp_path / "run").status == "finished"
        return
    with pytest.raises(InputError, match="other losses or gradients, although its code and data look the same"):
        resumed(kept.of(), tmp_path / "run")


def test_a_digest_does_not_depend_on_the_process_that_asks_nor_on_the_path() -> None:
    one, other = kept.of(functional.cross_entropy), kept.of(functional.cross_entropy, path="plain")
    assert one.digest == other.digest
