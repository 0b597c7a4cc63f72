"""Only trainable parameters are the model: frozen ones stay as they are and count in nothing."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.federation.adapters import federation as adapted
from tests.federation.adapters import lora
from tests.federation.networks import data, federation
from torch import nn

from fedgauge import ALGORITHMS, Compute, Keep, SupervisedFederation, fedavg, measure, simulate
from fedgauge.algorithms import make_algorithm
from fedgauge.base.errors import InputError
from fedgauge.federation.flat import fixed, flatten, trainable
from fedgauge.measurement.session import MeasureOptions
from fedgauge.simulation.runs.checkpoints import read_model
from fedgauge_verification import certify

pytestmark = pytest.mark.usefixtures("one_thread")


def backbone() -> nn.Module:
    """Two layers that are frozen, and a head that is trained."""
    body = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)).requires_grad_(False)
    return nn.Sequential(body, nn.ReLU(), nn.Linear(4, 3))


def bits(module: nn.Module) -> dict[str, bytes]:
    return {name: tensor.detach().numpy().tobytes() for name, tensor in fixed(module)}


def test_a_frozen_backbone_stays_bit_identical_and_counts_in_nothing(tmp_path: Path) -> None:
    of = federation(backbone(), l2=0.1)
    before = bits(of.module)
    assert (of.dim, of.path) == (15, "plain")
    trace = simulate(of, fedavg(0.3), local_steps=5, rounds=5, keep=Keep(tmp_path / "run"))
    assert bits(of.module) == before
    assert len(trace.model) == 15
    assert not np.array_equal(trace.model, flatten(of.module).numpy())
    saved = load_file(tmp_path / "run" / "state_dict.safetensors")
    assert {name: tensor.numpy().tobytes() for name, tensor in saved.items() if name in before} == before
    other = backbone()
    other.load_state_dict(saved)
    assert torch.equal(flatten(other), torch.from_numpy(trace.model))


def test_the_head_is_trained_as_a_federation_on_the_backbones_outputs() -> None:
    """The same objective in another form: the features are computed once, and a linear layer is all of the model."""
    of = federation(backbone().double(), dtype=torch.float64, l2=0.1)
    layers: Any = of.module
    x, y = data(60, 6, dtype=torch.float64)
    with torch.no_grad():
        features = layers[1](layers[0](x))
    head = federation(layers[2], x=features, y=y, l2=0.1)
    assert head.path == "dense"
    traces = [simulate(each, fedavg(0.2), local_steps=7, rounds=5) for each in (of, head)]
    np.testing.assert_allclose(traces[0].model, traces[1].model, rtol=1e-10, atol=1e-12)
    for name in ("loss", "grad2", "spread", "deviation2", "zeta2"):
        np.testing.assert_allclose(traces[0].column(name), traces[1].column(name), rtol=1e-8)
    options = MeasureOptions(("divergence", "noise", "curvature"), tolerance=1e-6)
    found = [measure(each, fedavg(0.2), local_steps=3, model=each.start(0), options=options) for each in (of, head)]
    for symbol in ("L_h", "L_g", "L_tilde", "zeta", "sigma"):
        values = [each.constants[symbol].value for each in found]
        assert values[0] == pytest.approx(values[1], rel=1e-6), symbol


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_no_algorithm_moves_what_is_frozen(name: str) -> None:
    of = federation(backbone())
    before = bits(of.module)
    simulate(of, make_algorithm(name, gamma=0.1), local_steps=2, rounds=2, compute=Compute(processes=1))
    assert bits(of.module) == before


def test_what_is_frozen_belongs_to_the_federation() -> None:
    torch.manual_seed(0)
    one, other = backbone(), backbone()
    other.load_state_dict(one.state_dict())
    assert federation(one).digest == federation(other).digest
    with torch.no_grad():
        next(other.parameters()).add_(1.0)
    assert federation(one).digest != federation(other).digest
    assert federation(one).digest != federation(one.requires_grad_()).digest


def test_another_seed_draws_the_head_and_leaves_the_backbone() -> None:
    x, y = data(12, 6)
    of = SupervisedFederation(backbone, nn.functional.cross_entropy, x, y, [range(6), range(6, 12)])
    before = bits(of.module)
    assert not torch.equal(of.start(0), of.start(1))
    assert bits(of.module) == before


def test_nothing_is_certified_for_a_layer_that_is_partly_frozen() -> None:
    module = nn.Linear(6, 3)
    module.bias.requires_grad_(False)
    of = federation(module)
    assert (of.dim, of.path) == (18, "plain")
    with pytest.raises(InputError, match="every parameter is trained"):
        certify(of)
    with pytest.raises(InputError, match=r"^path dense needs .* with no parameter frozen\.$"):
        federation(module, path="dense")


def test_a_tied_weight_counts_once_and_is_moved_everywhere(tmp_path: Path) -> None:
    embed, head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
    head.weight = embed.weight
    module = nn.Sequential(embed, nn.Flatten(0, 1), head)
    x = torch.randint(7, (12, 1), generator=torch.Generator().manual_seed(0))
    of = SupervisedFederation(module, nn.functional.cross_entropy, x, x[:, 0], [range(6), range(6, 12)])
    assert of.dim == 28
    trace = simulate(of, fedavg(0.5), local_steps=2, rounds=2, keep=tmp_path / "run")
    saved = load_file(tmp_path / "run" / "state_dict.safetensors")
    assert torch.equal(saved["0.weight"], saved["2.weight"])
    assert torch.equal(read_model(tmp_path / "run" / "state_dict.safetensors", of), torch.from_numpy(trace.model))


def test_a_layer_that_is_used_twice_counts_once_and_stays_in_the_module() -> None:
    layer = nn.Linear(6, 6)
    module = nn.Sequential(layer, nn.ReLU(), layer)
    weight = layer.weight
    of = federation(module)
    simulate(of, fedavg(0.1), local_steps=2, rounds=1, compute=Compute(processes=1))
    assert of.dim == 42
    assert layer.weight is weight
    assert torch.equal(of.start(0), flatten(module))


def test_a_file_with_other_frozen_tensors_is_refused_and_one_without_them_is_read(tmp_path: Path) -> None:
    of = federation(backbone())
    named = {name: parameter.detach() for name, parameter in trainable(of.module).items()}
    save_file(named, tmp_path / "head.safetensors")
    assert torch.equal(read_model(tmp_path / "head.safetensors", of), of.start(0))
    save_file({**of.module.state_dict(), "0.0.bias": torch.ones(5)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match=r"0\.0\.bias is not trained"):
        read_model(tmp_path / "other.safetensors", of)


def test_adapters_of_peft_are_the_whole_model() -> None:
    of = adapted()
    assert of.dim == sum(p.numel() for p in of.module.parameters() if p.requires_grad) == 2 * 8 + 24 * 2
    before = bits(of.module)
    trace = simulate(of, fedavg(0.5), local_steps=3, rounds=3, compute=Compute(processes=1))
    assert trace.losses[-1] < trace.losses[0]
    assert bits(of.module) == before
    # The same bits in two processes, which have the frozen tensors without being sent them.
    assert trace == simulate(of, fedavg(0.5), local_steps=3, rounds=3, compute=Compute(processes=2))


def test_adapters_train_as_in_a_plain_loop_with_torch() -> None:
    of = adapted(batch_size=40)
    module = lora()
    module.load_state_dict(of.module.state_dict())
    optimiser = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.5)
    from fedgauge.base.randomness import Purpose, Streams

    draws = of.draws(Streams(0, Purpose.NOISE), 0, np.array([1]), np.array([0]), 5)
    for draw in draws:
        optimiser.zero_grad()
        tokens = of.inputs[draw[0]]
        of.loss(module(tokens), tokens).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    found = of.local_sgd(of.start(0).unsqueeze(0), np.array([1]), draws, 0.5)[0]
    torch.testing.assert_close(found, flatten(module), rtol=1e-5, atol=1e-7)


def test_adapters_are_sent_to_another_process_whole() -> None:
    of = adapted(lora())
    there: SupervisedFederation = pickle.loads(pickle.dumps(of))
    models = of.start(0).expand(3, -1)
    assert torch.equal(there.losses(models, np.arange(3)), of.losses(models, np.arange(3)))
    assert there.digest == of.digest


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (nn.Linear(6, 3).requires_grad_(False), "no parameters to learn: all of them are frozen"),
        (nn.Sequential(nn.Linear(6, 6).double(), nn.Linear(6, 3)), "one number type, but 0.bias is float64"),
    ],
)
def test_what_cannot_be_trained_is_refused(module: nn.Module, says: str) -> None:
    with pytest.raises(InputError, match=says):
        federation(module)
