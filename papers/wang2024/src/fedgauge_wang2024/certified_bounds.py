"""Certified bounds on real data: softmax regression, whose constants are proved, set beside runs.

Five theorems are evaluated at the constants that :func:`fedgauge_verification.certify` proves, with the rate that makes
each bound least, and FedAvg (or mini-batch SGD, or momentum) is run at that rate with many seeds. The rates of the
paper's own experiments are far outside its conditions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

from fedgauge.base.errors import MOST_RUNS, InputError, count, nearest
from fedgauge.base.progress import silent
from fedgauge.base.types import Progress
from fedgauge.show import console
from fedgauge.simulation.options import HERE, Compute, Recording
from fedgauge.theory import find
from fedgauge.theory.answer import bound
from fedgauge.theory.search import best_gamma
from fedgauge.values import Kind, Version
from fedgauge_planning.jobs import make_pool
from fedgauge_wang2024.cells import CellJob, run_cells
from fedgauge_wang2024.results import CertifiedBounds

PERCENTS = (50, 100)
LOCAL_STEPS = (1, 4, 16)
WORKERS, PARTICIPANTS, BETA, L2 = 10, 5, 0.9, 1e-3
OWN: Mapping[str, Mapping[str, float]] = {
    "nonconvex": {},
    "partial": {"M": PARTICIPANTS},
    "minibatch": {},
    "momentum": {"beta": BETA},
    "strongly-convex": {},
}
"""The theorems, each with the values that it needs besides the constants, I and R."""
SOURCES = ("digits", "mnist")
# One exact pass over MNIST takes as long as many rounds.
RECORD_EVERY = {"digits": 5, "mnist": 50}


class LineToRun(NamedTuple):
    """One line of the table, before it is run."""

    source: str
    data: str | None
    percent: int
    local_steps: int
    rounds: int
    theorem: str
    gamma: float
    eta: float
    f_star: float
    seeds: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.source}-{self.percent}-{self.theorem}-I{self.local_steps}-R{self.rounds}-{self.seeds}"


@lru_cache(maxsize=1)
def federation(source: str, data: str | None, percent: int) -> Any:
    """Softmax regression from the model 0, on the paper's partition; at 100% each worker has one label only."""
    import torch

    from fedgauge.data.loader import load_dataset
    from fedgauge.data.scaling import standardise
    from fedgauge.data.schemes import make_partition
    from fedgauge.federation.models import make_model
    from fedgauge.federation.supervised import SupervisedFederation

    dataset = standardise(load_dataset(source, data), "unit")
    each: dict[str, Any] = {"per_worker": int(np.bincount(dataset.train_labels).min())} if percent == 100 else {}
    partition = make_partition(dataset, "paper", WORKERS, percent=float(percent), seed=0, **each)
    model = make_model("softmax", dataset.train_inputs.shape[1:], dataset.num_classes, l2=L2)
    module = model.make()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    inputs, labels = (torch.from_numpy(np.array(part)) for part in (dataset.train_inputs, dataset.train_labels))
    return SupervisedFederation(module, model.loss, inputs, labels, partition, batch_size=20, l2=model.l2)


def tuned(theorem: str, version: Version, values: Mapping[str, Any]) -> tuple[float, float]:
    """gamma and eta: eta such that the limits on gamma and on gamma eta meet, then the gamma with the least bound.

    ``star`` has no limit on the product alone and takes the eta of ``corrected``, so that the two can be compared.
    """
    statement, meeting = find(theorem), "corrected" if version == "star" else version
    probe = statement.evaluate(meeting, **_used(theorem, meeting, values), gamma=1.0, eta=1.0)
    alone = min((float(c.limit) for c in probe.conditions if c.name == "gamma"), default=np.inf)
    meet = np.isfinite(probe.gamma_eta_max) and np.isfinite(alone)
    eta = float(probe.gamma_eta_max) / alone if meet else 1.0
    found = best_gamma(theorem, version, eta, **_used(theorem, version, values))
    return float(found.gamma), eta


