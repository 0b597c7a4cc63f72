"""Table 2: rounds to reach f = 0.8 on quadratics with a common Hessian (L_h = 0).

Taken literally, the paper's setting F_i = ‖Ux - v_i‖²/2 cannot give its numbers: the least value of f is far above 0.8
and two of the four pairs of rates diverge. :func:`literal_reading` computes both facts. With F_i = ‖Ux - v_i‖²/(2d) and
x0 ~ N(0, 1) the printed numbers lie inside the spread over problems, so that is what is run here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, NamedTuple

import numpy as np

from fedgauge.algorithms import fedavg
from fedgauge.base.errors import MOST_RUNS, InputError, count
from fedgauge.base.progress import silent
from fedgauge.base.randomness import Purpose, Streams, check_seed
from fedgauge.base.types import Progress
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.show import console, pictures
from fedgauge.simulation.options import HERE, Compute, StopAt
from fedgauge_planning.jobs import make_pool
from fedgauge_wang2024.cells import CellJob, run_cells
from fedgauge_wang2024.results import RoundsColumn, Table2

DIM, SIGMA2, TARGET = 100, 0.01, 0.8
WORKERS = (2, 5, 10)
MOST_ROUNDS = 5000


class Table2Setting(NamedTuple):
    """One column of the table: its rates, local steps and mini-batch size s, and what the paper prints."""

    half: str
    eta: float
    gamma: float
    local_steps: int
    batch: int
    paper: str

    @property
    def label(self) -> str:
        """How the table's head names it."""
        return (
            f"eta={self.eta:g}, gamma={self.gamma:g}"
            if self.half == "rates"
            else f"I={self.local_steps}, s={self.batch}"
        )


SETTINGS = (
    Table2Setting("rates", 1, 0.005, 10, 1, "86 ± 1.6"),
    Table2Setting("rates", 2, 0.0025, 10, 1, "86 ± 1.6"),
    Table2Setting("rates", 5, 0.001, 10, 1, "86 ± 1.6"),
    Table2Setting("rates", 10, 0.0005, 10, 1, "86 ± 1.6"),
    Table2Setting("steps", 1, 0.005, 1, 1, "927 ± 3.4"),
    Table2Setting("steps", 1, 0.005, 1, 5, "927 ± 3.4"),
    Table2Setting("steps", 1, 0.005, 1, 10, "925 ± 1.7"),
    Table2Setting("steps", 1, 0.005, 5, 1, "187 ± 2.3"),
    Table2Setting("steps", 1, 0.005, 10, 1, "95 ± 2.4"),
)


def problem(num_workers: int, seed: int, batch: int = 1, scale: float = 1 / DIM) -> QuadraticFederation:
    """Draw U, v_i and x0 with standard normal entries; a mini-batch of size s divides the variance by s."""
    generator = Streams(seed, Purpose.PROBLEM).at(worker=num_workers)
    U = generator.standard_normal((DIM, DIM))
    v = generator.standard_normal((num_workers, DIM))
    return QuadraticFederation.least_squares(
        np.broadcast_to(U, (num_workers, DIM, DIM)),
        v,
        scale=scale,
        sigma2=SIGMA2 / batch,
        start=generator.standard_normal(DIM),
    )


def literal_reading(num_workers: int, seed: int) -> dict[str, Any]:
    """Why F_i = ‖Ux - v_i‖²/2 cannot be meant: its least value, and each pair of rates' growth per round."""
    federation = problem(num_workers, seed, scale=1.0)
    L = federation.constants()["L_g"].value
    return {
        "f_star": federation.minimiser()[1],
        "L_g": L,
        "growth": {s.label: abs(1 + s.eta * ((1 - s.gamma * L) ** 10 - 1)) for s in SETTINGS if s.half == "rates"},
    }


def rounds_to_target(num_workers: int, problem_seed: int, setting: Table2Setting, noise_seed: int) -> int | None:
    """Rounds until f <= 0.8; ``None`` if it was not reached."""
    from fedgauge.simulation.loop import simulate

    trace = simulate(
        problem(num_workers, problem_seed, setting.batch),
        fedavg(setting.gamma, setting.eta),
        local_steps=setting.local_steps,
        rounds=MOST_ROUNDS,
        seed=noise_seed,
        stop=StopAt(loss=TARGET),
    )
    return trace.stopped_at if trace.status == "target" else None


def _cell(num_workers: int, problem_seed: int, noise_seeds: int) -> dict[str, Any]:
    """All settings on one problem; the first noise seed is the table's, the others show what noise alone does."""
    began = time.monotonic()
    rounds = [
        [rounds_to_target(num_workers, problem_seed, setting, noise) for noise in range(noise_seeds)]
        for setting in SETTINGS
    ]
    return {"workers": num_workers, "problem": problem_seed, "rounds": rounds, "seconds": time.monotonic() - began}


