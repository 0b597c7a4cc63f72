"""What saved models say: laws that hold for any models, and what is refused or left out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

import fedgauge as fg
from fedgauge.base.errors import InputError
from fedgauge.show.views import view
from fedgauge_inspection import Inspection, inspect_models
from fedgauge_inspection.inspection_result import InspectedLayer

CLOSE = pytest.approx
Models = tuple[dict[str, torch.Tensor], list[dict[str, torch.Tensor]]]


@st.composite
def models(draw: st.DrawFn, least: int = 1) -> Models:
    """A global model and some clients', in layers of any shape."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    shapes = draw(st.lists(st.sampled_from([(3,), (2, 3), (4, 1, 2), ()]), min_size=1, max_size=3))
    count = draw(st.integers(least, 5))

    def make(scale: float) -> dict[str, torch.Tensor]:
        made = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
        return {f"layer{place}": scale * each for place, each in enumerate(made)}

    start, common = make(1.0), make(draw(st.floats(0, 2)))
    clients = []
    for _ in range(count):
        own = make(1.0)
        clients.append({name: start[name] + common[name] + own[name] for name in start})
    return start, clients


def flat(model: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([each.reshape(-1) for each in model.values()])


@given(models(), st.data())
@settings(max_examples=60, deadline=None)
def test_it_computes_what_the_formulas_say(given_models: Models, data: st.DataObject) -> None:
    start, clients = given_models
    sizes = data.draw(st.lists(st.floats(0.1, 10), min_size=len(clients), max_size=len(clients)))
    found = inspect_models(start, clients, sizes=sizes)
    p = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
    rows = torch.stack([flat(each) for each in clients])
    changes, mean = rows - flat(start), p @ rows
    went = p @ changes
    assert found.spread == CLOSE(float(p @ (rows - mean).square().sum(1)), rel=1e-9, abs=1e-24)
    assert found.change2 == CLOSE(float(p @ changes.square().sum(1)))
    assert found.alignment == CLOSE(float(went @ went) / found.change2)
    assert found.unrelated == CLOSE(float(p.square() @ changes.square().sum(1)) / found.change2)
    assert [each.change for each in found.clients] == CLOSE(changes.norm(dim=1).tolist())
    assert [each.distance for each in found.clients] == CLOSE((rows - mean).norm(dim=1).tolist(), abs=1e-12)
    cosines = torch.nn.functional.cosine_similarity(changes[:, None], changes[None], dim=2)
    assert np.array(found.cosines, dtype=float) == CLOSE(cosines.numpy(), abs=1e-9)
    if len(clients) > 1:
        others = [(p @ changes - p[i] * changes[i]) for i in range(len(clients))]
        own = [float(torch.cosine_similarity(changes[i], others[i], dim=0)) for i in range(len(clients))]
        assert [each.cosine for each in found.clients] == CLOSE(own, abs=1e-9)
    # Parts of layers add up, and the mean change, the spread and the whole are a right-angled triangle.
    assert sum(layer.spread for layer in found.layers) == CLOSE(found.spread, rel=1e-9, abs=1e-24)
    assert sum(layer.change2 for layer in found.layers) == CLOSE(found.change2)
    assert found.spread + (found.alignment or 0) * found.change2 == CLOSE(found.change2)
    assert Inspection.from_json(found.to_json()) == found


@given(models(least=2), st.data())
@settings(max_examples=40, deadline=None)
def test_the_order_of_clients_does_not_matter(given_models: Models, data: st.DataObject) -> None:
    start, clients = given_models
    order = data.draw(st.permutations(range(len(clients))))
    one, other = inspect_models(start, clients), inspect_models(start, [clients[place] for place in order])
    assert (other.spread, other.alignment, other.mean_cosine) == CLOSE((one.spread, one.alignment, one.mean_cosine))
    assert [each.change for each in other.clients] == CLOSE([one.clients[place].change for place in order])
    assert [each.why for each in other.clients] == [one.clients[place].why for place in order]


@given(models(), st.sampled_from([1e-3, 0.5, 7.0, 1e6]))
@settings(max_examples=40, deadline=None)
def test_lengths_scale_and_shares_do_not(given_models: Models, scale: float) -> None:
    start, clients = given_models
    scaled = [{name: scale * each for name, each in model.items()} for model in (start, *clients)]
    one, other = inspect_models(start, clients), inspect_models(scaled[0], scaled[1:])
    assert other.spread == CLOSE(scale**2 * one.spread, rel=1e-9, abs=1e-20 * scale**2)
    assert other.change2 == CLOSE(scale**2 * one.change2)
    assert (other.alignment, other.unrelated) == CLOSE((one.alignment, one.unrelated))


@given(models(), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_equal_clients_have_no_spread(given_models: Models, number: int) -> None:
    start, (client, *_) = given_models
    found = inspect_models(start, [client] * number)
    assert found.spread == 0
    assert all(layer.spread == 0 for layer in found.layers)
    assert found.alignment == CLOSE(1)


@given(st.integers(1, 6), st.floats(0.01, 100))
@settings(max_examples=40, deadline=None)
def test_orthogonal_changes_leave_one_part_of_m(number: int, length: float) -> None:
    changes = length * torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))[0][:number]
    start = torch.randn(8, dtype=torch.float64)
    found = inspect_models(start, list(start + changes))
    assert found.alignment == CLOSE(1 / number)
    assert found.unrelated == CLOSE(1 / number)
    if number > 1:
        assert found.mean_cosine == CLOSE(0, abs=1e-9)


