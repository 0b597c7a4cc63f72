"""The commands: plan a run, and sweep over many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedgauge.base.terminal import command_line, say
from fedgauge.cli import options
from fedgauge.cli.experiments import takes_experiment
from fedgauge.cli.help import everyday
from fedgauge.simulation.experiment.config import Experiment

if TYPE_CHECKING:
    from fedgauge_planning.goal import Goal


@everyday("goal", "budget", "cost", "gamma", "model", "workers", "percent", "over", "mode", "out", "plot", "json")
@takes_experiment
def plan(
    experiment: Experiment,
    goal: Annotated[
        str | None,
        typer.Option(
            metavar="QUANTITY=VALUE",
            help="What to reach as soon as possible, as in loss=0.1 or accuracy=0.9; with --budget, loss alone.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Do as well as possible in this time of the cost model, such as 10m or 2h."),
    ] = None,
    mode: Annotated[
        Literal["pilot", "theory"],
        typer.Option(help="Plan by pilot runs, or by a theorem."),
    ] = "pilot",
    over: Annotated[
        list[str] | None, options.over("Choose from these values: of local_steps, gamma, eta or participants")
    ] = None,
    values: Annotated[
        Path | None,
        typer.Option(
            help="The constants for --mode theory: a file written by 'fedgauge measure' or 'theory constants --json'."
        ),
    ] = None,
    theorem: Annotated[
        str | None, typer.Option(help="The theorem for --mode theory \\[default: the one that applies].")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Largest number of seeds of the final runs \\[default: 3].")] = None,
    spend: Annotated[
        str | None,
        typer.Option(
            help="Time to spend on planning, such as 60s or 10m \\[default: until one candidate is clearly best]."
        ),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(
            help="Give up the goal after this time of the cost model"
            " \\[default: 20 times that of the whole experiment]."
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Number of pilot runs at the same time \\[default: one per core].")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the plan: plan.toml, plan.json, the pictures and the pilot runs.")
    ] = None,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Choose local steps, learning rates and participants so that a goal is reached soonest, and explain why.

    The result is an experiment, OUT/plan.toml, which you can run with 'fedgauge simulate'. With --out, repeating the
    same command resumes a plan that was interrupted.

    Example: fedgauge plan digits --gamma 0.1 --goal accuracy=0.95 --cost cross-device --out plan
    Example: fedgauge plan experiment.toml --goal loss --budget 10m --cost cross-silo --over participants=5,10
    Example: fedgauge plan fed.json --gamma 0.01 --goal grad2=0.01 --mode theory
    """
    from fedgauge.base.errors import InterruptedCommandError
    from fedgauge.show import console

    options.check_plot(plot, made=out)
    if out:
        options.check_directory(out)
    options.allow_user_modules()
    wanted, price = _goal(goal, budget), experiment.run.round_cost
    if mode == "theory":
        pilots = {"over": over or None, "seeds": seeds, "spend": spend, "limit": limit, "jobs": jobs}
        _refuse(pilots, "pilot runs, and --mode theory has none")
        with console.doing():
            from fedgauge_planning.measured_constants import theory_of

            certified = theory_of(experiment, wanted, price, values=values, theorem=theorem)
        from fedgauge.show.files import save
        from fedgauge.show.views import view

        if out:
            save(certified, out)
        if plot:
            certified.plot(plot)
        if json:
            options.print_json(certified.to_json())
        else:
            console.show(view(certified))
        return
    _refuse({"values": values, "theorem": theorem}, "--mode theory, and pilot runs measure the constants themselves")
    # Imported here, because the imports take seconds.
    with console.doing() as progress:
        from fedgauge_planning.candidates import KEYS
        from fedgauge_planning.planner import PlanOptions
        from fedgauge_planning.planner import plan as make

        chosen = options.values_over(over or [], KEYS)
        times = _seconds("spend", spend), _seconds("limit", limit)
        effort = PlanOptions(PlanOptions.seeds if seeds is None else seeds, *times, jobs)
        try:
            made = make(
                experiment, goal=wanted, cost=price, over=chosen, options=effort, directory=out, progress=progress
            )
        except KeyboardInterrupt:
            rest = (
                f"repeat the same command to resume with the pilots in {out}" if out else "use --out to keep the pilots"
            )
            raise InterruptedCommandError(f"Interrupted; {rest}.") from None
    from fedgauge.show.views import view
    from fedgauge_planning.files import draw_plan, write_plan

    # The verdict is saved and printed before any picture is drawn.
    if out:
        write_plan(made, out)
    if json:
        options.print_json(made.to_json())
    else:
        console.show(view(made))
    if out:
        draw_plan(made, out)
    if plot:
        made.plot(plot)
    if not json:
        run_it = f"; run it: fedgauge simulate {out / 'plan.toml'}" if out and made.toml else ""
        say(f"Written: {out}{run_it}" if out else f"\n{made.toml}".rstrip())
    if not made.reached:
        raise typer.Exit(1)


