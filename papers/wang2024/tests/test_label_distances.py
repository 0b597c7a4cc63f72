"""Distances of label distributions, against naive loops and the transport problem itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauge.base.errors import InputError
from fedgauge.data.partition import Partition
from fedgauge.data.schemes import dirichlet, iid, shards
from fedgauge_wang2024.label_distances import DISTANCES, label_distances


@st.composite
def shared(draw: st.DrawFn) -> tuple[Partition, Any]:
    labels = np.array(draw(st.lists(st.integers(0, 4), min_size=12, max_size=40)))
    return dirichlet(labels, draw(st.integers(1, 5)), alpha=draw(st.sampled_from([0.05, 1.0, 100.0]))), labels


def made(sizes: list[int], indices: list[int]) -> Partition:
    return Partition("iid", {}, 0, len(indices), np.array(sizes), np.array(indices))


def distributions(partition: Partition, labels: Any) -> list[list[float]]:
    """The workers' label distributions, counted one by one."""
    rows = []
    for worker in range(partition.num_workers):
        mine = [int(labels[example]) for example in partition.worker(worker)]
        rows.append([mine.count(label) / len(mine) for label in range(labels.max() + 1)])
    return rows


def naive(name: str, p: list[float], q: list[float]) -> float:
    pairs = list(zip(p, q, strict=True))
    if name == "label_emd":
        return sum(max(a - b, 0.0) for a, b in pairs)
    if name == "label_hellinger":
        return math.sqrt(max(1 - sum(math.sqrt(a * b) for a, b in pairs), 0.0))
    divergence = 0.0
    for a, b in pairs:
        middle = (a + b) / 2
        divergence += sum(part * math.log2(part / middle) / 2 for part in (a, b) if part > 0)
    return math.sqrt(max(divergence, 0.0))


@given(shared())
def test_they_agree_with_naive_loops(given: tuple[Partition, Any]) -> None:
    partition, labels = given
    rows = distributions(partition, labels)
    whole = [sum(row[label] for row in rows) / len(rows) for label in range(len(rows[0]))]
    for name, (each, mean, worst) in label_distances(partition, labels).items():
        wanted = [naive(name, row, whole) for row in rows]
        np.testing.assert_allclose(each, wanted, atol=1e-7)  # a root of rounding
        assert mean == pytest.approx(np.mean(wanted), abs=1e-7)
        assert worst == each.max()
        assert ((each >= 0) & (each <= 1 + 1e-12)).all()


def test_the_earth_mover_pays_one_for_every_move() -> None:
    from scipy.optimize import linprog

    generator = np.random.default_rng(0)
    p, q = generator.dirichlet(np.ones(4)), generator.dirichlet(np.ones(4))
    cost = 1 - np.eye(4)
    leaves, arrives = np.kron(np.eye(4), np.ones(4)), np.kron(np.ones(4), np.eye(4))
    plan = linprog(cost.ravel(), A_eq=np.vstack([leaves, arrives]), b_eq=np.concatenate([p, q]))
    assert DISTANCES["label_emd"](p[None], q)[0] == pytest.approx(plan.fun, abs=1e-9)


def test_alike_is_near_zero_and_one_label_each_is_known() -> None:
    labels = np.arange(1000) % 10
    apart = label_distances(shards(labels, 10, shards=1), labels)
    assert apart["label_emd"][1] == pytest.approx(0.9)
    assert apart["label_hellinger"][1] == pytest.approx(math.sqrt(1 - math.sqrt(0.1)))
    alike = label_distances(iid(labels, 10), labels)
    assert all(alike[name][2] < apart[name][1] / 2 for name in DISTANCES)
    one = label_distances(iid(labels, 1), labels)
    assert all(one[name][2] == 0.0 for name in DISTANCES)


def test_weights_count_a_worker_more_than_once() -> None:
    labels = np.array([0, 0, 1, 1, 1, 0])
    three, doubled = made([2, 2, 2], [0, 1, 2, 3, 4, 5]), made([2, 2, 2, 2], [0, 1, 6, 7, 2, 3, 4, 5])
    once = label_distances(three, labels, weights=(2.0, 1.0, 1.0))
    twice = label_distances(doubled, np.array([0, 0, 1, 1, 1, 0, 0, 0]))
    for name in DISTANCES:
        assert once[name][1] == pytest.approx(twice[name][1], abs=1e-12)


def test_a_worker_without_examples_is_named() -> None:
    with pytest.raises(InputError, match="Worker 1 has no examples"):
        label_distances(made([2, 0], [0, 1]), np.array([0, 1]))
