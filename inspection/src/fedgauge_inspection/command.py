"""The command inspect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgauge.base.errors import InputError
from fedgauge.base.terminal import say
from fedgauge.cli import options
from fedgauge.cli.experiments import takes_keys
from fedgauge.cli.help import everyday
from fedgauge.simulation.experiment.sections import keys

if TYPE_CHECKING:
    from fedgauge.federation.protocols import Federation

_KEYS = tuple(key.option for key in keys() if key.section in ("data", "model") and key.option != "source")
"""What says which data a client has, and with which model."""


@everyday("next", "sizes", "experiment", "model", "workers", "out", "plot", "json")
@takes_keys(*_KEYS, "seed")
def inspect(
    changes: dict[str, Any],
    global_model: Annotated[
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
    experiment: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="The clients' data, for gradients and constants at these models: an experiment (.toml), quadratics"
            " (.json), a data set or an .npz file; its workers are the clients, in their order.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the result to this JSON file.")] = None,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Compare saved models of one round: how far clients agree, and which layers and clients stand out.

    A model is a .safetensors file, or a state_dict that torch.save wrote to a .pt file. With the next global model, the
    effective step of the server follows too. With the clients' data and model (--experiment and its options), so do
    losses and gradients at these models, and zeta, L_h and L_tilde as they are there.

    Example: fedgauge runs inspect global.pt client*.pt --next global2.pt --sizes 100,50,80
    Example: fedgauge runs inspect global.pt client*.pt --experiment run.toml
    """
    from fedgauge.show import console

    options.check_plot(plot)
    if out:
        options.check_file(out)
    weights = None if sizes is None else _numbers(sizes)
    if experiment is None and changes:
        name, value = min(changes.items())
        raise InputError(f"{name}={value!r} belongs to the clients' data; name them too, as in experiment=digits.")
    with console.doing():
        from fedgauge.show.views import view
        from fedgauge_inspection.inspection import inspect_models

        federation, usual = (None, None) if experiment is None else _federation(experiment, changes)
        inspection = inspect_models(global_model, clients, next, weights or usual, federation)
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


def _federation(source: str, changes: dict[str, Any]) -> tuple[Federation, Sequence[float] | None]:
    """The clients with their data, and their weights unless they are equal."""
    from fedgauge.simulation.experiment.config import Experiment
    from fedgauge.simulation.experiment.prepare import prepare

    options.allow_user_modules()
    # Nothing is trained, so that any rate will do where the experiment has none.
    if source.endswith(".toml"):
        experiment = Experiment.read(source, changes)
    else:
        experiment = Experiment.of({"source": source, "gamma": 1.0, **changes})
    setup = prepare(experiment)
    return setup.federation, setup.participation.weights


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"sizes must be numbers separated by commas, as in 100,50,80, not {text!r}.") from None
