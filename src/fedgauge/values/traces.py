"""The results of a run: a record for each recorded round, and the trace of the whole run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedgauge.base.codec import Value
from fedgauge.base.errors import InputError, nearest
from fedgauge.base.types import Array
from fedgauge.values.display import Displayed

Status = Literal["finished", "target", "diverged", "stopped"]


@dataclass(frozen=True)
class Round(Value):
    """The record of one round.

    Attributes:
        round: number r of the round, counted from 0; the global model is the one before the round.
        loss: f at the global model.
        grad2: squared norm of the gradient of f at the global model.
        spread: mean squared distance of the participants' models, after their local steps, from their mean;
            missing for the model after the last round.
        deviation2: squared distance between the participants' averaged gradient, each at its own model, and
            their averaged gradient at the mean model (Proposition 5.2).
        accuracy: accuracy of the global model on the test data, from 0 to 1, if there is test data.
        zeta2: mean squared distance of the participants' gradients, at their mean model, from their mean.
        L_tilde_ratio: the change of a participant's gradient between its own model and the mean model, divided by the
            distance of the two models: the largest ratio over the participants, or over as many as fit in memory. It is
            a lower bound of L_tilde.
        L_g_ratio: the same ratio for the gradient of f between the global model and the mean model, if all workers take
            part. It is a lower bound of L_g.
        looked: with an adaptive pace, the numbers of local steps of this round after which f was evaluated; the last is
            the round's own number of local steps.
        path: the value that f would have if the round had ended after each of these; infinite if it is not finite.
        taken: the number of local steps after which the round was ended: all, or fewer if f was lower there; 0 if the
            round was undone.
        elapsed: seconds of the cost model before the round.
        why: the reason for a new number of local steps, if it changes after this round.
        sample: the number of examples that everything here was computed from, if it was not all of them. Such values
            are estimates: f has the standard error ``loss_error``, and the others belong to the sample alone.
        loss_error: the standard error of the loss, if it is that of a sample.
        tests: the number of test examples that the accuracy was computed from, if it was not all of them.
    """

    round: int
    loss: float
    grad2: float
    spread: float | None = None
    deviation2: float | None = None
    accuracy: float | None = None
    zeta2: float | None = None
    L_tilde_ratio: float | None = None
    L_g_ratio: float | None = None
    looked: tuple[int, ...] | None = None
    path: tuple[float, ...] | None = None
    taken: int | None = None
    elapsed: float | None = None
    why: str | None = None
    sample: int | None = None
    loss_error: float | None = None
    tests: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the record as a JSON object, without the entries that were not recorded."""
        entries = super().to_json()
        always = ("spread", "deviation2")
        return {name: value for name, value in entries.items() if value is not None or name in always}

    @property
    def L_h_ratio(self) -> float | None:  # noqa: N802
        """The ratio sqrt(deviation2 / spread): a lower bound of L_h if all workers take part; None without a spread.

        If only M of N workers take part, the ratio is not a lower bound. Put the other workers at the participants'
        mean model: L_h then bounds M/N of the deviation by the root of M/N of the spread, so the ratio may be as large
        as sqrt(N/M) L_h, and larger if a worker is drawn twice.
        """
        if self.deviation2 is None or not self.spread:
            return None
        ratio = self.deviation2 / self.spread
        return ratio**0.5 if ratio >= 0 else None  # a record that was changed may hold anything


Observer = Callable[[int, Round | None], None]
"""Called after every round with the number of finished rounds and the record, if one was made; the last call has the
record that ends the run."""


@dataclass(frozen=True, eq=False)
class Trace(Value, Displayed):
    """A run: its records, its final model and its settings.

    Attributes:
        settings: the settings of the run, which are sufficient to run it again.
        status: ``finished``; ``target`` if a target was reached earlier; ``diverged`` if the loss became infinite or
            NaN; ``stopped`` if the run was paused or interrupted.
        stopped_at: the round at which the run ended.
        rounds: the records.
        model: the final global model; if the run diverged, the model of the last record, whose loss was finite.
        seconds: wall time of each record since the run began; ignored when traces are compared.
    """

    settings: Mapping[str, Any]
    status: Status
    stopped_at: int
    rounds: Sequence[Round]
    model: npt.NDArray[np.float64]
    seconds: Sequence[float] = ()

    def __eq__(self, other: object) -> bool:
        """Compare everything except the wall times, bit by bit."""
        return (
            isinstance(other, Trace)
            and (self.settings, self.status, self.stopped_at, tuple(self.rounds))
            == (other.settings, other.status, other.stopped_at, tuple(other.rounds))
            and np.array_equal(self.model, other.model)
        )

    def __hash__(self) -> int:
        return hash((self.status, self.stopped_at, tuple(self.rounds)))

    def column(self, name: str) -> Array:
        """One entry of every record as an array, with NaN for a missing one; the name is that of a number in a `Round`.

        >>> Trace({}, "finished", 1, (Round(0, 2.0, 1.0), Round(1, 1.0, 0.5)), np.zeros(1)).column("loss")
        array([2., 1.])
        """
        if not hasattr(Round, name) and name not in Round.__dataclass_fields__:
            raise InputError(f"A record has no entry {name!r}; {nearest(name, Round.__dataclass_fields__)}")
        values = [getattr(record, name) for record in self.rounds]
        return np.array([np.nan if value is None else value for value in values])

    @property
    def losses(self) -> Array:
        """The recorded losses."""
        return self.column("loss")

    @property
    def grad2(self) -> Array:
        """The recorded squared gradient norms."""
        return self.column("grad2")

    @property
    def accuracies(self) -> Array:
        """The recorded test accuracies; NaN if there is none."""
        return self.column("accuracy")

    def to_frame(self) -> Any:
        """The records as a pandas DataFrame, one row per record, with the seconds since the run began."""
        try:
            import pandas
        except ImportError:
            raise InputError(
                "to_frame needs the package pandas, which is not installed; run: pip install pandas."
            ) from None
        rows = [{**record.to_json(), "L_h_ratio": record.L_h_ratio} for record in self.rounds]
        frame = pandas.DataFrame(rows)
        frame["seconds"] = [*self.seconds, *[np.nan] * (len(rows) - len(self.seconds))]
        return frame
