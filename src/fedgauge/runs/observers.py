"""Observers of a run: what is told of every round, live or afterwards.

An observer is called with the number of rounds done and the record that was made, if one was; ``simulate`` calls it
while it runs, and :func:`replay` with a run that is kept. One that has to be closed is a context manager too. A tracker
of the user's own is one more such class, named by ``module:factory``; see :func:`make_observer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from fedgauge.errors import InputError
from fedgauge.runs.reader import FoundRun
from fedgauge.system.imports import find_own
from fedgauge.values import Round

QUANTITIES = {"loss": "loss", "accuracy": "test accuracy", "grad2": "squared gradient norm", "spread": "spread"}
"""The entries of a record that are shown, and what they are called."""

Observer = Callable[[int, Round | None], None]


def replay(run: FoundRun, observer: Observer) -> None:
    """Tell an observer of all records of a run."""
    for record in run.rounds:
        observer(record.round, record)


@contextmanager
def watching(observers: Sequence[Observer]) -> Iterator[Observer]:
    """All of them as one; those that are context managers are entered first and left in the end.

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

        def tell(done: int, record: Round | None) -> None:
            for each in observers:
                each(done, record)

        yield tell


def make_observer(name: str, about: Mapping[str, Any]) -> Observer:
    """An observer of the user's own, from ``module:factory``.

    Args:
        name: where the factory is, as for a model.
        about: what it is called with: the sections of the experiment, as in its file, or the settings of a run that
            comes from none.
    """
    module, colon, factory = name.partition(":")
    if not (module and colon and factory):
        raise InputError(f"observer must be module:factory, as in mytracker:csv, not {name!r}.")
    make = find_own(name, "observer")
    try:
        observer = make(about)
    except Exception as error:  # whatever a factory of the user's own may raise
        raise InputError(f"The observer {name} cannot be made ({type(error).__name__}: {error}); mend it.") from error
    if not callable(observer):
        raise InputError(f"{name} must return what can be called with (done, record), not {observer!r}.")
    return _Own(name, observer)


class _Own:
    """An observer of the user's own; what it raises is told in a sentence, as a mistake in any other input is."""

    def __init__(self, name: str, observer: Any) -> None:
        self._name, self._observer = name, observer

    def __enter__(self) -> Self:
        if hasattr(self._observer, "__enter__"):
            with self._blamed("when it was opened"):
                self._observer.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        if hasattr(self._observer, "__exit__"):
            with self._blamed("when it was closed"):
                self._observer.__exit__(*failure)

    def __call__(self, done: int, record: Round | None) -> None:
        with self._blamed(f"after {done} rounds"):
            self._observer(done, record)

    @contextmanager
    def _blamed(self, when: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise InputError(f"The observer {self._name} failed {when} ({said}); mend it or leave it out.") from error


class TensorBoard:
    """An observer that writes TensorBoard's event files."""

    def __init__(self, directory: str | Path) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError:
            raise InputError(
                "TensorBoard's files need the package tensorboard, which is not installed; run:"
                " pip install 'fedgauge[tensorboard]'."
            ) from None
        self._writer: Any = SummaryWriter(str(directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def __call__(self, done: int, record: Round | None) -> None:
        """Write what the record has."""
        if record is None:
            return
        values = {name: getattr(record, key) for key, name in QUANTITIES.items()}
        for name, value in {**values, "L_h seen": record.L_h_ratio}.items():
            if value is not None:
                self._writer.add_scalar(name, value, record.round)