def _goal(goal: str | None, budget: str | None) -> Goal:
    from fedgauge.base.errors import InputError
    from fedgauge_planning.goal import Goal

    if goal is None:
        raise InputError("plan needs --goal, as in --goal accuracy=0.95, or --goal loss with --budget 10m.")
    return Goal.parse(goal, _seconds("budget", budget))


def _seconds(name: str, text: str | None) -> float | None:
    return None if text is None else options.seconds(name, text)


def _refuse(options: Mapping[str, object], purpose: str) -> None:
    """Refuse options of the other mode, which would have no effect."""
    from fedgauge.base.errors import InputError

    for name, value in options.items():
        if value is not None:
            raise InputError(f"--{name} is for {purpose}; leave it out.")


@everyday("over", "seeds", "gamma", "model", "local_steps", "rounds", "workers", "percent", "out", "jobs", "json")
@takes_experiment
def sweep(
    experiment: Experiment,
    over: Annotated[list[str] | None, options.over("Run with several values of a key of the experiment")] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds, counted up from --seed.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the runs, the pictures and result.json; required.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Number of runs at the same time \\[default: one per core].")] = None,
    json: options.Json = False,
) -> None:
    """Run an experiment for every combination of values and every seed.

    Every run is saved in OUT/runs, so repeating the same command resumes an interrupted sweep. There is a picture for
    each combination of all keys except the first, with a line for each value of the first.

    Example: fedgauge runs sweep experiment.toml --over local_steps=1,5,20 --over percent=50,75 --seeds 5 --out swept
    """
    from fedgauge.base.errors import InputError, InterruptedCommandError, count

    if out is None:
        raise InputError("sweep needs --out, the directory for its runs; name a new one.")
    options.check_directory(out)
    options.allow_user_modules()
    if jobs is not None:
        count("jobs", jobs)
    values = options.values_over(over or [])
    from fedgauge.show import console
    from fedgauge_planning.files import save_sweep
    from fedgauge_planning.sweep import Sweep, run_sweep
    from fedgauge_planning.sweep_views import view_of_sweep

    planned = Sweep(experiment, values, seeds)
    with console.progress() as bar:
        task = bar.add_task("starting", total=None)

        def progress(done: int, total: int, ended: int) -> None:
            runs = f"{ended} of {len(planned.cells)} runs, rounds"
            bar.update(task, completed=done, total=total, description=runs)

        result = run_sweep(planned, out / "runs", jobs, progress)
    if result is None:
        raise InterruptedCommandError(f"Interrupted; repeat the same command to resume the runs in {out}.")
    result = replace(result, command=command_line())
    written = save_sweep(result, out)
    if json:
        options.print_json(result.to_json())
    else:
        console.show(view_of_sweep(result))
        say("Written: " + ", ".join(map(str, written)))