@given(models(), st.floats(-2, 3), st.data())
@settings(max_examples=60, deadline=None)
def test_the_servers_step_is_recovered(given_models: Models, eta: float, data: st.DataObject) -> None:
    assume(abs(eta) > 1e-3)
    start, clients = given_models
    sizes = data.draw(st.lists(st.floats(0.5, 5), min_size=len(clients), max_size=len(clients)))
    means = {
        name: sum((size * each[name] for size, each in zip(sizes, clients, strict=True)), torch.zeros(())) / sum(sizes)
        for name in start
    }
    following = {name: start[name] + eta * (means[name] - start[name]) for name in start}
    found = inspect_models(start, clients, following, sizes)
    assert found.server_step == CLOSE(eta, rel=1e-6)
    assert found.explained == CLOSE(1)
    # What is at right angles to the mean change is something else.
    went = flat(means) - flat(start)
    other = torch.randn(len(went), dtype=torch.float64)
    other -= (other @ went) / (went @ went) * went
    assume(float(other.norm()) > 1e-3)
    other *= abs(eta) * went.norm() / other.norm()
    beside = inspect_models(flat(start), [flat(each) for each in clients], flat(following) + other, sizes)
    assert beside.server_step == CLOSE(eta, rel=1e-6)
    assert beside.explained == CLOSE(0.5)


def test_who_stands_out() -> None:
    torch.manual_seed(0)
    common = torch.randn(200)
    changes = [common + 0.5 * torch.randn(200) for _ in range(8)]
    changes[3], changes[5] = 4 * changes[3], -changes[5]
    found = inspect_models(torch.zeros(200), changes)
    assert [place for place, each in enumerate(found.clients) if each.why] == [3, 5]
    assert "times as long as usual" in found.clients[3].why
    assert "another way" in found.clients[5].why
    shown = view(found)
    assert [row[0] for row in shown.tables[0].rows][:3] == ["3", "5", "0"]


def test_nothing_changed() -> None:
    start = torch.ones(3)
    found = inspect_models(start, [start, start, start], next=start)
    assert (found.spread, found.alignment, found.server_step, found.explained) == (0, None, 0, None)
    assert "nothing has changed" in str(found)
    assert "made no step" in str(found)
    assert not view(found).charts
    one_of_three = inspect_models(start, [start, start, start + 1])
    assert one_of_three.cosines[0][2] is None
    assert one_of_three.clients[2].why == "it alone has changed"
    assert Inspection.from_json(one_of_three.to_json()) == one_of_three


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.Linear(3, 2)


def changed(by: float) -> nn.Module:
    torch.manual_seed(0)
    net = Net()
    with torch.no_grad():
        for part in net.parameters():
            part.add_(by)
    net.norm.running_mean = torch.full((3,), 100.0 * by)
    net.norm.num_batches_tracked = torch.tensor(int(10 * by))
    return net


def test_every_form_of_a_model(tmp_path: Path) -> None:
    one, two = changed(1), changed(2)
    numbers = sum(part.numel() for part in one.parameters())
    torch.save({f"module.{name}": part for name, part in one.state_dict().items()}, tmp_path / "one.pt")
    save_file(
        {f"_orig_mod.module.{name}": part for name, part in two.state_dict().items()}, tmp_path / "two.safetensors"
    )
    found = inspect_models(changed(0), [one.state_dict(), two])
    assert found.change2 == CLOSE(numbers * (1 + 4) / 2, rel=1e-6)
    assert len(found.notes) == 2
    assert "BatchNorm's running statistics: norm.running_mean and 1 more" in found.notes[0]
    assert "not floating-point numbers: norm.num_batches_tracked" in found.notes[1]
    files = inspect_models(changed(0), [tmp_path / "one.pt", str(tmp_path / "two.safetensors")])
    assert (files.spread, files.layers) == (found.spread, found.layers)
    assert [each.name for each in files.clients] == ["one.pt", "two.safetensors"]
    a, b = (np.array([1.0, 2.0]) * each for each in (1, 2))
    assert inspect_models(np.zeros(2), [a, b]).change2 == CLOSE(12.5)


