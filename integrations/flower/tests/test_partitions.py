"""Partitions to and from the real flwr-datasets, on a data set in memory."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from flwr_datasets.partitioner import DirichletPartitioner, IidPartitioner, Partitioner

from fedgauge import Partition, load_dataset, make_partition
from fedgauge.base.errors import InputError
from fedgauge_flower import FedgaugePartitioner, from_partitioner


@pytest.fixture(scope="module")
def rows() -> Any:
    data = load_dataset("digits")
    return Dataset.from_dict({"number": list(range(data.num_train)), "label": data.train_labels.tolist()})


@pytest.fixture(scope="module")
def partition() -> Partition:
    return make_partition(load_dataset("digits"), "dirichlet", 5, alpha=0.3, seed=1)


def test_a_partition_is_a_partitioner(rows: Any, partition: Partition) -> None:
    partitioner = FedgaugePartitioner(partition)
    partitioner.dataset = rows
    assert isinstance(partitioner, Partitioner)
    assert partitioner.num_partitions == 5
    for worker in range(5):
        assert list(partitioner.load_partition(worker)["number"]) == partition.worker(worker).tolist()


def test_there_and_back_is_the_same(rows: Any, partition: Partition) -> None:
    partitioner = FedgaugePartitioner(partition)
    back = from_partitioner(partitioner, rows, seed=1)
    assert np.array_equal(back.sizes, partition.sizes)
    assert np.array_equal(back.indices, partition.indices)
    assert not partitioner.is_dataset_assigned()


@pytest.mark.parametrize(
    "partitioner",
    [IidPartitioner(4), DirichletPartitioner(4, "label", alpha=0.5, min_partition_size=1, seed=3)],
    ids=["iid", "dirichlet"],
)
def test_flowers_own_partitioners(rows: Any, partitioner: Any) -> None:
    partitioner.dataset = rows
    partition = from_partitioner(partitioner)
    assert partition.num_workers == 4
    assert partition.dropped == 0
    for worker in range(4):
        assert list(partitioner.load_partition(worker)["number"]) == partition.worker(worker).tolist()


def test_what_does_not_fit_is_said(rows: Any, partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    partitioner = FedgaugePartitioner(partition)
    partitioner.dataset = rows.select(range(10))
    with pytest.raises(InputError, match="has 10 rows"):
        partitioner.load_partition(0)
    with pytest.raises(InputError, match="has no data set"):
        from_partitioner(IidPartitioner(2))
    monkeypatch.setitem(sys.modules, "flwr_datasets.partitioner", None)
    monkeypatch.delitem(sys.modules, "fedgauge_flower.partitions")
    with pytest.raises(InputError, match=r"pip install 'fedgauge-flower\[data\]'"):
        importlib.import_module("fedgauge_flower.partitions")
