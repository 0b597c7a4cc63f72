"""Write plans and sweeps as files in a directory, with their pictures."""

from __future__ import annotations

from pathlib import Path

from fedgauge.base.files import write_atomically
from fedgauge.show.files import draw_result, write
from fedgauge.show.pictures import draw
from fedgauge_planning.plan_result import Plan
from fedgauge_planning.sweep import SweepResult
from fedgauge_planning.sweep_views import sweep_charts


def save_sweep(sweep: SweepResult, directory: Path) -> list[Path]:
    """Write a sweep and its pictures; return the files."""
    return [write(sweep, directory), *draw_sweep(sweep, directory)]


def draw_sweep(sweep: SweepResult, directory: Path) -> list[Path]:
    """Draw the curves of a sweep: a picture for each combination of all keys but the first."""
    paths = []
    for key, charts in sweep_charts(sweep).items():
        paths.append(directory / f"{key or 'curves'}.png")
        draw(charts, paths[-1])
    return paths


def write_plan(plan: Plan, directory: Path) -> None:
    """Write plan.json and, if there is something to run, plan.toml."""
    write(plan, directory)
    if plan.toml:
        write_atomically(directory / "plan.toml", plan.toml.encode())
    else:
        # One from an earlier plan would not be this one's.
        (directory / "plan.toml").unlink(missing_ok=True)


def draw_plan(plan: Plan, directory: Path) -> list[Path]:
    """Draw plan.png and, if there is a plan by theory, theory.png."""
    return [draw_result(each, directory) for each in (plan, plan.theory) if each]