def test_a_run_is_a_model(tmp_path: Path) -> None:
    federation = fg.random_quadratics(3, 2)
    for rounds in (1, 2):
        fg.simulate(federation, fg.fedavg(0.1), local_steps=2, rounds=rounds, keep=tmp_path / f"run{rounds}")
    found = inspect_models(federation.start(0), [tmp_path / "run1", tmp_path / "run2"])
    assert found.change2 > 0
    assert [each.name for each in found.clients] == ["run1", "run2"]


def test_clients_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        torch.save({"x": torch.ones(2)}, tmp_path / place / "model.pt")
    found = inspect_models({"x": torch.zeros(2)}, [tmp_path / "a" / "model.pt", tmp_path / "b" / "model.pt"])
    assert [each.name for each in found.clients] == [str(tmp_path / place / "model.pt") for place in ("a", "b")]


def test_half_precision_says_what_rounding_may_be() -> None:
    start = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    clients = [(start * (1 + change)).bfloat16() for change in (0.01, 0.02)]
    found = inspect_models(start.bfloat16(), clients)
    assert any("Rounding in the models' number type" in note for note in found.notes)
    whole = inspect_models(start, [start * 1.01, start * 1.02])
    assert not whole.notes
    assert found.change2 == CLOSE(whole.change2, rel=0.1)


def test_it_says_what_cannot_be_told_without_data() -> None:
    shown = view(inspect_models(torch.zeros(2), [torch.ones(2), torch.tensor([1.0, -1.0])]))
    assert "L_h" in shown.notes[-1]
    assert "need data" in shown.notes[-1]


def test_many_clients_and_layers_fit_a_screen() -> None:
    torch.manual_seed(0)
    start = {f"layer{place}.weight": torch.randn(2, 2) for place in range(40)}
    clients = [{name: each + torch.randn_like(each) for name, each in start.items()} for _ in range(60)]
    found = inspect_models(start, clients)
    shown = view(found)
    assert max(len(table.rows) for table in shown.tables) <= 12
    assert "48 more clients" in shown.tables[0].note
    assert [chart.name for chart in shown.charts] == ["changes", "layers"]
    assert len(str(found).splitlines()) <= 37


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((torch.ones(2), []), "at least one model"),
        ((torch.ones(2), "client.pt"), "clients must be a list"),
        ((torch.ones(2), [3]), "must be the name of a file or run"),
        (({}, [{}]), "holds no tensors"),
        ((torch.ones(2), [torch.ones(3)]), r"model has the shape \(3,\) in client 0, but \(2,\) in the global model"),
        (({"a": torch.ones(2)}, [{"b": torch.ones(2)}]), "client 0 has b, which the global model does not have"),
        (({"a": torch.ones(2), "b": torch.ones(1)}, [{"a": torch.ones(2)}]), "the global model has b, which client 0"),
        ((torch.ones(2), [torch.tensor([1.0, math.nan])]), "client 0 has a number in model that is not finite"),
        ((torch.ones(2), [torch.ones(2)], torch.tensor([math.inf, 0])), "the next model has a number in model"),
        (({"a": torch.ones(2).int()}, [{"a": torch.ones(2).int()}]), "no floating-point numbers"),
        ((torch.ones(2), [torch.ones(2)], None, [1, 2]), "one number for each of 1 clients, not 2"),
        ((torch.ones(2), [torch.ones(2)], None, [0]), "sizes must be a finite number above 0"),
        (("missing.pt", [torch.ones(2)]), "Cannot read missing.pt"),
    ],
)
def test_a_mistake_gets_one_sentence(arguments: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        inspect_models(*arguments)
    assert "\n" not in str(caught.value)


def test_no_pickle_is_trusted(tmp_path: Path) -> None:
    torch.save({"model": nn.Linear(2, 1)}, tmp_path / "whole.pt")
    torch.save({"state_dict": {"x": torch.ones(1)}, "epoch": 3}, tmp_path / "checkpoint.pt")
    (tmp_path / "text.pt").write_text("no model")
    for name, sentence in (
        ("whole.pt", "holds no tensors that can be read"),
        ("checkpoint.pt", "holds no state_dict"),
        ("text.pt", "holds no tensors that can be read"),
    ):
        with pytest.raises(InputError, match=sentence):
            inspect_models(torch.ones(1), [tmp_path / name])


def test_layers_are_values() -> None:
    layer = InspectedLayer("x", 2, 1.0, 2.0, 0.5, 1.0)
    assert InspectedLayer.from_json(layer.to_json()) == layer
