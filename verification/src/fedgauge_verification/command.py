"""The command that tries to break the theorems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgauge.base.terminal import command_line, say
from fedgauge.cli import options
from fedgauge.cli.help import everyday


@everyday("version", "samples", "searches", "seed", "jobs", "out", "certificates", "json")
def falsify(
    theorem: Annotated[str | None, typer.Argument(help="Which theorem, e.g. partial \\[default: all].")] = None,
    version: Annotated[
        str | None,
        typer.Option("--theorem-version", help="printed, corrected, sharp, star or prior \\[default: all]."),
    ] = None,
    samples: Annotated[int, typer.Option(help="Random federations for each theorem and version.")] = 2500,
    searches: Annotated[int, typer.Option(help="Directed searches for each theorem and version.")] = 6,
    seed: options.Seed = 0,
    keep: Annotated[int, typer.Option(help="Violations to save for each theorem and version.")] = 5,
    jobs: Annotated[int | None, typer.Option(help="Number of processes \\[default: one per core].")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for result.json and each violation's files.")] = None,
    into: Annotated[
        Path | None,
        typer.Option(help="Take the rows into this earlier result (.json), in place of those of the same versions."),
    ] = None,
    certificates: Annotated[
        bool,
        typer.Option(
            "--certificates",
            help="Attack certificates instead: mix up starts, seeds, files and settings, and run what is certified.",
        ),
    ] = False,
    trials: Annotated[int, typer.Option(help="Trials of --certificates.")] = 200,
    spend: Annotated[
        str | None,
        typer.Option(help="End --certificates after this time with what was found, such as 60s or 5m."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Try to break the theorems: compare each with exact expectations on random quadratics and on ones found by search.

    With --into, a search of one theorem or version is taken into the result of an earlier one of all.

    With --certificates, real reports, plans and bounds get constants that may belong to something else, and each that
    is called certified is compared with a run; the exit status is 1 if a run contradicts one.

    Example: fedgauge falsify partial --theorem-version printed --samples 500 --out broken
    Example: fedgauge falsify --certificates --trials 100 --seed 1
    """
    if certificates:
        _attack_certificates(theorem, version, trials, seed, spend, out, json)
        return
    from importlib.metadata import version as version_of
    from platform import python_version

    from fedgauge.base.errors import InputError, InterruptedCommandError
    from fedgauge.show import console
    from fedgauge_verification.campaign import run
    from fedgauge_verification.replay import save
    from fedgauge_verification.results import Falsification, read_falsification, taken_in

    earlier = None if into is None else read_falsification(into, samples, searches, seed)
    if out:
        options.check_directory(out)
        if (out / "result.json").exists():
            raise InputError(f"{out} holds the result of an earlier search; choose another directory.")
    with console.progress() as bar:
        task = bar.add_task("falsify", total=None)
        outcome = run(
            theorem,
            version,
            samples=samples,
            searches=searches,
            seed=seed,
            keep=keep,
            jobs=jobs,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    cases = save(outcome.cases, out) if out else []
    result = {
        **Falsification.heading(),
        "command": command_line(),
        "versions": {"python": python_version(), **{name: version_of(name) for name in ("fedgauge", "numpy")}},
        "settings": outcome.settings,
        "complete": outcome.complete,
        "seconds": outcome.seconds,
        "rows": [row.to_json() for row in outcome.rows],
        "cases": cases,
    }
    if out:
        from fedgauge.base.files import make_directories, write_json

        make_directories(out)
        write_json(out / "result.json", result)
    if into and earlier is not None and outcome.complete:
        from fedgauge.base.files import write_json

        write_json(into, taken_in(earlier, result))
    if json:
        options.print_json(result)
    else:
        from fedgauge_verification import tables as report

        report.show(outcome, cases)
        if out:
            say(f"Written: {out / 'result.json'}" + (f" and {len(cases)} cases next to it" if cases else ""))
    if not outcome.complete:
        raise InterruptedCommandError("Interrupted; the numbers cover only what was done until then.")


def _attack_certificates(
    theorem: str | None,
    version: str | None,
    trials: int,
    seed: int,
    spend: str | None,
    out: Path | None,
    json: bool,
) -> None:
    from fedgauge.base.errors import InputError, InterruptedCommandError
    from fedgauge.show import console
    from fedgauge_verification.audit import run

    if theorem or version:
        raise InputError("--certificates attacks all theorems at once; leave out the theorem and the version.")
    seconds = None if spend is None else options.seconds("spend", spend)
    if out:
        options.check_directory(out)
        if (out / "result.json").exists():
            raise InputError(f"{out} holds the result of an earlier search; choose another directory.")
    with console.progress() as bar:
        task = bar.add_task("certificates", total=trials)
        found = run(
            trials=trials,
            seed=seed,
            spend=seconds,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    result = {"command": command_line(), **found.to_json(), "verdict": found.verdict}
    if out:
        from fedgauge.base.files import write_json

        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "result.json", result)
    if json:
        options.print_json(result)
    else:
        from fedgauge_verification import tables as report

        report.show_audit(found)
        if out:
            say(f"Written: {out / 'result.json'}")
    if found.contradictions:
        raise typer.Exit(1)
    if not found.complete and seconds is None:
        raise InterruptedCommandError("Interrupted; the numbers cover only what was done until then.")
