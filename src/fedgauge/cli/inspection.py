"""The command inspect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options


def inspect(
    model: Annotated[
        Path, typer.Argument(metavar="GLOBAL", help="The global model that the clients began with.", show_default=False)
    ],
    clients: Annotated[
        list[Path],
        typer.Argument(metavar="CLIENT...", help="The clients' models after their local steps.", show_default=False),
    ],
    next: Annotated[
        Path | None,
        typer.Option(metavar="MODEL", help="The global model that the server made of them.", show_default=False),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="The clients' weights, such as their examples \\[default: equal]."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the result to this JSON file.")] = None,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Compare saved models of one round, without data: how far clients agree, and which layers and clients stand out.

    A model is a .safetensors file, or a state_dict that torch.save wrote to a .pt file. With the next global model, the
    effective step of the server follows too.

    Example: fedgauge runs inspect global.pt client1.pt client2.pt
    Example: fedgauge runs inspect global.pt client*.pt --next global2.pt --sizes 100,50,80
    """
    from fedgauge.show import console

    options.check_plot(plot)
    if out:
        options.check_file(out)
    weights = None if sizes is None else _numbers(sizes)
    with console.doing():
        from fedgauge.measurement.inspection import inspect_models
        from fedgauge.show.views import view

        inspection = inspect_models(model, clients, next, weights)
    shown = view(inspection)
    if out:
        from fedgauge.base.files import write_json

        write_json(out, inspection.to_json())
    if plot and shown.charts:
        from fedgauge.show.pictures import draw

        draw(shown.charts, plot, shown.columns)
    if json:
        options.print_json(inspection.to_json())
        return
    console.show(shown)
    if plot and not shown.charts:
        say("There is no picture, as nothing has changed.")
    for path in filter(None, (out, plot if shown.charts else None)):
        say(f"Written: {path}")


def _numbers(text: str) -> list[float]:
    from fedgauge.base.errors import InputError

    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"sizes must be numbers separated by commas, as in 100,50,80, not {text!r}.") from None
