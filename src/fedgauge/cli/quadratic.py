"""Commands on quadratic federations: generate, constants, expect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options
from fedgauge.cli.experiments import takes_keys
from fedgauge.cli.help import everyday
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.sections import keys

_RUN = ("local_steps", "rounds", "participants", "sampling", "weights")


def generate(
    out: Annotated[Path, typer.Argument(help="The JSON file to write.", show_default=False)],
    workers: Annotated[int, typer.Option(help="Number of workers N.")] = 10,
    dim: Annotated[int, typer.Option(help="Dimension d.")] = 20,
    shape: Annotated[
        str, typer.Option(help="convex (every worker is), mean-convex (only f is) or indefinite (not even f is).")
    ] = "convex",
    hessian_spread: Annotated[
        float, typer.Option(help="How much the workers' Hessians differ, from 0 to 1; with 0, L_h is 0.")
    ] = 0.2,
    linear_spread: Annotated[
        float, typer.Option(help="How much the workers' linear parts differ; this is zeta at x = 0.")
    ] = 1.0,
    conditioning: Annotated[float, typer.Option(help="Condition number of f.")] = 10.0,
    smoothness: Annotated[float, typer.Option(help="Smoothness L_g of f.")] = 1.0,
    sigma2: Annotated[float, typer.Option(help="Variance of the gradient noise.")] = 0.0,
    seed: options.Seed = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    json: options.Json = False,
) -> None:
    """Write a random quadratic federation with a chosen heterogeneity.

    Example: fedgauge theory generate fed.json --workers 10 --dim 50 --hessian-spread 0.1 --sigma2 0.01
    """
    from fedgauge.base.errors import InputError, count
    from fedgauge.federation.random_quadratics import random_quadratics

    count("workers", workers)
    options.check_file(out)
    if out.exists() and not force:
        raise InputError(f"{out} already exists; choose another name, or overwrite it with --force.")
    federation = random_quadratics(
        workers,
        dim,
        shape=shape,  # type: ignore[arg-type]  # validated there
        hessian_spread=hessian_spread,
        linear_spread=linear_spread,
        conditioning=conditioning,
        smoothness=smoothness,
        sigma2=sigma2,
        seed=seed,
    )
    federation.write(out)
    known = federation.constants()
    if json:
        options.print_json({"file": str(out), "constants": {name: estimate.value for name, estimate in known.items()}})
    else:
        from fedgauge.show.terminal import console
        from fedgauge.show.views.view import View, estimates_table

        console.show(View(tables=(estimates_table(known.values(), f"{out}: {workers} workers, dimension {dim}"),)))


def constants(file: options.FederationFile, json: options.Json = False) -> None:
    """Print the exact constants of a quadratic federation.

    Example: fedgauge theory constants fed.json --json
    """
    from fedgauge.federation.quadratic import QuadraticFederation
    from fedgauge.values import Constants, Estimate, Scope

    federation = QuadraticFederation.read(file)
    x_star, _ = federation.minimiser()
    workers = Estimate.exact("N", federation.num_workers, "counted")
    known = [
        *federation.constants().values(),
        *Constants((workers,)).within(Scope(federation.digest)).values(),
        *federation.constants_at().values(),
    ]
    if json:
        shown = ("value", "kind", "scope")
        entries = {item.symbol: item.to_json() for item in known}
        answer: dict[str, Any] = {
            symbol: {name: entry[name] for name in shown if name in entry} for symbol, entry in entries.items()
        }
        answer["x_star"] = {"value": None if x_star is None else x_star.tolist(), "kind": "exact"}
        options.print_json(answer)
    else:
        from fedgauge.show.terminal import console
        from fedgauge.show.views.view import View, estimates_table

        title = f"{file}: {federation.num_workers} workers, dimension {federation.dim}"
        console.show(View(tables=(estimates_table(known, title),)))


@everyday("gamma", "algorithm", "eta", "beta", "local_steps", "rounds", "participants", "plot", "json")
@takes_keys(*(key.option for key in keys() if key.section == "algorithm"), *_RUN)
def expect(
    values: dict[str, Any],
    file: options.FederationFile,
    iterations: Annotated[
        bool | None,
        typer.Option(
            "--iterations/--rounds-only",
            help="Report every iteration instead of every round \\[default: only for momentum].",
        ),
    ] = None,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Compute the exact expected loss and squared gradient norm of a run on quadratics.

    Example: fedgauge theory expect fed.json --algorithm fedavg --gamma 0.05 --eta 1 --local-steps 10 --rounds 100
    Example: fedgauge theory expect fed.json --algorithm fedavgm --nesterov --gamma 0.05 --eta 0.7 --beta 0.9
    """
    from fedgauge.algorithms import make_algorithm
    from fedgauge.base.errors import count
    from fedgauge.federation.participation import Participation, check_draws
    from fedgauge.federation.quadratic import QuadraticFederation
    from fedgauge.theory.expectation import expect as compute

    options.check_plot(plot)
    experiment = Experiment.of({"source": str(file), **values})
    run = experiment.run
    chosen = make_algorithm(experiment.algorithm.name, **experiment.algorithm.parameters_in(run.rounds, None))
    federation = QuadraticFederation.read(file)
    check_draws(run.participants, run.sampling, federation.num_workers)
    sampling = run.sampling or ("full" if run.participants is None else "with-replacement")
    participation = Participation(sampling, run.participants, run.weights)  # type: ignore[arg-type]  # refused above
    local_steps = count("local_steps", run.local_steps)  # type: ignore[arg-type]  # checked there
    answer = compute(
        federation,
        chosen,
        local_steps=local_steps,
        rounds=run.rounds,
        participation=participation,
        iterations=iterations,
    )
    if plot:
        answer.plot(plot)
    if json:
        settings = {"algorithm": chosen.name, **chosen.parameters, "local_steps": local_steps, "rounds": run.rounds}
        options.print_json({**settings, "participation": participation.to_json(), **answer.to_json()})
    else:
        from fedgauge.show.terminal import console
        from fedgauge.show.views.bounds import view_of_expectation
        from fedgauge.values.display import counted

        title = f"{chosen.name} on {file}, {counted(local_steps, 'local step')}"
        console.show(view_of_expectation(answer, title))
        if plot:
            say(f"Written: {plot}")
