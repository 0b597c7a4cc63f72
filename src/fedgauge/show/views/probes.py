"""What a probe measured in a user's own job."""

from __future__ import annotations

from collections.abc import Sequence

from fedgauge.measurement.live.probe_result import ProbedLayer, ProbedRound, ProbeResult
from fedgauge.show.charts import LineChart, Series
from fedgauge.show.views.runs import some
from fedgauge.show.views.view import Cell, Share, Table, View, brief_name, estimates_table, view
from fedgauge.values.display import counted

_MOST = 12
"""The layers that are listed."""


@view.register
def view_of_probe(probe: ProbeResult) -> View:
    """How far the workers' changes agree, the rounds, the constants, and the layers of the last round."""
    notes = [probe.pace] if probe.rounds else []
    if probe.left_out:
        notes.append(f"{counted(probe.left_out, 'round')} left out, because a loss or a gradient was not finite.")
    if probe.stepped:
        notes.append(
            f"In {counted(probe.stepped, 'measured round')}, the averaged model was not the mean of the local models"
            " (an outer optimiser, or a number type of few digits); the mean was computed for the measurement."
        )
    tables, charts = [], []
    if probe.rounds:
        tables = [_rounds_table(probe.rounds), _layers_table(probe.rounds[-1])]
        tables.insert(1, estimates_table(probe.constants.values(), "Constants on the fixed batches"))
        charts = probe_charts(probe)
        notes.append("All numbers belong to the fixed batches, not to all of the workers' data.")
    return View((probe.sentence,), tables=tables, charts=charts, notes=notes)


def _rounds_table(rounds: Sequence[ProbedRound]) -> Table:
    rows = []
    for each in (rounds[index] for index in some(len(rounds))):
        record = each.record
        aligned = None if each.alignment is None else Share(each.alignment)
        zeta, sigma = _root(record.zeta2), _root(each.sigma2)
        rows.append([record.round, record.loss, aligned, record.spread, zeta, sigma, record.L_h_ratio])
    heads = ("round", "loss f", "alignment", "spread", "zeta", "sigma", "L_h")
    return Table(heads, rows, "Rounds that were measured")


def _root(square: float | None) -> float | None:
    return None if square is None else square**0.5


def _layers_table(last: ProbedRound) -> Table:
    """The layers with the largest part of the deviation, or of the spread where there is none."""

    def order(entry: tuple[str, ProbedLayer]) -> tuple[float, float]:
        return -entry[1].deviation2, -entry[1].spread

    layers = sorted(last.layers.items(), key=order)
    whole = sum(layer.spread for _, layer in layers), sum(layer.deviation2 for _, layer in layers)
    rows: list[list[Cell]] = []
    for name, layer in layers[:_MOST]:
        aligned = None if layer.alignment is None else Share(layer.alignment)
        shares = [Share(part / of) if of else None for part, of in zip(_parts(layer), whole, strict=True)]
        rows.append([brief_name(name), aligned, *shares, layer.L_h_ratio, layer.L_tilde_ratio])
    more = len(layers) - _MOST
    note = f"{counted(more, 'layer')} with smaller parts of the deviation left out." if more > 0 else ""
    heads = ("layer", "alignment", "spread", "deviation", "L_h", "L_tilde")
    return Table(heads, rows, f"Layers in round {last.round}, and their parts of the whole", note)


def _parts(layer: ProbedLayer) -> tuple[float, float]:
    return layer.spread, layer.deviation2


def probe_charts(probe: ProbeResult) -> list[LineChart]:
    """Spread, alignment and the observed constants over the rounds."""
    x = probe.column("round")
    unrelated = [1 / each for each in probe.column("num_workers")]
    aligned = [Series("alignment", x, probe.column("alignment"), 0)]
    if max(probe.column("num_workers")) > 1:
        aligned.append(Series("unrelated changes", x, unrelated, 8, "dashed"))
    ratios = [("L_h", "L_h_ratio", 4), ("L_g", "L_g_ratio", 0), ("L_tilde", "L_tilde_ratio", 5)]
    return [
        LineChart(
            "spread",
            [Series("spread", x, probe.column("spread"))],
            "How far the local models spread in a round",
            "round",
            "mean squared distance",
        ),
        LineChart(
            "alignment",
            aligned,
            "What averaging leaves of the workers' changes",
            "round",
            "‖mean Δ‖² / mean ‖Δ‖²",
            "1: all workers agree. Below the dashed line, they oppose one another.",
            log=False,
        ),
        LineChart(
            "constants",
            [Series(label, x, probe.column(name), colour) for label, name, colour in ratios],
            "Constants as each round showed them",
            "round",
            "ratio on the fixed batches",
        ),
    ]
