"""Partitions and shifts, as tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.markup import escape

from fedgauge.data.dataset import Array, Dataset
from fedgauge.data.partition import Indices, Partition
from fedgauge.report import figures
from fedgauge.report.terminal import console

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_WORKERS, _MOST_LABELS = 20, 12
_MOST_EXAMPLES = 10


def show_partition(
    title: str,
    partition: Partition,
    counts: Indices,
    names: Sequence[str],
    shifts: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Print how many examples of each label the workers have, for the first workers; many labels are summed up."""
    few = counts.shape[1] <= _MOST_LABELS
    head = names if few else ("labels held", "most of", "that is")
    shown = min(partition.num_workers, _MOST_WORKERS)
    rows = []
    for worker in range(shown):
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
    if shifts:
        changes = [(str(worker), *(words[worker] for words in shifts.values())) for worker in range(shown)]
        console.table("What shifts do to each worker's examples", ("worker", *shifts), changes)


class Examples(NamedTuple):
    """Pictures of the workers' examples after shifts.

    Attributes:
        tiles: one row per worker, one column per example: images with channels last; NaN where there is none.
        labels: what to write into each tile: the label, where a shift changed it.
    """

    tiles: Array
    labels: Sequence[Sequence[str]]


def examples_of(plain: Dataset, shifted: Dataset, partition: Partition) -> Examples | None:
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
    return Examples(tiles, labels)


def draw_partition(
    path: Path, title: str, counts: Indices, names: Sequence[str], examples: Examples | None = None
) -> None:
    """Draw a matrix of workers and labels; each cell shows how many examples of a label a worker has.

    With examples, a second panel shows pictures of every worker.
    """
    height = min(max(3.2, 0.16 * len(counts)), 9.0)
    width = min(max(4.6, 0.16 * counts.shape[1]), 12.0)
    panels = 1
    if examples is not None:
        panels, height = 2, max(height, 0.45 * len(examples.tiles))
    with figures.figure(path, panels=panels, width=width, height=height) as axes:
        figures.matrix(
            axes[0], counts, title=title, xlabel="label", ylabel="worker", columns=tuple(names), colour="examples"
        )
        if examples is not None:
            _draw_examples(axes[1], examples)


def _draw_examples(axes: Axes, examples: Examples) -> None:
    """Draw the tiles as one picture, all on one scale of brightness, so that gains can be seen."""
    tiles: Any = examples.tiles
    rows, columns, height, width, channels = tiles.shape
    low, high = np.nanpercentile(tiles, [1, 99])
    whole = np.clip((tiles - low) / max(high - low, 1e-12), 0.0, 1.0)
    padded = np.full((rows, columns, height + 1, width + 1, channels), np.nan)
    padded[:, :, :height, :width] = whole
    picture = padded.transpose(0, 2, 1, 3, 4).reshape(rows * (height + 1), columns * (width + 1), channels)
    if channels == 3:
        # Without a colour, a gap between the tiles is see-through.
        picture = np.concatenate([np.nan_to_num(picture), ~np.isnan(picture[..., :1])], axis=-1)
    axes.imshow(picture.squeeze(-1) if channels == 1 else picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([(row + 0.5) * (height + 1) for row in range(rows)], [str(row) for row in range(rows)])
    axes.set(title="Examples; a changed label is written in", ylabel="worker")
    for row, words in enumerate(examples.labels):
        for column, word in enumerate(words):
            place = ((column + 0.05) * (width + 1), (row + 0.05) * (height + 1))
            axes.text(*place, word, color=figures.COLOURS[4], fontsize=7, ha="left", va="top")
