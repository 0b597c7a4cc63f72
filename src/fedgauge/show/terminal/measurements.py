"""Measurements, as tables, pictures and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedgauge.base.files import make_directories, write_atomically, write_json
from fedgauge.base.symbols import symbol
from fedgauge.measurement.parts import Decomposition
from fedgauge.measurement.values import Measurement, Reading
from fedgauge.show import figures
from fedgauge.show.terminal import console
from fedgauge.values import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedgauge.measurement.parts import Decomposition, Parts


_ABSENT = "–"
"""What stands for a constant that a reading does not have."""


def show(found: Measurement) -> None:
    """Print the constants, one column per reading, where they come from, and what they mean for local steps."""
    point = found.point
    where = point["origin"]
    if "rule" in point:
        where += f" (round {point['round']}: {point['rule']})" if point["reached"] else f" ({point['rule']})"
    title = f"Constants at the model: {where}; f = {console.number(point['loss'])}"
    taken = [reading for reading in found.readings if reading.estimates and reading.name != "lenses"]
    names = list(dict.fromkeys(estimate.symbol for reading in taken for estimate in reading.estimates))
    columns = [(reading.name, *(_cell(reading.constants.get(name)) for name in names)) for reading in taken]
    for group in console.side_by_side(("symbol", *names), columns):
        rows = [
            row for row in zip(names, *(column[1:] for column in group), strict=True) if any(map(_is_there, row[1:]))
        ]
        console.table(title, ("symbol", *(column[0] for column in group)), rows)
        title = ""
    lenses = found.reading("lenses")
    if lenses:
        console.show_estimates("Other lenses", lenses.estimates)
    decomposition = _decomposition(found)
    if decomposition:
        show_decomposition(decomposition)
    for remark in point.get("remarks", ()):
        console.out.print(remark)
    for reading in found.readings:
        console.out.print(f"[bold]{reading.name}[/bold]: {reading.meaning}")
        for note in reading.notes:
            console.out.print(f"  {note}")
    console.out.print(verdict(found))
    cost = ", ".join(f"{value:.4g} {name}" for name, value in found.cost.items())
    console.out.print(f"Cost: {cost}.")


def _decomposition(found: Measurement) -> Decomposition | None:
    """Where the constants come from, if the reading ``parts`` was taken."""
    reading = found.reading("parts")
    return Decomposition.from_json(reading.details) if reading and reading.details else None


def _cell(estimate: Estimate | None) -> str:
    if estimate is None:
        return _ABSENT
    # If there is no upper end, the kind says so; ends that look alike say nothing.
    low, high = f"{estimate.low:.3g}", f"{estimate.high:.3g}"
    ends = f"[{low}, {high}]" if low != high and estimate.high < np.inf else ""
    return f"{console.number(estimate.value)} {estimate.kind}\n{ends}".rstrip()


def _is_there(cell: str) -> bool:
    return cell != _ABSENT


def verdict(found: Measurement) -> str:
    """What the measurement means for local steps, in a sentence or two."""
    happened, possible = (_value(found.reading(name), "L_h") for name in ("trajectory", "curvature"))
    local = _value(found.reading("curvature") or found.reading("trajectory"), "L_tilde")
    if happened is not None and possible is not None:
        if possible == 0:
            return "The workers' Hessians agree here: L_h is 0, and local steps lose nothing to heterogeneity."
        times = f"{possible / happened:.3g} times" if happened > 0 else "beyond"
        both = f"L_h: {console.number(happened)} happened along FedAvg's steps, {console.number(possible)} is possible"
        return f"{both} at this model ({times} that); L_tilde, which it replaces, is {console.number(local)}."
    if happened is not None or possible is not None:
        kind = "happened along FedAvg's steps" if happened is not None else "is possible at this model"
        return f"L_h: {console.number(happened if happened is not None else possible)} {kind}."
    return "L_h was not measured."


def _value(reading: Reading | None, name: str) -> float | None:
    estimate = reading.constants.get(name) if reading else None
    return estimate.value if estimate else None


def save_readings(found: Measurement, directory: Path) -> None:
    """Write measure.json alone, while further readings are still being taken."""
    make_directories(directory)
    write_json(directory / "measure.json", found.to_json())


def save(found: Measurement, directory: Path) -> list[Path]:
    """Write measure.json, its pictures, and the worst directions; return the files written."""
    from safetensors.numpy import save as save_tensors

    save_readings(found, directory)
    paths = [directory / "measure.json", directory / "measure.png"]
    draw(found, paths[1])
    decomposition = _decomposition(found)
    if decomposition:
        paths.append(directory / "parts.png")
        draw_decomposition(paths[-1], decomposition)
    worst = {
        f"{reading.name}.{name}": np.ascontiguousarray(vector)
        for reading in found.readings
        for name, vector in reading.directions.items()
    }
    if worst:
        paths.append(directory / "directions.safetensors")
        write_atomically(paths[-1], save_tensors(worst))
    return paths


def draw(found: Measurement, path: figures.Target) -> None:
    """Draw the constants of each reading side by side, and the ratios round by round."""
    taken = [reading for reading in found.readings if reading.estimates]
    names = [n for n in ("L_h", "L_g", "L_tilde", "zeta_rms", "zeta", "sigma") if any(n in r.constants for r in taken)]
    with figures.figure(path, panels=2, width=5.0, height=3.6) as (left, right):
        for place, reading in enumerate(taken):
            held = [reading.constants.get(name) for name in names]
            for column, estimate in enumerate(held):
                if estimate is None or not estimate.value > 0:
                    continue
                above = estimate.high - estimate.value if np.isfinite(estimate.high) else 0.0
                ends = [[estimate.value - max(estimate.low, 0.0)], [above]]
                offset = (place - (len(taken) - 1) / 2) * 0.7 / max(len(taken), 1)
                label = reading.name if column == next(i for i, e in enumerate(held) if e) else None
                left.errorbar(
                    column + offset, estimate.value, yerr=ends, fmt="o", color=f"C{place}", capsize=3, label=label
                )
        left.set_xticks(range(len(names)), [f"${symbol(name).latex}$" for name in names])
        left.set_title("Each constant, by reading")
        if left.get_legend_handles_labels()[0]:
            left.set_yscale("log")
            left.legend()
        _draw_rounds(found.reading("trajectory"), found.reading("curvature"), right)


def _draw_rounds(trajectory: Reading | None, curvature: Reading | None, axes: Axes) -> None:
    axes.set_title("L_h round by round, and at the model")
    axes.set_xlabel("round from the model")
    rounds = trajectory.details["rounds"] if trajectory and "rounds" in trajectory.details else []
    for seed in sorted({record["seed"] for record in rounds}):
        mine = [record for record in rounds if record["seed"] == seed and record["L_h_ratio"] is not None]
        axes.plot([r["round"] for r in mine], [r["L_h_ratio"] for r in mine], "o-", ms=3, label=f"seen, seed {seed}")
    possible = _value(curvature, "L_h")
    if possible:
        axes.axhline(possible, color=figures.INK, linestyle="--", label="possible at the model")
    if rounds or possible:
        axes.set_yscale("log")
        axes.legend()


_MOST_ROWS = 5
_MOST_WORKERS = 40


def show_decomposition(found: Decomposition) -> None:
    """Print which blocks and workers contribute most to each constant, and which workers stand out."""
    for part in found.parts:
        for what, names, shares in (
            ("block", part.blocks, part.by_block),
            ("worker", tuple(map(str, range(len(part.weights)))), part.by_worker),
        ):
            order = np.argsort(-shares, kind="stable")[:_MOST_ROWS]
            title = f"{part.symbol}² = {console.number(part.total)} by {what}"
            more = len(names) - len(order)
            console.out.print(title)
            console.table(
                "", (what, "share"), [(names[i], f"{shares[i]:.1%}") for i in order], f"and {more} more" * bool(more)
            )
        far = ", ".join(map(str, part.outliers[:_MOST_ROWS])) or "none"
        console.out.print(
            f"Workers that stand out in {part.symbol}: {far} (beyond median + 3 · 1.4826 · MAD of their distances,"
            f" {console.number(part.threshold)})."
        )


def draw_decomposition(path: figures.Target, found: Decomposition) -> None:
    """Draw for each constant workers × blocks, and each worker's share with those that stand out in red."""
    count = len(found.parts[0].weights)
    height = min(max(3.2, 0.16 * min(count, _MOST_WORKERS)), 7.0)
    with figures.figure(path, panels=2, rows=len(found.parts), width=5.2, height=height) as panels:
        for row, part in enumerate(found.parts):
            shown = _shown(part)
            _draw_cells(panels[2 * row], part, shown)
            _draw_bars(panels[2 * row + 1], part, shown)


