"""The main idea: two federations with about the same zeta, one of them with L_h = 0, and FedAvg at several I.

If the Hessians agree (L_h = 0), more local steps always help, however much the workers' gradients differ. If the
Hessians differ, drift grows with I until more local steps hurt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedgauge.algorithms import fedavg
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.show import figures
from fedgauge.show.terminal import console
from fedgauge.simulation.options import Recording
from fedgauge.theory.expectation import expect
from fedgauge.values import Round

LOCAL_STEPS = (1, 2, 5, 10, 20, 50)
ROUNDS, GAMMA, SEED = 300, 0.05, 0
SPREADS = {"equal Hessians": 0.0, "different Hessians": 0.5}


def run(progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Simulate both federations at every I, and compute the exact expectation of each run."""
    from fedgauge.simulation.loop import simulate

    result: dict[str, Any] = {"gamma": GAMMA, "eta": 1.0, "rounds": ROUNDS, "seed": SEED, "federations": {}}
    total = len(SPREADS) * len(LOCAL_STEPS) * ROUNDS
    for number, (name, spread) in enumerate(SPREADS.items()):
        federation = random_quadratics(10, 50, hessian_spread=spread, linear_spread=5.0, sigma2=0.1, seed=SEED)
        constants = {symbol: estimate.value for symbol, estimate in federation.constants().items()}
        constants["zeta"] = float(federation.zeta(federation.first_model).max())
        _, least = federation.minimiser()
        runs = []
        for index, local_steps in enumerate(LOCAL_STEPS):
            before = (number * len(LOCAL_STEPS) + index) * ROUNDS
            algorithm = fedavg(GAMMA)

            def observe(done: int, record: Round | None, before: int = before) -> None:
                progress(before + done, total)

            trace = simulate(
                federation,
                algorithm,
                local_steps=local_steps,
                rounds=ROUNDS,
                seed=SEED,
                record=Recording(observer=observe),
            )
            exact = expect(federation, algorithm, local_steps=local_steps, rounds=ROUNDS)
            runs.append(
                {
                    "local_steps": local_steps,
                    "excess": [record.loss - least for record in trace.rounds],
                    "expected_excess": [loss - least for loss in exact.loss],
                    "L_h_seen": max(record.L_h_ratio or 0.0 for record in trace.rounds),
                    "seconds": trace.seconds[-1],
                }
            )
        result["federations"][name] = {"constants": constants, "f_star": least, "runs": runs}
    return result


def verdict(runs: Sequence[Mapping[str, Any]]) -> str:
    """Say in one sentence which number of local steps the exact expectations favour."""
    final = {run["local_steps"]: run["expected_excess"][-1] for run in runs}
    least, most = min(final.values()), max(final)
    # A difference of one percent does not matter.
    best = min(steps for steps, excess in final.items() if excess <= 1.01 * least)
    if final[most] <= 1.01 * least:
        return f"More local steps never hurt: I = {best} to {most} all end at the noise floor {least:.3g}."
    return f"I = {best} is best; at I = {most} drift makes the error {final[most] / least:.0f} times as large."


def show(result: Mapping[str, Any]) -> None:
    """Print a table and a verdict for each federation."""
    for name, federation in result["federations"].items():
        constants, runs = federation["constants"], federation["runs"]
        rows = []
        for run in runs:
            after = [run["excess"][r] for r in (10, 100, ROUNDS)]
            rows.append(
                (str(run["local_steps"]), *map(console.number, after), console.number(run["expected_excess"][-1]))
            )
        head = ("I", "after 10 rounds", "after 100", f"after {ROUNDS}", "exact expectation")
        console.table(f"{name}: L_h = {constants['L_h']:.3g}, zeta = {constants['zeta']:.3g}; f - f*", head, rows)
        console.out.print(f"  {verdict(runs)}\n")


def save(result: Mapping[str, Any], directory: Path) -> list[Path]:
    """Draw the error against rounds, and against local steps."""
    written = [directory / name for name in ("rounds.png", "local-steps.png")]
    federations = result["federations"]
    with figures.figure(written[0], panels=len(federations)) as panels:
        for axes, (name, federation) in zip(panels, federations.items(), strict=True):
            series = {f"I = {run['local_steps']}": run["excess"] for run in federation["runs"]}
            title = f"{name}: L_h = {federation['constants']['L_h']:.2g}"
            figures.lines(axes, range(ROUNDS + 1), series, title=title, xlabel="round", ylabel="f - f*")
    with figures.figure(written[1], width=5.4) as (axes,):
        for (name, federation), colour in zip(
            federations.items(), (figures.COLOURS[0], figures.COLOURS[4]), strict=True
        ):
            steps = [run["local_steps"] for run in federation["runs"]]
            exact = [run["expected_excess"][-1] for run in federation["runs"]]
            axes.plot(steps, exact, color=colour)
            axes.plot(steps, [run["excess"][-1] for run in federation["runs"]], "o", color=colour)
            figures.label_end(axes, steps, exact, f"{name}:\nL_h = {federation['constants']['L_h']:.2g}", colour)
        title = f"Error after {ROUNDS} rounds (lines: exact, dots: simulated)"
        axes.set(xscale="log", yscale="log", xlabel="local steps I", ylabel="f - f*", title=title)
        axes.set_xticks(LOCAL_STEPS, [str(steps) for steps in LOCAL_STEPS])
        axes.minorticks_off()
    return written
