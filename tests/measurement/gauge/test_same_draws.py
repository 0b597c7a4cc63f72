"""Runs that are compared have the same mini-batches, step by step, whatever their numbers of local steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fedgauge as fg
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.measurement.gauge.gauge import _Gauge
from fedgauge.measurement.gauge.runner import Runner, SharedDraws
from fedgauge.simulation.setup import Setup

N, STEPS = 4, 16


def shards() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The same examples for every worker: without other mini-batches, workers would stay equal."""
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(30, 5, generator=generator), torch.arange(30) % 3)] * N


def noisy(inputs: torch.Tensor) -> torch.Tensor:
    return inputs + 0.1 * torch.randn(inputs.shape)


def federation(how: str = "plain") -> Any:
    """Federations whose local steps draw: mini-batches; seeds of dropout and augmentation too; or noise."""
    if how == "quadratic":
        return fg.random_quadratics(N, 3, sigma2=0.1)
    parts: list[nn.Module] = [nn.Linear(5, 6), nn.ReLU(), *([nn.Dropout(0.3)] if how == "dropout" else [])]
    augment = noisy if how == "augmented" else None
    model = nn.Sequential(*parts, nn.Linear(6, 3))
    return fg.federate(model, nn.functional.cross_entropy, shards(), batch_size=3, augment=augment)


Draws = dict[int, list[list[float]]]


