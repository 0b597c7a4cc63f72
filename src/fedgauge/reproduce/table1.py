"""Table 1: L_h, L_tilde and L_g of the paper's MLP on MNIST as the data grows heterogeneous.

The paper gives the estimators, ten rounds and a start "close to convergence", and neither the local steps nor the rates
nor what close means. Here FedAvg has I = 10, gamma = 0.1, eta = 2 and batches of 20 (the paper's rates for this model)
and starts where f falls by less than 1% in ten rounds. How much the answer depends on that is part of the result: at
one partition the same is measured for other local steps and rates, and along the way from the first model. Beside the
paper's estimates stand the tight constants of the curvature at the same models.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from fedgauge.algorithms import fedavg
from fedgauge.crews import make_crew
from fedgauge.errors import count
from fedgauge.execution import prepare
from fedgauge.experiment import Experiment
from fedgauge.files import write_json
from fedgauge.report import figures, terminal

SYMBOLS = ("L_h", "L_tilde", "L_g")
PERCENTS = (25, 50, 75, 100)
PAPER: Mapping[str, Mapping[int, tuple[float, float]]] = {
    "L_h": {25: (0.82, 0.11), 50: (0.82, 0.11), 75: (1.66, 0.23), 100: (2.36, 0.29)},
    "L_tilde": {25: (130.97, 11.67), 50: (130.97, 11.67), 75: (134.24, 12.23), 100: (141.92, 12.78)},
    "L_g": dict.fromkeys(PERCENTS, (122.23, 9.75)),
}
"""Mean and deviation, as printed for the MLP; its rows for 25% and 50% are the same."""
LOCAL_STEPS, GAMMA, ETA = 10, 0.1, 2.0
FALL, WINDOW, MOST, ROUNDS = 0.01, 10, 1000, 10
VARIED_PERCENT = 50
VARIED = [(steps, gamma) for gamma in (0.01, 0.1) for steps in (1, 5, 10, 40)]
"""Local steps and rates for which the same model is measured again."""
ALONG = (0, 3, 10, 30, 100)
"""Rounds after the first model at which it is measured too."""

Told = Callable[[str, int, int], None]


def experiment(percent: int, seed: int, source: str = "mnist", data: str | None = None) -> Experiment:
    """The paper's setting at X per cent; the seed is also that of the partition."""
    keys = {"source": source, "percent": percent, "model": "mlp", "gamma": GAMMA, "eta": ETA, "seed": seed}
    keys |= {"local_steps": LOCAL_STEPS, "batch_size": 20, "workers": 10}
    # No label of MNIST but one has a tenth of the data: at 100% a worker whose label runs out gets others.
    keys |= {"fill": True}
    return Experiment.of(keys | ({"data": data} if data else {}))


def _cell(setting: Experiment) -> dict[str, Any]:
    """Train, then measure what happens and what is possible."""
    from fedgauge.measurement.measuring import Asked, measure

    asked = Asked(("trajectory", "curvature"), rounds=ROUNDS, seeds=1, fall=FALL, most=MOST)
    return measure(setting, asked=asked).to_json()


def _dependence(setting: Experiment) -> dict[str, Any]:
    """The trajectory's readings for other local steps and rates, and at models along the way."""
    from fedgauge.measurement.trajectory import near_convergence, trajectory
    from fedgauge.simulation import simulate

    federation, algorithm = prepare(setting).federation, fedavg(GAMMA, ETA)
    near, said = near_convergence(
        federation, algorithm, local_steps=LOCAL_STEPS, fall=FALL, window=WINDOW, most=MOST, seed=setting.run.seed
    )
    varied = []
    for steps, gamma in VARIED:
        found, _ = trajectory(federation, fedavg(gamma, ETA), near, local_steps=steps, rounds=3)
        varied.append({"local_steps": steps, "gamma": gamma, **_values(found.to_json())})
    along = []
    import torch

    for rounds in ALONG:
        model = federation.start(setting.run.seed)
        if rounds:
            trace = simulate(
                federation,
                algorithm,
                local_steps=LOCAL_STEPS,
                rounds=rounds,
                record_every=rounds,
                seed=setting.run.seed,
                watch=False,
            )
            model = torch.from_numpy(trace.model).to(model)
        found, _ = trajectory(federation, algorithm, model, local_steps=LOCAL_STEPS, rounds=3)
        along.append({"round": rounds, **_values(found.to_json())})
    return {"near": said, "varied": varied, "along": along}


def _values(reading: Mapping[str, Any]) -> dict[str, float]:
    return {item["symbol"]: item["value"] for item in reading["estimates"]}


