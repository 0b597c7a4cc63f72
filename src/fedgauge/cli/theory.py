"""Commands on the theorems: bound and tune."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedgauge.cli import options
from fedgauge.cli.experiments import parse

app = typer.Typer(name="theory", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Evaluate and explore the theorems, compute with quadratics, and look up names.

    Example: fedgauge theory bound --list
    """


TheoremName = Annotated[
    str | None, typer.Argument(metavar="THEOREM", help="Which theorem; see --list.", show_default=False)
]
Numbers = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME=VALUE", help="Numbers, as in L_h=0.1; they override the file.", show_default=False),
]
VersionName = Annotated[
    str | None,
    typer.Option(
        "--theorem-version",
        help="printed, corrected, sharp, star or prior; star where it is never worse, otherwise corrected.",
        show_default=False,
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
        from fedgauge.show.terminal import console
        from fedgauge.show.views.bounds import theorems_view

        console.show(theorems_view(THEOREMS.values()))


def _show(result: Any, json: bool, caveat: str) -> None:
    if json:
        options.print_json(result.to_json())
    else:
        from fedgauge.show.terminal import console
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
        typer.Option("--total-cost", help="Choose I and R too, so that all rounds cost this much.", show_default=False),
    ] = None,
    communication: Annotated[float, typer.Option(help="Cost of a round's communication (with --total-cost).")] = 0.0,
    step: Annotated[float, typer.Option(help="Cost of a local step (with --total-cost).")] = 1.0,
    free_eta: Annotated[bool, typer.Option("--free-eta", help="Choose eta too; needs --gamma-min.")] = False,
    gamma_min: Annotated[float | None, typer.Option(help="The smallest gamma to choose.", show_default=False)] = None,
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
