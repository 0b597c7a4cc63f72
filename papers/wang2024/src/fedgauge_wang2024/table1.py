"""Table 1: L_h, L_tilde and L_g of the paper's networks as the data grows heterogeneous.

The paper gives the estimators, ten rounds and a start "close to convergence", and neither the local steps nor the rates
nor what close means. Here FedAvg has I = 10 and the paper's rates for the model. It is trained as in the model's
figure, with its participation, and measured with all workers where f has fallen by a tenth and then falls by less than
1% in ten rounds, or where the laptop scale has no more rounds to get there; at the workstation scale, after the same
number of rounds at every X. How much the answer depends on that is part of the result: for the MLP, at one partition,
the same is measured for other local steps and rates, and along the way from the first model. Beside its estimates
stand the tight constants of the curvature at these models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, cast

from fedgauge.algorithms import fedavg
from fedgauge.base.errors import MOST_RUNS, InputError, count
from fedgauge.base.progress import silent
from fedgauge.base.types import Progress
from fedgauge.show import console, pictures
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import prepare
from fedgauge.simulation.options import HERE, Compute, Recording, StopAt
from fedgauge.simulation.setup import Setup
from fedgauge.values import Round
from fedgauge_planning.jobs import make_pool
from fedgauge_planning.jobs import progress as took
from fedgauge_wang2024.cells import CellJob, kept, run_cells
from fedgauge_wang2024.earlier import known_cell, without_place
from fedgauge_wang2024.results import ConstantsRow, Table1
from fedgauge_wang2024.studies import ETA, Scale, Size, Study

if TYPE_CHECKING:
    import torch

    from fedgauge.federation.supervised import SupervisedFederation

SYMBOLS = ("L_h", "L_tilde", "L_g")
PERCENTS = (25, 50, 75, 100)
Printed = Mapping[str, Mapping[int, tuple[float, float]]]
PAPER: Mapping[str, Printed] = {
    "mlp": {
        "L_h": {25: (0.82, 0.11), 50: (0.82, 0.11), 75: (1.66, 0.23), 100: (2.36, 0.29)},
        "L_tilde": {25: (130.97, 11.67), 50: (130.97, 11.67), 75: (134.24, 12.23), 100: (141.92, 12.78)},
        "L_g": dict.fromkeys(PERCENTS, (122.23, 9.75)),
    },
    "cnn": {
        "L_h": {25: (0.96, 0.13), 50: (1.21, 0.19), 75: (1.63, 0.26), 100: (2.15, 0.34)},
        "L_tilde": {25: (447.59, 22.27), 50: (898.49, 38.57), 75: (1131.36, 47.82), 100: (1662.24, 62.18)},
        "L_g": dict.fromkeys(PERCENTS, (323.35, 15.36)),
    },
    "vgg11": {
        "L_h": {25: (9.14, 0.32), 50: (10.47, 0.35), 75: (12.49, 0.41), 100: (17.83, 1.12)},
        "L_tilde": {25: (161.07, 3.07), 50: (246.68, 7.67), 75: (338.07, 8.43), 100: (536.92, 10.43)},
        "L_g": dict.fromkeys(PERCENTS, (151.95, 5.42)),
    },
    "vgg16": {
        "L_h": {25: (2.53, 0.12), 50: (3.26, 0.12), 75: (3.96, 0.19), 100: (4.67, 0.27)},
        "L_tilde": {25: (363.11, 3.87), 50: (365.39, 1.1), 75: (379.91, 8.82), 100: (431.07, 25.10)},
        "L_g": dict.fromkeys(PERCENTS, (360.85, 1.86)),
    },
}
"""Mean and deviation, as printed; the MLP's rows for 25% and 50% are the same, and there is one L_g per model."""
LOCAL_STEPS = 10
FALL, WINDOW = 0.01, 10
BEFORE = 0.1
"""The part of its first value by which f has to have fallen before it can be near convergence."""
VARIED_PERCENT = 50
VARIED = [(steps, gamma) for gamma in (0.01, 0.1) for steps in (1, 5, 10, 40)]
"""Local steps and rates for which the same model is measured again."""
ALONG = (0, 3, 10, 30, 100)
"""Rounds after the first model at which it is measured too."""


def experiment(study: Study, scale: Scale, percent: int, seed: int, data: str | None = None) -> Experiment:
    """The paper's setting at X percent; the seed is also that of the partition."""
    # No label of MNIST but one has a tenth of the data: at 100% a worker whose label runs out gets others.
    own = {"fill": True, **study.sizes[scale].table}
    return study.experiment(scale, data, percent=percent, seed=seed, local_steps=LOCAL_STEPS, **own)


def settings(study: Study, scale: Scale) -> dict[str, Any]:
    """What all cells of a table share; two scales at which a network has one size share them too."""
    size = study.sizes[scale]
    return {"study": study.name, "most": size.near, "rounds": size.measured, "part": size.part}


