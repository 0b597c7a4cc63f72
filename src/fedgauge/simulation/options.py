"""The options of a run: where it is computed, when it stops, what is recorded and where it is saved."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from fedgauge.base.errors import InputError, count, nearest, non_negative
from fedgauge.base.user_code import ENGINES, plugin_names

if TYPE_CHECKING:
    import torch

    from fedgauge.simulation.engines.local import Engine
    from fedgauge.values import Observer, Round  # which imports numpy; the command's help does not wait for it


PUBLISHED = {"ray": "fedgauge-ray"}
"""The clusters that there are beside this machine, and the distributions that bring them."""


def check_engine(name: str | None, address: str | None = None) -> None:
    """Refuse an engine that does not exist, and an address without a cluster to join.

    >>> check_engine("rey")
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: There is no engine 'rey'; did you mean ray?
    """
    here = name in ("local", None)
    if not (here or name in PUBLISHED or name in plugin_names(ENGINES)):
        names = dict.fromkeys(["local", *PUBLISHED, *plugin_names(ENGINES)])
        raise InputError(f"There is no engine {name!r}; {nearest(str(name), names)}")
    if address is not None and here:
        raise InputError(f"address = {address} names a cluster, which needs engine = ray; set the engine too.")


class Evaluator(Protocol):
    """Tests a global model on data that no worker trains on."""

    @property
    def digest(self) -> str:
        """A fingerprint of the test data, by which a resumed run recognises it."""

    def accuracy(self, model: torch.Tensor) -> float:
        """The fraction of examples that the model gets right, from 0 to 1."""


@runtime_checkable
class HasParts(Protocol):
    """A test set of which a part can be used."""

    @property
    def num_examples(self) -> int:
        """The number of test examples."""

    def part(self, number: int) -> Evaluator:
        """That many of the test examples, always the same ones, from all over the test set."""


@dataclass(frozen=True)
class Compute:
    """Where the workers' part of a round is computed. The results are the same bits everywhere, except for ``chunk``.

    Attributes:
        processes: how many processes share the work. By default, one per core for networks and only this process for
            quadratics; on a cluster, one task per core.
        engine: ``local``; ``ray`` for a Ray cluster (``pip install fedgauge-ray``); or a function that makes another
            engine for the work.
        address: HOST:PORT of the cluster. By default, one is started here for the run and stopped afterwards.
        chunk: how many workers' models are held at once; by default, what the federation computes fastest. It groups
            the sums, so other values agree only up to rounding.

    >>> Compute(processes=2).engine
    'local'
    """

    processes: int | None = None
    engine: str | Callable[[Any], Engine] = "local"
    address: str | None = None
    chunk: int | None = None

    def __post_init__(self) -> None:
        for name in ("processes", "chunk"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, count(name, getattr(self, name)))
        if isinstance(self.engine, str):
            check_engine(self.engine, self.address)

    @property
    def on_cluster(self) -> bool:
        """Whether a cluster computes it, which runs jobs side by side on its machines."""
        return isinstance(self.engine, str) and self.engine != "local"

    def with_processes(self, processes: int | None) -> Self:
        """The same options with another number of processes."""
        return dataclasses.replace(self, processes=processes)


@dataclass(frozen=True)
class StopAt:
    """What ends a run before its last round; every condition is checked at recorded rounds only.

    Attributes:
        loss: stop at the first recorded loss at or below it.
        accuracy: stop at the first recorded test accuracy at or above it; needs an evaluator.
        grad2: stop at the first recorded ‖∇f‖² at or below it.
        records: how many records in a row must meet a target; with 2, a lucky value alone does not end the run.
        when: called with all records so far; the run stops when it returns true. It cannot be combined with ``keep``,
            because a resumed run would not know it.
        round: pause at the first record at or after this round; a saved run can be resumed from there.

    >>> from fedgauge.values import Round
    >>> lucky = [Round(0, 0.9, 1.0), Round(1, 0.7, 1.0)]
    >>> StopAt(loss=0.8).reached(lucky), StopAt(loss=0.8, records=2).reached(lucky)
    (True, False)
    """

    loss: float | None = None
    accuracy: float | None = None
    grad2: float | None = None
    records: int = 1
    when: Callable[[Sequence[Round]], bool] | None = None
    round: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", count("goal_records", self.records))
        if self.loss is not None and not math.isfinite(self.loss):
            raise InputError(f"The goal loss must be a finite number, not {self.loss!r}.")
        if self.accuracy is not None and not 0 < self.accuracy <= 1:
            raise InputError(f"The goal accuracy must be above 0 and at most 1, not {self.accuracy!r}.")
        if self.grad2 is not None:
            non_negative("The goal grad2", self.grad2)

    @classmethod
    def parse(cls, goals: str, records: int = 1) -> Self:
        """Read goals such as ``loss=0.1,accuracy=0.9``, of which the first that is reached ends the run.

        >>> StopAt.parse("loss=0.1").loss
        0.1
        >>> StopAt.parse("los=0.1")
        Traceback (most recent call last):
        fedgauge.base.errors.InputError: There is no goal 'los'; did you mean loss?
        """
        values: dict[str, float] = {}
        for text in filter(None, goals.split(",")):
            name, _, number = (part.strip() for part in text.partition("="))
            if name not in ("loss", "accuracy", "grad2"):
                raise InputError(f"There is no goal {name!r}; {nearest(name, ('loss', 'accuracy', 'grad2'))}")
            try:
                values[name] = float(number)
            except ValueError:
                raise InputError(f"goal must be QUANTITY=NUMBER, as in loss=0.1, not {text!r}.") from None
        return cls(values.get("loss"), values.get("accuracy"), values.get("grad2"), records)

    def reached(self, records: Sequence[Round]) -> bool:
        """Whether the last records meet a target."""
        last = records[-self.records :]
        met = len(last) == self.records and all(map(self._met, last))
        return met or bool(self.when is not None and self.when(records))

    def _met(self, record: Round) -> bool:
        return (
            (self.loss is not None and record.loss <= self.loss)
            or (self.accuracy is not None and record.accuracy is not None and record.accuracy >= self.accuracy)
            or (self.grad2 is not None and record.grad2 <= self.grad2)
        )


@dataclass(frozen=True)
class Recording:
    """What is recorded, how often, and who is called with it.

    Attributes:
        every: record every N-th round, and the last one, exactly. A record takes three exact gradient passes. By
            default, every round if records are cheap; otherwise as much as takes a quarter of the run's work at most
            (``help(fedgauge.simulation.records)``), which the run's settings say.
        watch: also record how far the local models spread, and the observed ratios that bound L_h, L_tilde and L_g
            from below. This takes two of the three passes.
        evaluator: measures the test accuracy at each record.
        observer: function that is called after every round.
        sample: record values of this many examples of each worker only, always the same ones; records say so.
        on_progress: function that is called while a long record is made, with how many of its parts are done and of how
            many.
    """

    every: int | None = None
    watch: bool = True
    evaluator: Evaluator | None = None
    observer: Observer | None = None
    sample: int | None = None
    on_progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        if self.every is not None:
            object.__setattr__(self, "every", count("record_every", self.every))
        if self.sample is not None:
            # From a single example there is no standard error.
            object.__setattr__(self, "sample", count("record_sample", self.sample, least=2))


@dataclass(frozen=True)
class Keep:
    """Where and how to save a run.

    Attributes:
        directory: the directory of the run; new or empty, unless the run in it is resumed.
        resume: resume the run that is there; begin it if there is none. A finished run is simply read, so that a
            notebook cell can be run again.
        checkpoint_every: save a checkpoint every N rounds.
        description: TOML text that is saved with the run as experiment.toml.
    """

    directory: str | Path
    resume: bool = False
    checkpoint_every: int = 100
    description: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "checkpoint_every", count("checkpoint_every", self.checkpoint_every))

    @classmethod
    def of(cls, keep: Self | str | Path | None) -> Self | None:
        """Turn a bare directory into a ``Keep`` with all other options at their defaults."""
        return keep if keep is None or isinstance(keep, cls) else cls(_path(keep))


def _path(value: Any) -> str | Path:
    if not isinstance(value, str | Path):
        raise InputError(f"keep must be a directory or a Keep, not {value!r}.")
    return value


def check_options(stop: Any, record: Any, compute: Any) -> None:
    """Refuse options that are of another kind, and say how they are made."""
    for name, value, kind, example in (
        ("stop", stop, StopAt, "StopAt(loss=0.1)"),
        ("record", record, Recording, "Recording(every=10)"),
        ("compute", compute, Compute, "Compute(processes=2)"),
    ):
        if not isinstance(value, kind):
            raise InputError(f"{name} must be a {kind.__name__}, as in {name}={example}, not {value!r}.")


NEVER, USUAL, HERE = StopAt(), Recording(), Compute()
"""The defaults: run all rounds, record as much as is cheap, compute on this machine."""
