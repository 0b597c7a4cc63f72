"""Partial participation adds an error that a small L_h cannot reduce (the claim behind Theorem 4.5), computed exactly.

Quadratics whose Hessians differ not at all, a little and much, without gradient noise; FedAvg with all workers and with
fewer. The E‖∇f‖² that is left after all rounds is computed, not simulated. With all workers and L_h = 0 nothing is
left; with fewer, the workers that happen to be drawn pull the model their way, whatever L_h is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedgauge.algorithms import fedavg
from fedgauge.federation.participation import Participation
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.show import console, pictures
from fedgauge.show.charts import LineChart, Series
from fedgauge.theory.expectation import expect
from fedgauge_wang2024.results import SamplingResult

WORKERS, DIM = 10, 20
SPREADS = (0.0, 0.1, 0.5)
PARTICIPANTS = (10, 5, 2)
LOCAL_STEPS, GAMMA, ROUNDS = 10, 0.05, 1000


def run() -> dict[str, Any]:
    """E‖∇f‖² round by round, for each spread of the Hessians and each M.

    >>> lines = run()["lines"]
    >>> [line["left"] < 1e-20 for line in lines if line["L_h"] == 0]
    [True, False, False]
    """
    lines = []
    for spread in SPREADS:
        workers = random_quadratics(WORKERS, DIM, hessian_spread=spread, linear_spread=2.0, seed=1)
        for M in PARTICIPANTS:
            way = Participation() if M == WORKERS else Participation("without-replacement", M)
            found = expect(workers, fedavg(GAMMA), local_steps=LOCAL_STEPS, rounds=ROUNDS, participation=way)
            lines.append(
                {
                    "hessian_spread": spread,
                    "L_h": workers.constants()["L_h"].value,
                    "M": M,
                    "grad2": found.grad2[:: ROUNDS // 100],
                    "left": found.grad2[-1],
                }
            )
    settings = {"N": WORKERS, "d": DIM, "local_steps": LOCAL_STEPS, "gamma": GAMMA, "rounds": ROUNDS, "sigma": 0.0}
    return SamplingResult(settings, tuple(lines)).to_json()


def show(result: Mapping[str, Any]) -> None:
    """Print the error that is left."""
    rows = [(console.number(line["L_h"]), str(line["M"]), f"{line['left']:.3g}") for line in result["lines"]]
    console.table(f"E‖∇f‖² after {ROUNDS} rounds, exact", ("L_h", f"M of {WORKERS}", "left"), rows)


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Picture the error against rounds, a panel for each L_h."""
    charts = []
    for level in dict.fromkeys(line["L_h"] for line in result["lines"]):
        mine = [line for line in result["lines"] if line["L_h"] == level]
        rounds = [place * ROUNDS // 100 for place in range(len(mine[0]["grad2"]))]
        series = [
            # Below the rounding of the numbers there is nothing to see.
            Series(f"M = {line['M']}", rounds, [max(value, 1e-16) for value in line["grad2"]], number % 8)
            for number, line in enumerate(mine)
        ]
        charts.append(LineChart(f"sampling-{level:g}", series, f"L_h = {level:.2g}", "round", "E‖∇f‖²"))
    pictures.draw(charts, path, len(charts))
