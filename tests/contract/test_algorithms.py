"""Laws that every registered algorithm obeys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.grouped import grouped
from tests.strategies import COORDINATEWISE, PARAMETERS, federations

from fedgauge.algorithms import ALGORITHMS, fingerprint, make_algorithm
from fedgauge.algorithms.base import Algorithm
from fedgauge.federation.participation import Participation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.simulation.loop import simulate
from fedgauge.values import Trace

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "reset momentum": ("fedavg", {"local_momentum": 0.5}),
    "kept momentum": ("fedprox", {"local_momentum": 0.5, "local_nesterov": True, "optimiser_state": "kept"}),
    "averaged momentum": ("slowmo", {"local_momentum": 0.5, "weight_decay": 0.1, "optimiser_state": "averaged"}),
    "clipped": ("fedadam", {"clip": 0.5}),
    "averaged adamw": ("fedavgm", {"gamma": 0.01, "optimiser": "adamw", "optimiser_state": "averaged"}),
    "by round": ("scaffold", {"gamma_schedule": "cosine,over=4", "eta_schedule": "linear,over=4,warmup=2"}),
    "by step": ("fedavg", {"gamma_schedule": "cosine,over=12,by=step", "eta_schedule": "step,every=4,by=step"}),
    "plain by round": ("fedavg", {"gamma_schedule": "step,every=2"}),
}
"""Algorithms with local optimisers and schedules."""
MADE = {name: (name, PARAMETERS[name]) for name in ALGORITHMS}
MADE |= {case: (name, {**PARAMETERS[name], **options}) for case, (name, options) in VARIANTS.items()}
AXES = (*COORDINATEWISE, "clipped", "averaged adamw")
"""Those that treat every coordinate by itself and so depend on the axes."""
every_algorithm = pytest.mark.parametrize("name", MADE)
SAMPLINGS = ("full", "with-replacement", "with-replacement-shared", "without-replacement")


def run(federation: QuadraticFederation, name: str, **how: Any) -> Trace:
    how = {"local_steps": 3, "rounds": 4, **how}
    return simulate(federation, made(name), **grouped(**how))


def made(name: str) -> Algorithm:
    algorithm, parameters = MADE[name]
    return make_algorithm(algorithm, **parameters)


def assert_same(found: Trace, expected: Trace, model: Any = None) -> None:
    """Equal to 1e-12 of the trajectory's own size, which is what rounding may change on quadratics."""
    model = expected.model if model is None else model
    size = max(1.0, float(np.abs(expected.losses).max()), float(np.abs(model).max()))
    np.testing.assert_allclose(found.model / size, model / size, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.losses / size, expected.losses / size, rtol=0, atol=1e-12)


@every_algorithm
@settings(max_examples=10)
@given(federation=federations(), seed=st.integers(0, 2**64 - 1))
def test_same_seed_same_bits(name: str, federation: QuadraticFederation, seed: int) -> None:
    assert run(federation, name, seed=seed) == run(federation, name, seed=seed)


# An algorithm whose workers have a memory cannot draw one twice.
ALLOWED = [
    (name, sampling)
    for name in MADE
    for sampling in SAMPLINGS
    if made(name).repeats or not sampling.startswith("with-")
]


@pytest.mark.parametrize(("name", "sampling"), ALLOWED)
def test_chunks_change_nothing_but_rounding(name: str, sampling: Any) -> None:
    federation = random_quadratics(7, 4, sigma2=1.0, linear_spread=10.0, seed=4)
    participation = Participation(sampling, None if sampling == "full" else 5, (1, 2, 1, 3, 1, 1, 1))
    whole = run(federation, name, participation=participation, chunk=7)
    for chunk in (1, 2, 3):
        parts = run(federation, name, participation=participation, chunk=chunk)
        assert_same(parts, whole)
        for one, other in zip(parts.rounds[:-1], whole.rounds[:-1], strict=True):
            assert one.spread == pytest.approx(other.spread, rel=1e-9, abs=1e-12)
            assert one.deviation2 == pytest.approx(other.deviation2, rel=1e-6, abs=1e-12)