def _shown(part: Parts) -> list[int]:
    """The workers to draw, in order: all, or of many those with the largest shares."""
    if len(part.weights) <= _MOST_WORKERS:
        return list(range(len(part.weights)))
    largest: list[int] = np.sort(np.argsort(-part.by_worker, kind="stable")[:_MOST_WORKERS]).tolist()
    return largest


def _draw_cells(axes: Axes, part: Parts, shown: list[int]) -> None:
    title = f"{part.symbol}² = {part.total:.3g}: workers × parameters"
    figures.matrix(
        axes,
        100 * part.shares[shown],
        title=title,
        xlabel="block of parameters",
        ylabel="worker",
        columns=part.blocks,
        colour="share, %",
    )
    if len(shown) <= 20:
        axes.set_yticks(range(len(shown)), list(map(str, shown)))


def _draw_bars(axes: Axes, part: Parts, shown: list[int]) -> None:
    colours = [figures.COLOURS[4 if worker in part.outliers else 0] for worker in shown]
    axes.bar(range(len(shown)), 100 * part.by_worker[shown], color=colours)
    if len(shown) <= 20:
        axes.set_xticks(range(len(shown)), list(map(str, shown)))
    of = "" if len(shown) == len(part.weights) else f" (the {len(shown)} largest of {len(part.weights)})"
    far = ", ".join(map(str, part.outliers[:5])) or "none"
    axes.set(xlabel=f"worker{of}", ylabel=f"share of {part.symbol}², %", title=f"Standing out: {far}")
