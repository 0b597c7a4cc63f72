"""Observers of a run: functions that are called after every round, live or afterwards.

An observer is called with the number of finished rounds and the record of the round, if one was made. ``simulate``
calls it during the run, and :func:`replay` calls it with the records of a saved run. An observer that has to be closed
is a context manager too. Users name their own observers as ``module:factory``; see :func:`make_observer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Self

from fedgauge.base.errors import InputError
from fedgauge.base.user_code import error_context, find_user_code
from fedgauge.simulation.runs.reader import FoundRun
from fedgauge.simulation.runs.trackers import TRACKERS
from fedgauge.values import Observer, Round


def replay(run: FoundRun, observer: Observer) -> None:
    """Call an observer with all records of a run."""
    for record in run.rounds:
        observer(record.round, record)


@contextmanager
def watching(observers: Sequence[Observer]) -> Iterator[Observer]:
    """Combine observers into one; those that are context managers are entered first and closed at the end.

    >>> rounds: list[int] = []
    >>> with watching([lambda done, record: rounds.append(done)]) as observer:
    ...     observer(1, None)
    >>> rounds
    [1]
    """
    with ExitStack() as stack:
        for observer in observers:
            if hasattr(observer, "__exit__"):
                stack.enter_context(observer)  # type: ignore[arg-type]

        def call_all(done: int, record: Round | None) -> None:
            for each in observers:
                each(done, record)

        # Whoever shows progress may also want to be told how far a long record is.
        call_all.on_progress = next((each.on_progress for each in observers if hasattr(each, "on_progress")), None)  # type: ignore[attr-defined]
        yield call_all


def make_observer(name: str, about: Mapping[str, Any]) -> Observer:
    """Make the observer of a tracker, or a user's own from ``module:factory``.

    Args:
        name: ``wandb`` or ``mlflow``, or the module and the factory in it, as for a model.
        about: the argument of the factory: the sections of the experiment, as in its file, or the settings of a run
            that was not made from an experiment.
    """
    if name in TRACKERS:
        with error_context(f"The observer {name} cannot be made"):
            return _Own(name, TRACKERS[name](about))
    module, colon, factory = name.partition(":")
    if not (module and colon and factory):
        raise InputError(
            f"observer must be {', '.join(TRACKERS)} or module:factory, as in mytracker:csv, not {name!r}."
        )
    make = find_user_code(name, "observer")
    with error_context(f"The observer {name} cannot be made"):
        observer = make(about)
    if not callable(observer):
        raise InputError(f"{name} must return a function that takes (done, record), not {observer!r}.")
    return _Own(name, observer)


class _Own:
    """A user's own observer; its exceptions become one-sentence errors, like mistakes in any other input."""

    def __init__(self, name: str, observer: Any) -> None:
        self._name, self._observer = name, observer

    def __enter__(self) -> Self:
        if hasattr(self._observer, "__enter__"):
            with self._error_context("when it was opened"):
                self._observer.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        if hasattr(self._observer, "__exit__"):
            with self._error_context("when it was closed"):
                self._observer.__exit__(*failure)

    def __call__(self, done: int, record: Round | None) -> None:
        with self._error_context(f"after {done} rounds"):
            self._observer(done, record)

    def _error_context(self, when: str) -> AbstractContextManager[None]:
        return error_context(f"The observer {self._name} failed {when}", "fix it or leave it out")
