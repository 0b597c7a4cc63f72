"""Gradients at saved models: naive loops over autograd, the probe, and quadratics whose constants are known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fedgauge as fg
from fedgauge.base.errors import InputError
from fedgauge.show.views import view
from fedgauge_inspection import Inspection, inspect_models

CLOSE = pytest.approx
N = 3


def shards() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(size, 6, generator=generator), torch.arange(size) % 3) for size in (20, 30, 40)]


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


class Foreign(nn.Module):
    """A model that is not one of ours: BatchNorm, dropout, and a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(6, 5), nn.BatchNorm1d(5)
        self.drop, self.twice, self.last = nn.Dropout(0.5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(torch.relu(self.norm(self.first(x))))
        x = torch.tanh(self.twice(torch.tanh(self.twice(x))))
        return nn.functional.linear(x, self.last.weight, self.last.bias)


def moved(model: nn.Module, seed: int, by: float = 0.3) -> nn.Module:
    """The model after something like training; running statistics are other ones on each client."""
    other = type(model)() if isinstance(model, Foreign) else plain()
    other.load_state_dict(model.state_dict())
    torch.manual_seed(seed)
    with torch.no_grad():
        for each in other.parameters():
            each.add_(by * torch.randn_like(each))
    if isinstance(other, Foreign):
        other.norm.running_mean = 0.2 * torch.randn(5)
        other.norm.running_var = 1 + torch.rand(5)
    return other


def case(kind: str) -> tuple[fg.SupervisedFederation, nn.Module, list[nn.Module]]:
    torch.manual_seed(0)
    start = Foreign() if kind == "foreign" else plain()
    how = {"batch_norm": "averaged"} if kind == "foreign" else {"l2": 0.1}
    federation = fg.federate(start, cross_entropy, shards(), batch_size=5, **how)
    return federation, start, [moved(start, seed) for seed in range(1, N + 1)]


Named = Mapping[str, torch.Tensor]


def naive(start: nn.Module, clients: list[nn.Module], weights: list[float], l2: float) -> dict[str, Any]:
    """The formulas, one after the other, in float64."""
    names = [name for name, _ in start.named_parameters()]

    def slope(parameters: Named, client: int) -> tuple[float, torch.Tensor]:
        module = moved(start, 0).double().eval()
        buffers = {name: each.double() for name, each in clients[client].named_buffers()}
        leaves = {name: each.double().detach().requires_grad_() for name, each in parameters.items()}
        x, y = shards()[client]
        loss = cross_entropy(torch.func.functional_call(module, {**leaves, **buffers}, (x.double(),)), y)
        loss = loss + l2 / 2 * sum((each.square().sum() for each in leaves.values()), torch.zeros(()))
        gradients = torch.autograd.grad(loss, [leaves[name] for name in names])
        return loss.item(), torch.cat([each.reshape(-1) for each in gradients])

    def flat(module: Named) -> torch.Tensor:
        return torch.cat([module[name].detach().double().reshape(-1) for name in names])

    own: list[Named] = [dict(client.named_parameters()) for client in clients]
    shares = torch.tensor(weights, dtype=torch.float64)
    rows = {name: torch.stack([each[name].detach().double() for each in own]) for name in names}
    centre: Named = {name: torch.tensordot(shares, each, 1) for name, each in rows.items()}
    first: Named = dict(start.named_parameters())
    everywhere: tuple[list[Named], ...] = ([first] * N, own, [centre] * N)
    begun, ended, met = ([slope(at, i) for i, at in enumerate(places)] for places in everywhere)
    p = torch.tensor(weights, dtype=torch.float64)
    g0, gi, gm = (torch.stack([gradient for _, gradient in each]) for each in (begun, ended, met))
    distances = torch.stack([(flat(each) - flat(centre)).norm() for each in own])
    spread, deviation2 = float(p @ distances.square()), float((p @ (gi - gm)).square().sum())
    return {
        "loss": sum(weight * loss for weight, (loss, _) in zip(weights, begun, strict=True)),
        "grad2": float((p @ g0).square().sum()),
        "spread": spread,
        "deviation2": deviation2,
        "zeta2": float(p @ (gm - p @ gm).square().sum(1)),
        "L_h_ratio": (deviation2 / spread) ** 0.5,
        "L_tilde": [float(each) for each in (gi - gm).norm(dim=1) / distances],
        "L_g_ratio": float((p @ (gm - g0)).norm() / (flat(centre) - flat(first)).norm()),
        "losses": [(before[0], after[0]) for before, after in zip(begun, ended, strict=True)],
        "gradients": [(float(before.norm()), float(after.norm())) for before, after in zip(g0, gi, strict=True)],
    }


@pytest.mark.parametrize("kind", ["plain", "foreign"])
@pytest.mark.parametrize("sizes", [None, [20, 30, 40]])
def test_it_computes_what_a_naive_loop_does(kind: str, sizes: list[float] | None) -> None:
    federation, start, clients = case(kind)
    found = inspect_models(start, clients, sizes=sizes, federation=federation)
    weights = [each / sum(sizes or [1] * N) for each in sizes or [1] * N]
    expected = naive(start, clients, weights, 0.1 if kind == "plain" else 0.0)
    assert found.measured is not None
    record = found.measured.record
    for name in ("loss", "grad2", "spread", "deviation2", "zeta2", "L_h_ratio", "L_g_ratio"):
        assert getattr(record, name) == CLOSE(expected[name], rel=1e-4), name  # models and data are float32
    assert record.L_tilde_ratio == CLOSE(max(expected["L_tilde"]), rel=1e-4)
    for client, losses, gradients, steepness in zip(
        found.clients, expected["losses"], expected["gradients"], expected["L_tilde"], strict=True
    ):
        assert client.losses == CLOSE(losses, rel=1e-4)
        assert client.gradients == CLOSE(gradients, rel=1e-4)
        assert client.L_tilde == CLOSE(steepness, rel=1e-4)
    assert found.spread == CLOSE(record.spread, rel=1e-6)
    layers = found.measured.layers
    assert list(layers) == [name for name, _ in start.named_parameters()]
    assert sum(each.deviation2 for each in layers.values()) == CLOSE(record.deviation2)
    assert sum(each.zeta2 for each in layers.values()) == CLOSE(record.zeta2)
    assert Inspection.from_json(found.to_json()) == found


@pytest.mark.parametrize("kind", ["plain", "foreign"])
def test_it_agrees_with_a_probe_that_was_in_the_job(kind: str) -> None:
    federation, start, clients = case(kind)
    average = moved(start, 0)
    with torch.no_grad():
        for mean, *parts in zip(average.parameters(), *(client.parameters() for client in clients), strict=True):
            mean.copy_(sum(parts) / N)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        penalty = sum((each.square().sum() for each in model.parameters()), torch.zeros(()))
        return cross_entropy(model(batch[0]), batch[1]) + (0.05 * penalty if kind == "plain" else 0.0)

    probe = fg.Probe(loss, [[shard] for shard in shards()], share=1.0, start=start)
    probe.before(clients)
    probe.after(average)
    (seen,) = probe.records
    found = inspect_models(start, clients, federation=federation).measured
    assert found is not None
    for name in ("loss", "grad2", "spread", "deviation2", "zeta2", "L_h_ratio", "L_tilde_ratio", "L_g_ratio"):
        assert getattr(found.record, name) == CLOSE(getattr(seen.record, name), rel=1e-4), name
    assert found.alignment == CLOSE(seen.alignment, rel=1e-5)
    for name, layer in seen.layers.items():
        for part in ("spread", "deviation2", "zeta2", "L_h_ratio", "L_tilde_ratio"):
            assert getattr(found.layers[name], part) == CLOSE(getattr(layer, part), rel=1e-3, abs=1e-9), (name, part)


def test_quadratics_have_the_constants_of_their_hessians() -> None:
    federation = fg.QuadraticFederation([[[1.0]], [[3.0]]], [[-1.0], [2.0]])
    found = inspect_models(torch.zeros(1), [torch.tensor([1.0]), torch.tensor([-1.0])], federation=federation)
    assert found.measured is not None
    record = found.measured.record
    # At the mean 0 the gradients are b_i; at +-1 they differ from that by 1 and -3, on average by -1.
    assert record.deviation2 == CLOSE(1.0)
    assert record.L_h_ratio == CLOSE(1.0)
    assert [each.L_tilde for each in found.clients] == [CLOSE(1.0), CLOSE(3.0)]
    assert record.zeta2 == CLOSE(1.5**2)
    assert record.L_g_ratio is None  # the mean has not moved


def test_equal_clients_have_no_ratios() -> None:
    federation, start, (client, *_) = case("plain")
    found = inspect_models(start, [client] * N, federation=federation)
    assert found.measured is not None
    record = found.measured.record
    assert (record.spread, record.deviation2, record.L_h_ratio, record.L_tilde_ratio) == (0, 0, None, None)
    assert record.zeta2 is not None
    assert record.zeta2 > 0
    assert "L_h" in str(found)


def test_it_says_what_it_is_measured_on() -> None:
    federation, start, clients = case("foreign")
    found = inspect_models(start, clients, federation=federation)
    shown = view(found)
    notes = " ".join(shown.notes)
    assert "BatchNorm normalises by each client's own running statistics" in notes
    assert "dropout" in notes
    assert "at least as large" in notes
    assert "need data" not in notes
    assert {"zeta", "L_h", "L_tilde", "L_g"} <= set(shown.facts)
    assert "loss before" in shown.tables[1].heads
    assert "of the deviation" in shown.tables[2].heads
    assert "On the clients' data the loss at the global model is" in str(found)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (lambda start, clients: (start, clients[:2]), "those of 3 workers, but 2 client models were given"),
        (lambda start, clients: (nn.Linear(2, 2), [nn.Linear(2, 2)] * 3), "The global model has no parameter 0.weight"),
        (lambda start, clients: (torch.zeros(4), [torch.ones(4)] * 3), "has 4 parameters, but the federation's has"),
    ],
)
def test_a_mistake_gets_one_sentence(arguments: Any, sentence: str) -> None:
    federation, start, clients = case("plain")
    first, others = arguments(start, clients)
    with pytest.raises(InputError, match=sentence) as caught:
        inspect_models(first, others, federation=federation)
    assert "\n" not in str(caught.value)


def test_files_and_wrappers(tmp_path: Path) -> None:
    federation, start, clients = case("plain")
    for number, client in enumerate(clients):
        torch.save({f"module.{name}": each for name, each in client.state_dict().items()}, tmp_path / f"{number}.pt")
    files = inspect_models(start, [tmp_path / f"{number}.pt" for number in range(N)], federation=federation)
    assert files.measured == inspect_models(start, clients, federation=federation).measured
