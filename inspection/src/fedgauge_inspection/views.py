"""What saved models say about a round, with data and without."""

from __future__ import annotations

import math

from fedgauge.measurement.live.probe_result import ProbedRound
from fedgauge.show.charts import HeatMap, Picture, Row, RowChart
from fedgauge.show.views.view import Cell, Share, Table, View, Written, brief_name, view
from fedgauge.values.display import counted
from fedgauge_inspection.inspection_result import STANDS_OUT, WITH_DATA, WITHOUT_DATA, InspectedClient, Inspection

_MOST = 12
"""The clients and layers that are listed."""
_SQUARE = 40
"""The most clients whose angles are drawn."""


@view.register
def view_of_inspection(inspection: Inspection) -> View:
    """How far the clients agree, who and what stands out, and what the server did."""
    changed = inspection.alignment is not None
    facts: dict[str, Cell] = {"spread": inspection.spread, "mean squared change": inspection.change2}
    if changed:
        facts |= {"alignment": inspection.alignment, "mean cosine of two clients": inspection.mean_cosine}
    if inspection.server_step is not None:
        facts["effective step of the server"] = inspection.server_step
    tables = [_clients_table(inspection), _layers_table(inspection)]
    notes = [*inspection.notes, *([STANDS_OUT] if len(inspection.clients) > 2 else [])]
    notes.append(WITHOUT_DATA if inspection.measured is None else WITH_DATA)
    if inspection.measured is not None:
        facts |= _constants(inspection.measured)
        tables[1:1] = [_gradients_table(inspection)]
    charts: list[Picture] = [_lengths(inspection), _spread(inspection)] if changed else []
    if changed and 1 < len(inspection.clients) <= _SQUARE:
        charts.insert(0, _angles(inspection))
    sentences = [each for each in (inspection.sentence, inspection.data_sentence, inspection.step_sentence) if each]
    return View(sentences, facts=facts, tables=tables, charts=charts, notes=notes)


def _constants(measured: ProbedRound) -> dict[str, Cell]:
    """What was measured on data, by name."""
    record = measured.record
    zeta = None if record.zeta2 is None else record.zeta2**0.5
    ratios = {"L_h": record.L_h_ratio, "L_tilde": record.L_tilde_ratio, "L_g": record.L_g_ratio}
    return {"loss at the global model": record.loss, "gradient there": record.grad2**0.5, "zeta": zeta, **ratios}


def _gradients_table(inspection: Inspection) -> Table:
    """Losses and gradients of the clients, in the order of the table of clients."""
    ordered = _ordered(inspection)
    rows: list[list[Cell]] = [
        [brief_name(each.name), *(each.losses or ()), *(each.gradients or ()), each.L_tilde] for each in ordered[:_MOST]
    ]
    heads = ("client", "loss before", "loss after", "gradient before", "gradient after", "L_tilde")
    note = "Before: at the global model. After: at the client's own."
    return Table(heads, rows, "Losses and gradients on the clients' own data", note)


def _ordered(inspection: Inspection) -> list[InspectedClient]:
    return sorted(inspection.clients, key=lambda client: not client.why)


def _clients_table(inspection: Inspection) -> Table:
    """The clients that stand out, and then the others in their order."""
    ordered = _ordered(inspection)
    rows = [(brief_name(c.name), c.weight, c.change, c.distance, _cosine(c.cosine), c.why) for c in ordered[:_MOST]]
    more = len(ordered) - _MOST
    note = f"{counted(more, 'more client')}, with --json or in Python." if more > 0 else ""
    heads = ("client", "weight", "change", "from the mean", "cosine with the others", "stands out")
    return Table(heads, [_plain(row) for row in rows], "Clients", note)


def _plain(row: tuple[Cell, ...]) -> list[Cell]:
    return list(row)


def _cosine(value: float | None) -> Cell:
    return None if value is None else Written(value, f"{value:.2f}")


def _layers_table(inspection: Inspection) -> Table:
    """The layers with the largest parts of the spread."""
    numbers = sum(layer.numbers for layer in inspection.layers)
    layers = sorted(inspection.layers, key=lambda layer: -layer.spread)
    rows: list[list[Cell]] = []
    for layer in layers[:_MOST]:
        spread = Share(layer.spread / inspection.spread) if inspection.spread else None
        aligned = None if layer.alignment is None else Share(layer.alignment)
        relative = layer.change2**0.5 / layer.norm if layer.norm else None
        row: list[Cell] = [brief_name(layer.name), Share(layer.numbers / numbers), spread, aligned, relative]
        rows.append([*row, *_deviation(inspection, layer.name)])
    more = len(layers) - _MOST
    note = f"{counted(more, 'layer')} with smaller parts of the spread left out." if more > 0 else ""
    heads: tuple[str, ...] = ("layer", "of the numbers", "of the spread", "alignment", "relative change")
    if inspection.measured is not None:
        heads = (*heads, "of the deviation", "L_h")
    return Table(heads, rows, "Layers", note)


def _deviation(inspection: Inspection, name: str) -> list[Cell]:
    """A layer's part of the change of the mean gradient, and its L_h; nothing without data, or if it is not trained."""
    if inspection.measured is None:
        return []
    layer, whole = inspection.measured.layers.get(name), inspection.measured.record.deviation2
    if layer is None or not whole:
        return [None, None]
    return [Share(layer.deviation2 / whole), layer.L_h_ratio]


def _angles(inspection: Inspection) -> HeatMap:
    """The angle between the changes of every two clients; a cosine may be negative, which a map cannot show."""
    angles = [
        [math.nan if value is None else math.degrees(math.acos(value)) for value in row] for row in inspection.cosines
    ]
    for place, row in enumerate(angles):
        row[place] = 0.0  # up to rounding
    names = [brief_name(client.name) for client in inspection.clients]
    return HeatMap(
        "angles",
        angles,
        names,
        names,
        "Angle between the changes of two clients",
        "client",
        "client",
        "In degrees. 0: the same way. 90: unrelated. 180: opposite.",
    )


def _lengths(inspection: Inspection) -> RowChart:
    def note(client: InspectedClient) -> str:
        return "stands out" if client.why else ""

    ordered = _ordered(inspection)[:_MOST]
    rows = [
        Row(brief_name(c.name), "change", c.change, c.change, c.change, 4 if c.why else 0, note(c)) for c in ordered
    ]
    return RowChart("changes", rows, "How far each client went", "length of the change", log=False, bars=True)


def _spread(inspection: Inspection) -> RowChart:
    layers = sorted(inspection.layers, key=lambda layer: -layer.spread)[:_MOST]
    whole = inspection.spread or 1.0
    shares = [(brief_name(layer.name), 100 * layer.spread / whole) for layer in layers]
    rows = [Row(name, "spread", share, share, share) for name, share in shares]
    return RowChart("layers", rows, "Where the clients differ", "per cent of the spread", log=False, bars=True)