@every_algorithm
@settings(max_examples=10)
@given(federation=federations(sigma2=0.0), data=st.data())
def test_the_order_of_workers_does_not_matter(name: str, federation: QuadraticFederation, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(federation.num_workers)))
    permuted = QuadraticFederation(
        federation.hessians[order], federation.linear[order], federation.constant[order], start=federation.first_model
    )
    assert_same(run(permuted, name), run(federation, name))


def _rotation(dim: int, seed: int, axes_only: bool) -> Any:
    generator = np.random.default_rng(seed)
    if axes_only:
        return np.eye(dim)[generator.permutation(dim)] * generator.choice([-1.0, 1.0], dim)
    return np.linalg.qr(generator.standard_normal((dim, dim)))[0]


@every_algorithm
@settings(max_examples=10)
@given(federation=federations(sigma2=0.0, linear_spread=1.0), seed=st.integers(0, 2**32))
def test_rotating_the_space_rotates_the_model(name: str, federation: QuadraticFederation, seed: int) -> None:
    Q = _rotation(federation.dim, seed, axes_only=name in AXES)
    hessians = Q @ federation.hessians @ Q.T
    rotated = QuadraticFederation(
        (hessians + hessians.swapaxes(1, 2)) / 2,
        federation.linear @ Q.T,
        federation.constant,
        start=Q @ federation.first_model,
    )
    straight = run(federation, name)
    assert_same(run(rotated, name), straight, model=Q @ straight.model)


@every_algorithm
def test_no_function_changes_its_arguments(name: str) -> None:
    generator = torch.Generator().manual_seed(0)

    def rows(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def frozen(argument: Any) -> Any:
        return {k: v.clone() for k, v in argument.items()} if isinstance(argument, dict) else argument.clone()

    def unchanged(function: Any, *arguments: Any) -> Any:
        before = [frozen(argument) for argument in arguments]
        result = function(*arguments)
        for old, new in zip(before, arguments, strict=True):
            assert frozen(new) == old if isinstance(new, dict) and not new else _equal(new, old)
        return result

    def _equal(one: Any, other: Any) -> bool:
        if isinstance(one, dict):
            return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
        return torch.equal(one, other)

    algorithm = made(name)
    model, workers = rows(3), 4
    server = {key: rows(len(value)).abs() for key, value in unchanged(algorithm.init, model).items()}
    first = unchanged(algorithm.worker_init, model)
    memory = {key: rows(workers, len(value)).abs() for key, value in first.items()}
    begun = unchanged(algorithm.begin, model, server, memory)
    local = {key: value.expand(workers, value.shape[-1]).clone() for key, value in begun.items()}
    local = dict(unchanged(algorithm.step, local, rows(workers, 3)))
    message, remembered = unchanged(algorithm.finish, model, local, torch.full((workers, 1), 2.0, dtype=torch.float64))
    assert remembered.keys() == memory.keys()
    mean = {key: value.mean(dim=0) for key, value in message.items()}
    moved, after = unchanged(lambda x, s, m: algorithm.update(x, s, m, 0.5), model, server, mean)
    assert moved.shape == model.shape
    assert after.keys() == server.keys()


@every_algorithm
def test_its_name_and_parameters_identify_it(name: str) -> None:
    algorithm = made(name)
    assert fingerprint(algorithm) is None
    again = make_algorithm(algorithm.name, **algorithm.parameters)
    assert again.parameters == algorithm.parameters


@every_algorithm
def test_a_run_is_resumed_and_shared_by_processes_with_the_same_bits(name: str, tmp_path: Path) -> None:
    federation = random_quadratics(4, 3, sigma2=0.1, seed=3)
    how: dict[str, Any] = {"local_steps": [1, 2, 3, 2], "rounds": 6, "chunk": 1}
    whole = run(federation, name, **how)
    assert run(federation, name, **how, pause=3, run=tmp_path, checkpoint_every=1).status == "stopped"
    assert run(federation, name, **how, run=tmp_path, checkpoint_every=1, resume=True, processes=2) == whole


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_docstring_states_the_update_and_its_source(name: str) -> None:
    text = ALGORITHMS[name].__doc__ or ""
    assert ".. math::" in text
    assert "Source:" in text
