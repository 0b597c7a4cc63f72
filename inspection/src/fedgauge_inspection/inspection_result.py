"""What a few saved models say about a round, as values that are read without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from fedgauge.measurement.live.probe_result import ProbedRound
from fedgauge.values import Result, Value
from fedgauge.values.display import Displayed, counted, share_of, short

_LONG, _SHORT = 2.0, 0.5
_APART, _LEAST = 3.0, 0.2
STANDS_OUT = (
    "A client stands out if its change is more than twice or less than half as long as the median client's, or if its"
    " cosine with the others' mean change is far below that of most clients."
)
WITHOUT_DATA = (
    "Models alone do not say why: how far the gradients disagree (zeta), how fast that grows with the distance (L_h),"
    " and whether fewer local steps would be faster all need data. With the clients' data and model (--experiment), the"
    " first two are measured here; fg.Probe measures them in the job, and 'fedgauge gauge' measures the last."
)
WITH_DATA = (
    "L_h, L_tilde and L_g are ratios between these very models, so that the constants are at least as large; zeta is at"
    " the mean of the clients' models. Whether fewer local steps would be faster, no single round can tell: use"
    " 'fedgauge gauge' with the same data."
)


@dataclass(frozen=True)
class InspectedClient(Value):
    """The change of one client's model.

    Attributes:
        name: the client.
        weight: its share in the mean.
        change: the length of its change, ‖x_i - x‖.
        distance: the distance of its model from the mean of the clients' models.
        cosine: the cosine between its change and the others' mean change; None if either is zero.
        why: why it stands out; empty if it does not.
        losses: of its data, at the global model and at its own; None without data.
        gradients: the lengths of the gradients there.
        L_tilde: the change of its gradient between its own model and the clients' mean model, over their distance.
    """

    name: str
    weight: float
    change: float
    distance: float
    cosine: float | None
    why: str = ""
    losses: tuple[float, float] | None = None
    gradients: tuple[float, float] | None = None
    L_tilde: float | None = None


@dataclass(frozen=True)
class InspectedLayer(Value):
    """One named tensor of the models.

    Attributes:
        name: its name.
        numbers: how many numbers it has.
        spread: mean squared distance of the clients' tensors from their mean.
        change2: mean squared length of the clients' changes.
        alignment: the squared norm of the mean change over change2; None if nothing changed.
        norm: its norm in the global model.
    """

    name: str
    numbers: int
    spread: float
    change2: float
    alignment: float | None
    norm: float


@dataclass(frozen=True)
class Inspection(Result, Displayed):
    """What the global model of a round and its clients' models say.

    Attributes:
        spread: mean squared distance of the clients' models from their mean.
        change2: mean squared length of the clients' changes.
        alignment: the squared norm of the mean change over change2: 1 if all clients agree; None if nothing changed.
        unrelated: the alignment that orthogonal changes of these lengths would have, 1/M with equal weights.
        cosines: the cosine between the changes of every two clients; None where one is zero.
        clients: the clients.
        layers: the named tensors.
        server_step: the multiple of the mean change that is nearest to the server's step; None without a next model.
        explained: the share of the server's squared step that this multiple is; None if there was no step.
        notes: what was left out of the comparison, and what rounding may have done to it, one sentence each.
        measured: gradients and constants on the clients' data, as a probe has them; None without data.
    """

    kind, written_by = "inspection", "runs inspect --out"

    spread: float
    change2: float
    alignment: float | None
    unrelated: float | None
    cosines: tuple[tuple[float | None, ...], ...]
    clients: tuple[InspectedClient, ...]
    layers: tuple[InspectedLayer, ...]
    server_step: float | None = None
    explained: float | None = None
    notes: tuple[str, ...] = ()
    measured: ProbedRound | None = None

    @property
    def mean_cosine(self) -> float | None:
        """The mean cosine over all pairs of clients; None if there is no pair."""
        pairs = [value for row, values in enumerate(self.cosines) for value in values[:row] if value is not None]
        return sum(pairs) / len(pairs) if pairs else None

    @property
    def sentence(self) -> str:
        """How far the clients agree, in one or two sentences."""
        clients = counted(len(self.clients), "client")
        if self.alignment is None or self.unrelated is None:
            return f"The models of {clients} are the global model itself: nothing has changed."
        if len(self.clients) == 1:
            return "With a single client there is nothing to compare."
        return (
            f"Averaging left {share_of(self.alignment)} of the mean squared change of {clients}. It leaves 100% if all"
            f" agree, {share_of(self.unrelated)} if their changes are unrelated, and less if they oppose one another."
        )

    @property
    def data_sentence(self) -> str:
        """How far drift changes the mean gradient, in one sentence; empty without data."""
        record = None if self.measured is None else self.measured.record
        if record is None or not record.grad2 or record.deviation2 is None:
            return ""
        return (
            f"On the clients' data the loss at the global model is {short(record.loss)}. At the end of the round, drift"
            f" changes the mean gradient by {share_of((record.deviation2 / record.grad2) ** 0.5)} of its length there."
        )

    @property
    def step_sentence(self) -> str:
        """What the server did, in one sentence; empty without a next model."""
        if self.server_step is None:
            return ""
        if self.explained is None:
            return "The server made no step: the next model is the global model."
        step = f"The server's step is {short(self.server_step)} times the mean change"
        if self.explained > 0.999:
            return f"{step}."
        return (
            f"{step}, and {share_of(1 - self.explained)} of its squared length is something else, such as momentum, an"
            " adaptive optimiser, other weights, or clients that are not here."
        )


def outliers(lengths: Sequence[float], cosines: Sequence[float | None]) -> list[str]:
    """For each client, why it stands out; empty for those that do not. It takes three clients to tell.

    >>> outliers([1.0, 1.1, 0.9, 5.0], [0.5, 0.5, 0.4, None])
    ['', '', '', 'a change 4.76 times as long as usual']
    >>> outliers([1.0, 1.1, 0.9, 1.0], [0.5, 0.5, 0.4, -0.3])
    ['', '', '', 'it goes another way (cosine -0.3)']
    """
    if len(lengths) < 3:
        return [""] * len(lengths)
    middle, known = median(lengths), [each for each in cosines if each is not None]
    usual = median(known) if known else 0.0
    scatter = 1.4826 * median([abs(each - usual) for each in known]) if known else 0.0
    reasons = []
    for length, cosine in zip(lengths, cosines, strict=True):
        why = []
        if length > _LONG * middle:
            why.append(
                f"a change {short(length / middle)} times as long as usual" if middle else "it alone has changed"
            )
        elif length < _SHORT * middle:
            why.append(f"a change {short(length / middle)} times as long as usual" if length else "it has not changed")
        if cosine is not None and cosine < usual - max(_APART * scatter, _LEAST):
            why.append(f"it goes another way (cosine {cosine:.2g})")
        reasons.append("; ".join(why))
    return reasons
