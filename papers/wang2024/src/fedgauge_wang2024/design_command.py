"""The command that makes federations of equal zeta_rms."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options
from fedgauge.cli.experiments import takes_experiment
from fedgauge.cli.help import everyday
from fedgauge.simulation.experiment.config import Experiment


@everyday("kind", "zeta", "gamma", "model", "workers", "rounds", "out", "json")
@takes_experiment
def design(
    experiment: Experiment,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="A kind of heterogeneity: label (the paper's partition) or a shift; may be repeated"
            " \\[default: label, mixing and swap]."
        ),
    ] = None,
    zeta: Annotated[
        float | None,
        typer.Option(
            help="The zeta_rms that all federations get \\[default: 0.9 of the largest that every kind reaches]."
        ),
    ] = None,
    along: Annotated[
        str,
        typer.Option(
            help="Where zeta_rms is made equal: at models common to all federations (the first, and three along the"
            " pooled run without the kinds), or along each one's own pooled run.",
            metavar="common|own",
        ),
    ] = "common",
    steps: Annotated[
        int | None,
        typer.Option(help="Steps of a pooled run \\[default: rounds times local steps]."),
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Relative difference from that zeta_rms that is allowed.")] = 0.01,
    curvature: Annotated[
        bool, typer.Option(help="Measure L_h and L_tilde from Hessians, which takes long for large models.")
    ] = True,
    out: Annotated[
        Path | None, typer.Option(help="Directory for design.json and one experiment file per federation.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Make federations of equal zeta_rms that differ in kind, and show what L_h, L_tilde and the gauge are there.

    The strength of each kind is found by bisection. A pooled run has one local step per round, so that all workers stay
    together.

    Example: fedgauge data design digits --scheme iid --gamma 0.1 --kind label --kind rotation --kind swap --out equal
    Example: fedgauge gauge equal/rotation.toml
    """
    from fedgauge.show import console

    if out:
        options.check_directory(out)
    options.allow_user_modules()
    with console.steps() as progress:
        from fedgauge_wang2024.designer import DesignOptions
        from fedgauge_wang2024.designer import design as make
        from fedgauge_wang2024.equal_zeta import Bisection

        chosen = DesignOptions(zeta, along, steps, Bisection(tolerance), curvature)  # type: ignore[arg-type]
        kinds = tuple(kind) if kind else ("label", "mixing", "swap")
        result = make(experiment, kinds, options=chosen, progress=progress)
    written = result.write(out) if out else []
    from fedgauge_wang2024.design_result import view_of_design

    if json:
        options.print_json(result.to_json())
    else:
        console.show(view_of_design(result))
        if written:
            say("Written: " + ", ".join(map(str, written)))
