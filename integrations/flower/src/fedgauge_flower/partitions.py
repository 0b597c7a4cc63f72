"""Partitions to and from flwr-datasets, Flower's package of data sets."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np

from fedgauge.base.errors import InputError
from fedgauge.data.partition import Partition

try:
    from flwr_datasets.partitioner import Partitioner
except ImportError:
    raise InputError(
        "Flower's partitions need the package flwr-datasets, which is not installed; run:"
        " pip install 'fedgauge-flower[data]'."
    ) from None

if TYPE_CHECKING:
    from datasets import Dataset

_ROW = "fedgauge row"
"""A column of row numbers, by which the rows of a partition are recognised."""


class FedgaugePartitioner(Partitioner):  # type: ignore[misc]  # the package has no types
    """A fedgauge partition as a partitioner of flwr-datasets: partition i has worker i's examples, in order.

    Args:
        partition: the fedgauge partition.
    """

    def __init__(self, partition: Partition) -> None:
        super().__init__()
        self.partition = partition

    @property
    def num_partitions(self) -> int:
        """The number N of workers."""
        return self.partition.num_workers

    def load_partition(self, partition_id: int) -> Dataset:
        """The rows of one worker."""
        rows = len(self.dataset)
        if rows != self.partition.num_examples:
            raise InputError(
                f"The partition has {self.partition.num_examples} examples, but the data set has {rows} rows; assign"
                " the data set for which the partition was made."
            )
        return self.dataset.select(self.partition.worker(partition_id))


def from_partitioner(partitioner: Partitioner, dataset: Dataset | None = None, *, seed: int = 0) -> Partition:
    """Turn a partitioner of flwr-datasets into a fedgauge partition: worker i has the rows of partition i.

    Args:
        partitioner: any partitioner whose partitions share no rows; it is not changed.
        dataset: the rows to distribute; by default, the data set that was assigned to the partitioner.
        seed: the seed to record in the partition; it has no effect, because the partitioner has its own randomness.
    """
    if dataset is None:
        if not partitioner.is_dataset_assigned():
            raise InputError("The partitioner has no data set; assign one to it, or pass dataset.")
        dataset = partitioner.dataset
    numbered = dataset.add_column(_ROW, np.arange(len(dataset)))
    own = copy.deepcopy(partitioner)
    # A partitioner accepts a data set only once, and the original of this copy may already have one.
    own._dataset = None
    own.dataset = numbered
    workers = [np.asarray(own.load_partition(number)[_ROW], dtype=np.int64) for number in range(own.num_partitions)]
    sizes = [len(rows) for rows in workers]
    return Partition(type(partitioner).__name__, {}, seed, len(dataset), np.array(sizes), np.concatenate(workers))
