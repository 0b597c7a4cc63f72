"""Partitions and shifts, as tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.markup import escape

from fedgauge.base.files import make_directories, write_atomically, write_json
from fedgauge.base.types import Array
from fedgauge.data.catalogue import Status
from fedgauge.data.dataset import Dataset
from fedgauge.data.partition import Indices, Partition
from fedgauge.measurement.values import Design
from fedgauge.show import figures
from fedgauge.show.terminal import console
from fedgauge.values.display import counted

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


def show_data(found: Sequence[Status], place: Path) -> None:
    """Print which data sets were found, and where, and how to get those that are missing."""
    states = {"ready": "ready", "other": "not as published", "incomplete": "incomplete", "missing": "missing"}
    rows = [(s.name, states[s.state], _shortly(s.place, place), s.title) for s in found]
    console.table(f"Data sets in {place}", ("name", "state", "where", "what"), rows)
    for status in found:
        wrong = [file for file in status.files if file.state == "differs"]
        for file in wrong:
            console.out.print(
                escape(f"  {status.name}: {file.path} has MD5 {file.md5_found}, but the published file has {file.md5}"),
                soft_wrap=True,
            )
        if status.remedy:
            what = "to get the published files, " if status.state == "other" else ""
            console.out.print(escape(f"  {status.name}: {what}{status.remedy}"), soft_wrap=True)


def _shortly(path: str | None, place: Path) -> str:
    """A path relative to the data directory, if it lies in there."""
    if path is None:
        return "–"
    return str(Path(path).relative_to(place)) if Path(path).is_relative_to(place) else path


def show_design(found: Design) -> None:
    """Print the federations side by side."""
    where = {"common": "at models common to all", "own": "along each one's own pooled run"}[found.settings["along"]]
    head = ("kind", "strength", "zeta_rms", "first", "own run", "L_h", "L_h seen", "L_tilde", "E")
    rows = []
    for each in found.federations:
        numbers = (each.zeta_rms, each.zeta_first, each.zeta_own, each.L_h, each.L_h_seen, each.L_tilde)
        cells = [console.number(value) for value in numbers]
        rows.append((each.kind, f"{each.strength:.4g}", *cells, each.efficiency.share))
    steps = counted(found.local_steps, "local step")
    console.table(f"Federations of zeta_rms {console.number(found.zeta)}, {where}", head, rows, padding=0)
    console.out.print(
        f"Without these kinds zeta_rms is {console.number(found.plain)}. Beside it: zeta_rms at the first model and"
        " along each one's own pooled run, and L_h, L_h seen and L_tilde in the middle of that run. E is the efficiency"
        f" of {steps} per round, by the gauge.",
        soft_wrap=True,
    )
    for each in found.federations:
        if not each.reached:
            console.out.print(
                f"{each.kind} does not have this zeta_rms: the nearest is {console.number(each.zeta_rms)}, at strength"
                f" {each.strength:.4g}.",
                soft_wrap=True,
            )


def save_design(found: Design, directory: Path) -> list[Path]:
    """Write design.json and an experiment file for every federation that has the wanted zeta_rms; return the files."""
    make_directories(directory)
    paths = [directory / "design.json"]
    write_json(paths[0], found.to_json())
    for each in found.federations:
        if each.reached:
            paths.append(directory / f"{each.kind}.toml")
            write_atomically(paths[-1], each.to_toml().encode())
    return paths
