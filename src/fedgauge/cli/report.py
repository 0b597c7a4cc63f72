"""The command that writes a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgauge.base.terminal import command_line, say
from fedgauge.cli import options


def report(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|PLAN|RESULTS",
            help="Directory of a run, measurement, plan or sweep, or one of their JSON files.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write the page here (.html) \\[default: report.html beside the results].")
    ] = None,
    measure: Annotated[
        Path | None,
        typer.Option(help="Constants to show with it: measure.json of 'measure --out' \\[default: found beside it]."),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="A plan to show with it: plan.json of 'plan --out' \\[default: found beside it]."),
    ] = None,
    gauge: Annotated[
        Path | None,
        typer.Option(help="A gauge to show first: gauge.json of 'gauge --out' \\[default: found beside it]."),
    ] = None,
    evaluation: Annotated[
        Path | None, typer.Option(help="Losses and accuracies by worker: the file of 'runs evaluate --out'.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Write one HTML file that shows everything: verdict, federation, constants, bound against reality, plan, commands.

    The file needs neither a network nor JavaScript, and you can print it or send it to somebody. A run that is still
    going on, or that was cut short, is shown as far as it goes. The gauge, the measurement and the plan that belong to
    a run are found in the directories beside it.

    Example: fedgauge report runs/first
    Example: fedgauge report runs/first --measure measured/measure.json --out report.html
    Example: fedgauge report plan.json
    """
    from fedgauge.base.errors import InputError

    if not source.exists():
        raise InputError(f"There is no {source}; name a run's directory, or the JSON file of a measurement or a plan.")
    place = out or (source if source.is_dir() else source.parent) / "report.html"
    if place.suffix not in (".html", ".htm"):
        raise InputError(f"out must be a file that ends in .html, not {str(place)!r}.")
    options.check_file(place)
    from fedgauge.base.files import write_page
    from fedgauge.show import console

    # Imported only now, because what makes the page takes seconds to import.
    with console.doing():
        from fedgauge.show.page.build import build
        from fedgauge.show.results.background import background_of
        from fedgauge.show.results.beside import add_beside
        from fedgauge.show.results.reading import read_results

        named = {"measure": measure, "plan": plan, "gauge": gauge, "runs evaluate": evaluation}
        given = {command: path for command, path in named.items() if path}
        beside = add_beside(read_results(source, given))
        made = build(beside.found, background_of(beside.found), command_line())
    write_page(place, made.html)
    if json:
        options.print_json({"out": str(place), "beside": [str(path) for path in beside.used], **made.data})
    else:
        for words in filter(None, (made.data["verdict"], made.data["summary"], beside.sentence)):
            say(words)
        say(f"Written: {place}")
