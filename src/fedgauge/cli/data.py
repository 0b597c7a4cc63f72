"""Commands for data: partition, beside those that other distributions add."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options
from fedgauge.cli.experiments import takes_keys
from fedgauge.cli.help import everyday

app = typer.Typer(name="data", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Divide data sets among workers; with fedgauge-datasets, also find and fetch published ones.

    Example: fedgauge data partition digits
    """


@app.command()
@everyday("scheme", "workers", "percent", "divide_by", "alpha", "shards", "shift", "seed", "plot", "out", "json")
@takes_keys(
    *("scheme", "workers", "percent", "divide_by", "labels_per_worker", "per_worker", "fill", "alpha", "least"),
    *("shards", "grouping", "context", "shift", "seed"),
)
def partition(
    values: dict[str, Any],
    name: Annotated[str, typer.Argument(help="A data set (see 'fedgauge data list') or an .npz file.")] = "digits",
    data: options.Data = None,
    plot: options.Plot = None,
    out: Annotated[Path | None, typer.Option(help="Write the partition to this JSON file.")] = None,
    json: options.Json = False,
) -> None:
    """Divide a data set among workers, and show how many examples of each label each worker has.

    With --shift, every worker's examples are changed too; the picture of --plot then has examples of every worker. The
    labels that are counted are those after the shift.

    Example: fedgauge data partition mnist --scheme paper --percent 50 --workers 10 --plot partition.png
    Example: fedgauge data partition digits --scheme iid --shift rotation=0.5 --shift swap=0.2 --plot shifted.png
    """
    from fedgauge.data.loader import load_dataset
    from fedgauge.data.scaling import standardise
    from fedgauge.data.schemes import make_partition
    from fedgauge.data.shifts import parse_shifts, shift_data, spell_shifts
    from fedgauge.show import console
    from fedgauge.show.views.partitions import examples_of, labels_chart, labels_view
    from fedgauge.simulation.experiment.sections import DataSection

    options.check_plot(plot)
    if out:
        options.check_file(out)
    seed, scheme = values.pop("seed", 0), values.pop("scheme", "paper")
    section = DataSection(name, scheme=scheme, **values)
    shifts = parse_shifts(section.shift or ())
    with console.doing() as progress:
        dataset = load_dataset(name, data, progress, context=section.context)
    by = section.divide_by
    made = make_partition(dataset, scheme, section.num_workers, divide_by=by, seed=seed, **section.scheme_parameters)
    plain = standardise(dataset) if shifts else dataset
    shifted = shift_data(plain, made, shifts, seed=seed)
    dataset = shifted.dataset
    # Divided by id, the classes are of interest; divided by other labels, those labels are.
    by_class = by is None or scheme == "id"
    shown, names = dataset.counted() if by_class else (dataset.labels_by(by), ())
    counts = made.label_counts(shown, len(names))
    names = names or tuple(str(label) for label in range(counts.shape[1]))
    settings = ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in made.parameters.items()
    )
    changes = [text.replace("=", " ") for text in spell_shifts(shifts)]
    heading = ", ".join([f"{dataset.name}: {scheme}", *changes, f"{made.num_workers} workers"])
    title = heading + (f" ({settings})" if settings else "")
    if out:
        made.write(out)
    if plot:
        from fedgauge.show.pictures import draw

        examples = examples_of(plain, dataset, made) if shifts else None
        draw([labels_chart(counts.tolist(), names, heading), *([examples] if examples else [])], plot)
    if json:
        summary = {key: value for key, value in made.to_json().items() if key != "indices"}
        shape = {"num_workers": made.num_workers, "dropped": made.dropped}
        change = {"shift": shifts, "changes": {kind: list(words) for kind, words in shifted.words.items()}}
        counted = {"labels": list(names), "label_counts": counts.tolist()}
        options.print_json({"dataset": dataset.name, **summary, **shape, **(change if shifts else {}), **counted})
    else:
        console.show(labels_view(title, made, counts, names, shifted.words))
        written = [str(path) for path in (out, plot) if path]
        if written:
            say("Written: " + ", ".join(written))
