"""Devices other than the CPU: nothing is left behind on the CPU, and results are those of the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedgauge import InputError, SupervisedFederation, federate
from fedgauge.base.devices import choose_device
from fedgauge.base.threads import separate_generator

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_everything_runs_on_another_device_as_on_the_cpu() -> None:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.federation.distant_runs"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("device", ["cuda", "gpu"])
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    x, y = torch.ones(4, 3), torch.arange(4) % 2
    says = f"^device '{device}' cannot be used: .*; give auto"
    with pytest.raises(InputError, match=says):
        federate(lambda: nn.Linear(3, 2), functional.cross_entropy, [(x, y)], device=device)
    with pytest.raises(InputError, match=says):
        SupervisedFederation(lambda: nn.Linear(3, 2), functional.cross_entropy, x, y, [range(4)], device=device)


def test_auto_is_the_cpu_where_there_is_nothing_else() -> None:
    if torch.accelerator.is_available():
        pytest.skip("there is an accelerator")
    assert choose_device("auto") == torch.device("cpu")


def test_generators_are_restored() -> None:
    state = torch.get_rng_state()
    with separate_generator():
        torch.rand(3)
    assert torch.equal(torch.get_rng_state(), state)
