"""How data is divided among workers, and what shifts do to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedgauge.data.dataset import Dataset
from fedgauge.data.partition import Indices, Partition
from fedgauge.show.charts import HeatMap, LineChart, Series, Tiles
from fedgauge.show.views.view import Cell, Share, Table, View, view
from fedgauge.values.display import counted

_MOST_WORKERS, _MOST_LABELS, _MOST_COLUMNS = 20, 12, 200
_MOST_EXAMPLES = 10


@view.register
def view_of_partition(partition: Partition) -> View:
    """How many examples every worker has."""
    sizes = f"{partition.sizes.min()} to {partition.sizes.max()} examples each, {partition.dropped} dropped"
    workers = [float(worker) for worker in range(partition.num_workers)]
    series = [Series("examples", workers, partition.sizes.tolist(), 0, "dots")]
    chart = LineChart("sizes", series, f"{partition.scheme}: examples by worker", "worker", "examples", log=False)
    sentence = f"{counted(partition.num_workers, 'worker')} by the scheme {partition.scheme}: {sizes}."
    return View((sentence,), charts=(chart,))


def labels_view(
    title: str,
    partition: Partition,
    counts: Indices,
    names: Sequence[str],
    shifts: Mapping[str, Sequence[str]] | None = None,
) -> View:
    """How many examples of each label the workers have, for the first workers; many labels are summed up."""
    few = counts.shape[1] <= _MOST_LABELS
    first = min(partition.num_workers, _MOST_WORKERS)
    rows: list[list[Cell]] = []
    for worker in range(first):
        row, size = counts[worker], int(partition.sizes[worker])
        cells: list[Cell] = row.tolist()
        if not few:
            most = Share(float(row.max() / size)) if size else None
            cells = [int((row > 0).sum()), names[int(row.argmax())] if size else None, most]
        rows.append([worker, size, *cells])
    more = partition.num_workers - first
    notes = [f"and {more} more workers"] if more else []
    notes.append(f"{partition.dropped} of {partition.num_examples} examples dropped")
    heads = ("worker", "examples", *(names if few else ("labels held", "most of", "share")))
    tables = [Table(heads, rows, title, "; ".join(notes))]
    if shifts:
        changes = [(str(worker), *(words[worker] for words in shifts.values())) for worker in range(first)]
        tables.append(Table(("worker", *shifts), changes, "What shifts do to each worker's examples"))
    return View(tables=tables)


def labels_chart(counts: Sequence[Sequence[int]], names: Sequence[str], title: str = "") -> HeatMap:
    """Who has how many examples of which label; of many workers the first."""
    rows = counts[:_MOST_COLUMNS]
    more = f" The first {len(rows)} of {len(counts):,} workers." if len(rows) < len(counts) else ""
    usual = "Examples of each label, by worker" if len(names) > 1 else "Examples by worker"
    return HeatMap(
        "partition",
        [[row[label] for row in rows] for label in range(len(names))],
        names,
        [str(worker) for worker in range(len(rows))],
        title=title or usual,
        row_label="label",
        column_label="worker",
        note=f"The stronger the colour, the more examples; the bars are sums.{more}",
    )


def examples_of(plain: Dataset, shifted: Dataset, partition: Partition) -> Tiles | None:
    """Some examples of the first workers, a column for each label before the shift; None if they are not images."""
    if plain.train_inputs.ndim != 4:
        return None
    channels, height, width = plain.train_inputs.shape[1:]
    workers = min(partition.num_workers, _MOST_WORKERS)
    columns = min(plain.num_classes, _MOST_EXAMPLES) if plain.has_labels else _MOST_EXAMPLES
    tiles = np.full((workers, columns, height, width, 3 if channels == 3 else 1), np.nan, np.float32)
    labels = [["" for _ in range(columns)] for _ in range(workers)]
    for worker in range(workers):
        mine = partition.worker(worker)
        for column in range(columns):
            own = mine[plain.train_labels[mine] == column] if plain.has_labels else mine[column : column + 1]
            if not len(own):
                continue
            changed = own[shifted.train_labels[own] != plain.train_labels[own]] if plain.has_labels else own[:0]
            # A changed label says more than one that stayed; beside few changed ones, most stayed.
            chosen = int(changed[0] if 2 * len(changed) > len(own) else own[0])
            image = shifted.train_inputs[chosen]
            tiles[worker, column] = np.moveaxis(image if channels in (1, 3) else image[:1], 0, -1)
            if plain.has_labels and shifted.train_labels[chosen] != plain.train_labels[chosen]:
                labels[worker][column] = plain.classes[int(shifted.train_labels[chosen])]
    return Tiles("examples", tiles, labels, "Examples; a changed label is written in", "worker")
