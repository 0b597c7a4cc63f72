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


def rows_of(page: str, pattern: str) -> list[tuple[str, ...]]:
    """What a pattern finds in the tables of a page of results."""
    return [match.groups() for match in re.finditer(pattern, (RESULTS / page).read_text("utf-8"), re.MULTILINE)]


def auto(place: Path) -> None:
    """Seconds of local steps that adapt, and of the rule of Wang et al., over those of the best fixed number."""
    found = rows_of("auto.md", r"^\| ([\w.-]+) \| [\d.]+ \| [\w-]+ \|(?: [\d.]+ \|){5} \**([\d.]+)\** \| ([\d.]+)(\*?)")
    with figure(place, width=6.4, height=3.2) as (axes,):
        places = (np.arange(len(found)) + 0.5) / len(found)
        axes.plot(places, sorted(float(row[1]) for row in found), "o", color=OURS, markersize=4, label="auto")
        others = sorted((float(row[2]), row[3] == "*") for row in found)
        for missed, marker, label in ((False, "o", "the rule of Wang et al."), (True, "x", "its goal was not reached")):
            points = [
                (place, ratio) for place, (ratio, is_missed) in zip(places, others, strict=True) if is_missed == missed
            ]
            axes.plot(*np.array(points).T, marker, color=OTHERS, markersize=4, label=label)
        axes.axhline(1, color=INK, linewidth=1)
        axes.axhline(1.1, color=INK, linewidth=1, linestyle="--")
        axes.set(
            title="Local steps that adapt, against the best fixed number",
            xlabel="share of the cells",
            ylabel="seconds / those of the best",
        )
        axes.legend(loc="upper left")


def state(place: Path) -> None:
    """The loss at the end for each way to treat a local optimiser's state, over the best of the three."""
    found = rows_of("optimiser-state.md", r"^\| (momentum 0.9|adamw), (reset|kept|averaged) \|(.*)\|$")
    losses = {
        (optimiser, how): [float(cell.replace("*", "").split()[0]) for cell in cells.split("|")]
        for optimiser, how, cells in found
    }
    with figure(place, 2, width=4.2, height=3.0) as panels:
        for axes, (optimiser, title) in zip(panels, (("momentum 0.9", "momentum"), ("adamw", "AdamW")), strict=True):
            ways = ("reset", "kept", "averaged")
            best = np.min([losses[optimiser, how] for how in ways], axis=0)
            for y, (how, colour) in enumerate(zip(ways, (COLOURS[0], COLOURS[5], OURS), strict=True)):
                axes.plot(np.array(losses[optimiser, how]) / best, [y] * len(best), "o", color=colour, alpha=0.75)
            axes.set(
                title=title,
                xlabel="final loss / that of the best way",
                xscale="log",
                xticks=[1, 2, 5, 10],
                xticklabels=["1", "2", "5", "10"],
                yticks=range(3),
                yticklabels=ways,
                ylim=(-0.5, 2.5),
            )
            axes.minorticks_off()


def falsify(place: Path) -> None:
    """The least ratio of a bound to the exact value that the search found: below 1, the bound is false."""
    rows = [row for row in kept(ROOT / "verification" / "results" / "falsify.json")["rows"] if row["form"] == "stated"]
    names = list(dict.fromkeys(row["theorem"] for row in rows))
    with figure(place, width=6.4, height=3.8) as (axes,):
        for version, colour, shift in (("printed", OTHERS, 0.15), ("corrected", OURS, -0.15)):
            points = [
                (
                    names.index(row["theorem"]) + shift,
                    min(each for each in (row["smallest"], row["directed_smallest"]) if each),
                )
                for row in rows
                if row["version"] == version
            ]
            # Ratios far below 1 would make the axis useless: those are drawn at its end.
            axes.plot(
                [max(ratio, 0.01) for _, ratio in points], [y for y, _ in points], "o", color=colour, label=version
            )
        axes.axvline(1, color=INK, linewidth=1.2)
        axes.text(0.93, -0.75, "false", ha="right", va="center")
        axes.set(
            title="The bound over the exact value: the least that was found",
            xlabel="bound / exact value",
            xscale="log",
            yticks=range(len(names)),
            yticklabels=names,
            ylim=(-1.1, len(names) - 0.4),
        )
        axes.legend(loc="center left")


def ledger(place: Path) -> None:
    """The verdicts on the paper's claims, figure by figure."""
    claims = kept(PAPER / "ledger.json")["claims"]
    places = list(dict.fromkeys(re.split(r"[,(]", claim["where"])[0] for claim in claims))
    verdicts = ("reproduced", "reproduced in order but not in size", "not reproduced")
    with figure(place, width=6.8, height=3.8) as (axes,):
        left = np.zeros(len(places))
        kinds = [*verdicts, "not decided or not run"]
        for kind, colour in zip(kinds, (COLOURS[3], COLOURS[1], COLOURS[4], COLOURS[8]), strict=True):
            counts = np.array(
                [
                    sum(
                        re.split(r"[,(]", claim["where"])[0] == where
                        and (claim["verdict"] == kind or (kind not in verdicts and claim["verdict"] not in verdicts))
                        for claim in claims
                    )
                    for where in places
                ]
            )
            axes.barh(places, counts, left=left, color=colour, label=kind)
            left += counts
        axes.invert_yaxis()
        axes.grid(False)
        axes.set(title="The paper's claims", xlabel="claims")
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
    "auto": auto,
    "state": state,
    "falsify": falsify,
    "ledger": ledger,
    "shifts": shifts,
}


def main() -> None:
    """Draw every picture."""
    PLACE.mkdir(exist_ok=True)
    for name, drawn in PICTURES.items():
        drawn(PLACE / f"{name}.png")


if __name__ == "__main__":
    main()
