"""The probe measures what ``simulate`` records, and leaves the training as it is."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.measurement.live.jobs import (
    Quadratic,
    average,
    descend,
    mean_loss,
    quadratic_loss,
    quadratics,
    run_quadratics,
)
from torch import nn

import fedgauge as fg
from fedgauge.base.errors import InputError
from fedgauge.cli import main
from fedgauge.federation.flat import load_flat
from fedgauge.measurement.live.comparing import Sent, Worker, compare_workers
from fedgauge.measurement.live.passes import buffers_of, parameters_of, slope
from fedgauge.measurement.live.reducing import largest
from fedgauge.show.views import view
from fedgauge.simulation.runs.reader import read_run, read_trace
from fedgauge.simulation.workers import Lane, Work

CLOSE = pytest.approx
WATCHED = ("loss", "grad2", "spread", "deviation2", "zeta2", "L_tilde_ratio", "L_g_ratio", "L_h_ratio")


def same_records(mine: fg.Round, theirs: fg.Round, relative: float = 1e-6) -> None:
    for name in WATCHED:
        assert getattr(mine, name) == CLOSE(getattr(theirs, name), rel=relative), name


# -- what it measures ------------------------------------------------------------------------------------------------


def test_quadratics_give_what_simulate_records() -> None:
    federation, batches = quadratics()
    start = federation.start(0)
    trace = fg.simulate(federation, fg.fedavg(gamma=0.1), local_steps=5, rounds=4, start=start)
    model = Quadratic(start)
    probe = fg.Probe(quadratic_loss, [[batch] for batch in batches], share=1.0, start=model)
    run_quadratics(probe, model, batches, rounds=4)
    assert [each.round for each in probe.records] == [0, 1, 2, 3]
    for mine, theirs in zip(probe.records, trace.rounds, strict=False):
        same_records(mine.record, theirs)
    assert torch.allclose(model.x, torch.from_numpy(trace.model))


def test_quadratics_give_closed_forms() -> None:
    """One step of each worker: the change is -gamma grad F_i, and everything follows from H_i and b_i."""
    federation, batches = quadratics(count=3, dim=4, seed=2)
    x0, gamma = federation.start(0), 0.2
    noise = torch.tensor([0.5, -1.0, 0.25, 2.0], dtype=torch.float64)
    triples = [[(h, b + noise, c), (h, b, c), (h, b - noise, c)] for h, b, c in batches]
    model = Quadratic(x0)
    probe = fg.Probe(quadratic_loss, triples, share=1.0, start=model)
    run_quadratics(probe, model, batches, rounds=1, steps=1, rate=gamma)
    (found,) = probe.records
    H, b = (torch.stack([batch[part] for batch in batches]) for part in (0, 1))
    changes = -gamma * (H @ x0 + b)
    models, mean = x0 + changes, (x0 + changes).mean(0)
    apart = models - mean
    at_mean, at_own = H @ mean + b, torch.einsum("nij,nj->ni", H, models) + b
    assert found.num_workers == 3
    assert found.alignment == CLOSE(float(changes.mean(0).square().sum() / changes.square().sum(1).mean()))
    assert found.sigma2 == CLOSE(float(noise @ noise))
    assert found.record.spread == CLOSE(float(apart.square().sum(1).mean()))
    assert found.record.zeta2 == CLOSE(float((at_mean - at_mean.mean(0)).square().sum(1).mean()))
    assert found.record.deviation2 == CLOSE(float((at_own - at_mean).mean(0).square().sum()))
    ratios = (at_own - at_mean).norm(dim=1) / apart.norm(dim=1)
    assert found.record.L_tilde_ratio == CLOSE(float(ratios.max()))
    assert list(found.layers) == ["x"]


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


@pytest.fixture(scope="module")
def shards() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(12, 5, generator=generator) + worker, torch.randint(0, 3, (12,), generator=generator))
        for worker in range(4)
    ]


@pytest.mark.parametrize("weights", [None, (1.0, 2.0, 3.0, 4.0)])
def test_networks_give_what_simulate_records(
    weights: tuple[float, ...] | None, shards: list[tuple[torch.Tensor, torch.Tensor]]
) -> None:
    """The local models of ``simulate``, made by its own noisy steps, and batches that are together its data."""
    federation = fg.federate(network, nn.functional.cross_entropy, shards, batch_size=4)
    who = fg.Participation(weights=weights)
    trace = fg.simulate(federation, fg.fedavg(0.2), local_steps=6, rounds=2, participation=who)
    work = Work(federation, fg.fedavg(0.2), 6, 0, 4)
    first = federation.start(0)
    part = Lane(who.cohort(4, 0, 0), {})
    local, _ = work.local_states(part, 0, first, {})
    model, models = network(), [network() for _ in range(4)]
    load_flat(model, first)
    for each, row in zip(models, local["x"], strict=True):
        load_flat(each, row)
    batches = [[(x[:6], y[:6]), (x[6:], y[6:])] for x, y in shards]
    probe = fg.Probe(mean_loss, batches, share=1.0, start=model, weight=weights or 1.0)
    probe.before(models)
    average(model, models, weights)
    probe.after(model)
    # Both compute in float32, in another order; deviations are small differences of gradients.
    same_records(probe.records[0].record, trace.rounds[0], relative=1e-4)
    assert probe.records[0].record.sample == 48


def test_parts_of_layers_add_up(shards: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    probe = probed(shards, network().double())
    (found,) = probe.records
    for name in ("spread", "deviation2", "zeta2"):
        whole = getattr(found.record, name)
        assert sum(getattr(layer, name) for layer in found.layers.values()) == CLOSE(whole, rel=1e-9)
    assert found.sigma2 == CLOSE(sum(layer.sigma2 or 0.0 for layer in found.layers.values()), rel=1e-9)
    assert found.L_h_ratio == CLOSE(sum((layer.L_h_ratio or 0.0) ** 2 for layer in found.layers.values()) ** 0.5)
    largest = max(layer.L_tilde_ratio or 0.0 for layer in found.layers.values())
    assert 0 < largest <= (found.record.L_tilde_ratio or 0.0) * (1 + 1e-6)


def probed(shards: list[tuple[torch.Tensor, torch.Tensor]], model: nn.Module, **options: Any) -> fg.Probe:
    """A probe after one round of exact steps."""
    kind = next(model.parameters()).dtype
    data = [(x.to(kind), y) for x, y in shards]
    batches = [[(x[:6], y[:6]), (x[6:], y[6:])] for x, y in data]
    probe = fg.Probe(mean_loss, batches, **{"share": 1.0, "start": model, **options})
    models = [copy.deepcopy(model) for _ in data]
    for local, batch in zip(models, data, strict=True):
        descend(local, mean_loss, batch, steps=3, rate=0.2)
    probe.before(models)
    average(model, models)
    probe.after(model)
    return probe


def test_an_outer_step_changes_nothing(shards: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """The model after the round is then not the mean of the local models, which is what they are compared at."""
    usual = probed(shards, network().double()).records[0]
    model = network().double()
    start = copy.deepcopy(model)
    batches = [[(x.double()[:6], y[:6]), (x.double()[6:], y[6:])] for x, y in shards]
    probe = fg.Probe(mean_loss, batches, share=1.0, start=model)
    models = [copy.deepcopy(model) for _ in shards]
    for local, (x, y) in zip(models, shards, strict=True):
        descend(local, mean_loss, (x.double(), y), steps=3, rate=0.2)
    probe.before(models)
    average(model, models)
    with torch.no_grad():
        for now, before in zip(model.parameters(), start.parameters(), strict=True):
            now.add_(now - before, alpha=0.7)
    probe.after(model)
    same_records(probe.records[0].record, usual.record, relative=1e-6)
    assert probe.records[0].alignment == CLOSE(usual.alignment)
    assert probe.summary().stepped == 1


def test_half_precision_is_compared_at_the_mean(shards: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    probe = probed(shards, network().to(torch.bfloat16))
    found = probe.records[0]
    assert probe.summary().stepped == 1
    usual = probed(shards, network().double()).records[0]
    # Local models have eight bits; without the exact mean, the alignment would be that of the rounded one.
    assert found.record.spread == CLOSE(usual.record.spread, rel=0.1)
    assert found.alignment == CLOSE(usual.alignment, rel=0.1)


def test_equal_workers_do_not_spread(shards: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    found = probed([shards[0]] * 3, network().double()).records[0]
    assert found.record.spread == CLOSE(0, abs=1e-30)
    assert found.alignment == CLOSE(1)
    assert found.record.zeta2 == CLOSE(0, abs=1e-25)


# -- what it leaves alone --------------------------------------------------------------------------------------------


class Odd(nn.Module):
    """Dropout, BatchNorm, a frozen layer, tied layers, and a part that stays in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3)
        self.second, self.third = nn.Linear(8, 8), nn.Linear(8, 8)
        self.third.weight = self.second.weight
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.last = nn.Linear(8, 3)
        self.drop2 = nn.Dropout(0.5).eval()
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        hidden = self.drop(self.norm(self.first(x)).relu())
        hidden = self.third(self.second(hidden).tanh())
        out: torch.Tensor = self.last(self.drop2(self.frozen(hidden)))
        return out


