"""Modules that draw at random or keep statistics: what happens in local steps, and what is measured."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.federation.networks import data, federation, ragged
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from fedgauge import Compute, Keep, SupervisedFederation, fedavg, federate, measure, scaffold, simulate
from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.modes import AUGMENTED, RANDOM, UNEVEN
from fedgauge.measurement.session import MeasureOptions
from fedgauge.simulation.options import StopAt
from fedgauge_verification import certify

pytestmark = pytest.mark.usefixtures("one_thread")


class Own(nn.Module):
    """A layer whose outputs go through a function of one's own, which is given the layer itself."""

    def __init__(self, after: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer, self.after = nn.Linear(6, 3), after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self, self.layer(x))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(2, 4, num_layers=2, dropout=0.5, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.lstm(x.view(-1, 3, 2))[0][:, -1])
        return outputs


class Attentive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(2, 1, dropout=0.5, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.view(-1, 3, 2)
        outputs: torch.Tensor = self.head(self.attention(x, x, x)[0].flatten(1))
        return outputs


RANDOM_MODULES: dict[str, Callable[[], nn.Module]] = {
    "a layer": lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 3)),
    "rare": lambda: nn.Sequential(nn.Linear(6, 5), nn.Dropout(1e-9), nn.Linear(5, 3)),
    "a function": lambda: Own(lambda self, x: functional.dropout(x, 0.5, self.training)),
    "LSTM": Recurrent,
    "attention": Attentive,
    "noise": lambda: Own(lambda self, x: x + torch.randn_like(x) if self.training else x),
}


@pytest.mark.parametrize("name", RANDOM_MODULES)
@pytest.mark.parametrize("algorithm", [fedavg(0.2), scaffold(0.2)], ids=["fedavg", "scaffold"])
def test_a_run_has_the_same_bits_whatever_was_drawn_before_and_in_any_number_of_processes(
    name: str, algorithm: Any
) -> None:
    torch.manual_seed(5)
    of = federation(RANDOM_MODULES[name]())
    assert of.remarks == (RANDOM,)
    assert of.path == "plain"
    how: dict[str, Any] = {"local_steps": 3, "rounds": 3}
    first = simulate(of, algorithm, **how, compute=Compute(processes=1))
    torch.rand(7)
    state = torch.get_rng_state()
    assert simulate(of, algorithm, **how, compute=Compute(processes=1)) == first
    assert torch.equal(torch.get_rng_state(), state)
    assert simulate(of, algorithm, **how, compute=Compute(processes=2)) == first
    other = simulate(of, algorithm, **how, seed=1, compute=Compute(processes=1))
    assert not np.array_equal(other.model, first.model)


def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    of = federation(RANDOM_MODULES["a layer"]())
    how: dict[str, Any] = {"local_steps": 3, "rounds": 6}
    whole = simulate(of, fedavg(0.2), **how)
    simulate(of, fedavg(0.2), **how, stop=StopAt(round=3), keep=tmp_path / "run")
    assert simulate(of, fedavg(0.2), **how, keep=Keep(tmp_path / "run", resume=True)) == whole


def test_what_is_measured_is_the_module_in_eval_mode() -> None:
    module = RANDOM_MODULES["a layer"]()
    of = federation(module)
    x, y = data(60, 6)
    module.eval()
    with torch.no_grad():
        expected = [float(functional.cross_entropy(module(x[part]), y[part])) for part in map(list, ragged(60, 5))]
    found = of.losses(of.start(0).expand(5, -1), np.arange(5))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_local_steps_are_those_of_a_plain_loop_with_the_same_seeds() -> None:
    module = RANDOM_MODULES["a layer"]()
    of = federation(module, l2=0.1)
    one = np.array([2])
    draws = of.draws(Streams(0, Purpose.NOISE), 4, one, np.array([0]), 6)
    found = of.local_sgd(of.start(0)[None], one, draws, 0.3)[0]
    module.train()
    optimiser = torch.optim.SGD(module.parameters(), lr=0.3, weight_decay=0.1)
    for draw in draws:
        torch.manual_seed(int(draw[0, -1]))
        optimiser.zero_grad()
        numbers = draw[0, :-1]
        functional.cross_entropy(module(of.inputs[numbers]), of.targets[numbers]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    torch.testing.assert_close(found, of.flatten(module), rtol=1e-5, atol=1e-7)


def test_the_draws_of_a_step_do_not_depend_on_the_number_of_steps_or_on_other_workers() -> None:
    of = federation(RANDOM_MODULES["a layer"]())
    streams, both = Streams(0, Purpose.NOISE), np.array([1, 3])
    many = of.draws(streams, 2, both, np.zeros(2, dtype=np.int64), 5)
    few = of.draws(streams, 2, both[1:], np.zeros(1, dtype=np.int64), 2)
    assert all(torch.equal(draw[1:], alone) for draw, alone in zip(many[:2], few, strict=True))
    assert len({int(draw[row, -1]) for draw in many for row in range(2)}) == 10


def test_noise_is_measured_from_draws_and_nothing_is_certified() -> None:
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3))
    of = federation(module, batch_size=8, l2=0.1)
    options = MeasureOptions(("noise", "curvature"))
    found = measure(of, fedavg(0.1), local_steps=2, model=of.start(0), options=options)
    plain = federation(nn.Sequential(module[1]), batch_size=8, l2=0.1)
    without = measure(plain, fedavg(0.1), local_steps=2, model=of.start(0), options=options)
    assert found.constants["sigma"].kind == "sample"
    assert found.constants["sigma_rms"].value > without.constants["sigma_rms"].value
    assert found.constants["L_h"].value == pytest.approx(without.constants["L_h"].value, rel=1e-3)
    assert found.point["remarks"] == [RANDOM]
    with pytest.raises(InputError, match="cannot be certified"):
        certify(of)


