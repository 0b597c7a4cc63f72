"""The command that computes the worst case of a round."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options
from fedgauge.cli.theory import Numbers, ValuesFile


def worst_case(
    numbers: Numbers = None,
    values: ValuesFile = None,
    plot: Annotated[
        Path | None, typer.Option(help="Save a picture of the bounds against gamma: a .png, .pdf or .svg file.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Compute the worst case of a round of FedAvg, with a checked certificate and a federation that comes near it.

    It bounds what the theorem nonconvex bounds, for given constants and rates, and shows what the theorem says beside
    it. All workers have equal weights.

    Example: fedgauge theory worst-case F=1 I=4 R=100 N=8 sigma2=1 zeta2=1 L_g=1 L_h=0.5 gamma=0.06
    """
    from fedgauge.theory import find
    from fedgauge.theory.arguments import check_weights, collect
    from fedgauge_verification.worst_case import view_of_worst_case
    from fedgauge_verification.worst_case import worst_case as compute

    options.check_plot(plot)
    if values is not None:
        check_weights(values, "asked for", None)
    symbols, kinds, *_ = collect(find("nonconvex"), list(numbers or ()), values)
    result = compute(kinds, curve=plot is not None, **symbols)
    if plot:
        from fedgauge.show.pictures import draw

        draw(view_of_worst_case(result).charts, plot)
    if json:
        options.print_json(result.to_json())
    else:
        say(result.verdict)
