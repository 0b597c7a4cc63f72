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
from fedgauge.show import console, pictures
from fedgauge.show.charts import LineChart, Series
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
    charts, ends = [], list[Series]()
    for (name, federation), colour in zip(result["federations"].items(), (0, 4), strict=True):
        runs, label = federation["runs"], f"{name}: L_h = {federation['constants']['L_h']:.2g}"
        series = [
            Series(f"I = {run['local_steps']}", range(ROUNDS + 1), run["excess"], number)
            for number, run in enumerate(runs)
        ]
        charts.append(LineChart(name, series, label, "round", "f - f*"))
        steps = [float(run["local_steps"]) for run in runs]
        ends.append(Series(f"{label}, exact", steps, [run["expected_excess"][-1] for run in runs], colour))
        ends.append(Series(f"{label}, simulated", steps, [run["excess"][-1] for run in runs], colour, "dots"))
    pictures.draw(charts, written[0])
    title = f"Error after {ROUNDS} rounds"
    pictures.draw([LineChart("local-steps", ends, title, "local steps I", "f - f*", log_x=True)], written[1])
    return written
