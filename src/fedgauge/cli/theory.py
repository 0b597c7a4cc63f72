"""Commands on the theorems (bound, tune) and on federations of quadratics (generate, constants, expect)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options
from fedgauge.cli.experiments import parse, takes_keys
from fedgauge.cli.help import everyday
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.sections import keys

app = typer.Typer(name="theory", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Evaluate and explore the theorems, compute with quadratics, and look up names.

    Example: fedgauge theory bound --list
    """


TheoremName = Annotated[str | None, typer.Argument(metavar="THEOREM", help="Which theorem; see --list.")]
Numbers = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME=VALUE", help="Numbers, as in L_h=0.1; they override the file."),
]
VersionName = Annotated[
    str | None,
    typer.Option(
        "--theorem-version",
        help="printed, corrected, sharp, star or prior; star where it is never worse, otherwise corrected.",
    ),
]
ValuesFile = Annotated[
    Path | None,
    typer.Option(
        "--values", help='JSON file of numbers or {"value": …, "kind": …}, as \'fedgauge theory constants\' prints.'
    ),
]


@app.command()
def bound(
    theorem: TheoremName = None,
    numbers: Numbers = None,
    version: VersionName = None,
    values: ValuesFile = None,
    weights: options.Weights = None,
    listed: Annotated[bool, typer.Option("--list", help="Show all theorems and what each needs.")] = False,
    json: options.Json = False,
) -> None:
    """Evaluate a convergence theorem: each term, each condition, each version, and whether you can trust it.

    Names: F I R N M sigma2 zeta2 L_g L_h L_h_rms L_tilde gamma eta beta kappa tau G beta1 beta2 mu d0. A plain number
    counts as exact; sigma and zeta are squared where sigma2 and zeta2 are not given. With --weights, N is 1/sum w_i^2,
    and the constants must be those of the weighted means.

    Example: fedgauge theory bound nonconvex F=1 I=8 R=500 N=10 sigma2=1 zeta2=4 L_g=1 L_h=0.1 L_tilde=1.2 gamma=0.01
    """
    from fedgauge.base.errors import InputError
    from fedgauge.theory import THEOREMS, find
    from fedgauge.theory.answer import bound
    from fedgauge.theory.arguments import collect

    if listed:
        _list(json)
        return
    if theorem is None:
        raise InputError(f"bound needs a theorem; choose one of {', '.join(THEOREMS)}.")
    entry = find(theorem)
    symbols, kinds, notes, caveat = collect(entry, _weighed(theorem, numbers, values, weights), values)
    result = bound(theorem, version, kinds, notes=notes, **symbols)  # type: ignore[arg-type]  # the version is validated there
    _show(result, json, caveat)


def _weighed(theorem: str, numbers: list[str] | None, values: Path | None, weights: str | None) -> list[str]:
    """The numbers, with N from the weights if there are any."""
    from fedgauge.base.errors import InputError
    from fedgauge.federation.participation import Participation
    from fedgauge.theory import find
    from fedgauge.theory.arguments import check_weights

    given = list(numbers or ())
    if weights is None:
        if values is not None:
            check_weights(values, "asked for", None)
        return given
    if any(one.partition("=")[0].strip() == "N" for one in given):
        raise InputError("N is given and --weights says what it is; leave one of them out.")
    who = Participation(weights=tuple(parse("weights", tuple[float, ...], weights)))
    if find(theorem).sampling != "full" and who.shares is not None:
        raise InputError(
            f"{theorem} is about workers with equal weights, because weighing what a drawn worker sends adds a variance"
            " of its own; leave out --weights, or choose a theorem about all workers."
        )
    if values is not None:
        check_weights(values, "asked for", who.shares)
    return [*given, f"N={who.effective_workers(len(who.weights or ()))!r}"]


def _list(json: bool) -> None:
    from fedgauge.theory import THEOREMS

    if json:
        options.print_json(
            [
                {
                    "theorem": theorem.name,
                    "title": theorem.title,
                    "locator": theorem.locator,
                    "versions": list(theorem.versions),
                    "needs": list(theorem.needs),
                    "optional": dict(theorem.optional),
                }
                for theorem in THEOREMS.values()
            ]
        )
    else:
        from fedgauge.show import console
        from fedgauge.show.views.bounds import theorems_view

        console.show(theorems_view(THEOREMS.values()))


