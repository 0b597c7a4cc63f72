"""Ids with similar data share a worker, and workers have about as much data each."""

from __future__ import annotations

import numpy as np

import fedgauge as fg


def test_similar_writers_and_similar_inputs_share_a_worker_too() -> None:
    labels = np.tile([0, 0, 0, 1, 2, 2, 2, 3], 30)
    writer = np.repeat(np.arange(6), 40)
    skewed, none, nothing = np.where(writer % 2 == 0, 0, labels), np.zeros((0, 1)), np.zeros(0, np.int64)
    classes = fg.Dataset("classes", np.zeros((240, 1)), skewed, none, nothing, (), {"writer": writer})
    inputs = labels[:, None] + writer[:, None] % 2 * 9.0
    values = fg.Dataset("values", inputs, labels, none, nothing, (), {"writer": writer}, values=True)
    for data in (classes, values):
        made = fg.make_partition(data, "id", 2, grouping="similar")
        assert [set(writer[made.worker(number)]) for number in range(2)] == [{0, 2, 4}, {1, 3, 5}]


def test_workers_of_similar_ids_have_about_as_much_data_each() -> None:
    generator = np.random.default_rng(0)
    sizes = generator.integers(1, 60, 80)
    ids = np.repeat(np.arange(80), sizes)
    none = np.zeros((0, 12), np.int64)
    for number in (9, 1000):
        tokens = generator.integers(0, number, (len(ids), 12))
        data = fg.Dataset("tokens", tokens, tokens, none, none, (), {"document": ids})
        for workers in (1, 5, 7, 80):
            made = fg.make_partition(data, "id", workers, grouping="similar")
            assert made.num_workers == workers
            assert made.dropped == 0
            if workers < 10:
                assert made.sizes.max() < 1.8 * made.sizes.min()
