"""What a run leaves: a record for each round, and the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedgauge.codec import Value
from fedgauge.errors import InputError, nearest
from fedgauge.values.display import Displayed

Array = npt.NDArray[Any]
Status = Literal["finished", "target", "diverged", "stopped"]


@dataclass(frozen=True)
class Round(Value):
    """What one round recorded.

    Attributes:
        round: r, counted from 0; the model is the global model before the round.
        loss: f at the global model.
        grad2: squared norm of f's gradient there.
        spread: mean squared distance of the participants' models, after their local steps, from their mean;
            missing for the model after the last round.
        deviation2: squared distance between the participants' averaged gradient, each at its own model, and
            their averaged gradient at the mean model (Proposition 5.2).
        accuracy: of the global model on the test data, from 0 to 1, where there is such.
        zeta2: mean squared distance of the participants' gradients at their mean model from the mean of them.
        L_tilde_ratio: the largest ratio of a participant's gradients, between its own model and the mean model, to the
            distance of the two: a lower bound of L_tilde (of many participants, as many as fit in memory).
        L_g_ratio: the same ratio of f's gradients between the global model and the mean model, where all take part: a
            lower bound of L_g.
        looked: where local steps adapt themselves, after how many steps of this round f was looked at, the last being
            the round's own number of them.
        path: what f would be had the round ended there; infinite where it is not finite.
        taken: after how many of them the round was taken to have ended: all, or fewer where f was lower there; 0 where
            the round was undone.
        elapsed: seconds of the cost model before the round.
        why: the reason for the number of local steps that follow, where it is another.
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

    def to_json(self) -> dict[str, Any]:
        """Return the record as an object; what was not looked at has no entry."""
        entries = super().to_json()
        always = ("spread", "deviation2")
        return {name: value for name, value in entries.items() if value is not None or name in always}

    @property
    def L_h_ratio(self) -> float | None:  # noqa: N802
        """sqrt(deviation2 / spread): a lower bound of L_h where all take part; missing where the local models agree.

        Of M of N workers it is no such bound. With the others at the participants' mean model, L_h bounds M/N of the
        deviation by the root of M/N of the spread, so that the ratio may be sqrt(N/M) L_h, and more where a worker is
        drawn twice.
        """
        if self.deviation2 is None or not self.spread:
            return None
        return float((self.deviation2 / self.spread) ** 0.5)


@dataclass(frozen=True, eq=False)
class Trace(Value, Displayed):
    """A run: one record a round, the final model, and the settings that made it.

    Attributes:
        settings: what was asked, enough to run it again.
        status: ``finished``; ``target`` where a target was reached first; ``diverged`` where the loss was no
            longer finite; ``stopped`` where the run was interrupted.
        stopped_at: the round at which it ended.
        rounds: the records.
        model: the last global model; where the run diverged that of the last record, whose loss was finite.
        seconds: wall time of each record since the run began; not part of equality.
    """

    settings: Mapping[str, Any]
    status: Status
    stopped_at: int
    rounds: tuple[Round, ...]
    model: npt.NDArray[np.float64]
    seconds: tuple[float, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Compare everything but the wall times, bit by bit."""
        return (
            isinstance(other, Trace)
            and (self.settings, self.status, self.stopped_at, self.rounds)
            == (other.settings, other.status, other.stopped_at, other.rounds)
            and np.array_equal(self.model, other.model)
        )

    def __hash__(self) -> int:
        return hash((self.status, self.stopped_at, self.rounds))

    def column(self, name: str) -> Array:
        """One entry of every record as an array, with NaN where a record has none; any number of :class:`Round`.

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
        """The recorded test accuracies; NaN where there is none."""
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
