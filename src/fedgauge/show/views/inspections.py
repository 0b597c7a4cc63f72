"""What saved models say about a round, with data and without."""

from __future__ import annotations

import math

from fedgauge.measurement.inspection_result import STANDS_OUT, WITH_DATA, WITHOUT_DATA, InspectedClient, Inspection
from fedgauge.measurement.live.probe_result import ProbedRound
from fedgauge.show.charts import HeatMap, Picture, Row, RowChart
from fedgauge.show.views.view import Cell, Share, Table, View, Written, brief_name, view
from fedgauge.values.display import counted

_MOST = 12
"""The clients and layers that are listed."""
_SQUARE = 40
"""The most clients whose angles are drawn."""


@view.register
def view_of_inspection(found: Inspection) -> View:
    """How far the clients agree, who and what stands out, and what the server did."""
    changed = found.alignment is not None
    facts: dict[str, Cell] = {"spread": found.spread, "mean squared change": found.change2}
    if changed:
        facts |= {"alignment": found.alignment, "mean cosine of two clients": found.mean_cosine}
    if found.server_step is not None:
        facts["effective step of the server"] = found.server_step
    tables = [_clients_table(found), _layers_table(found)]
    notes = [*found.notes, *([STANDS_OUT] if len(found.clients) > 2 else [])]
    notes.append(WITHOUT_DATA if found.measured is None else WITH_DATA)
    if found.measured is not None:
        facts |= _constants(found.measured)
        tables[1:1] = [_gradients_table(found)]
    charts: list[Picture] = [_lengths(found), _spread(found)] if changed else []
    if changed and 1 < len(found.clients) <= _SQUARE:
        charts.insert(0, _angles(found))
    sentences = [each for each in (found.sentence, found.data_sentence, found.step_sentence) if each]
    return View(sentences, facts=facts, tables=tables, charts=charts, notes=notes)


def _constants(measured: ProbedRound) -> dict[str, Cell]:
    """What was measured on data, by name."""
    record = measured.record
    zeta = None if record.zeta2 is None else record.zeta2**0.5
    ratios = {"L_h": record.L_h_ratio, "L_tilde": record.L_tilde_ratio, "L_g": record.L_g_ratio}
    return {"loss at the global model": record.loss, "gradient there": record.grad2**0.5, "zeta": zeta, **ratios}


def _gradients_table(found: Inspection) -> Table:
    """Losses and gradients of the clients, in the order of the table of clients."""
    ordered = _ordered(found)
    rows: list[list[Cell]] = [
        [brief_name(each.name), *(each.losses or ()), *(each.gradients or ()), each.L_tilde] for each in ordered[:_MOST]
    ]
    heads = ("client", "loss before", "loss after", "gradient before", "gradient after", "L_tilde")
    note = "Before: at the global model. After: at the client's own."
    return Table(heads, rows, "Losses and gradients on the clients' own data", note)


def _ordered(found: Inspection) -> list[InspectedClient]:
    return sorted(found.clients, key=lambda client: not client.why)


def _clients_table(found: Inspection) -> Table:
    """The clients that stand out, and then the others in their order."""
    ordered = _ordered(found)
    rows = [(brief_name(c.name), c.weight, c.change, c.distance, _cosine(c.cosine), c.why) for c in ordered[:_MOST]]
    more = len(ordered) - _MOST
    note = f"{counted(more, 'more client')}, with --json or in Python." if more > 0 else ""
    heads = ("client", "weight", "change", "from the mean", "cosine with the others", "stands out")
    return Table(heads, [_plain(row) for row in rows], "Clients", note)


def _plain(row: tuple[Cell, ...]) -> list[Cell]:
    return list(row)


def _cosine(value: float | None) -> Cell:
    return None if value is None else Written(value, f"{value:.2f}")


def _layers_table(found: Inspection) -> Table:
    """The layers with the largest parts of the spread."""
    numbers = sum(layer.numbers for layer in found.layers)
    layers = sorted(found.layers, key=lambda layer: -layer.spread)
    rows: list[list[Cell]] = []
    for layer in layers[:_MOST]:
        spread = Share(layer.spread / found.spread) if found.spread else None
        aligned = None if layer.alignment is None else Share(layer.alignment)
        relative = layer.change2**0.5 / layer.norm if layer.norm else None
        row: list[Cell] = [brief_name(layer.name), Share(layer.numbers / numbers), spread, aligned, relative]
        rows.append([*row, *_deviation(found, layer.name)])
    more = len(layers) - _MOST
    note = f"{counted(more, 'layer')} with smaller parts of the spread left out." if more > 0 else ""
    heads: tuple[str, ...] = ("layer", "of the numbers", "of the spread", "alignment", "relative change")
    if found.measured is not None:
        heads = (*heads, "of the deviation", "L_h")
    return Table(heads, rows, "Layers", note)


def _deviation(found: Inspection, name: str) -> list[Cell]:
    """A layer's part of the change of the mean gradient, and its L_h; nothing without data, or if it is not trained."""
    if found.measured is None:
        return []
    layer, whole = found.measured.layers.get(name), found.measured.record.deviation2
    if layer is None or not whole:
        return [None, None]
    return [Share(layer.deviation2 / whole), layer.L_h_ratio]


def _angles(found: Inspection) -> HeatMap:
    """The angle between the changes of every two clients; a cosine may be negative, which a map cannot show."""
    angles = [[math.nan if value is None else math.degrees(math.acos(value)) for value in row] for row in found.cosines]
    for place, row in enumerate(angles):
        row[place] = 0.0  # up to rounding
    names = [brief_name(client.name) for client in found.clients]
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


def _lengths(found: Inspection) -> RowChart:
    def note(client: InspectedClient) -> str:
        return "stands out" if client.why else ""

    ordered = _ordered(found)[:_MOST]
    rows = [
        Row(brief_name(c.name), "change", c.change, c.change, c.change, 4 if c.why else 0, note(c)) for c in ordered
    ]
    return RowChart("changes", rows, "How far each client went", "length of the change", log=False, bars=True)


def _spread(found: Inspection) -> RowChart:
    layers = sorted(found.layers, key=lambda layer: -layer.spread)[:_MOST]
    whole = found.spread or 1.0
    shares = [(brief_name(layer.name), 100 * layer.spread / whole) for layer in layers]
    rows = [Row(name, "spread", share, share, share) for name, share in shares]
    return RowChart("layers", rows, "Where the clients differ", "per cent of the spread", log=False, bars=True)