def _show(result: Any, json: bool, caveat: str) -> None:
    if json:
        options.print_json(result.to_json())
    else:
        from fedgauge.show import console
        from fedgauge.show.views.bounds import view_of_answer
        from fedgauge.theory import find

        console.show(view_of_answer(result, find(result.theorem).title, caveat))


@app.command()
def tune(
    theorem: TheoremName = None,
    numbers: Numbers = None,
    version: VersionName = None,
    values: ValuesFile = None,
    weights: options.Weights = None,
    budget: Annotated[
        float | None,
        typer.Option("--total-cost", help="Choose I and R too, so that all rounds cost this much."),
    ] = None,
    communication: Annotated[float, typer.Option(help="Cost of a round's communication (with --total-cost).")] = 0.0,
    step: Annotated[float, typer.Option(help="Cost of a local step (with --total-cost).")] = 1.0,
    free_eta: Annotated[bool, typer.Option("--free-eta", help="Choose eta too; needs --gamma-min.")] = False,
    gamma_min: Annotated[float | None, typer.Option(help="The smallest gamma to choose.")] = None,
    json: options.Json = False,
) -> None:
    """Find the gamma, and for a total cost the local steps, for which a theorem's bound is least.

    eta is the number that you give, or 1. Tuning both rates needs a floor under gamma: without one the best gamma is 0,
    and L_h drops out of the bound.

    Example: fedgauge theory tune nonconvex F=1 N=10 sigma2=1 zeta2=4 L_g=1 L_h=0.1 --total-cost 1000 --communication 9
    """
    from fedgauge.base.errors import InputError
    from fedgauge.theory import THEOREMS, find
    from fedgauge.theory.answer import bound
    from fedgauge.theory.arguments import collect
    from fedgauge.theory.search import best_gamma, best_local_steps

    if theorem is None:
        raise InputError(f"tune needs a theorem; choose one of {', '.join(THEOREMS)}.")
    entry = find(theorem)
    symbols, kinds, notes, caveat = collect(entry, _weighed(theorem, numbers, values, weights), values)
    # A file may hold what is to be chosen here, which is ignored; an argument that does is refused below.
    typed = {argument.partition("=")[0].strip() for argument in numbers or ()}
    sought = ("gamma", *(("I", "R") if budget is not None else ()), *(("eta",) if free_eta else ()))
    for name in sought:
        if name in symbols and name not in typed:
            del symbols[name]
    if free_eta and "eta" in symbols:
        raise InputError("eta is given and --free-eta asks to choose it; leave one of them out.")
    eta = None if free_eta else symbols.pop("eta", 1.0)
    shared: dict[str, Any] = {"version": version or entry.default, "eta": eta, "gamma_min": gamma_min, **symbols}
    if budget is None:
        best = best_gamma(theorem, **shared)
    else:
        best = best_local_steps(theorem, budget=budget, communication=communication, step=step, **shared)
        symbols |= {"I": best.I, "R": best.R}  # type: ignore[dict-item]  # one number each, as in the arguments
    symbols |= {"gamma": best.gamma, "eta": best.eta}  # type: ignore[dict-item]
    result = bound(theorem, version or entry.default, kinds, sought, notes, **symbols)  # type: ignore[arg-type]
    _show(result, json, caveat)


# -- quadratics --------------------------------------------------------------------------------------------------------


_RUN = ("local_steps", "rounds", "participants", "sampling", "weights")


def generate(
    out: Annotated[Path, typer.Argument(help="The JSON file to write.")],
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
        from fedgauge.show import console
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
        from fedgauge.show import console
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
        from fedgauge.show import console
        from fedgauge.show.views.bounds import view_of_expectation
        from fedgauge.values.display import counted

        title = f"{chosen.name} on {file}, {counted(local_steps, 'local step')}"
        console.show(view_of_expectation(answer, title))
        if plot:
            say(f"Written: {plot}")
