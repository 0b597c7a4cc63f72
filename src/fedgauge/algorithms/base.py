"""What an algorithm is: a few pure functions on explicit state, run by the round loop of ``simulate``.

In round r the server holds the global model x and its own state s. Each participant i

1. begins:   local state from x, s and what the worker itself remembers;
2. steps:    I times, local state from local state and a stochastic gradient at its model;
3. finishes: a message to the server, and what the worker remembers for its next round.

The server updates (x, s) from the weighted averages of the messages. Local state is a dict of matrices with one row
per participant, its local model under ``"x"``; a vector stands for the same row everywhere. No function changes its
arguments. What algorithms share they share by calling the functions below, never by overriding.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from fedgauge.base.errors import InputError
from fedgauge.base.user_code import contents, is_user_code

if TYPE_CHECKING:
    import torch


Tensors: TypeAlias = "Mapping[str, torch.Tensor]"


def no_state(model: torch.Tensor) -> Tensors:
    """The server, or a worker, remembers nothing."""
    return {}


def begin_at_model(model: torch.Tensor, server: Tensors, memory: Tensors) -> Tensors:
    """Every participant starts from the global model."""
    return {"x": model}


@dataclass(frozen=True)
class SgdStep:
    """x_i <- x_i - gamma g_i(x_i)."""

    gamma: float

    def __call__(self, local: Tensors, gradient: torch.Tensor) -> Tensors:
        """The local state after the step."""
        return {"x": local["x"].sub(gradient, alpha=self.gamma)}


@dataclass(frozen=True)
class CorrectedStep:
    """x_i <- x_i - gamma (g_i(x_i) + correction), where the correction is a function of the local state."""

    gamma: float
    correction: Callable[[Tensors], torch.Tensor]

    def __call__(self, local: Tensors, gradient: torch.Tensor) -> Tensors:
        """The local state after the step."""
        return {**local, "x": local["x"] - self.gamma * (gradient + self.correction(local))}


@runtime_checkable
class RatedStep(Protocol):
    """A step whose rate depends on the server's state, as a schedule has it."""

    def fused_rate(self, server: Tensors) -> float | None:
        """gamma in this round, if all of the round's steps are plain SGD with it."""


def send_change(model: torch.Tensor, local: Tensors, steps: torch.Tensor) -> tuple[Tensors, Tensors]:
    """Delta_i = x - x_i, and nothing is remembered."""
    return {"change": model - local["x"]}, {}


def move_by(eta: float) -> Callable[[torch.Tensor, Tensors, Tensors, float], tuple[torch.Tensor, Tensors]]:
    """x <- x - eta mean_i Delta_i."""

    def update(model: torch.Tensor, server: Tensors, mean: Tensors, fraction: float) -> tuple[torch.Tensor, Tensors]:
        return model.sub(mean["change"], alpha=eta), {}

    return update


@dataclass(frozen=True)
class Facts:
    """What others must know of an algorithm, apart from what its functions do; no bit of a run depends on it.

    Attributes:
        same_gamma_in_a_round: whether all steps of a round need the same gamma, because it is used, or the steps are
            counted, after the last of them.
        no_optimiser_because: why its workers can have no local optimiser, as the rest of a sentence; empty if they can.
        server_momentum: for a server z = (x, u) that adds a momentum u to the averaged change, the entries of its step:
            what u, and what the change, contribute to x, the decay of u, and what the change contributes to u.
    """

    same_gamma_in_a_round: bool = False
    no_optimiser_because: str = ""
    server_momentum: tuple[float, float, float, float] | None = None