def test_augmented_inputs_are_drawn_from_the_streams_and_measured_as_they_are() -> None:
    x, y = data(20, 6)
    how: dict[str, Any] = {"batch_size": 4}

    def shaken(batch: torch.Tensor) -> torch.Tensor:
        return batch + torch.randn_like(batch)

    shards = [(x[:12], y[:12]), (x[12:], y[12:])]
    torch.manual_seed(0)
    module = nn.Linear(6, 3)
    of, plain = (federate(module, functional.cross_entropy, shards, augment=each, **how) for each in (shaken, None))
    assert of.remarks == (AUGMENTED,)
    models = of.start(0).expand(2, -1)
    torch.testing.assert_close(of.gradients(models, np.arange(2)), plain.gradients(models, np.arange(2)))
    runs = [
        simulate(each, fedavg(0.2), local_steps=3, rounds=3, compute=Compute(processes=number))
        for each, number in ((of, 1), (of, 2), (plain, 1))
    ]
    assert runs[0] == runs[1]
    assert not np.allclose(runs[0].model, runs[2].model)
    with pytest.raises(InputError, match="cannot be certified"):
        certify(of)


def test_frozen_statistics_are_said_in_one_sentence_and_stay(caplog: pytest.LogCaptureFixture) -> None:
    module = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    module(torch.randn(50, 6) + 1)  # statistics of its own
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    of = federation(module)
    assert any("running statistics that the module has now" in message for message in caplog.messages)
    simulate(of, fedavg(0.1), local_steps=2, rounds=2, compute=Compute(processes=1))
    assert all(torch.equal(buffer, before[name]) for name, buffer in of.module.named_buffers())
    assert of.remarks == ()


def _masked(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean over targets that are not masked: samples with more of them count for more."""
    return functional.cross_entropy(outputs.view(-1, 2, 3).transpose(1, 2), targets, ignore_index=-100)


def test_a_loss_that_is_no_mean_over_samples_is_noticed() -> None:
    x, _ = data(20, 6)
    y = torch.randint(3, (20, 2), generator=torch.Generator().manual_seed(0))
    module = nn.Linear(6, 6)
    even = SupervisedFederation(module, _masked, x, y, [range(20)])
    assert even.remarks == ()
    y[0, 1] = -100
    uneven = SupervisedFederation(module, _masked, x, y, [range(20)])
    assert uneven.remarks == (UNEVEN,)
    options = MeasureOptions(("noise",))
    found = measure(uneven, fedavg(0.1), local_steps=2, model=uneven.start(0), options=options)
    assert found.constants["sigma"].kind == "sample"
    with pytest.raises(InputError, match="Single samples do not say"):
        uneven.sample_variances(uneven.start(0), np.arange(1))


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (lambda self, x: functional.dropout(x, 0.5), "in eval mode too"),
        (lambda self, x: x + torch.randn_like(x), "in eval mode too"),
        (lambda self, x: x * random.random(), "do not come from torch's own generator"),
        (lambda self, x: x * np.random.default_rng().random(), "do not come from torch's own generator"),
        (lambda self, x: functional.dropout(x, 0.5, self.training) * random.random(), "with one seed"),
    ],
)
def test_randomness_that_cannot_be_addressed_is_refused(after: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as refused:
        federation(Own(after))
    assert "\n" not in str(refused.value)


def test_federations_that_are_made_in_threads_are_those_that_are_made_alone() -> None:
    x, y = data(60, 6)

    def make(seed: int) -> tuple[tuple[str, ...], torch.Tensor]:
        def network() -> nn.Module:
            return nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3))

        of = SupervisedFederation(network, functional.cross_entropy, x, y, [range(60)])
        return of.remarks, of.start(seed)

    seeds = [0, 1, 2, 3] * 10
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(make, seeds))
    alone = {seed: make(seed)[1] for seed in range(4)}
    for seed, (remarks, start) in zip(seeds, together, strict=True):
        assert remarks == ()
        assert torch.equal(start, alone[seed])


class Recomputing(nn.Module):
    """A layer whose activations may be computed again in the backward pass, which saves memory."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.first, self.last, self.again = nn.Linear(6, 4), nn.Linear(4, 3), again

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def hidden(x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.first(x)).square()

        h = checkpoint(hidden, x, use_reentrant=False) if self.again else hidden(x)
        return self.last(h)  # type: ignore[no-any-return]


def test_activations_that_are_computed_again_are_those_of_the_same_model() -> None:
    x, y = data(24, 6)
    found = []
    for again in (False, True):
        of = federate(partial(Recomputing, again), functional.cross_entropy, [(x, y)], batch_size=4)
        models = 1.7 * of.start(0).unsqueeze(0)
        found.append((of.gradients(models, np.arange(1)), simulate(of, fedavg(0.1), local_steps=3, rounds=2).model))
    assert torch.equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_modules_are_refused() -> None:
    scripted = torch.jit.trace(nn.Linear(6, 3), torch.ones(2, 6))  # type: ignore[no-untyped-call]
    with pytest.raises(InputError, match=r"^The model is scripted or a DataParallel, .*; give the module itself"):
        federation(scripted)
