"""The command that serves or writes the explorer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options

if TYPE_CHECKING:
    from fedgauge.show.explorer.controls import Start


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
    from fedgauge.show.explorer.controls import start
    from fedgauge.show.explorer.page import build

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
    from fedgauge.show.explorer.serving import PageServer

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