def run(
    seeds: int = 5,
    source: str = "mnist",
    data: str | None = None,
    keep: Path | None = None,
    told: Told = lambda what, done, total: None,
    engine: str | None = None,
    address: str | None = None,
) -> dict[str, Any]:
    """Measure every cell.

    Args:
        seeds: of partition, first model and mini-batches, for each percentage.
        source: the data set.
        data: directory of data.
        keep: directory where finished cells are kept, so that an interrupted table goes on.
        told: called with what was measured last, cells done and cells in all.
        engine: ``local`` for one cell after another, each on all cores; ``ray`` for all side by side on a cluster.
        address: of the cluster; one is started here if not given.
    """
    count("seeds", seeds)
    wanted = [(percent, seed) for percent in PERCENTS for seed in range(seeds)]
    names = {f"cell-{source}-{percent}-{seed}": (percent, seed) for percent, seed in wanted}
    jobs = {name: (_cell, experiment(*key, source, data)) for name, key in names.items()}
    jobs[f"dependence-{source}"] = (_dependence, experiment(VARIED_PERCENT, 0, source, data))
    found = {name: cell for name in jobs if (cell := _kept(keep, name)) is not None}
    told("starting", len(found), len(jobs))
    if len(found) < len(jobs):
        with make_crew(None if engine == "ray" else 1, engine, address) as crew:
            missing = {name: (*job, engine == "ray") for name, job in jobs.items() if name not in found}
            for name, cell in crew.map(_made, missing):
                found[name] = cell
                if keep:
                    keep.mkdir(parents=True, exist_ok=True)
                    write_json(keep / f"{name}.json", cell)
                told(name, len(found), len(jobs))
    cells = [{"percent": key[0], "seed": key[1], "measured": found[name]} for name, key in names.items()]
    dependence = found[f"dependence-{source}"]
    return {
        "settings": {"source": source, "seeds": seeds, "local_steps": LOCAL_STEPS, "gamma": GAMMA, "eta": ETA}
        | {"fall": FALL, "window": WINDOW, "rounds": ROUNDS},
        "rows": [_row(percent, cells) for percent in PERCENTS],
        "dependence": dependence,
        "cells": cells,
    }


def _made(make: Callable[[Experiment], dict[str, Any]], setting: Experiment, beside: bool) -> dict[str, Any]:
    """A cell; one of several side by side has a process to itself."""
    return make(setting.changed({"processes": 1}) if beside else setting)


def _kept(keep: Path | None, name: str) -> dict[str, Any] | None:
    """A cell from its file."""
    path = keep / f"{name}.json" if keep else None
    found: dict[str, Any] | None = json.loads(path.read_text()) if path and path.exists() else None
    return found


def _row(percent: int, cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    mine = [cell["measured"] for cell in cells if cell["percent"] == percent]
    readings = {}
    for name in ("trajectory", "trajectory maximum", "curvature"):
        found = [_values(reading) for cell in mine for reading in cell["readings"] if reading["name"] == name]
        readings[name] = {symbol: _spread([values[symbol] for values in found]) for symbol in SYMBOLS}
    rounds = [cell["point"]["round"] for cell in mine]
    return {"percent": percent, "readings": readings, "rounds": rounds, "losses": [c["point"]["loss"] for c in mine]}


def _spread(values: Sequence[float]) -> tuple[float, float]:
    return mean(values), stdev(values) if len(values) > 1 else 0.0


def _lines(result: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for row in result["rows"]:
        for symbol in SYMBOLS:
            ours = [row["readings"][name][symbol] for name in ("trajectory", "trajectory maximum", "curvature")]
            shown = [f"{value:.3g} ± {deviation:.2g}" for value, deviation in (PAPER[symbol][row["percent"]], *ours)]
            yield f"{row['percent']}%", symbol, *shown


HEAD = ("X", "symbol", "paper", "trajectory", "trajectory maximum", "curvature")


def show(result: Mapping[str, Any]) -> None:
    """Print the table beside the paper's, and what the answer depends on."""
    seeds = result["settings"]["seeds"]
    terminal.table("Table 1, MLP", HEAD, list(_lines(result)), f"mean ± deviation over {seeds} seeds")
    number = terminal.number
    for title, key, names in (
        (f"The same model at {VARIED_PERCENT}%, other steps and rates", "varied", ("local_steps", "gamma")),
        ("Along the way from the first model", "along", ("round",)),
    ):
        rows = [
            (*(f"{entry[name]:g}" for name in names), *(number(entry.get(symbol)) for symbol in SYMBOLS))
            for entry in result["dependence"][key]
        ]
        terminal.table(title, (*names, *SYMBOLS), rows, "mean over 3 rounds of FedAvg")


def markdown(result: Mapping[str, Any]) -> str:
    """The table as Markdown."""
    rows = [HEAD, ("---",) * len(HEAD), *_lines(result)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Picture the constants against X, and L_h's dependence on where and how it is measured."""
    with figures.figure(path, panels=3, width=4.0) as (left, middle, right):
        for place, symbol in enumerate(SYMBOLS):
            for name, style in (("trajectory", "o-"), ("curvature", "s--")):
                found = [row["readings"][name][symbol] for row in result["rows"]]
                label = f"{symbol}, {name}"
                left.errorbar(
                    PERCENTS, [v for v, _ in found], [d for _, d in found], fmt=style, color=f"C{place}", label=label
                )
            left.plot(PERCENTS, [PAPER[symbol][p][0] for p in PERCENTS], "*:", color=f"C{place}", alpha=0.5)
        left.set(yscale="log", xlabel="X (% of one label)", title="Constants (stars: the paper's)")
        left.legend(fontsize=7)
        varied = result["dependence"]["varied"]
        for gamma in sorted({entry["gamma"] for entry in varied}):
            mine = [entry for entry in varied if entry["gamma"] == gamma and "L_h" in entry]
            middle.plot([e["local_steps"] for e in mine], [e["L_h"] for e in mine], "o-", label=f"L_h, gamma {gamma:g}")
        middle.set(xscale="log", yscale="log", xlabel="local steps I", title="One model, other steps and rates")
        middle.legend()
        along = result["dependence"]["along"]
        for symbol in SYMBOLS:
            right.plot([1 + e["round"] for e in along], [e[symbol] for e in along], "o-", label=symbol)
        right.set(xscale="log", yscale="log", xlabel="1 + round", title="Along the way")
        right.legend()
