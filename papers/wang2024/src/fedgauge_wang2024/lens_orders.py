"""How well each lens orders federations: rank correlations with the slowdown, as numbers, a table and a picture."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.types import Floats
from fedgauge.show import console, pictures

if TYPE_CHECKING:
    from matplotlib.axes import Axes


RESAMPLES = 1000


def taus(x: Floats, y: Floats) -> Floats:
    """Kendall's tau-b of two lists, or of each pair of rows; they may hold infinities. 0 where one is constant.

    >>> float(taus(np.array([1.0, 2.0, 3.0]), np.array([1.0, np.inf, np.inf])).round(3))
    0.816
    """
    from scipy.stats import rankdata

    first, second = np.triu_indices(x.shape[-1], 1)
    signs = [np.sign(ranks[..., first] - ranks[..., second]) for ranks in (rankdata(x, axis=-1), rankdata(y, axis=-1))]
    agree = (signs[0] * signs[1]).sum(axis=-1)
    apart = np.sqrt((signs[0] ** 2).sum(axis=-1) * (signs[1] ** 2).sum(axis=-1))
    found: Floats = np.divide(agree, apart, out=np.zeros_like(apart), where=apart > 0)
    return found


def rank_correlation(x: Floats, y: Floats) -> float:
    """Spearman's rank correlation of two lists, which may hold infinities; 0 where one of them is constant.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([3.0, np.inf, 7.0]))
    0.5
    """
    from scipy.stats import rankdata

    ranks = rankdata(x), rankdata(y)
    if any(np.ptp(part) == 0 for part in ranks):
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1].round(12))


def _tensor(cells: Sequence[Mapping[str, Any]], names: Sequence[str], key: str, entry: str) -> Floats:
    """One number per partition and seed; NaN where it is missing."""
    rows = [[cell[key].get(entry, np.nan) for cell in cells if cell["partition"] == name] for name in names]
    return np.array(rows, dtype=np.float64)


def orders(cells: Sequence[Mapping[str, Any]], names: Sequence[str], seed: int = 0) -> dict[str, Any]:
    """Compare every lens with the slowdown of every I.

    Partitions are ordered by medians over seeds. The interval holds 95% of the values that resampling the seeds of each
    partition gives; with three seeds it is rough, and with one there is none. ``without_one`` has the least and the
    largest tau when one partition is left out. Tau over all cells treats each seed of a partition as a partition.
    """
    lenses = sorted({entry for cell in cells for entry in cell["lenses"]})
    found: dict[str, Any] = {}
    for local in cells[0]["slowdown"]:
        harm = _tensor(cells, names, "slowdown", local)
        rows: dict[str, dict[str, Any]] = {}
        for lens in lenses:
            shown = _tensor(cells, names, "lenses", lens)
            low, high = _interval(shown, harm, seed) if shown.shape[1] > 1 else (None, None)
            fewer = [
                float(taus(*(np.delete(medians(part), one) for part in (shown, harm)))) for one in range(len(names))
            ]
            rows[lens] = {
                "tau": float(taus(medians(shown), medians(harm))),
                "low": low,
                "high": high,
                "without_one": [min(fewer), max(fewer)],
                "spearman": rank_correlation(medians(shown), medians(harm)),
                "tau_cells": float(taus(shown.ravel(), harm.ravel())),
            }
        found[local] = dict(sorted(rows.items(), key=lambda row: -row[1]["tau"]))
    return found


def medians(values: Floats) -> Floats:
    """The median over seeds, which are the last axis."""
    with np.errstate(invalid="ignore"):  # the mean of two infinities
        found: Floats = np.median(values, axis=-1)
    return np.where(np.isnan(found) & np.isinf(values).any(axis=-1), np.inf, found)


def _interval(shown: Floats, harm: Floats, seed: int) -> tuple[float, float]:
    """The interval that holds 95% of tau when the seeds of every partition are resampled."""
    drawn = Streams(seed, Purpose.SAMPLING).at().integers(shown.shape[1], size=(RESAMPLES, *shown.shape))
    rows = np.arange(len(shown))[:, None]
    found = taus(medians(shown[rows, drawn]), medians(harm[rows, drawn]))
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def _medians(result: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """For each partition the medians over seeds of its slowdowns and lenses."""
    names, cells = list(result["partitions"]), result["cells"]
    columns = [("slowdown", local) for local in cells[0]["slowdown"]]
    columns += [("lenses", lens) for lens in sorted({entry for cell in cells for entry in cell["lenses"]})]
    found: dict[str, dict[str, float]] = {name: {} for name in names}
    for key, entry in columns:
        label = f"I = {entry}" if key == "slowdown" else entry
        for name, value in zip(names, medians(_tensor(cells, names, key, entry)), strict=True):
            found[name][label] = float(value)
    return found


def show(result: Mapping[str, Any]) -> None:
    """Print the slowdowns, and how each lens ranks them."""
    local = list(result["orders"])
    rows = [(name, *(f"{row[f'I = {one}']:.3g}" for one in local)) for name, row in _ordered(result)]
    most = result["settings"]["most_slowdown"]
    console.table(
        "Slowdown, medians over seeds", ("partition", *(f"I = {one}" for one in local)), rows, f"inf: beyond {most}"
    )
    main = local[-1]
    lines = []
    for lens, row in result["orders"][main].items():
        others = [f"{result['orders'][one][lens]['tau']:.2f}" for one in local[:-1]]
        lines.append((lens, f"{row['tau']:.2f}", _ends(row), _without(row), f"{row['spearman']:.2f}", *others))
    head = ("lens", f"tau, I = {main}", "95%", "without one", "Spearman", *(f"tau, I = {one}" for one in local[:-1]))
    console.table("How each lens ranks the partitions, compared with the slowdown", head, lines)


def _ends(row: Mapping[str, Any]) -> str:
    return "–" if row["low"] is None else f"{row['low']:.2f} to {row['high']:.2f}"


def _without(row: Mapping[str, Any]) -> str:
    low, high = row["without_one"]
    return f"{low:.2f} to {high:.2f}"


def _ordered(result: Mapping[str, Any]) -> list[tuple[str, dict[str, float]]]:
    """The partitions with their medians, the least slowed first."""
    main = f"I = {list(result['orders'])[-1]}"
    return sorted(_medians(result).items(), key=lambda item: item[1][main])


def markdown(result: Mapping[str, Any]) -> str:
    """Both tables as Markdown."""
    local = list(result["orders"])
    main = local[-1]
    chosen = ("zeta_rms", "B", "rho", "drift", "alpha_h", "L_h seen", "L_h", "L_tilde", "delta", "label_js", "gauge")
    head = ["partition", *(f"slowdown, I = {one}" for one in local), *chosen]
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join(['---'] * len(head))} |"]
    for name, row in _ordered(result):
        cells = [f"{row[f'I = {one}']:.2f}" for one in local] + [f"{row.get(lens, np.nan):.3g}" for lens in chosen]
        lines.append(f"| {' | '.join([name, *cells])} |")
    head = ["lens", f"tau, I = {main}", "95% over seeds", "without one partition", "Spearman", "tau, all cells"]
    head += [f"tau, I = {one}" for one in local[:-1]]
    lines += ["", f"| {' | '.join(head)} |", f"| {' | '.join(['---'] * len(head))} |"]
    for lens, entry in result["orders"][main].items():
        cells = [f"{entry['tau']:.2f}", _ends(entry), _without(entry), f"{entry['spearman']:.2f}"]
        cells += [f"{entry['tau_cells']:.2f}", *(f"{result['orders'][one][lens]['tau']:.2f}" for one in local[:-1])]
        lines.append(f"| {' | '.join([lens, *cells])} |")
    return "\n".join(lines) + "\n"


def page(result: Mapping[str, Any], command: str) -> str:
    """A page of the result: what was run and how it is counted, the tables and the picture."""
    settings = result["settings"]
    local = list(result["orders"])
    versions = ", ".join(f"{name} {version(name)}" for name in ("fedgauge", "torch", "numpy", "scipy"))
    return f"""# Which lens ranks federations in the order in which local steps slow them down

    {command}

