"""Commands for data: data list, data get and partition."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgauge.cli import options
from fedgauge.system.terminal import say

app = typer.Typer(name="data", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Find and fetch data sets.

    Example: fedgauge data list
    """


@app.command("list")
def list_(data: options.Data = None, json: options.Json = False) -> None:
    """Show which data sets are here and where, compare their checksums, and say what is missing.

    Example: fedgauge data list --data datasets
    """
    from fedgauge.data.catalogue import ENTRIES, data_directory, status
    from fedgauge.report.terminal import console

    found = []
    with console.progress() as bar:
        for name in bar.track(ENTRIES, description="checksums"):
            found.append(status(name, data))
    if json:
        options.print_json({"data": str(data_directory(data)), "datasets": [each.to_json() for each in found]})
    else:
        from fedgauge.report.terminal import datasets

        datasets.show_data(found, data_directory(data))


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="The data set; see 'fedgauge data list'.", show_default=False)],
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
    from fedgauge.data.catalogue import data_directory
    from fedgauge.data.fetch import fetch
    from fedgauge.report.terminal import console

    options.check_directory(data_directory(data), "data")
    with console.download_progress() as bar:
        tasks: dict[str, object] = {}

        def progress(file: str, here: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=here, total=total)  # type: ignore[arg-type]

        written = fetch(name, data, url=url, force=force, progress=progress)
    if json:
        options.print_json({"name": name, "written": [str(path) for path in written]})
    elif written:
        say("Written: " + ", ".join(str(path) for path in written))
    else:
        say(f"{name} is complete in {data_directory(data)}.")


def partition(
    name: Annotated[
        str, typer.Argument(help="A data set (see 'fedgauge data list') or an .npz file.", show_default=False)
    ] = "digits",
    scheme: Annotated[
        str, typer.Option(help="How to divide the data: paper, iid, dirichlet, shards, quantity or id.")
    ] = "paper",
    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of workers N \\[default: 10; with the scheme id, one worker per id].", show_default=False
        ),
    ] = None,
    percent: Annotated[
        float | None,
        typer.Option(help="Percentage X of each worker's data from its own label (paper) \\[default: 50]."),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="Divide the data by these instead of the labels: coarse, writer, ...")
    ] = None,
    labels_per_worker: Annotated[
        int | None, typer.Option(help="Number of labels that each worker has as its own (paper) \\[default: 1].")
    ] = None,
    per_worker: Annotated[
        int | None, typer.Option(help="Examples per worker (paper) \\[default: all examples, divided equally].")
    ] = None,
    fill: Annotated[
        bool | None,
        typer.Option(
            "--fill/--no-fill", help="If a label has too few examples, take the missing ones from other labels (paper)."
        ),
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Concentration (dirichlet \\[default: 0.5], quantity \\[default: 1]).")
    ] = None,
    least: Annotated[
        int | None, typer.Option(help="Minimum number of examples per worker (dirichlet, quantity) \\[default: 1].")
    ] = None,
    shards: Annotated[int | None, typer.Option(help="Number of shards per worker (shards) \\[default: 2].")] = None,
    shift: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND=STRENGTH",
            help="Change every worker's examples in its own way, with a strength from 0 to 1; may be repeated. Inputs:"
            " rotation, gain, contrast, blur, mixing, noise. Targets: swap, label-noise, offset.",
            show_default=False,
        ),
    ] = None,
    seed: options.Seed = 0,
    data: options.Data = None,
    plot: options.Plot = None,
    out: Annotated[Path | None, typer.Option(help="Write the partition to this JSON file.")] = None,
    json: options.Json = False,
) -> None:
    """Divide a data set among workers, and show how many examples of each label each worker has.

    With --shift, every worker's examples are changed too; the picture of --plot then has examples of every worker. The
    labels that are counted are those after the shift.

    Example: fedgauge partition mnist --scheme paper --percent 50 --workers 10 --plot partition.png
    Example: fedgauge partition digits --scheme iid --shift rotation=0.5 --shift swap=0.2 --plot shifted.png
    """
    from fedgauge.data.loading import load_dataset
    from fedgauge.data.scaling import standardise
    from fedgauge.data.schemes import make_partition
    from fedgauge.data.shifts import parse_shifts, shift_data, spell_shifts
    from fedgauge.experiment.sections import DataSection
    from fedgauge.report.terminal import console

    options.check_plot(plot)
    if out:
        options.check_file(out)
    shifts = parse_shifts(shift or ())
    values = {
        "percent": percent,
        "labels_per_worker": labels_per_worker,
        "per_worker": per_worker,
        "fill": fill,
        "alpha": alpha,
        "least": least,
        "shards": shards,
    }
    parameters = {key: value for key, value in values.items() if value is not None}
    with console.progress() as bar:
        task = bar.add_task(name, total=None)
        dataset = load_dataset(name, data, progress=lambda done, total: bar.update(task, completed=done, total=total))
    number = DataSection(scheme=scheme, workers=workers).num_workers
    made = make_partition(dataset, scheme, number, labels=labels, seed=seed, **parameters)
    plain = standardise(dataset) if shifts else dataset
    shifted = shift_data(plain, made, shifts, seed=seed)
    dataset = shifted.dataset
    # Divided by id, the classes are of interest; divided by other labels, those labels are.
    by_class = labels is None or scheme == "id"
    shown, names = dataset.counted() if by_class else (dataset.labels_by(labels), ())
    counts = made.label_counts(shown, len(names))
    names = names or tuple(str(label) for label in range(counts.shape[1]))
    settings = ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in made.parameters.items()
    )
    heading = ", ".join(
        [f"{dataset.name}: {scheme}", *map(_words, spell_shifts(shifts)), f"{made.num_workers} workers"]
    )
    title = heading + (f" ({settings})" if settings else "")
    if out:
        made.write(out)
    if plot:
        from fedgauge.report.terminal import partitions

        drawn = partitions.examples_of(plain, dataset, made) if shifts else None
        partitions.draw_partition(plot, heading, counts, names, drawn)
    if json:
        summary = {key: value for key, value in made.to_json().items() if key != "indices"}
        shape = {"num_workers": made.num_workers, "dropped": made.dropped}
        changes = {"shift": shifts, "changes": {kind: list(words) for kind, words in shifted.words.items()}}
        counted = {"labels": list(names), "label_counts": counts.tolist()}
        options.print_json({"dataset": dataset.name, **summary, **shape, **(changes if shifts else {}), **counted})
    else:
        from fedgauge.report.terminal import partitions

        partitions.show_partition(title, made, counts, names, shifted.words)
        written = [str(path) for path in (out, plot) if path]
        if written:
            say("Written: " + ", ".join(written))


def _words(text: str) -> str:
    return text.replace("=", " ")
