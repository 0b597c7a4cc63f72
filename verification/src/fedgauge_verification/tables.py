"""The results of a search for violations of theorems, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.text import Text

from fedgauge.show import console
from fedgauge_verification.campaign import Outcome, Row

if TYPE_CHECKING:
    from fedgauge_verification.audit import Audit

COLUMNS = ("theorem", "checks", "void", "false", "least", "median", "directed")
_CAPTION = (
    "checks: checks on random federations; void: no gamma is admissible;\n"
    "false: the bound failed; least, median: values of bound/exact;\n"
    "directed: failures among the directed searches, and their least bound/exact;\n"
    "stated: the theorem as stated; telescoped: the stronger claim of its proof"
)


def _entry(value: float | None) -> str:
    if value is None:
        return "–"
    if abs(value) < 1000:
        return f"{value:.3g}"
    return f"{value:.0f}" if abs(value) < 1e5 else f"{value:.0e}"


def cells(row: Row) -> tuple[str, ...]:
    """The cells of one row of the table."""
    return (
        f" {row.version} {row.form}",
        str(row.checks),
        str(row.vacuous),
        str(row.violations),
        _entry(row.smallest),
        _entry(row.median),
        f"{row.directed_violations}/{row.directed} {_entry(row.directed_smallest)}" if row.directed else "–",
    )


def _rows(rows: Iterable[Row]) -> Iterator[list[str | Text]]:
    """The rows, grouped under the names of their theorems, with violations in red."""
    theorem = ""
    for row in rows:
        if row.theorem != theorem:
            theorem = row.theorem
            yield [Text(theorem, style="bold"), *[""] * (len(COLUMNS) - 1)]
        shown: list[str | Text] = list(cells(row))
        for index, violations in ((3, row.violations), (6, row.directed_violations)):
            if violations:
                shown[index] = Text(str(shown[index]), style="bold red")
        yield shown


def show(outcome: Outcome, cases: Iterable[Mapping[str, Any]] = ()) -> None:
    """Print the table, the theorems that failed, and the commands that reproduce each saved case."""
    console.table("Trying to break the theorems", COLUMNS, _rows(outcome.rows), _CAPTION)
    broken = dict.fromkeys(
        f"{row.theorem} ({row.version})" for row in outcome.rows if row.violations or row.directed_violations
    )
    summary = f"[bold red]False: {', '.join(broken)}.[/]" if broken else "[green]No violation was found.[/]"
    sampled = sum(row.monte_carlo for row in outcome.rows)
    how = f" {sampled} checks compared with simulated means, at 5 standard errors." if sampled else ""
    ending = "" if outcome.complete else " Interrupted: these are the results so far."
    console.out.print(f"{summary}{how} {outcome.seconds:.0f} s.{ending}")
    for case in cases:
        sides = f"exact {case['exact']:.6g} > bound {case['bound']:.6g}"
        name = f"{case['theorem']} ({case['version']}, {case['form']}, {case['found']})"
        console.out.print(escape(f"\n{name}: {sides}"), soft_wrap=True)
        for command in case["commands"]:
            console.out.print(escape(f"  {command}"), soft_wrap=True)


def show_audit(found: Audit) -> None:
    """Print what an attack on certificates found, and each certificate that a run contradicts."""
    if found.contradictions:
        rows: list[list[str | Text]] = [
            [
                str(each.trial),
                f"{each.by}: {each.theorem}, {each.version}",
                each.measured,
                each.about,
                each.tampered,
                _entry(each.bound),
                Text(_entry(each.truth), style="bold red"),
            ]
            for each in found.contradictions
        ]
        head = ("trial", "certified by", "constants of", "about", "done to the file", "bound", "truth")
        console.table("Certificates that a run contradicts", head, rows)
    ways = ", ".join(f"{number} by {way}" for way, number in found.ways.items())
    console.out.print(Text(found.verdict, "red" if found.contradictions else "green"))
    console.out.print(f"Certificates: {ways}. {found.trials} trials with seed {found.seed}, {found.seconds:.0f} s.")
