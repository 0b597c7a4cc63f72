"""BatchNorm by each of its choices: compared with plain loops over the module itself."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedgauge import (
    Compute,
    GaugeOptions,
    Keep,
    SupervisedFederation,
    diloco,
    fedadam,
    fedavg,
    federate,
    gauge,
    measure,
    scaffold,
    simulate,
)
from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.modes import AVERAGED, LOCAL
from fedgauge.federation.participation import Participation
from fedgauge.measurement.session import MeasureOptions
from fedgauge.simulation.options import Recording, StopAt
from fedgauge.simulation.runs.checkpoints import read_model
from fedgauge_flower.shard import Shard

pytestmark = pytest.mark.usefixtures("one_thread")

GAMMA, BATCH, STEPS = 0.1, 6, 4
HERE = Compute(processes=1)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=0.3)
    )


def shards(*sizes: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(size, 5, generator=generator) + worker, torch.randint(3, (size,), generator=generator))
        for worker, size in enumerate(sizes)
    ]


def federation(how: str, *sizes: int, **options: Any) -> SupervisedFederation:
    torch.manual_seed(0)
    module = network().double()
    data = [(x.double(), y) for x, y in shards(*(sizes or (20, 30, 25)))]
    return federate(module, functional.cross_entropy, data, batch_size=BATCH, batch_norm=how, **options)  # type: ignore[arg-type]


def by_hand(of: SupervisedFederation, rounds: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """FedAvg as common tools have it: every worker trains the whole module, and whole state_dicts are averaged."""
    module = copy.deepcopy(of.module)
    streams, workers = Streams(seed, Purpose.NOISE), np.arange(of.num_workers)
    for round in range(rounds):
        ended = []
        draws = of.draws(streams, round, workers, np.zeros_like(workers), STEPS)
        for worker in workers:
            own = copy.deepcopy(module).train()
            optimiser = torch.optim.SGD(own.parameters(), lr=GAMMA)
            for draw in draws:
                optimiser.zero_grad()
                functional.cross_entropy(own(of.inputs[draw[worker]]), of.targets[draw[worker]]).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            ended.append(own.state_dict())
        mean = {name: torch.stack([each[name].double() for each in ended]).mean(dim=0) for name in ended[0]}
        module.load_state_dict(mean)
    return module.state_dict()


def test_averaged_statistics_are_what_averaging_whole_state_dicts_gives() -> None:
    of = federation("averaged")
    assert of.remarks == (AVERAGED,)
    assert of.dim == of.num_trained + 2 * (4 + 3)
    trace = simulate(of, fedavg(GAMMA), local_steps=STEPS, rounds=5, compute=HERE)
    expected = by_hand(of, 5)
    for name, found in of.unflatten(torch.from_numpy(trace.model)).items():
        # float64, and the same operations in another order
        torch.testing.assert_close(found, expected[name], rtol=1e-10, atol=1e-12)
    assert all(record.L_h_ratio is None for record in trace.rounds)
    # The module itself was never touched.
    fresh = network()
    assert all(torch.equal(of.module.get_buffer(name), fresh.get_buffer(name).double()) for name in of.statistics)


def test_the_loss_is_that_of_the_module_in_eval_mode_with_the_averaged_statistics() -> None:
    of = federation("averaged", l2=0.3)
    trace = simulate(of, fedavg(GAMMA), local_steps=STEPS, rounds=3, compute=HERE)
    module = copy.deepcopy(of.module).eval()
    parts = of.unflatten(torch.from_numpy(trace.model))
    module.load_state_dict({**module.state_dict(), **parts})
    x = [functional.cross_entropy(module(each), labels) for each, labels in map(of.shard, range(3))]
    penalty = 0.15 * sum(float(parameter.detach().square().sum()) for parameter in module.parameters())
    assert trace.losses[-1] == pytest.approx(float(torch.stack(x).mean().detach()) + penalty, rel=1e-12)
    gradient = of.gradients(torch.from_numpy(trace.model)[None], np.array([1]))[0]
    assert not gradient[of.num_trained :].any()
    assert gradient[: of.num_trained].any()


ALGORITHMS = {
    "fedavg, eta": fedavg(GAMMA, 0.5),
    "fedadam": fedadam(GAMMA, 0.03),
    "diloco": diloco(0.01),
    "scaffold": scaffold(GAMMA),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_statistics_are_averaged_whatever_the_algorithm_does_with_changes(name: str) -> None:
    # No local step changes the statistics here but the mean of mini-batches, which all have the same samples.
    x = torch.randn(1, 5, dtype=torch.float64).repeat(8, 1) + torch.linspace(0, 1, 8, dtype=torch.float64)[:, None]
    pairs = [(x, torch.arange(8) % 3)] * 4
    module = nn.Sequential(nn.BatchNorm1d(5, momentum=1.0, affine=False), nn.Linear(5, 3)).double()
    of = federate(module, functional.cross_entropy, pairs, batch_size=500, batch_norm="averaged")
    whom = Participation("without-replacement", 2)
    trace = simulate(of, ALGORITHMS[name], local_steps=1, rounds=1, participation=whom, compute=HERE)
    mean = of.unflatten(torch.from_numpy(trace.model))["0.running_mean"]
    # 500 draws of 8 numbers with a deviation of 1/3: the mean is within 0.1 of theirs, and far from 0 or half of it
    torch.testing.assert_close(mean, x.mean(dim=0), rtol=0, atol=0.1)


@pytest.mark.parametrize("how", ["local", "averaged"])
def test_runs_have_the_same_bits_in_two_processes_and_after_resuming(how: str, tmp_path: Path) -> None:
    of = federation(how)
    wanted: dict[str, Any] = {"local_steps": STEPS, "rounds": 4}
    first = simulate(of, fedavg(GAMMA), **wanted, compute=HERE)
    assert simulate(of, fedavg(GAMMA), **wanted, compute=Compute(processes=2)) == first
    place = tmp_path / "run"
    simulate(of, fedavg(GAMMA), **wanted, compute=HERE, keep=Keep(place), stop=StopAt(round=2))
    again = simulate(of, fedavg(GAMMA), **wanted, compute=HERE, keep=Keep(place, resume=True))
    np.testing.assert_array_equal(again.model, first.model)
    np.testing.assert_array_equal(read_model(place / "state_dict.safetensors", of).numpy(), first.model)


def test_local_statistics_are_those_of_the_batch_everywhere() -> None:
    of = federation("local")
    assert of.remarks == (LOCAL,)
    assert of.statistics == ()
    module = copy.deepcopy(of.module).train()
    x, y = of.shard(1)
    loss = functional.cross_entropy(module(x), y)
    slopes = torch.autograd.grad(loss, list(module.parameters()))
    losses, gradients = of.evaluate(of.start(0)[None], np.array([1]))
    assert float(losses) == pytest.approx(float(loss.detach()), rel=1e-12)
    torch.testing.assert_close(gradients[0], torch.cat([slope.reshape(-1) for slope in slopes]), rtol=1e-10, atol=1e-12)
    simulate(of, fedavg(GAMMA), local_steps=2, rounds=2, compute=HERE)
    for name, buffer in network().named_buffers():
        assert torch.equal(of.module.get_buffer(name).double(), buffer.double()), name


def test_measuring_keeps_the_statistics_of_the_model() -> None:
    of = federation("averaged")
    options = MeasureOptions(("divergence", "curvature", "noise", "trajectory"), rounds=2, seeds=1)
    with pytest.raises(InputError, match="it has to be given"):
        measure(of, fedavg(GAMMA), local_steps=2, options=options)
    trace = simulate(of, fedavg(GAMMA), local_steps=STEPS, rounds=3, compute=HERE)
    model = torch.from_numpy(trace.model)
    found = measure(of, fedavg(GAMMA), local_steps=2, model=model, options=options, compute=HERE)
    module = copy.deepcopy(of.module)
    module.load_state_dict({**module.state_dict(), **of.unflatten(model)})
    data = [of.shard(worker) for worker in range(3)]
    frozen = federate(module, functional.cross_entropy, data, batch_size=BATCH)
    expected = measure(frozen, fedavg(GAMMA), local_steps=2, model=frozen.start(0), options=options, compute=HERE)
    for name, estimate in expected.constants.items():
        assert found.constants[name].value == estimate.value, name
    assert found.settings["federation"] == of.digest


def test_the_gauge_works_with_averaged_statistics() -> None:
    found = gauge(federation("averaged"), fedavg(GAMMA), options=GaugeOptions(steps=60, local_steps=(4,)), compute=HERE)
    assert found.efficiency[-1].local_steps == 4


def test_records_from_a_sample_use_the_statistics_too() -> None:
    of = federation("averaged")
    trace = simulate(of, fedavg(GAMMA), local_steps=2, rounds=2, compute=HERE, record=Recording(sample=8))
    assert trace.rounds[-1].sample is not None


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: federation("average"), "did you mean averaged"),
        (
            lambda: federate(nn.Linear(5, 3), functional.cross_entropy, shards(9), batch_norm="local"),
            "the model has none",
        ),
        (
            lambda: federate(
                nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3, momentum=None)),
                functional.cross_entropy,
                shards(9),
                batch_norm="averaged",
            ),
            "momentum=None",
        ),
        (
            lambda: simulate(federation("local", 20, 1), fedavg(0.1), local_steps=1, rounds=1, compute=HERE),
            "a batch of one sample",
        ),
        (lambda: Shard(network, functional.cross_entropy, *shards(9)[0], batch_norm="averaged"), "Flower"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(make: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()


def test_a_worker_with_one_example_trains_with_averaged_statistics() -> None:
    # Its mini-batches, drawn with replacement, hold that example several times, so that their variance is 0.
    of = federation("averaged", 20, 1)
    assert simulate(of, fedavg(GAMMA), local_steps=2, rounds=2, compute=HERE).status == "finished"
