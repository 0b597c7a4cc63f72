"""The gauge, as a table, a picture and a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedgauge.base.files import write_json
from fedgauge.measurement.gauge.result import GaugeResult, interpolated
from fedgauge.show import figures
from fedgauge.show.terminal import console
from fedgauge.values.display import counted


def show(found: GaugeResult) -> None:
    """Print the answer, then the efficiencies, the recommended local steps and what it cost."""
    console.out.print(found.sentence, soft_wrap=True)
    head = ("I", "efficiency", "90% interval", "slowdown", *(phase.name for phase in found.phases))
    rows = []
    for each in found.efficiency:
        parts = [next((e for e in p.efficiency if e.local_steps == each.local_steps), None) for p in found.phases]
        slowdown = "–" if each.slowdown is None else f"{each.slowdown:.2f}"
        rows.append(
            (
                str(each.local_steps) if each.how != "reference" or found.base is None else "sync",
                each.share,
                each.interval,
                slowdown,
                *(part.share if part else "–" for part in parts),
            )
        )
    console.table("Efficiency of local steps", head, rows)
    if found.recommended is not None and found.cost is not None:
        console.out.print(
            f"Fastest with the cost {found.cost.name}: {counted(found.recommended, 'local step')} per round."
        )
    if found.cause is not None:
        console.out.print(found.cause.sentence, soft_wrap=True)
    console.out.print(found.compared_with, soft_wrap=True)
    spent = found.spent
    console.out.print(
        f"Spent: {spent.gradient_steps} steps of each worker beyond the base run's {spent.base_gradient_steps}, in"
        f" {counted(spent.rounds, 'round')}. This is an instrument: measured on this federation, from f = "
        f"{console.number(found.losses[0])} to {console.number(found.goal)}.",
        soft_wrap=True,
    )
    for note in found.notes:
        console.out.print(note, soft_wrap=True)


def save(found: GaugeResult, directory: Path) -> list[Path]:
    """Write gauge.json and its picture; return the files."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / "gauge.json", directory / "gauge.png"]
    write_json(paths[0], found.to_json())
    draw([found], paths[1])
    return paths


def draw(results: Sequence[GaugeResult], path: figures.Target) -> None:
    """Draw the efficiency over local steps with its interval, the threshold and the affordable local steps."""
    with figures.figure(path, panels=1, width=6.0, height=3.6) as (axes,):
        tops = [1.1]
        for number, found in enumerate(results):
            colour, known = f"C{number}", found.curve
            places, afforded = [each.local_steps for each in known], found.affordable[f"{found.threshold:g}"]
            rate = (found.settings.get("algorithm") or {}).get("gamma")
            name = f"gamma {rate:g}: " if len(results) > 1 and rate is not None else ""
            best = "" if found.recommended is None or found.cost is None else f", {found.cost.name} {found.recommended}"
            steps = np.geomspace(places[0], places[-1], 200)
            axes.plot(steps, interpolated(known, steps), color=colour, label=f"{name}affordable {afforded}{best}")
            axes.fill_between(
                places, [each.low for each in known], [each.high for each in known], color=colour, alpha=0.2
            )
            axes.plot(places, [each.value or 0.0 for each in known], "o", color=colour)
            axes.axvline(afforded, color=colour, linewidth=1, linestyle=":")
            tops += [each.high for each in known]
        axes.axhline(results[0].threshold, color="0.5", linestyle="--", linewidth=1)
        axes.set_xscale("log", base=2)
        ticks = sorted({each.local_steps for found in results for each in found.efficiency})
        axes.set_xticks(ticks, list(map(str, ticks)))
        axes.set(xlabel="local steps I", ylabel="efficiency", ylim=(0, max(tops)))
        axes.set_title("How many of the local steps count")
        axes.legend()
