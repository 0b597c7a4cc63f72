"""Commands that run: simulate, demo; and the list of algorithms."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedgauge.cli import options


def algorithms(json: options.Json = False) -> None:
    """List the algorithms with their parameters.

    Example: fedgauge algorithms
    """
    from fedgauge.algorithms import ALGORITHMS, parameters_of

    rows = {name: (parameters_of(name), (make.__doc__ or "").split("\n")[0]) for name, make in ALGORITHMS.items()}
    if json:
        options.print_json({name: {"parameters": takes, "summary": says} for name, (takes, says) in rows.items()})
    else:
        from fedgauge.report import terminal

        terminal.table(
            "Algorithms",
            ("name", "parameters", "what it does"),
            [(name, " ".join(takes), says) for name, (takes, says) in rows.items()],
        )


def symbols(json: options.Json = False) -> None:
    """List the symbols with their meaning and where the paper defines them.

    Example: fedgauge symbols
    """
    from fedgauge.symbols import SYMBOLS

    if json:
        options.print_json(
            {s.name: {"latex": s.latex, "meaning": s.meaning, "defined": s.defined} for s in SYMBOLS.values()}
        )
    else:
        from fedgauge.report import terminal

        rows = [(s.name, s.meaning, s.defined) for s in SYMBOLS.values()]
        terminal.table("Symbols", ("symbol", "meaning", "defined in"), rows)


def simulate(
    file: options.FederationFile,
    gamma: options.Gamma,
    algorithm: options.AlgorithmName = "fedavg",
    eta: options.Eta = None,
    beta: options.Beta = None,
    beta1: options.Beta1 = None,
    beta2: options.Beta2 = None,
    tau: options.Tau = None,
    proximal: options.Proximal = None,
    local_steps: options.LocalSteps = 10,
    rounds: options.Rounds = 100,
    participants: options.Participants = None,
    sampling: options.SamplingName = None,
    weights: options.Weights = None,
    seed: options.Seed = 0,
    record_every: Annotated[int, typer.Option(help="Record every so many rounds.")] = 1,
    target_loss: Annotated[float | None, typer.Option(help="Stop at this loss.")] = None,
    chunk: Annotated[int, typer.Option(help="Workers whose models are held at once.")] = 32,
    out: Annotated[Path | None, typer.Option(help="Directory that keeps the run.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    checkpoint_every: Annotated[int, typer.Option(help="Save the state every so many rounds.")] = 100,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Run an algorithm on a federation, round by round.

    Example: fedgauge simulate fed.json --algorithm fedavg --gamma 0.05 --local-steps 10 --rounds 200 --out runs/first
    """
    from fedgauge.errors import InputError
    from fedgauge.federation.quadratic import QuadraticFederation
    from fedgauge.report import terminal

    if resume and out is None:
        raise InputError("--resume needs --out, the directory of the run to go on with.")
    options.check_plot(plot, made=out)
    rates = {"gamma": gamma, "eta": eta, "beta": beta, "beta1": beta1, "beta2": beta2, "tau": tau, "proximal": proximal}
    chosen = options.algorithm_from(algorithm, **rates)
    participation = options.participation_from(participants, sampling, weights)
    federation = QuadraticFederation.read(file)
    with terminal.progress() as bar:
        task = bar.add_task(chosen.name, total=rounds)
        from fedgauge.simulation import simulate as run

        trace = run(
            federation,
            chosen,
            local_steps=local_steps,
            rounds=rounds,
            participation=participation,
            seed=seed,
            record_every=record_every,
            target_loss=target_loss,
            chunk=chunk,
            run=out,
            resume=resume,
            checkpoint_every=checkpoint_every,
            observer=lambda done, record: bar.update(task, completed=done),
        )
    if plot:
        from fedgauge.report import figures

        rounds_seen = [record.round for record in trace.rounds]
        with figures.figure(plot, panels=2) as (left, right):
            common = {"title": chosen.name, "xlabel": "round"}
            figures.lines(left, rounds_seen, {"f": trace.losses.tolist()}, ylabel="loss", log="", **common)
            figures.lines(right, rounds_seen, {"|grad f|²": trace.grad2.tolist()}, ylabel="|grad f|²", **common)
    if json:
        options.print_json(trace.to_json())
    else:
        terminal.show_trace(trace)
        if out:
            print(f"The run is in {out}.")
    if trace.status == "stopped":
        remedy = f"the run in {out} goes on with the same command and --resume" if out else "--out would have kept it"
        print(f"fedgauge: Interrupted in round {trace.stopped_at}; {remedy}.", file=sys.stderr)
        raise typer.Exit(130)


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the pictures and the JSON result.")] = Path("demo"),
    json: options.Json = False,
) -> None:
    """Show the main idea in half a minute: local steps hurt through L_h, not through zeta.

    Example: fedgauge demo --out demo
    """
    from fedgauge import demo as show
    from fedgauge.report import terminal

    options.check_directory(out)
    with terminal.progress() as bar:
        task = bar.add_task("FedAvg", total=None)
        result = show.run(lambda done, total: bar.update(task, completed=done, total=total))
    written = show.save(result, out)
    if json:
        options.print_json(result)
    else:
        show.show(result)
        print("Written: " + ", ".join(str(path) for path in written))
