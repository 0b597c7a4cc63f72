"""The commands: the page of all theorems, served or written, and the map of where local SGD wins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options

if TYPE_CHECKING:
    from fedgauge_explorer.controls import Start


def explore(
    out: Annotated[Path | None, typer.Option(help="Write the page here (.html) instead of serving it.")] = None,
    values: Annotated[
        Path | None,
        typer.Option(
            "--values",
            help="Start at these constants and at their run's own values; a file that 'fedgauge measure --out' wrote.",
        ),
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port to serve on \\[default: a free one].")] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    json: options.Json = False,
) -> None:
    """Explore every theorem with sliders, on one page that needs no network; it is served to this machine or written.

    The page shows each bound's terms and conditions, all versions side by side, and where local SGD beats mini-batch
    SGD. It is served until Ctrl-C.

    Example: fedgauge theory explore --open
    Example: fedgauge theory explore --values measured/measure.json --out explorer.html
    """
    from fedgauge.base.errors import InputError

    if out is not None:
        if port is not None:
            raise InputError("--out writes the page and --port serves it; give only one of them.")
        if out.suffix not in (".html", ".htm"):
            raise InputError(f"out must be a file that ends in .html, not {str(out)!r}.")
        options.check_file(out)
    from fedgauge_explorer.controls import start
    from fedgauge_explorer.page import build

    first = start(values)
    page = build(first)
    if out is None:
        _serve(page, port or 0, browser, json, first)
    else:
        from fedgauge.base.files import write_page

        write_page(out, page)
        _say("path", str(out), json, first)
        if browser:
            _open(out.absolute().as_uri())


def _serve(page: str, port: int, browser: bool, json: bool, first: Start) -> None:
    from fedgauge_explorer.serving import PageServer

    with PageServer(page, port) as server:
        _say("address", server.address, json, first)
        if browser:
            _open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            if not json:
                say("")  # the terminal has shown ^C


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        say(f"fedgauge: No browser could be started; open {address} yourself.", error=True)


def _say(what: str, where: str, json: bool, first: Start) -> None:
    import sys

    if json:
        settings: dict[str, Any] = {"values": dict(first.values), "kinds": dict(first.kinds), "source": first.source}
        settings["own"] = dict(first.own)
        options.print_json({what: where, **settings})
    else:
        say(f"Explorer at {where} (Ctrl-C ends it)" if what == "address" else f"Written: {where}")
    # Who started this through a pipe waits for the address.
    sys.stdout.flush()


_MOST_POINTS = 1000
Range = Annotated[
    tuple[float, float] | None,
    typer.Option(metavar="LOW HIGH", help="Its range; the axis is linear if it starts at 0, otherwise logarithmic."),
]


def region(
    numbers: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE", help="F, N, L_g and the symbols that are not on an axis, as in L_h=0.1."),
    ] = None,
    x: Annotated[str, typer.Option(help="Horizontal axis: sigma, I, R, L_h or zeta.")] = "sigma",
    y: Annotated[str, typer.Option(help="Vertical axis.")] = "I",
    x_range: Range = None,
    y_range: Range = None,
    points: Annotated[int, typer.Option(help="Points along each axis.")] = 24,
    dim: Annotated[int, typer.Option(help="Dimension of the quadratics.")] = 6,
    conditioning: Annotated[float, typer.Option(help="Condition number of the quadratics' f.")] = 100.0,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Map where local SGD beats mini-batch SGD: by the bounds, and exactly for a matching family of quadratics.

    Both get the same rounds and gradients, and each uses its own best gamma. Equal Hessians (L_h = 0) are judged by
    Theorem 5.5, others by Theorem 4.3 or A.2, whichever bound is smaller.

    Example: fedgauge theory region --x zeta --y L_h --x-range 0.01 10 I=16 R=100 sigma=0.1 --plot region.png
    """
    from fedgauge.base.errors import InputError
    from fedgauge.show import console
    from fedgauge.theory.arguments import parse_numbers
    from fedgauge_explorer.region import compute, make_axis

    options.check_plot(plot)
    if points > _MOST_POINTS:
        raise InputError(f"points must be at most {_MOST_POINTS:,} along each axis, not {points:,}; ask for fewer.")
    axes = make_axis(x, x_range, points), make_axis(y, y_range, points)
    fixed: dict[str, Any] = dict(parse_numbers(numbers or ()))
    with console.doing() as progress:
        result = compute(
            *axes,
            dim=dim,
            conditioning=conditioning,
            progress=progress,
            **fixed,
        )
    if plot:
        result.plot(plot)
    if json:
        options.print_json(result.to_json())
    else:
        from fedgauge.show.views import view

        console.show(view(result))
        if plot:
            say(f"Written: {plot}")