def noisy_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    """A loss that draws from every generator."""
    inputs, targets = batch
    shift = 1e-3 * (float(np.random.rand()) + random.random())  # noqa: NPY002 - as users' code may
    return nn.functional.cross_entropy(model(inputs + 1e-3 * torch.randn_like(inputs)) + shift, targets)


def trained(shards: list[tuple[torch.Tensor, torch.Tensor]], watch: bool) -> Iterator[tuple[Any, ...]]:
    """Everything that a job holds after each of three rounds of AdamW, with or without a probe."""
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    model = Odd()
    models = [copy.deepcopy(model) for _ in shards]
    optimisers = [torch.optim.AdamW(each.parameters(), lr=0.01) for each in models]
    batches = [[(x[:6], y[:6]), (x[6:], y[6:])] for x, y in shards]
    probe = fg.Probe(noisy_loss, batches, share=1.0, start=model) if watch else None
    for _ in range(3):
        for local, optimiser, own in zip(models, optimisers, batches, strict=True):
            for batch in own:
                optimiser.zero_grad()
                noisy_loss(local, batch).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        if probe:
            with torch.no_grad():  # as a careful user may call it
                probe.before(models)
        average(model, models)
        for local in models:
            with torch.no_grad():
                for own_part, mean in zip(local.parameters(), model.parameters(), strict=True):
                    own_part.copy_(mean)
        if probe:
            probe.after(models)
        yield (
            [each.state_dict() for each in models],
            [[None if p.grad is None else p.grad.clone() for p in each.parameters()] for each in models],
            [[(p.requires_grad, p.is_leaf) for p in each.parameters()] for each in models],
            [[part.training for part in each.modules()] for each in models],
            [list(each.state.values()) for each in optimisers],
            torch.get_rng_state(),
            np.random.get_state(legacy=False),  # noqa: NPY002
            random.getstate(),
        )
    if probe:
        assert len(probe.records) == 3
        assert all((each.record.spread or 0) > 0 for each in probe.records)
        assert models[0].third.weight is models[0].second.weight