class Noted:
    """Notes the draws that each worker uses, step by step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._draws: Draws = defaultdict(list)
        for kind in (SupervisedFederation, fg.QuadraticFederation):
            monkeypatch.setattr(kind, "local_sgd", self._sgd)
            monkeypatch.setattr(kind, "stochastic_gradients", self._noting(kind.stochastic_gradients))

    def _noting(self, gradients: Any) -> Any:
        def noted(of: Any, models: Any, workers: Any, draws: Any) -> Any:
            for worker, row in zip(workers.tolist(), draws, strict=True):
                self._draws[worker].append(row.tolist())
            return gradients(of, models, workers, draws)

        return noted

    @staticmethod
    def _sgd(of: Any, models: Any, workers: Any, draws: Sequence[Any], gamma: float) -> Any:
        for draw in draws:
            models = models - gamma * of.stochastic_gradients(models, workers, draw)
        return models

    def draws(self, *run: Any) -> Draws:
        """The draws of a run."""
        self.clear()
        ran(*run)
        return self.taken()

    def clear(self) -> None:
        self._draws.clear()

    def taken(self) -> Draws:
        return {worker: list(rows) for worker, rows in self._draws.items()}


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    return Noted(monkeypatch)


def ran(setup: Setup, rounds: Sequence[int], like: Sequence[int] | None = ()) -> torch.Tensor:
    """The model after these rounds."""
    with Runner(setup, like=like) as runner:
        state, before = runner.first_state(), 0
        for steps in rounds:
            state = runner.advance(state, steps, 1, before)
            before += steps
    return state.model


def setup_of(of: Any, algorithm: Any = None, **how: Any) -> Setup:
    return Setup(of, algorithm or fg.fedavg(0.05), compute=fg.Compute(processes=1), seed=3, **how)


@pytest.mark.parametrize("how", ["plain", "dropout", "augmented", "quadratic"])
@pytest.mark.parametrize("rounds", [[16], [4] * 4, [1, 5, 2, 8]])
@pytest.mark.parametrize("like", [(), [16], [3, 3, 4]])
def test_the_same_draws_whatever_the_number_of_local_steps(
    how: str, rounds: list[int], like: Sequence[int], noted: Noted
) -> None:
    setup = setup_of(federation(how))
    one, several = noted.draws(setup, [1] * STEPS, like), noted.draws(setup, rounds, like)
    assert sorted(one) == list(range(N))
    assert all(len(each) == STEPS for each in one.values())
    assert several == one
    # Otherwise, as in every ordinary run, each round has draws of its own.
    assert noted.draws(setup, rounds, None) != noted.draws(setup, [1] * STEPS, None)


def test_a_run_that_shares_its_own_draws_has_the_bits_that_it_has_without() -> None:
    for rounds in ([1] * 6, [1, 4, 2]):
        for how in ("plain", "dropout", "augmented", "quadratic"):
            setup = setup_of(federation(how))
            assert torch.equal(ran(setup, rounds, None), ran(setup, rounds, rounds))
    setup = setup_of(federation())
    assert torch.equal(ran(setup, [1] * 6, None), ran(setup, [1] * 6, ()))


def test_fully_synchronous_training_and_one_long_phase_see_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all workers draw alike, averaging changes nothing: I = 1 for 16 rounds is I = 16 for one, as models too."""
    of = federation()
    alike = SupervisedFederation.draws

    def as_worker_0(this: Any, streams: Any, round: int, workers: Any, copies: Any, steps: int) -> Any:
        return alike(this, streams, round, np.zeros_like(workers), copies, steps)

    monkeypatch.setattr(SupervisedFederation, "draws", as_worker_0)
    one, long = ran(setup_of(of), [1] * STEPS), ran(setup_of(of), [STEPS])
    # Averaging equal rows rounds in another order.
    assert torch.allclose(one, long, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(one, ran(setup_of(of), [STEPS], None), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("algorithm", [fg.scaffold(0.05), fg.momentum(0.05)], ids=lambda each: each.name)
def test_every_algorithm_and_engine(algorithm: Any, noted: Noted) -> None:
    setup = setup_of(federation(), algorithm)
    assert noted.draws(setup, [4, 4]) == noted.draws(setup, [1] * 8)
    assert torch.equal(ran(replace(setup, compute=fg.Compute(processes=2)), [4, 4]), ran(setup, [4, 4]))


def test_those_who_take_part_are_drawn_by_round(noted: Noted) -> None:
    some = fg.Participation("without-replacement", 2)
    whole = noted.draws(setup_of(federation()), [1] * STEPS)
    part = noted.draws(setup_of(federation(), participation=some), [4] * 4)
    cohorts = [some.cohort(N, 3, round).workers.tolist() for round in range(4)]
    for worker in range(N):
        rounds = [round for round, members in enumerate(cohorts) if worker in members]
        assert part.get(worker, []) == [whole[worker][4 * round + step] for round in rounds for step in range(4)]


@given(st.lists(st.integers(1, 9), max_size=6), st.integers(0, 40), st.integers(1, 20))
def test_places_are_those_of_enumeration(rounds: list[int], before: int, steps: int) -> None:
    places = [(r, count, k) for r, count in enumerate(rounds) for k in range(count)]
    places += [(len(rounds) + k, 1, 0) for k in range(before + steps)]
    found = SharedDraws(rounds).of(before, steps)
    assert [(d.round, d.steps, k) for d in found for k in range(d.first, d.last)] == places[before : before + steps]


@pytest.fixture
def gauged(noted: Noted, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A gauge, and the mini-batches of its runs one after the other, without those that sigma is measured from."""
    monkeypatch.setattr(_Gauge, "_note_noise", lambda *_: None)

    def taken(noted: Noted, **how: Any) -> tuple[fg.GaugeResult, Draws]:
        noted.clear()
        return fg.gauge(setup_of(federation(), fg.fedavg(0.01)), progress=None, **how), noted.taken()

    return partial(taken, noted)


def test_the_gauge_compares_runs_with_the_same_draws(gauged: Any) -> None:
    found, draws = gauged(options=fg.GaugeOptions(steps=12, local_steps=[4], budget=12))
    assert found.spent.gradient_steps == 24
    for each in draws.values():
        assert each[12:] == each[:12]


def test_a_confirming_run_has_the_draws_of_the_run_that_it_confirms(gauged: Any) -> None:
    """The first run changes between several numbers; where rounds are dear, a larger one has a run of its own."""
    found, draws = gauged(steps=1024, cost=10_000)
    assert any("256 local steps had a run of their own" in note for note in found.notes)
    for each in draws.values():
        assert len(each) == found.spent.gradient_steps
        first = next(place for place in range(900, 1025) if each[place] == each[0])
        assert each[first : first + 256] == each[:256]
