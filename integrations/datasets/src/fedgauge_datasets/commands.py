"""The commands: which data sets are here, and how to get them."""

from __future__ import annotations

from typing import Annotated

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options


def list_(data: options.Data = None, json: options.Json = False) -> None:
    """Show which data sets are here and where, compare their checksums, and say what is missing.

    Example: fedgauge data list --data datasets
    """
    from fedgauge.show import console
    from fedgauge_datasets.catalogue import ENTRIES, data_directory, status

    rows = []
    with console.progress() as bar:
        for name in bar.track(ENTRIES, description="checksums"):
            rows.append(status(name, data))
    if json:
        options.print_json({"data": str(data_directory(data)), "datasets": [each.to_json() for each in rows]})
    else:
        from fedgauge_datasets.views import data_view

        console.show(data_view(rows, data_directory(data)))


def get(
    name: Annotated[str, typer.Argument(help="The data set; see 'fedgauge data list'.")],
    data: options.Data = None,
    url: Annotated[
        str | None, typer.Option(help="Address of the folder to download from \\[default: the publisher's].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that differ from the published ones.")] = False,
    json: options.Json = False,
) -> None:
    """Download the published files of a data set; an interrupted download is resumed.

    Example: fedgauge data get mnist --data datasets
    """
    from fedgauge_datasets.catalogue import data_directory
    from fedgauge_datasets.fetch import fetch
    from fedgauge_datasets.views import download_progress

    options.check_directory(data_directory(data), "data")
    with download_progress() as progress:
        written = fetch(name, data, url=url, force=force, progress=progress)
    if json:
        options.print_json({"name": name, "written": [str(path) for path in written]})
    elif written:
        say("Written: " + ", ".join(str(path) for path in written))
    else:
        say(f"{name} is complete in {data_directory(data)}.")
