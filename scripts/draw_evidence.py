"""Draw the pictures of the page of results from the numbers that are kept beside them.

    python scripts/draw_evidence.py

Writes into docs/results/pictures. Nothing is measured here: shifts are applied to the digits, and the rest is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fedgauge as fg
from fedgauge.data.shifts import SHIFTS
from fedgauge.show.pictures import COLOURS, INK, figure

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
PAPER = ROOT / "papers" / "wang2024" / "results"
PLACE = RESULTS / "pictures"
LOCAL_STEPS = 40
OURS, OTHERS = COLOURS[4], COLOURS[0]


def kept(path: Path) -> Any:
    """The numbers of a study."""
    return json.loads(path.read_text("utf-8"))


def timings() -> Iterator[tuple[str, str, float]]:
    """Workload, library and milliseconds per round: the fastest way of each library, from the tables of speed.md."""
    fastest: dict[tuple[str, str], float] = {}
    for line in (RESULTS / "speed.md").read_text("utf-8").splitlines():
        row = re.match(r"\| (mlp|many) \| ([\w-]+) \| \d \w+ \| ([\d.]+) \|", line)
        if row:
            key = (row[1], row[2])
            fastest[key] = min(float(row[3]), fastest.get(key, float("inf")))
    for (workload, library), time in fastest.items():
        yield workload, library, time


def speed(place: Path) -> None:
    """The time of a round in every library."""
    titles = {"mlp": "10 workers, 40 local steps", "many": "100 of 1,000 workers, 10 local steps"}
    rows = list(timings())
    with figure(place, 2, width=4.6, height=2.8) as panels:
        for axes, (workload, title) in zip(panels, titles.items(), strict=True):
            found = sorted(((time, name) for which, name, time in rows if which == workload), reverse=True)
            axes.barh(
                [name for _, name in found],
                [time for time, _ in found],
                color=[OURS if name == "fedgauge" else OTHERS for _, name in found],
            )
            for place_of, (time, _) in enumerate(found):
                axes.text(time, place_of, f" {time:,.0f}", va="center")
            axes.set(title=title, xlabel="milliseconds per round", xlim=(0, 1.16 * found[0][0]))
            axes.grid(False)


def plan(place: Path) -> None:
    """How long the choice of a plan takes, compared with the best cell of the grid."""
    rows = kept(RESULTS / "plan" / "numbers.json")["rows"]
    with figure(place, width=6.4, height=3.4) as (axes,):
        for name, fresh, colour in (
            ("federations that it was developed on", False, OTHERS),
            ("federations that it was not developed on", True, OURS),
        ):
            ratios = sorted(row["plan_judged"] / row["best_judged"] for row in rows if row["fresh"] == fresh)
            axes.plot(
                (np.arange(len(ratios)) + 0.5) / len(ratios), ratios, "o", color=colour, markersize=3.5, label=name
            )
        axes.axhline(1, color=INK, linewidth=1)
        axes.axhline(1.25, color=INK, linewidth=1, linestyle="--")
        axes.text(0.0, 1.27, "1.25 times as long", va="bottom")
        axes.set(
            title="Plans against the best of an exhaustive grid",
            xlabel="share of the plans",
            ylabel="time of the plan / time of the best",
            yscale="log",
            yticks=[0.3, 0.5, 1, 2],
            yticklabels=["0.3", "0.5", "1", "2"],
        )
        axes.minorticks_off()
        axes.legend(loc="lower right")


def tau(place: Path) -> None:
    """How well every measure of heterogeneity orders federations, on digits and on MNIST."""
    taus: dict[str, dict[str, tuple[float, float, float]]] = {}
    for source in ("digits", "mnist"):
        for row in kept(PAPER / "decisive" / f"{source}.json")["answers"]["orders"]:
            if row["local_steps"] == LOCAL_STEPS and row["place"] in ("along", ""):
                taus.setdefault(row["lens"], {})[source] = tuple(row["mixed"])
    order = sorted(taus, key=lambda name: np.mean([each[0] for each in taus[name].values()]))
    with figure(place, width=6.4, height=5.6) as (axes,):
        for source, colour, shift in (("digits", OTHERS, 0.14), ("mnist", OURS, -0.14)):
            rows = [(y + shift, *taus[name][source]) for y, name in enumerate(order) if source in taus[name]]
            y, value, low, high = np.array(rows).T
            axes.hlines(y, low, high, color=colour, linewidth=2, alpha=0.5)
            axes.plot(value, y, "o", color=colour, markersize=4.5, label={"mnist": "MNIST"}.get(source, source))
        axes.axvline(0, color=INK, linewidth=1)
        axes.set(
            title=f"Which measure orders federations as {LOCAL_STEPS} local steps do?",
            xlabel="Kendall's tau: 1 is the same order, 0 is chance",
            yticks=range(len(order)),
            yticklabels=[name.replace(" seen", " along the steps") for name in order],
            xlim=(-0.7, 1),
        )
        axes.legend(loc="lower right")


def bounds(place: Path) -> None:
    """What theorems certify beside what runs did, on digits."""
    theorems = {
        "nonconvex": "4.3, all workers",
        "partial": "4.5, some workers",
        "minibatch": "5.5, mini-batch SGD",
        "momentum": "A.5, momentum",
        "strongly-convex": "A.9, strongly convex",
    }
    lines = [line for line in kept(PAPER / "certified" / "digits.json")["lines"] if line["percent"] == 50]
    versions = (("corrected", OTHERS, "s", "as corrected"), ("star", OURS, "D", "our proof"))
    with figure(place, width=6.8, height=3.8) as (axes,):
        names = []
        for y, line in enumerate(reversed(lines)):
            # The runs' least value is what the theorem speaks about; the bound is above it, or it would be wrong.
            found = {key: line["versions"][key]["bound"] for key, *_ in versions}
            axes.plot([line["least"], found["corrected"]], [y, y], color=INK, linewidth=0.8, alpha=0.5, zorder=1)
            axes.plot(line["least"], y, "o", color=COLOURS[3], label="what 20 runs did" if y == 0 else None)
            for key, colour, marker, label in versions:
                axes.plot(found[key], y, marker, color=colour, markersize=5, label=label if y == 0 else None)
            names.append(f"{theorems[line['theorem']]}, I = {line['I']}")
        axes.set(
            title="Certified bounds and runs, softmax regression on digits",
            xlabel="the quantity that the theorem bounds",
            xscale="log",
            yticks=range(len(names)),
            yticklabels=names,
        )
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def shifts(place: Path) -> None:
    """What each shift does to one digit, on five workers."""
    dataset = fg.standardise(fg.load_dataset("digits"), "unit")
    partition = fg.make_partition(dataset, "iid", num_workers=5, seed=0)
    kinds = [name for name in SHIFTS if name != "offset"]
    example = int(np.flatnonzero(np.asarray(dataset.train_labels) == 4)[1])
    with figure(place, len(kinds), 5, width=1.05, height=1.05) as panels:
        for column, kind in enumerate(kinds):
            for worker in range(5):
                axes = panels[worker * len(kinds) + column]
                inputs, label = shown_to(dataset, partition, kind, worker, example)
                axes.imshow(inputs, cmap="gray", vmin=0, vmax=1)
                axes.set(xticks=[], yticks=[])
                axes.grid(False)
                if worker == 0:
                    axes.set_title(kind)
                if column == 0:
                    axes.set_ylabel(f"worker {worker}")
                if label != 4:
                    axes.text(0.2, 1.2, str(label), color=OURS, fontsize=12, weight="bold")


def shown_to(dataset: Any, partition: Any, kind: str, worker: int, example: int) -> tuple[Any, int]:
    """One example as a worker has it under a shift, and the label that it has there."""
    own = [np.asarray(partition.worker(each)) for each in range(partition.num_workers)]
    inputs, labels = np.array(dataset.train_inputs), np.array(dataset.train_labels)
    # The worker's first example becomes this one, so that all workers are shown the same.
    place = own[worker][0]
    inputs[place], labels[place] = dataset.train_inputs[example], dataset.train_labels[example]
    from dataclasses import replace

    changed = fg.shift_data(replace(dataset, train_inputs=inputs, train_labels=labels), partition, {kind: 1.0})
    return np.asarray(changed.dataset.train_inputs[place])[0], int(changed.dataset.train_labels[place])


PICTURES: dict[str, Callable[[Path], None]] = {
    "speed": speed,
    "plan": plan,
    "tau": tau,
    "bounds": bounds,
    "shifts": shifts,
}


def main() -> None:
    """Draw every picture."""
    PLACE.mkdir(exist_ok=True)
    for name, drawn in PICTURES.items():
        drawn(PLACE / f"{name}.png")


if __name__ == "__main__":
    main()