def _asked(setting: Experiment, size: Size) -> list[Any]:
    """Everything that a cell depends on."""
    return [without_place(setting.to_json()), size.near, size.settles, size.measured, size.readings, size.part]


def kept_cell(keep: Path, study: Study, scale: Scale, percent: int, seed: int) -> Any:
    """A finished cell of a table that is not; ``None`` if it is not kept."""
    asked = _asked(experiment(study, scale, percent, seed), study.sizes[scale])
    return kept(keep, f"cell-{study.name}-{scale}-{percent}-{seed}", asked)


def _cell(setting: Experiment, size: Size) -> dict[str, Any]:
    """Train, then measure what happens and what is possible."""
    from fedgauge.measurement.session import MeasureOptions, measure
    from fedgauge.measurement.values import whole

    options = MeasureOptions(size.readings, rounds=size.measured, seeds=1, fall=FALL, most=size.near)
    began = time.monotonic()
    setup = prepare(setting)
    model, how = _train(setup, size, setting.run.record_sample)
    if size.part is not None:
        # A network's workers have samples.
        setup = replace(setup, federation=cast("SupervisedFederation", setup.federation).every(size.part, 0))
    passes = _steps()
    found = measure(
        setup, model=model, origin=how.pop("origin"), options=options, progress=lambda what, done, total: passes(done)
    )
    made = whole(found).to_json()
    made["point"] |= {**how, "part": size.part}
    # A result that is passed on does not say where the data is on this machine.
    made["settings"]["experiment"]["data"].pop("dir", None)
    return {**made, "seconds": time.monotonic() - began}


def _steps() -> Callable[[int], None]:
    """Reports what a part of a cell has done so far, of which it is called with the number, as further steps."""
    before = 0

    def so_far(done: int) -> None:
        nonlocal before
        took(done - before if done > before else 0)
        before = done

    return so_far


def _train(setup: Setup, size: Size, sample: int | None) -> tuple[torch.Tensor, dict[str, Any]]:
    """Train for a size's rounds, or, where it may settle, until f has fallen by a tenth and then almost stops falling.

    On the plateau on which deep networks begin, f hardly falls either.

    Returns:
        The model, and how it was reached: the rule, the round, the first and the last loss, all of which are those of a
        sample of every worker's examples if one is given.
    """
    import torch

    from fedgauge.measurement.trajectory import settled
    from fedgauge.simulation.loop import simulate

    def near(records: Sequence[Round]) -> bool:
        return settled(records, FALL) and records[-1].loss <= (1 - BEFORE) * records[0].loss

    rounds = _steps()
    trace = simulate(
        setup.federation,
        setup.algorithm,
        local_steps=setup.local_steps,
        rounds=size.near,
        participation=setup.participation,
        seed=setup.seed,
        record=Recording(every=WINDOW, watch=False, sample=sample, observer=lambda done, record: rounds(done)),
        stop=StopAt(when=near if size.settles else None),
        compute=setup.compute,
    )
    if trace.status == "diverged":
        raise InputError(f"The training before Table 1 diverged in round {trace.stopped_at}; use a smaller gamma.")
    last = trace.rounds[-1]
    how: dict[str, Any] = {"origin": f"after {last.round} rounds", "round": last.round, "seed": setup.seed}
    if size.settles:
        how["reached"] = near(trace.rounds)
        how["rule"] = f"f has fallen by {BEFORE:g} of itself, and then by less than {FALL:g} in {WINDOW} rounds"
        how["origin"] = "trained until near convergence" if how["reached"] else f"{how['origin']}, not near convergence"
    how |= {"first_training_loss": trace.rounds[0].loss, "last_training_loss": last.loss, "sample": last.sample}
    return torch.from_numpy(trace.model).to(setup.first_model), how


def _dependence(setting: Experiment, size: Size) -> dict[str, Any]:
    """The trajectory's readings for other local steps and rates, and at models along the way."""
    from fedgauge.measurement.trajectory import near_convergence, trajectory
    from fedgauge.measurement.values import whole
    from fedgauge.simulation.loop import simulate

    federation, gamma = prepare(setting).federation, setting.algorithm.gamma or 0.0
    algorithm, seed = fedavg(gamma, ETA), setting.run.seed
    near, how_near = near_convergence(
        federation, algorithm, local_steps=LOCAL_STEPS, fall=FALL, window=WINDOW, most=size.near, seed=seed
    )
    varied = []
    for steps, rate in VARIED:
        found, _ = trajectory(federation, fedavg(rate, ETA), near, local_steps=steps, rounds=3)
        varied.append({"local_steps": steps, "gamma": rate, **_values(whole(found).to_json())})
    along = []
    import torch

    for rounds in ALONG:
        model = federation.start(seed)
        if rounds:
            trace = simulate(
                federation,
                algorithm,
                local_steps=LOCAL_STEPS,
                rounds=rounds,
                seed=seed,
                record=Recording(every=rounds, watch=False),
            )
            model = torch.from_numpy(trace.model).to(model)
        found, _ = trajectory(federation, algorithm, model, local_steps=LOCAL_STEPS, rounds=3)
        along.append({"round": rounds, **_values(whole(found).to_json())})
    return {"near": how_near, "varied": varied, "along": along}


