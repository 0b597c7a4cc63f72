"""What the commands show: which data sets are here, and how far downloads are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import (
    BarColumn,
    DownloadColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from fedgauge.base import bars
from fedgauge.base.types import Progress
from fedgauge.show import console
from fedgauge.show.views.view import Table, View
from fedgauge_datasets.catalogue import Status


def data_view(statuses: Sequence[Status], place: Path) -> View:
    """Which data sets were found, and where, and how to get those that are missing."""
    states = {"ready": "ready", "other": "not as published", "incomplete": "incomplete", "missing": "missing"}
    rows = [(s.name, states[s.state], _shortly(s.place, place), s.title) for s in statuses]
    notes = []
    for status in statuses:
        for file in status.files:
            if file.state == "differs":
                ours = f"{file.path} has MD5 {file.md5_found}"
                notes.append(f"{status.name}: {ours}, but the published file has {file.md5}")
        if status.remedy:
            what = "to get the published files, " if status.state == "other" else ""
            notes.append(f"{status.name}: {what}{status.remedy}")
    return View(tables=(Table(("name", "state", "where", "what"), rows, f"Data sets in {place}"),), notes=notes)


def _shortly(path: str | None, place: Path) -> str | None:
    """A path relative to the data directory, if it lies in there."""
    if path is None:
        return None
    return str(Path(path).relative_to(place)) if Path(path).is_relative_to(place) else path


@contextmanager
def download_progress() -> Iterator[Progress]:
    """A bar for each file, in bytes."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with bars.shown(console.err, *columns) as bar:
        tasks: dict[str, TaskID] = {}

        def step(file: str, here: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=here, total=total)

        yield step
