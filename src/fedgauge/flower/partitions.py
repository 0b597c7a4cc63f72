"""Partitions to and from flwr-datasets, Flower's package of data sets."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np

from fedgauge.data.partition import Partition
from fedgauge.errors import InputError

try:
    from flwr_datasets.partitioner import Partitioner
except ImportError:
    raise InputError(
        "Partitions of Flower's need the package flwr-datasets, which is not installed; run:"
        " pip install 'fedgauge[flower-data]'."
    ) from None

if TYPE_CHECKING:
    from datasets import Dataset

_ROW = "fedgauge row"
"""A column of numbers, by which the rows of a partition are known again."""


class FedgaugePartitioner(Partitioner):  # type: ignore[misc]  # the package has no types
    """A partition of fedgauge's as a partitioner of flwr-datasets: partition i is worker i's examples, in order.

    Args:
        partition: who has what.
    """

    def __init__(self, partition: Partition) -> None:
        super().__init__()
        self.partition = partition

    @property
    def num_partitions(self) -> int:
        """N."""
        return self.partition.num_workers

    def load_partition(self, partition_id: int) -> Dataset:
        """The rows of one worker."""
        rows = len(self.dataset)
        if rows != self.partition.num_examples:
            raise InputError(
                f"The partition is of {self.partition.num_examples} examples, but the data set has {rows} rows; assign"
                " the data set that it was made for."
            )
        return self.dataset.select(self.partition.worker(partition_id))


def from_partitioner(partitioner: Partitioner, dataset: Dataset | None = None, *, seed: int = 0) -> Partition:
    """A partitioner of flwr-datasets as a partition of fedgauge's: worker i has the rows of partition i.

    Args:
        partitioner: of any kind whose partitions share no row; it is left as it is.
        dataset: the rows to share out; what was assigned to the partitioner if not given.
        seed: to note in the partition; the randomness is the partitioner's own.
    """
    if dataset is None:
        if not partitioner.is_dataset_assigned():
            raise InputError("The partitioner has no data set; assign one to it, or give dataset.")
        dataset = partitioner.dataset
    numbered = dataset.add_column(_ROW, np.arange(len(dataset)))
    own = copy.deepcopy(partitioner)
    # A partitioner takes a data set only once, and this is a copy of one that may have its own.
    own._dataset = None
    own.dataset = numbered
    workers = [np.asarray(own.load_partition(number)[_ROW], dtype=np.int64) for number in range(own.num_partitions)]
    sizes = [len(rows) for rows in workers]
    return Partition(type(partitioner).__name__, {}, seed, len(dataset), np.array(sizes), np.concatenate(workers))