At most {settings["examples"]} examples of {settings["source"]}, divided among {settings["workers"]} workers in
{len(result["partitions"])} ways; the paper's MLP, FedAvg with gamma {settings["gamma"]:g}, eta 1, batch
{settings["batch_size"]}; f is the mean over all examples; {settings["seeds"]} seeds from {settings["seed"]}, each used
for the partition, the first model and the batches. {versions}, Python {platform.python_version()}.
Numbers: [lenses.json](lenses.json).

The **slowdown** of I is I · rounds(I) / rounds(1) to a training loss of {settings["target"]:g}, where the crossing is
interpolated between records: the number of gradient steps, relative to that of workers who average after every step. A
slowdown beyond {settings["most_slowdown"]} counts as infinite; such runs are stopped.

The **lenses** are evaluated at the model after {settings["measured_at"]} rounds with I = 1
([definitions](../../../docs/reference/lenses.md)); those that need local models take one more round of I = {local[-1]}.
`L_h seen` and `L_tilde seen` are the ratios of that round; `L_h`, `L_tilde`, `L_g` and `delta` come from the Hessians
over {settings["hessian_examples"]} examples of each worker, and so include the noise of such a sample.

![Kendall's tau of every lens, and three lenses against the slowdown](lenses.png)

The numbers are medians over seeds. Tau is Kendall's tau-b between the two orders. Its interval comes from drawing seeds
again within each partition (none with one seed, and a rough one with five); beside it is the range of tau when
one partition is left out. Neither says anything about other models, rates or data.

{markdown(result)}"""


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Picture the orders: tau of every lens with its interval, and three lenses against the slowdown."""
    main = list(result["orders"])[-1]
    found = result["orders"][main]
    names, cells = list(result["partitions"]), result["cells"]
    harm = medians(_tensor(cells, names, "slowdown", main))
    most = 1.5 * result["settings"]["most_slowdown"]
    height = np.where(np.isinf(harm), most, harm)
    with pictures.figure(path, panels=2, rows=2, width=5.4, height=4.2) as (left, *panels):
        lenses = list(found)[::-1]
        middle = np.array([found[lens]["tau"] for lens in lenses])
        # Without an interval over seeds, the range without one partition. Neither need lie around the tau of all.
        ends = np.array([_drawn(found[lens]) for lens in lenses])
        errors = np.maximum([middle - ends[:, 0], ends[:, 1] - middle], 0.0)
        left.errorbar(middle, range(len(lenses)), xerr=errors, fmt="o", capsize=2)
        left.set_yticks(range(len(lenses)), lenses)
        left.axvline(0.0, color=pictures.INK, linewidth=0.8)
        left.set(
            xlim=(-1.05, 1.05), xlabel="Kendall's tau with the slowdown", title=f"Which lens ranks them, I = {main}"
        )
        best = next(iter(found))
        rest = [lens for lens in ("zeta_rms", "L_h", "label_js") if lens in found and lens != best]
        for axes, lens in zip(panels, [best, *rest], strict=False):
            shown = medians(_tensor(cells, names, "lenses", lens))
            axes.scatter(shown, height)
            beyond = 0
            for x, y, name, finite in zip(shown, height, names, np.isfinite(harm), strict=True):
                # Names lean to the left, away from the edge; those beyond the axis's end stand below each other.
                place = (-3.0, 0.0 if finite else -7.0 * beyond)
                beyond += not finite
                axes.annotate(name, (x, y), fontsize=6, ha="right", va="top", xytext=place, textcoords="offset points")
            axes.set(xlabel=lens, ylabel=f"slowdown, I = {main}", title=f"{lens}: tau {found[lens]['tau']:.2f}")
            axes.set_yscale("log")
            plain_ticks(axes, height, "y")
            if (shown > 0).all():
                axes.set_xscale("log")
                plain_ticks(axes, shown, "x")


def _drawn(row: Mapping[str, Any]) -> list[float]:
    return row["without_one"] if row["low"] is None else [row["low"], row["high"]]


def plain_ticks(axes: Axes, values: Floats, which: Literal["x", "y"]) -> None:
    """A few round numbers on a logarithmic axis that may span less than a decade."""
    low, high = float(values.min()), float(values.max())
    scale = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    ticks = [tick for power in scale for tick in (power, 2 * power, 5 * power) if 0.8 * low <= tick <= 1.25 * high]
    axes.minorticks_off()
    place = axes.set_xticks if which == "x" else axes.set_yticks
    place(ticks, [f"{tick:g}" for tick in ticks])
