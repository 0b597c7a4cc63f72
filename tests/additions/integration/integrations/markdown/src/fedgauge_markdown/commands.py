"""The command ``fedgauge markdown``."""

from __future__ import annotations

from fedgauge.base.terminal import say
from fedgauge.cli import options


def markdown(run: options.Run) -> None:
    """Print the records of a run as a Markdown table.

    Example: fedgauge markdown runs/first
    """
    # Imported here, so that the help of fedgauge does not wait for it.
    from fedgauge.simulation.runs.reader import read_run

    say("| round | loss | squared gradient norm |")
    say("| ---: | ---: | ---: |")
    for record in read_run(run).rounds:
        say(f"| {record.round} | {record.loss:.6g} | {record.grad2:.6g} |")