def bits(thing: Any) -> Any:
    """A value in which every tensor has become its bytes."""
    if isinstance(thing, torch.Tensor):
        return thing.detach().numpy().tobytes()
    if isinstance(thing, np.ndarray):
        return thing.tobytes()
    if isinstance(thing, dict):
        return {name: bits(each) for name, each in thing.items()}
    return [bits(each) for each in thing] if isinstance(thing, list | tuple) else thing


def test_training_is_the_same_to_the_bit(shards: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    plain = [bits(copy.deepcopy(each)) for each in trained(shards, watch=False)]
    watched = [bits(copy.deepcopy(each)) for each in trained(shards, watch=True)]
    assert plain == watched


def test_it_measures_in_eval_mode_with_the_buffers_of_the_local_model(
    shards: list[tuple[torch.Tensor, torch.Tensor]],
) -> None:
    """By autograd on copies: dropout is off, and averaged statistics do not count as a change of the gradients."""
    torch.manual_seed(5)
    model, batch = Odd(), shards[0]
    with torch.no_grad():
        model(shards[1][0])  # statistics that are not those of a new model
    local = copy.deepcopy(model)
    descend(local, mean_loss, batch, steps=2, rate=0.1)
    probe = fg.Probe(mean_loss, [[batch]], share=1.0, start=model)
    probe.before([local])
    reference = copy.deepcopy(local).eval()
    average(reference, [model])
    mean_loss(reference, batch).backward()  # type: ignore[no-untyped-call]
    average(model, [local])
    for statistics in (model.norm.running_mean, local.norm.running_mean):
        assert statistics is not None
        statistics.add_(1.0)
    probe.after(model)
    (found,) = probe.records
    squares = [each.grad.square().sum() for each in reference.parameters() if each.grad is not None]
    assert found.record.grad2 == CLOSE(float(sum(squares)), rel=1e-5)
    assert found.record.loss == CLOSE(mean_loss(reference, batch).item())
    # One worker whose model is the average: its gradient has not changed.
    assert found.record.deviation2 == CLOSE(0, abs=1e-14)


def test_a_loss_draws_the_same_at_every_model(shards: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """One worker whose model is the average: without the same draws, its gradient would seem to change."""
    model = network()
    local = copy.deepcopy(model)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return mean_loss(model, (batch[0] + torch.randn_like(batch[0]), batch[1]))

    descend(local, mean_loss, shards[0], steps=2, rate=0.1)
    probe = fg.Probe(loss, [shards[0], shards[1]], share=1.0, start=model)
    probe.before(local)
    average(model, [local])
    probe.after(model)
    assert probe.records[0].record.deviation2 == 0


def test_only_what_is_trained_is_compared(shards: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """BatchNorm's statistics and frozen layers are in no vector; shared weights are in it once."""
    torch.manual_seed(5)
    found = probed(shards, Odd()).records[0]
    assert "third.weight" not in found.layers
    assert set(found.layers) == {name for name, each in Odd().named_parameters() if each.requires_grad}


def test_the_largest_of_all_ranks_follows_from_sums() -> None:
    ranks, size = 3, 200
    generator = torch.Generator().manual_seed(0)
    powers = torch.randint(-40, 38, (ranks, size), generator=generator).double()
    values = torch.rand(ranks, size, generator=generator, dtype=torch.float64) * 10.0**powers
    values[0, 0], values[:, 1], values[1, 2], values[:, 3] = torch.inf, 0.0, torch.nan, 1.5
    values[:, 10:100] = values[0, 10:100] * (1 + torch.rand(ranks, 90, generator=generator, dtype=torch.float64) / 1000)
    barrier, box = threading.Barrier(ranks), [torch.zeros(()) for _ in range(ranks)]

    def find(rank: int) -> torch.Tensor:
        def reduce(tensor: torch.Tensor) -> torch.Tensor:
            box[rank] = tensor
            barrier.wait()
            total = sum(box, torch.zeros(()))
            barrier.wait()
            return total

        return largest(values[rank], reduce)

    with ThreadPoolExecutor(ranks) as pool:
        found = list(pool.map(find, range(ranks)))
    assert all(torch.equal(each, found[0]) for each in found)
    expected = values.nan_to_num(nan=torch.inf, posinf=torch.inf).amax(0)
    assert (found[0] <= expected).all()
    # Rounded down to the 24 bits of a float32, and below 1e-37 to fewer.
    assert torch.allclose(found[0], expected, rtol=2**-23, atol=2e-45)


# -- how often -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [(0.2, 1.0, 0.05), (1.0, 0.1, 0.2), (0.001, 0.5, 0.01), (3.0, 3.0, 0.5)])
def test_it_keeps_to_its_share(seconds: tuple[float, float, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only the local steps and the passes of the probe move."""
    cost, step, share = seconds
    now = [0.0]
    monkeypatch.setattr("fedgauge.measurement.live.probe.time.perf_counter", lambda: now[0])
    _, batches = quadratics(count=2)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        now[0] += cost / 6  # three passes over the batches of two workers
        return quadratic_loss(model, batch)

    model = Quadratic(torch.ones(3, dtype=torch.float64))
    probe = fg.Probe(loss, [[batch] for batch in batches], share=share, start=model)
    for number in range(600):
        now[0] += step
        probe.before([copy.deepcopy(model), copy.deepcopy(model)])
        probe.after(model)
        found = probe.summary()
        # It measures once before it knows what that costs.
        assert number * step < cost / share or found.taken <= share * 1.001
    assert found.taken > 0.9 * min(share, cost / (cost + step))
    assert found.elapsed == CLOSE(600 * step + found.spent)


def test_without_a_start_the_second_round_is_the_first() -> None:
    federation, batches = quadratics()
    model = Quadratic(federation.start(0))
    probe = fg.Probe(quadratic_loss, [[batch] for batch in batches], share=1.0)
    run_quadratics(probe, model, batches, rounds=3)
    assert [each.round for each in probe.records] == [1, 2]
    assert probe.summary().finished == 3


# -- what becomes of it ----------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Path:
    federation, batches = quadratics()
    model = Quadratic(federation.start(0))
    about = {"algorithm": {"name": "local-sgd", "gamma": 0.1}, "local_steps": 5}
    place = tmp_path / "job"
    with fg.Probe(
        quadratic_loss, [[batch] for batch in batches], share=1.0, start=model, out=place, about=about
    ) as probe:
        run_quadratics(probe, model, batches, rounds=6)
    return place


def test_a_job_is_a_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = read_run(run)
    assert (found.status, found.stopped_at, found.note) == ("finished", 6, "")
    assert [record.round for record in found.rounds] == [0, 1, 2, 3, 4, 5]
    assert len(read_trace(run).model) == 3
    assert main(["runs", "show", str(run)]) == 0
    assert "local-sgd (gamma 0.1), 5 local steps" in capsys.readouterr().out
    assert main(["runs", "compare", str(run), str(run)]) == 0
    assert main(["report", str(run), "--out", str(tmp_path / "report.html")]) == 0
    values = ["nonconvex", "--values", str(run / "measure.json"), "F=1", "I=5", "R=6", "N=4", "gamma=0.01"]
    assert main(["theory", "bound", *values, "sigma2=0", "zeta2=1"]) == 0
    assert "L_h and L_g are sample values" in capsys.readouterr().out.replace("\n", " ")


def test_a_job_that_breaks_off_leaves_its_records(tmp_path: Path) -> None:
    federation, batches = quadratics()
    model = Quadratic(federation.start(0))

    def job() -> None:
        with fg.Probe(quadratic_loss, [[b] for b in batches], share=1.0, start=model, out=tmp_path / "job") as probe:
            run_quadratics(probe, model, batches, rounds=2)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        job()
    found = read_run(tmp_path / "job")
    assert (found.status, len(found.rounds), found.note) == ("unfinished", 2, "")


def test_its_result_there_and_back(shards: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    found = probed(shards, network()).summary()
    assert fg.ProbeResult.from_json(found.to_json()) == found
    assert found.constants["L_h"].value == found.rounds[0].L_h_ratio
    assert found.constants["zeta_rms"].value == CLOSE((found.rounds[0].record.zeta2 or 0) ** 0.5)
    assert all(not each.certain for each in found.constants.values())


def test_it_prints_and_draws_itself(shards: list[tuple[torch.Tensor, torch.Tensor]], tmp_path: Path) -> None:
    found = probed(shards, network()).summary()
    assert "averaging left" in str(found)
    shown = view(found)
    assert [chart.name for chart in shown.charts] == ["spread", "alignment", "constants"]
    assert len(shown.tables[2].rows) == 4
    found.plot(tmp_path / "probe.png")
    none = fg.Probe(mean_loss, [0]).summary()
    assert "none of 0 rounds" in str(none)
    assert not view(none).charts


def test_rounds_that_are_not_finite_are_left_out(shards: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    bad = [(x * torch.nan, y) for x, y in shards]
    model = network()
    probe = fg.Probe(mean_loss, [[batch] for batch in bad], share=1.0, start=model)
    probe.before([copy.deepcopy(model) for _ in bad])
    probe.after(model)
    assert not probe.records
    assert probe.summary().left_out == 1


# -- mistakes --------------------------------------------------------------------------------------------------------

OTHER: nn.Module = network()
ONE = [(torch.ones(2, 5), torch.zeros(2, dtype=torch.long))]


def measured(loss: Any = mean_loss, batches: Any = ONE, model: Any = None, **options: Any) -> None:
    model = network() if model is None else model
    probe = fg.Probe(loss, batches, **{"share": 1.0, "start": network(), **options})
    probe.before(model)
    probe.after(model)


def averaged_into_another() -> None:
    probe = fg.Probe(mean_loss, ONE, share=1.0, start=network())
    probe.before(network())
    probe.after(nn.Linear(5, 3))


def twice() -> None:
    probe = fg.Probe(mean_loss, ONE)
    probe.before(network())
    probe.before(network())


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "no function": (lambda: fg.Probe(3, ONE), "loss must be a function"),  # type: ignore[arg-type]
    "no batches": (lambda: fg.Probe(mean_loss, []), "at least one batch"),
    "a loader": (lambda: fg.Probe(mean_loss, iter(ONE)), "at least one batch"),  # type: ignore[arg-type]
    "share 0": (lambda: fg.Probe(mean_loss, ONE, share=0), "share must be a finite number above 0, not 0"),
    "share 2": (lambda: fg.Probe(mean_loss, ONE, share=2), "share must be at most 1"),
    "weight 0": (lambda: measured(weight=0), "weight must be a finite number above 0"),
    "weights": (lambda: measured(weight=[1.0, 2.0]), "weight must be one number, or one for each of 1 models, not 2"),
    "after alone": (lambda: fg.Probe(mean_loss, ONE).after(network()), "without before"),
    "before twice": (twice, "called twice"),
    "no model": (lambda: fg.Probe(mean_loss, ONE).before({}), "must be a torch module"),  # type: ignore[arg-type]
    "no models": (lambda: fg.Probe(mean_loss, ONE).before([]), "at least one model"),
    "too few lists": (lambda: measured(model=[network(), network()]), "one list of batches for each of the 2 models"),
    "no list": (lambda: measured(batches=[3], model=[network()]), "list of at least one batch for each model"),
    "a vector": (lambda: measured(lambda model, batch: model(batch[0])), r"tensor of shape \(2, 3\)"),
    "a float": (
        lambda: measured(lambda model, batch: 1.0),
        "one number as a tensor, the mean loss of the batch, not 1",
    ),
    "detached": (lambda: measured(lambda model, batch: mean_loss(model, batch).detach()), "can be differentiated"),
    "another model": (lambda: measured(lambda model, batch: mean_loss(OTHER, batch)), "does not depend on the model"),
    "frozen": (lambda: fg.Probe(mean_loss, ONE).before(network().requires_grad_(False)), "nothing to probe"),
    "other parameters": (lambda: measured(model=nn.Linear(5, 3)), "trains other parameters"),
    "another average": (averaged_into_another, "averaged model trains other parameters"),
    "reduce": (lambda: measured(reduce=lambda tensor: tensor.sum()), "must return the sum over all ranks"),
    "about": (lambda: fg.Probe(mean_loss, ONE, about={"local_step": 3}), "did you mean local_steps?"),
    "algorithm": (lambda: fg.Probe(mean_loss, ONE, about={"algorithm": "sgd"}), "an object with a name"),
    "column": (lambda: fg.Probe(mean_loss, ONE).summary().column("sprea"), "did you mean spread?"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_one_sentence(name: str) -> None:
    make, sentence = MISTAKES[name]
    with pytest.raises(InputError, match=sentence) as caught:
        make()
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith((".", "?"))


def test_the_directory_must_be_free(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="holds files but no run"):
        fg.Probe(mean_loss, ONE, out=tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_one_rank_more_is_one_worker_more() -> None:
    """The comparison of workers in lists is that of ranks: sums over ranks of sums over workers."""
    federation, batches = quadratics(count=3)
    start = Quadratic(federation.start(0))
    models = [copy.deepcopy(start) for _ in batches]
    for local, batch in zip(models, batches, strict=True):
        descend(local, quadratic_loss, batch, 4, 0.1)
    mean = copy.deepcopy(start)
    average(mean, models)
    workers = [
        Worker(m, [b], 1.0, parameters_of(m), buffers_of(m), slope(m, quadratic_loss, [b], parameters_of(m), {}))
        for m, b in zip(models, batches, strict=True)
    ]
    sent = Sent(parameters_of(start), parameters_of(mean))
    whole = compare_workers(0, workers, sent, quadratic_loss, lambda tensor: tensor)
    doubled = compare_workers(0, workers, sent, quadratic_loss, lambda tensor: 2 * tensor)
    assert torch.equal(whole.steepest, doubled.steepest)
    ours, theirs = (replace(each.found.record, L_tilde_ratio=0.0) for each in (whole, doubled))
    same_records(ours, theirs, relative=1e-12)
    assert (whole.found.num_workers, doubled.found.num_workers) == (3, 6)