def _values(reading: Mapping[str, Any]) -> dict[str, float]:
    return {item["symbol"]: item["value"] for item in reading["estimates"]}


def run(
    study: Study,
    scale: Scale = "paper",
    seeds: int | None = None,
    data: str | None = None,
    keep: Path | None = None,
    progress: Progress = silent,
    compute: Compute = HERE,
    percents: Sequence[int] = (),
    earlier: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Measure cells, and make the table of all that are known then; rows may differ in their number of seeds.

    Args:
        study: which of the paper's networks, on its data.
        scale: how large.
        seeds: how many seeds of partition, first model and mini-batches for each percentage; by default the scale's.
        data: directory of data.
        keep: directory where finished cells are kept, so that an interrupted command can be resumed.
        progress: called with the cell that was measured last, the number of cells done and of all cells.
        compute: where: on this machine one cell after another, each on all cores; on a cluster all side by side.
        percents: which rows of the table to measure; by default all.
        earlier: an earlier result; what it has is not measured again.
    """
    if study.name not in PAPER:
        raise InputError(f"Table 1 has no {study.title}; its models are {', '.join(PAPER)}.")
    for percent in percents:
        if percent not in PERCENTS:
            raise InputError(
                f"Table 1 has no row at {percent}%; it has {', '.join(f'{known}%' for known in PERCENTS)}."
            )
    size = study.sizes[scale]
    seeds = count("seeds", size.seeds if seeds is None else seeds, most=MOST_RUNS)
    most = max([seeds, *(cell["seed"] + 1 for cell in earlier["cells"])]) if earlier else seeds
    of = f"{study.name}-{scale}"
    shared = settings(study, scale)
    known = {
        f"cell-{of}-{percent}-{seed}": cell
        for percent in PERCENTS
        for seed in range(most)
        if (cell := known_cell(earlier, percent, seed, experiment(study, scale, percent, seed).to_json(), **shared))
        # An earlier rule may have ended its training before those of the other rows.
        and (size.settles or cell["point"]["round"] == size.near)
    }
    names = {
        name: (percent, seed)
        for percent in PERCENTS
        for seed in range(most)
        if (name := f"cell-{of}-{percent}-{seed}") in known or (percent in (percents or PERCENTS) and seed < seeds)
    }
    rows = tuple(dict.fromkeys(percent for percent, _ in names.values()))
    made = {name: (_cell, experiment(study, scale, *key, data), size) for name, key in names.items()}
    # Only the MLP is small enough to be measured again and again.
    if study.name == "mlp" and scale != "smoke" and VARIED_PERCENT in rows:
        made[f"dependence-{of}"] = (_dependence, experiment(study, scale, VARIED_PERCENT, 0, data), size)
        if earlier is not None and known and earlier.get("dependence"):
            known[f"dependence-{of}"] = earlier["dependence"]
    far = compute.on_cluster
    jobs = {
        name: CellJob(
            _asked(setting, size),
            (make, setting, size, far),
        )
        for name, (make, setting, size) in made.items()
    }
    done = 0

    def tell(what: str, cells: int, total: int | None) -> None:
        nonlocal done
        done = cells
        progress(what, cells, total)

    def within(steps: int) -> None:
        progress(f"{steps:,} rounds and passes, cells", done, len(jobs))

    pool = make_pool(compute.with_processes(None if far else 1), within)
    found = run_cells(_made, jobs, keep, pool, tell, known)
    cells = [{"percent": key[0], "seed": key[1], "measured": found[name]} for name, key in names.items()]
    return Table1(
        settings={
            **shared,
            "scale": scale,
            "seeds": 1 + max(seed for _, seed in names.values()),
            "local_steps": LOCAL_STEPS,
            "eta": ETA,
        }
        | {"gamma": study.keys["gamma"], "fall": FALL if size.settles else None, "window": WINDOW},
        rows=tuple(_row(percent, cells, size.readings) for percent in rows),
        paper={symbol: {str(X): pair for X, pair in held.items()} for symbol, held in PAPER[study.name].items()},
        cells=tuple(cells),
        dependence=found.get(f"dependence-{of}", {}),
    ).to_json()


def _made(
    make: Callable[[Experiment, Size], dict[str, Any]], setting: Experiment, size: Size, beside: bool
) -> dict[str, Any]:
    """A cell; if several are computed side by side, each has one process."""
    return make(setting.changed({"processes": 1}) if beside else setting, size)


def _row(percent: int, cells: Sequence[Mapping[str, Any]], names: Sequence[str]) -> ConstantsRow:
    mine = [cell["measured"] for cell in cells if cell["percent"] == percent]
    readings = {}
    for name in ("trajectory", "trajectory maximum", *(name for name in names if name != "trajectory")):
        found = [_values(reading) for cell in mine for reading in cell["readings"] if reading["name"] == name]
        readings[name] = {symbol: _spread([values[symbol] for values in found]) for symbol in SYMBOLS}
    rounds = [cell["point"]["round"] for cell in mine]
    return ConstantsRow(percent, readings, tuple(rounds), tuple(c["point"]["loss"] for c in mine))


def _spread(values: Sequence[float]) -> tuple[float, float]:
    return mean(values), stdev(values) if len(values) > 1 else 0.0


def _readings(result: Mapping[str, Any]) -> list[str]:
    return list(result["rows"][0]["readings"])


def _lines(result: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    printed = PAPER[result["settings"]["study"]]
    for row in Table1.from_json(result).rows:
        for symbol in SYMBOLS:
            value, deviation = printed[symbol][row.percent]
            ours = (row.shown(name, symbol) for name in _readings(result))
            yield f"{row.percent}%", symbol, f"{value:.3g} ± {deviation:.2g}", *ours


HEAD = ("X", "symbol", "paper")


def _caption(result: Mapping[str, Any]) -> str:
    seeds, part = {len(row["rounds"]) for row in result["rows"]}, result["settings"].get("part")
    over = f"mean ± deviation over {' or '.join(map(str, sorted(seeds)))} seeds"
    if seeds == {1}:
        over = "ours with one seed, the paper's with its deviation"
    return f"{over}; measured with one in {part} of each worker's examples" if part else over


def show(result: Mapping[str, Any]) -> None:
    """Print the table beside the paper's, and what the answer depends on."""
    settings = result["settings"]
    title = f"Table 1, {settings['study']}, effort {settings['scale']}"
    head = (*HEAD, *_readings(result))
    console.table(title, head, list(_lines(result)), _caption(result))
    number = console.number
    for title, key, names in (
        (f"The same model at {VARIED_PERCENT}%, other steps and rates", "varied", ("local_steps", "gamma")),
        ("Along the way from the first model", "along", ("round",)),
    ):
        rows = [
            (*(f"{entry[name]:g}" for name in names), *(number(entry.get(symbol)) for symbol in SYMBOLS))
            for entry in result.get("dependence", {}).get(key, ())
        ]
        if rows:
            console.table(title, (*names, *SYMBOLS), rows, "mean over 3 rounds of FedAvg")


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Picture the constants against X, and L_h's dependence on where and how it is measured."""
    dependence = result.get("dependence")
    with pictures.figure(path, panels=3 if dependence else 1, width=4.0) as (left, *others):
        printed = PAPER[result["settings"]["study"]]
        styles = dict(zip(_readings(result), ("o-", "", "s--"), strict=False))
        percents = [row["percent"] for row in result["rows"]]
        for place, symbol in enumerate(SYMBOLS):
            for name, style in styles.items():
                if not style:
                    continue
                found = [row["readings"][name][symbol] for row in result["rows"]]
                label = f"{symbol}, {name}"
                left.errorbar(
                    percents, [v for v, _ in found], [d for _, d in found], fmt=style, color=f"C{place}", label=label
                )
            left.plot(PERCENTS, [printed[symbol][p][0] for p in PERCENTS], "*:", color=f"C{place}", alpha=0.5)
        left.set(yscale="log", xlabel="X (% of one label)", title="Constants (stars: the paper's)")
        left.legend(fontsize=7)
        if dependence:
            _draw_dependence(dependence, *others)


def _draw_dependence(dependence: Mapping[str, Any], middle: Any, right: Any) -> None:
    varied = dependence["varied"]
    for gamma in sorted({entry["gamma"] for entry in varied}):
        mine = [entry for entry in varied if entry["gamma"] == gamma and "L_h" in entry]
        middle.plot([e["local_steps"] for e in mine], [e["L_h"] for e in mine], "o-", label=f"L_h, gamma {gamma:g}")
    middle.set(xscale="log", yscale="log", xlabel="local steps I", title="One model, other steps and rates")
    middle.legend()
    along = dependence["along"]
    for symbol in SYMBOLS:
        right.plot([1 + e["round"] for e in along], [e[symbol] for e in along], "o-", label=symbol)
    right.set(xscale="log", yscale="log", xlabel="1 + round", title="Along the way")
    right.legend()