def run(
    seeds: int = 12,
    seed: int = 0,
    keep: Path | None = None,
    compute: Compute = HERE,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Run the whole table.

    Args:
        seeds: how many problems for each number of workers.
        seed: the first of them.
        keep: directory where finished cells are kept, so that an interrupted command can be resumed.
        compute: where the work is done, and how many processes at once.
        progress: called with the cell that was computed last, and the numbers of cells done and of all cells.
    """
    count("seeds", seeds, most=MOST_RUNS)
    check_seed(seed)
    # Noise alone is shown on the first problem of each N.
    wanted = [(n, s, 5 if s == seed else 1) for n in WORKERS for s in range(seed, seed + seeds)]
    wanted_cells = {"cell-{}-{}-{}".format(*key): CellJob([*key, DIM, SIGMA2, TARGET], key) for key in wanted}
    cells = run_cells(_cell, wanted_cells, keep, make_pool(compute), progress)
    return Table2(
        settings={"dim": DIM, "sigma2": SIGMA2, "target": TARGET, "seeds": seeds, "seed": seed},
        columns=tuple(_column(index, setting, cells.values()) for index, setting in enumerate(SETTINGS)),
        literal={str(n): literal_reading(n, seed) for n in WORKERS},
        cells=(*cells.values(),),
    ).to_json()


def _column(index: int, setting: Table2Setting, cells: Iterable[Mapping[str, Any]]) -> RoundsColumn:
    ours = {}
    for n in WORKERS:
        runs = [cell["rounds"][index] for cell in cells if cell["workers"] == n]
        if any(r is None for noisy in runs for r in noisy):
            raise InputError(f"A run did not reach f = {TARGET} within {MOST_ROUNDS} rounds; choose another seed.")
        first = [noisy[0] for noisy in runs]
        noisy = max(runs, key=len)
        ours[str(n)] = {
            "median": median(first),
            "mean": mean(first),
            "low": min(first),
            "high": max(first),
            "noise_deviation": stdev(noisy),
        }
    return RoundsColumn(**setting._asdict(), label=setting.label, ours=ours)


def show(result: Mapping[str, Any]) -> None:
    """Print both halves beside the paper's numbers, and why the setting is read as it is."""
    for half, title in (("rates", "Rounds to f = 0.8 by rates, I = 10"), ("steps", "… by local steps I and batch s")):
        columns = [column for column in result["columns"] if column["half"] == half]
        rows = [("paper", *(column["paper"] for column in columns))]
        for n in WORKERS:
            cells = [column["ours"][str(n)] for column in columns]
            rows.append((f"N = {n}", *(f"{cell['median']:g}" for cell in cells)))
            rows.append(("   range", *(f"{cell['low']}–{cell['high']}" for cell in cells)))
            rows.append(("   ± noise", *(f"{cell['noise_deviation']:.1f}" for cell in cells)))
        caption = "median and range over problems; ± noise: deviation over noise seeds on one problem"
        console.table(title, ("", *(column["label"] for column in columns)), rows, caption)
    for n, literal in result["literal"].items():
        worst = max(literal["growth"], key=literal["growth"].get)
        console.out.print(
            f"Read literally (no 1/d), N = {n}: least f = {literal['f_star']:.1f} > {TARGET},"
            f" and {worst} multiplies the error by {literal['growth'][worst]:.2f} a round."
        )
    console.out.print(f"So F_i = |Ux - v_i|²/(2d), x0 ~ N(0, 1); {result['settings']['seeds']} problems for each N.")


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Picture both halves: rounds against I, and against the rates at a fixed product."""
    steps = [c for c in result["columns"] if c["half"] == "steps" and c["batch"] == 1]
    rates = [c for c in result["columns"] if c["half"] == "rates"]
    with pictures.figure(path, panels=2) as (left, right):
        for axes, columns, x in (
            (left, steps, [c["local_steps"] for c in steps]),
            (right, rates, list(range(len(rates)))),
        ):
            for n, marker in zip(WORKERS, "os^", strict=True):
                ours = [c["ours"][str(n)] for c in columns]
                middle = [cell["median"] for cell in ours]
                below = [cell["median"] - cell["low"] for cell in ours]
                above = [cell["high"] - cell["median"] for cell in ours]
                shifted = [value * 1.02**n if axes is left else value + 0.03 * n for value in x]
                axes.errorbar(shifted, middle, yerr=[below, above], fmt=marker, capsize=3, label=f"ours, N = {n}")
            axes.plot(
                x,
                [float(c["paper"].split()[0]) for c in columns],
                "*",
                color=pictures.INK,
                markersize=10,
                label="paper",
            )
            axes.set_ylabel("rounds to f = 0.8")
        left.set(xscale="log", yscale="log", xlabel="local steps I", title="More local steps, fewer rounds")
        left.plot([1, 10], [927, 92.7], ":", color=pictures.INK, linewidth=1, label="1 / I")
        left.set_xticks([1, 5, 10], ["1", "5", "10"])
        left.minorticks_off()
        right.set(ylim=(0, None), xlabel="(eta, gamma)", title="Only the product of the rates matters")
        right.set_xticks(range(len(rates)), [f"{c['eta']:g}, {c['gamma']:g}" for c in rates])
        left.legend()
        right.legend()
