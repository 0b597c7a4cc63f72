"""Commands on data: list, get."""

from __future__ import annotations

from typing import Annotated

import typer

from fedgauge.cli import options

app = typer.Typer(name="data", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Find and fetch data sets.

    Example: fedgauge data list
    """


@app.command("list")
def list_(data: options.Data = None, json: options.Json = False) -> None:
    """Show which data sets are found where, and what is missing; checksums are compared.

    Example: fedgauge data list --data datasets
    """
    from fedgauge.data.catalogue import ENTRIES, data_directory, status
    from fedgauge.report import terminal

    found = []
    with terminal.progress() as bar:
        for name in bar.track(ENTRIES, description="checksums"):
            found.append(status(name, data))
    if json:
        options.print_json({"data": str(data_directory(data)), "datasets": [each.to_json() for each in found]})
    else:
        from fedgauge.report import datasets

        datasets.show_data(found, data_directory(data))


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="Which data set; see 'fedgauge data list'.", show_default=False)],
    data: options.Data = None,
    url: Annotated[str | None, typer.Option(help="Folder to download from [default: the publisher's].")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are not the published ones.")] = False,
    json: options.Json = False,
) -> None:
    """Download a data set's published files; a download that broke off goes on where it was.

    Example: fedgauge data get mnist --data datasets
    """
    from fedgauge.data.catalogue import data_directory
    from fedgauge.data.fetch import fetch
    from fedgauge.report import terminal

    options.check_directory(data_directory(data), "data")
    with terminal.download_progress() as bar:
        tasks: dict[str, object] = {}

        def told(file: str, here: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=here, total=total)  # type: ignore[arg-type]

        written = fetch(name, data, url=url, force=force, told=told)
    if json:
        options.print_json({"name": name, "written": [str(path) for path in written]})
    elif written:
        print("Written: " + ", ".join(str(path) for path in written))
    else:
        print(f"{name} is complete in {data_directory(data)}.")
