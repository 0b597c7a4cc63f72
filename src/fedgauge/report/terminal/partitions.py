"""Partitions, as tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from fedgauge.data.partition import Indices, Partition
from fedgauge.report import figures
from fedgauge.report.terminal import console

_MOST_WORKERS, _MOST_LABELS = 20, 12


def show_partition(title: str, partition: Partition, counts: Indices, names: Sequence[str]) -> None:
    """Print how many examples of each label the workers have, for the first workers; many labels are summed up."""
    few = counts.shape[1] <= _MOST_LABELS
    head = names if few else ("labels held", "most of", "that is")
    rows = []
    for worker in range(min(partition.num_workers, _MOST_WORKERS)):
        row, size = counts[worker], int(partition.sizes[worker])
        cells = [str(number) for number in row]
        if not few:
            part = f"{row.max() / size:.0%}" if size else "–"
            cells = [str((row > 0).sum()), names[int(row.argmax())] if size else "–", part]
        rows.append((str(worker), str(size), *cells))
    more = partition.num_workers - len(rows)
    notes = [f"and {more} more workers"] if more else []
    notes.append(f"{partition.dropped} of {partition.num_examples} examples dropped")
    columns = ("worker", "examples", *map(escape, head))
    console.table(title, columns, rows, caption="; ".join(notes), padding=0 if few else 1)


def draw_partition(path: Path, title: str, counts: Indices, names: Sequence[str]) -> None:
    """Draw a matrix of workers and labels; each cell shows how many examples of a label a worker has."""
    height = min(max(3.2, 0.16 * len(counts)), 9.0)
    width = min(max(4.6, 0.16 * counts.shape[1]), 12.0)
    with figures.figure(path, width=width, height=height) as (axes,):
        figures.matrix(
            axes, counts, title=title, xlabel="label", ylabel="worker", columns=tuple(names), colour="examples"
        )
