"""Laws that every registered algorithm obeys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.grouped import grouped
from tests.strategies import COORDINATEWISE, PARAMETERS, federations

from fedgauge.algorithms import ALGORITHMS, make_algorithm
from fedgauge.federation.generate import random_quadratics
from fedgauge.federation.participation import Participation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.simulation.loop import simulate
from fedgauge.values import Trace

every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)
SAMPLINGS = ("full", "with-replacement", "with-replacement-shared", "without-replacement")


def run(federation: QuadraticFederation, name: str, **how: Any) -> Trace:
    how = {"local_steps": 3, "rounds": 4, **how}
    return simulate(federation, make_algorithm(name, **PARAMETERS[name]), **grouped(**how))


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
    for name in ALGORITHMS
    for sampling in SAMPLINGS
    if make_algorithm(name, gamma=0.1).repeats or not sampling.startswith("with-")
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
    Q = _rotation(federation.dim, seed, axes_only=name in COORDINATEWISE)
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

    algorithm = make_algorithm(name, **PARAMETERS[name])
    model, workers = rows(3), 4
    server = {key: rows(3).abs() for key in unchanged(algorithm.init, model)}
    memory = {key: rows(workers, 3) for key in unchanged(algorithm.worker_init, model)}
    begun = unchanged(algorithm.begin, model, server, memory)
    local = {key: value.expand(workers, 3).clone() for key, value in begun.items()}
    local = dict(unchanged(algorithm.step, local, rows(workers, 3)))
    message, remembered = unchanged(algorithm.finish, model, local, torch.full((workers, 1), 2.0, dtype=torch.float64))
    assert remembered.keys() == memory.keys()
    mean = {key: value.mean(dim=0) for key, value in message.items()}
    moved, after = unchanged(lambda x, s, m: algorithm.update(x, s, m, 0.5), model, server, mean)
    assert moved.shape == model.shape
    assert after.keys() == server.keys()


@every_algorithm
def test_the_docstring_states_the_update_and_its_source(name: str) -> None:
    text = ALGORITHMS[name].__doc__ or ""
    assert ".. math::" in text
    assert "Source:" in text