@dataclass(frozen=True)
class Algorithm:
    """An algorithm with its parameters bound.

    It can be sent to other processes and machines as it is, with whatever functions it has.

    Attributes:
        name: its name in the registry, or ``module:factory`` for one of the user's own.
        parameters: what it was made with, mostly numbers; enough to make it again.
        init: server state from the first model.
        worker_init: what one worker remembers before its first round, from the first model.
        begin: local state from (model, server state, the participants' memories).
        step: local state from (local state, stochastic gradients at its ``"x"``).
        finish: (messages, memories) from (model, local state, steps taken by each row as a column).
        update: (model, server state) from (model, server state, averaged messages, fraction M/N of participants).
        repeats: whether one worker may run several times in a round; not where workers remember.
        synchronous: the algorithm whose rounds of one local step are synchronous training with the same local
            optimiser and rates; None where this one's own are. They are not where the server does more than average,
            or where the local optimiser begins every round anew.
        facts: what others must know of it.
        shaped: makes the algorithm for models of one layout, where a local optimiser has to know the shapes of their
            parameters; ``Work`` calls it. None where shapes do not matter.
    """

    name: str
    parameters: Mapping[str, Any]
    step: Callable[[Tensors, torch.Tensor], Tensors]
    update: Callable[[torch.Tensor, Tensors, Tensors, float], tuple[torch.Tensor, Tensors]]
    init: Callable[[torch.Tensor], Tensors] = no_state
    worker_init: Callable[[torch.Tensor], Tensors] = no_state
    begin: Callable[[torch.Tensor, Tensors, Tensors], Tensors] = begin_at_model
    finish: Callable[[torch.Tensor, Tensors, torch.Tensor], tuple[Tensors, Tensors]] = send_change
    repeats: bool = True
    synchronous: Algorithm | None = None
    facts: Facts = Facts()
    shaped: Callable[[Any], Algorithm] | None = None

    @property
    def sgd_rate(self) -> float | None:
        """gamma, where local steps are plain SGD from the global model; a federation may then take them all at once."""
        return self.step.gamma if isinstance(self.step, SgdStep) and self.begin is begin_at_model else None

    def fused_rate(self, server: Tensors) -> float | None:
        """The rate of plain SGD in the round that begins with this server state, as :attr:`sgd_rate`."""
        return self.step.fused_rate(server) if isinstance(self.step, RatedStep) else self.sgd_rate

    def __reduce__(self) -> tuple[Any, ...]:
        """Other processes get the functions themselves; what cannot be sent is refused in one sentence."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        return _received, (pack(self.name, content),)

    def __copy__(self) -> Algorithm:
        """Nothing in it changes, so it is its own copy."""
        return self

    def __deepcopy__(self, memo: Any) -> Algorithm:
        """Nothing in it changes, so it is its own copy."""
        return self


def _received(content: bytes) -> Algorithm:
    return Algorithm(**unpack(content))


_registering = threading.RLock()
"""Held again where an algorithm's functions hold another algorithm, as with a local optimiser or a schedule."""


def _user_modules(values: Iterable[Any]) -> set[str]:
    """The user's own modules whose functions and classes are reached from these values."""
    modules: set[str] = set()
    seen: set[int] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, partial):
            waiting += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, MethodType):
            waiting += [value.__func__, value.__self__]
        elif isinstance(value, list | tuple | set | frozenset):
            waiting += value
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, FunctionType):
            if is_user_code(value.__module__):
                modules.add(value.__module__)
            waiting += [part for _, part in contents(value)]
        elif is_user_code((value if isinstance(value, type) else type(value)).__module__):
            kind = value if isinstance(value, type) else type(value)
            modules.add(kind.__module__)
            waiting += [part for part in vars(kind).values() if isinstance(part, FunctionType)]
            waiting += getattr(value, "__dict__", {}).values() if kind is not value else []
    return modules


@contextmanager
def _by_value(modules: set[str]) -> Iterator[None]:
    """Let cloudpickle send these modules' functions by value meanwhile."""
    import cloudpickle

    with _registering:
        already = cloudpickle.list_registry_pickle_by_value()
        names = [name for name in sorted(modules - {"__main__"} - set(already)) if name in sys.modules]
        for name in names:
            cloudpickle.register_pickle_by_value(sys.modules[name])
        try:
            yield
        finally:
            for name in names:
                cloudpickle.unregister_pickle_by_value(sys.modules[name])


def pack(name: str, fields: Mapping[str, Any]) -> bytes:
    """An algorithm's fields as bytes, or one sentence why they cannot be sent."""
    import cloudpickle

    try:
        with _by_value(_user_modules(fields.values())):
            content: bytes = cloudpickle.dumps(dict(fields))
    except Exception as error:  # whatever pickling an object of the user's own may raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InputError(
            f"The algorithm {name} cannot be sent to other processes ({reason}); keep locks, open files and the like"
            " out of its functions, or compute in this process alone with processes = 1."
        ) from None
    return content


def unpack(content: bytes) -> dict[str, Any]:
    """The fields that :func:`pack` sent."""
    import cloudpickle

    fields: dict[str, Any] = cloudpickle.loads(content)
    return fields