def _used(theorem: str, version: str, values: Mapping[str, Any]) -> dict[str, Any]:
    names = (*find(theorem).needed(version), "M", "beta")  # type: ignore[arg-type]
    return {name: value for name, value in values.items() if name in names}


def bounds(theorem: str, values: Mapping[str, Any], kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """The theorem in every version but the printed, each at its own best rates, and the best of the new ones."""
    versions: dict[str, Any] = {}
    versions_shown: tuple[Version, ...] = ("corrected", "sharp", "star", "prior")
    for version in versions_shown:
        if version not in find(theorem).versions:
            continue
        gamma, eta = tuned(theorem, version, values)
        result = bound(theorem, version, kinds, **{**values, "gamma": gamma, "eta": eta})
        versions[version] = {
            "gamma": gamma,
            "eta": eta,
            "bound": float(result.bound.total),
            "certified": bool(result.bound.certified),
            "dominant": result.dominant.name,
        }
    new = next(version for version in ("star", "sharp", "corrected") if version in versions)
    return {"new": new, "versions": versions}


def measured(cell: LineToRun) -> dict[str, list[float]]:
    """The quantity that the theorem bounds, in each seed's run: its least value and its mean over the records r < R."""
    from fedgauge.algorithms import fedavg, minibatch, momentum
    from fedgauge.federation.participation import Participation
    from fedgauge.simulation.loop import simulate

    made = federation(cell.source, cell.data, cell.percent)
    algorithm = fedavg(cell.gamma, cell.eta)
    if cell.theorem == "momentum":
        algorithm = momentum(cell.gamma, BETA)
    elif cell.theorem == "minibatch":
        algorithm = minibatch(cell.gamma, cell.eta)
    sampled = Participation("with-replacement", PARTICIPANTS) if cell.theorem == "partial" else Participation()
    least, mean = [], []
    for seed in range(cell.seeds):
        trace = simulate(
            made,
            algorithm,
            local_steps=cell.local_steps,
            rounds=cell.rounds,
            participation=sampled,
            seed=seed,
            record=Recording(every=RECORD_EVERY[cell.source], watch=False),
            compute=Compute(chunk=WORKERS, processes=1),
        )
        seen = trace.losses - cell.f_star if cell.theorem == "strongly-convex" else trace.grad2
        least.append(float(seen[:-1].min()))
        mean.append(float(seen[:-1].mean()))
    return {"least": least, "mean": mean}


def run(
    source: str = "digits",
    data: Path | None = None,
    rounds: int = 200,
    seeds: int = 20,
    keep: Path | None = None,
    compute: Compute = HERE,
    progress: Progress = silent,
    theorems: Sequence[str] = (),
    local_steps: Sequence[int] = (),
) -> dict[str, Any]:
    """Run the whole table for one data set.

    Args:
        source: digits or mnist.
        data: directory of data.
        rounds: R.
        seeds: how many runs for each line.
        keep: directory where finished lines are kept, so that an interrupted command can be resumed.
        compute: where the work is done, and how many processes at once.
        progress: called with the line that was computed last, and the numbers of lines done and of all lines.
        theorems: which theorems; all by default.
        local_steps: which I; those of the table by default.
    """
    for name in theorems:
        if name not in OWN:
            raise InputError(f"The table has no theorem {name!r}; {nearest(name, OWN)}")
    if source not in SOURCES:
        raise InputError(f"source must be one of {', '.join(SOURCES)}, not {source!r}.")
    count("seeds", seeds, most=MOST_RUNS)
    # The theorems are about the rounds before the last, and a sparse record must have some of these.
    count("rounds", rounds, least=RECORD_EVERY[source])
    place = str(data) if data else os.environ.get("FEDGAUGE_DATA")
    lines: list[dict[str, Any]] = []
    cells: list[LineToRun] = []
    constants = {}
    wanted_constants = {f"{source}-{percent}-constants": (source, place, percent) for percent in PERCENTS}
    certified = run_cells(
        _constants,
        {name: CellJob([*one], one) for name, one in wanted_constants.items()},
        keep,
        make_pool(Compute(processes=1)),
        lambda *_: None,
    )
    for percent, found in zip(PERCENTS, certified.values(), strict=True):
        constants[str(percent)] = found["constants"]
        for theorem, own in ((name, own) for name, own in OWN.items() if name in (theorems or OWN)):
            for I in local_steps or LOCAL_STEPS:  # noqa: E741
                line = bounds(theorem, {**found["values"], **own, "I": I, "R": rounds}, found["kinds"])
                best = line["versions"][line["new"]]
                lines.append({"percent": percent, "theorem": theorem, "I": I, "R": rounds, **line})
                rates = best["gamma"], best["eta"]
                cells.append(LineToRun(source, place, percent, I, rounds, theorem, *rates, found["f_star"], seeds))
    wanted = {cell.name: CellJob([*cell], (cell,)) for cell in cells}
    done = run_cells(measured, wanted, keep, make_pool(compute), progress)
    for line, runs in zip(lines, done.values(), strict=True):
        bound = line["versions"][line["new"]]["bound"]
        line |= {
            "runs": runs,
            "least": median(runs["least"]),
            "worst": max(runs["least"]),
            "mean": fmean(runs["mean"]),
            "below": sum(value <= bound for value in runs["least"]),
            "looseness": bound / fmean(runs["mean"]),
            "prior_over_new": line["versions"]["prior"]["bound"] / line["versions"]["corrected"]["bound"],
        }
    settings = {"source": source, "workers": WORKERS, "l2": L2, "batch_size": 20, "rounds": rounds, "seeds": seeds}
    settings |= {"record_every": RECORD_EVERY[source], "M": PARTICIPANTS, "beta": BETA}
    return CertifiedBounds.from_json({"settings": settings, "constants": constants, "lines": lines}).to_json()


def _constants(source: str, data: str | None, percent: int) -> dict[str, Any]:
    from fedgauge_verification import certify

    found = certify(federation(source, data, percent))
    values, kinds = found.theorem_values()
    return {
        "values": values,
        "kinds": kinds,
        "constants": {symbol: estimate.to_json() for symbol, estimate in found.constants.items()},
        "f_star": found.constants["f_star"].value,
    }


def show(result: Mapping[str, Any]) -> None:
    """Print the constants and the table."""

    def short(value: float) -> str:
        return f"{value:.3g}"

    for percent, constants in result["constants"].items():
        rows = [
            (entry["symbol"], console.number(entry["value"]), console.number(entry["low"]), entry["kind"])
            for entry in constants.values()
        ]
        console.table(f"Constants at {percent}%", ("symbol", "value", "not below", "kind"), rows)
    head = ("%", "theorem", "I", "gamma", "eta", "bound", "prior/new", "mean", "worst", "bound/mean", "below")
    lines: list[tuple[str, ...]] = []
    for line in result["lines"]:
        new = line["versions"][line["new"]]
        lines.append(
            (
                str(line["percent"]),
                f"{line['theorem']} ({line['new']})",
                str(line["I"]),
                *map(short, (new["gamma"], new["eta"], new["bound"], line["prior_over_new"])),
                *map(short, (line["mean"], line["worst"], line["looseness"])),
                f"{line['below']}/{len(line['runs']['least'])}",
            )
        )
    caption = (
        "mean: of the bounded quantity, over recorded rounds and seeds; worst: the largest of the runs' least values;"
        " prior/new: the bound with L_tilde divided by the corrected one, each at its best rate"
    )
    console.table(f"Certified bounds on {result['settings']['source']}", head, lines, caption, padding=0)
