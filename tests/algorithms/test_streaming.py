"""DiLoCo in fragments agrees with a naive loop, with torchft on the same batches, and with DiLoCo in one piece."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.algorithms.fragments import GAMMA, SEED, STEPS, WORKERS, fragmented, gradients
from torch import nn

import fedgauge as fg
from fedgauge.algorithms.streaming import _on_wire
from fedgauge.base.errors import InputError
from fedgauge.measurement.gauge.runner import Runner
from fedgauge.simulation.setup import Setup

ROUNDS = 7


def naive(fragments: int, delay: int, mix: float, wire: str, etas: list[float]) -> torch.Tensor:
    """The global model, from torch's AdamW for each worker and its SGD with Nesterov's momentum for each fragment."""
    federation = fragmented()
    start = federation.start(SEED)
    pieces = [slice(k * len(start) // fragments, (k + 1) * len(start) // fragments) for k in range(fragments)]
    models = [nn.Parameter(start.clone()) for _ in range(WORKERS)]
    inner = [torch.optim.AdamW([each], GAMMA, weight_decay=0.1) for each in models]
    outer = [nn.Parameter(start[piece].clone()) for piece in pieces]
    rule = [torch.optim.SGD([each], lr=eta, momentum=0.9, nesterov=True)
            for each, eta in zip(outer, etas, strict=True)]  # fmt: skip
    coming: int | None = None

    def apply(worker: int) -> None:
        if coming is not None:
            with torch.no_grad():
                own = models[worker][pieces[coming]]
                models[worker][pieces[coming]] = outer[coming] + mix * (own - outer[coming])

    for round in range(ROUNDS):
        for worker in range(WORKERS):
            for k, gradient in enumerate(gradients(federation, worker, round, STEPS)):
                if k == delay:
                    apply(worker)
                models[worker].grad = gradient(models[worker])
                inner[worker].step()
        coming = round % fragments
        piece = pieces[coming]
        sent = [_on_wire((outer[coming] - each[piece]).detach().unsqueeze(0), wire)[0] for each in models]
        outer[coming].grad = torch.stack(sent).mean(dim=0)
        rule[coming].step()
    return torch.cat([each.detach() for each in outer])


@pytest.mark.parametrize(
    ("fragments", "delay", "mix", "wire", "etas"),
    [
        (2, 0, 0.0, "float32", [0.7, 0.7]),
        (2, 2, 0.0, "float32", [0.7, 0.7]),
        (3, 1, 0.5, "float32", [0.7, 0.3, 1.0]),
        (1, 3, 0.25, "float32", [0.7]),
        (2, 1, 0.0, "bfloat16", [0.7, 0.7]),
        (5, 0, 0.0, "int8", [0.7] * 5),
    ],
)
def test_it_is_what_a_naive_loop_does(fragments: int, delay: int, mix: float, wire: str, etas: list[float]) -> None:
    federation = fragmented()
    eta: Any = etas if len(set(etas)) > 1 else etas[0]
    algorithm = fg.diloco(GAMMA, eta=eta, fragments=fragments, delay=delay, mix=mix, wire=wire)
    trace = fg.simulate(federation, algorithm, local_steps=STEPS, rounds=ROUNDS, seed=SEED)
    np.testing.assert_allclose(trace.model, naive(fragments, delay, mix, wire, etas).numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(("delay", "mix"), [pytest.param(0, 0.0, marks=pytest.mark.long), (2, 0.25)])
def test_it_is_that_of_torchft(delay: int, mix: float, tmp_path: Path) -> None:
    """There a fragment is sent ``delay`` steps before the end of a chunk: the first round is so much shorter."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.algorithms.torchft_fragments", str(tmp_path / "model.npy"), str(delay)]
    surroundings = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
    subprocess.run([*command, str(mix), str(ROUNDS)], cwd=root, env=surroundings, check=True, timeout=120)
    setup = Setup(fragmented(), fg.diloco(GAMMA, fragments=2, delay=delay, mix=mix), seed=SEED)
    with Runner(setup) as runner:
        state = runner.advance(runner.first_state(), STEPS - delay, 1) if delay else runner.first_state()
        state = runner.advance(state, STEPS, ROUNDS - bool(delay))
    np.testing.assert_allclose(state.model.numpy(), np.load(tmp_path / "model.npy"), rtol=1e-9, atol=1e-11)


def test_in_one_piece_it_is_diloco_and_keeps_its_bits() -> None:
    federation = fragmented()
    whole = fg.simulate(federation, fg.diloco(GAMMA), local_steps=STEPS, rounds=4, seed=SEED)
    same = fg.simulate(federation, fg.diloco(GAMMA, fragments=1), local_steps=STEPS, rounds=4, seed=SEED)
    assert np.array_equal(whole.model, same.model)
    listed = fg.simulate(federation, fg.diloco(GAMMA, eta=[0.7]), local_steps=STEPS, rounds=4, seed=SEED)
    np.testing.assert_allclose(whole.model, listed.model, rtol=1e-12)


@pytest.mark.parametrize("how", [{"processes": 2}, {"processes": 1, "chunk": 3}])
def test_it_is_the_same_in_any_number_of_processes_and_chunks(how: dict[str, Any]) -> None:
    algorithm = fg.diloco(GAMMA, fragments=3, delay=2, mix=0.5)
    one = fg.simulate(fragmented(), algorithm, local_steps=4, rounds=4, compute=fg.Compute(processes=1, chunk=1))
    other = fg.simulate(fragmented(), algorithm, local_steps=4, rounds=4, compute=fg.Compute(**how))
    np.testing.assert_allclose(one.model, other.model, rtol=1e-12)


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    algorithm = fg.diloco(GAMMA, fragments=3, delay=1)
    whole = fg.simulate(fragmented(), algorithm, local_steps=4, rounds=6)
    fg.simulate(fragmented(), algorithm, local_steps=4, rounds=6, keep=tmp_path / "run", stop=fg.StopAt(round=2))
    resumed = fg.simulate(fragmented(), algorithm, local_steps=4, rounds=6, keep=fg.Keep(tmp_path / "run", resume=True))
    assert np.array_equal(whole.model, resumed.model)


def test_eight_bits_are_the_nearest_of_a_grid() -> None:
    change = torch.randn(3, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sent = _on_wire(change, "int8")
    grid = change.abs().amax(dim=1, keepdim=True) / 127
    assert ((sent - change).abs() <= grid / 2 * (1 + 1e-12)).all()
    assert torch.equal((sent / grid).round(), (change / grid).round())
    assert torch.equal(_on_wire(torch.zeros(1, 4), "int8"), torch.zeros(1, 4))


def test_mistakes_get_a_sentence() -> None:
    with pytest.raises(InputError, match="rounds of more than that many"):
        fg.simulate(fragmented(), fg.diloco(GAMMA, fragments=2, delay=4), local_steps=4, rounds=2)
    of_two = fg.Participation("without-replacement", 2)
    with pytest.raises(InputError, match="needs every worker in every round"):
        fg.simulate(fragmented(), fg.diloco(GAMMA, fragments=2), local_steps=4, rounds=2, participation=of_two)
    with pytest.raises(InputError, match="did you mean float32"):
        fg.diloco(GAMMA, wire="float8")
    with pytest.raises(InputError, match="2 fragments and 3 values of eta"):
        fg.diloco(GAMMA, eta=[0.7, 0.7, 0.7], fragments=2)
