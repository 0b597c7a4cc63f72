"""Any optimiser of ``torch.optim``, or one of the user's own, on the workers.

It is made anew for every step of every worker: with the row's parameters in their shapes, with their gradients, and
with the state that it had after the worker's last step. Between steps its state is one row of numbers, like all local
state, so that runs do not depend on the engine, and go on from a checkpoint as if nothing had happened. That works for
whatever keeps all that it remembers in ``optimizer.state``, as torch's optimisers do; a trial on a small matrix shows
it before any work is done. Hand-written SGD and AdamW (:mod:`fedgauge.algorithms.local_optimisers`) are faster.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from fedgauge.algorithms.optimiser_choices import OptimiserChoice, made_by, read_groups, read_options, spelled
from fedgauge.base.errors import InputError, positive

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from fedgauge.algorithms.base import Algorithm, Tensors
    from fedgauge.federation.protocols import Federation

_STATE = "state"
_TRIED = 3
"""Steps of a trial: the first makes the state, and the others use it."""
_KINDS = (bool, int, float)


@dataclass(frozen=True)
class Layout:
    """The parameters in a flat model, in their order.

    Attributes:
        names: of the parameters.
        shapes: theirs.
        embeddings: the names of those that are tables of embeddings.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    embeddings: tuple[str, ...] = ()


def layout_of(federation: Federation) -> Layout:
    """The layout of a federation's models; without a module, a model is one vector called x.

    >>> from fedgauge import random_quadratics
    >>> layout_of(random_quadratics(2, 3))
    Layout(names=('x',), shapes=((3,),), embeddings=())
    """
    from torch import nn

    from fedgauge.federation.flat import trainable
    from fedgauge.federation.protocols import HasModule

    if not isinstance(federation, HasModule):
        return Layout(("x",), ((federation.dim,),))
    module = federation.module  # a copy, whose parameters are other objects each time
    parameters = trainable(module)
    tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    return Layout(
        tuple(parameters),
        tuple(tuple(each.shape) for each in parameters.values()),
        tuple(name for name, each in parameters.items() if id(each) in tables),
    )


def fitted(algorithm: Algorithm, federation: Federation) -> Algorithm:
    """The algorithm for the models of a federation, whose shapes a local optimiser may have to know."""
    return algorithm if algorithm.shaped is None else algorithm.shaped(layout_of(federation))


class _Group(NamedTuple):
    """Parameters that are treated alike: by which optimiser, with which options, and at which multiple of gamma."""

    optimiser: str
    options: dict[str, Any]
    rate: float
    places: tuple[int, ...]


class _Slot(NamedTuple):
    """One entry of a parameter's state; ``kind`` is its type, or None for an entry without a value."""

    place: int
    key: str
    kind: type | None
    shape: tuple[int, ...] = ()
    dtype: Any = None
    device: Any = None

    @property
    def size(self) -> int:
        """How many numbers it is."""
        size = 0 if self.kind is None else 1
        for side in self.shape:
            size *= side
        return size


@contextmanager
def _saying(name: str, what: str, remedy: str) -> Iterator[None]:
    """Turn whatever an optimiser raises into one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = " ".join(f"{error or type(error).__name__}".split()).rstrip(".")
        raise InputError(f"The local optimiser {name} {what}: {reason}; {remedy}.") from None


def _groups(choice: OptimiserChoice, layout: Layout) -> list[_Group]:
    """The groups that have parameters, with the places of these."""
    named = read_groups(choice.groups)
    members: dict[str | None, list[int]] = {pattern: [] for pattern in named} | {None: []}
    for place, (name, shape) in enumerate(zip(layout.names, layout.shapes, strict=True)):
        kinds = [name, *(["vectors"] if len(shape) < 2 else []), *(["embeddings"] if name in layout.embeddings else [])]
        matching = (each for each in named if any(fnmatchcase(kind, each) for kind in kinds))
        members[next(matching, None)].append(place)
    groups = []
    for pattern, places in members.items():
        if not places and pattern is None:
            continue
        if not places and layout.names != ("x",):
            raise InputError(
                f"The group {pattern!r} of the local optimiser has no parameter; the model's are called"
                f" {', '.join(layout.names[:4])}{', ...' if len(layout.names) > 4 else ''}."
            )
        options = {} if pattern is None else dict(named[pattern])
        rate, kind = options.pop("rate", 1.0), options.pop("optimiser", choice.optimiser)
        if places:
            groups.append(_Group(kind, {**_own(choice, kind), **options}, positive("rate", rate), tuple(places)))
    return groups


def _own(choice: OptimiserChoice, kind: str) -> Mapping[str, Any]:
    """The options of the optimiser itself, which groups with another optimiser do not have."""
    return read_options(choice.options) if kind == choice.optimiser else {}


def _optimisers(
    choice: OptimiserChoice, groups: list[_Group], parameters: list[torch.Tensor], gamma: float
) -> list[torch.optim.Optimizer]:
    """The optimisers of one worker's parameters, one for each class."""
    made = []
    for kind in dict.fromkeys(group.optimiser for group in groups):
        own = _own(choice, kind)
        given = [
            {"params": [parameters[place] for place in group.places], "lr": gamma * group.rate, **group.options}
            for group in groups
            if group.optimiser == kind
        ]
        with _saying(kind, "cannot be made", "correct its options, or give these parameters another in a group"):
            made.append(made_by(kind)(given, lr=gamma, **own))
    return made


def _states(optimisers: list[torch.optim.Optimizer], parameters: list[torch.Tensor]) -> list[dict[str, Any]]:
    """The state of each parameter."""
    own: list[dict[str, Any]] = [
        next((each.state[p] for each in optimisers if p in each.state), {}) for p in parameters
    ]
    return [dict(state) for state in own]


def _slots(name: str, states: list[dict[str, Any]]) -> list[_Slot]:
    """What a state consists of."""
    import torch

    slots = []
    for place, state in enumerate(states):
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and not value.is_complex() and not value.is_sparse:
                slots.append(_Slot(place, key, torch.Tensor, tuple(value.shape), value.dtype, value.device))
            elif value is None or type(value) in _KINDS:
                slots.append(_Slot(place, key, None if value is None else type(value)))
            else:
                raise InputError(
                    f"The local optimiser {name} keeps a {type(value).__name__} as its {key}, and only numbers and"
                    " tensors can be kept between the steps of a run; choose another optimiser."
                )
    return slots


@dataclass(frozen=True)
class ShapedOptimiser:
    """An optimiser for models of one layout."""

    choice: OptimiserChoice
    layout: Layout

    def init(self, model: torch.Tensor) -> Tensors:
        """The state of one worker before its first step: nothing but a mark that there has been none."""
        size = sum(slot.size for slot in _template(self.choice, self.layout, model.dtype, model.device))
        return {_STATE: model.new_zeros(1 + size)}

    def check(self) -> None:
        """Take a step with the model's shapes, so that what does not fit them is refused before any work."""
        import torch

        slots = _template(self.choice, self.layout, torch.get_default_dtype(), torch.device("cpu"))
        if any(slot.size for slot in slots) and not has_state(self.choice):
            raise InputError(
                f"The local optimiser {self.choice.optimiser} has a state for parameters of some shapes only, which is"
                " not possible here; choose another optimiser."
            )

    def step(
        self, x: torch.Tensor, gradient: torch.Tensor, state: Tensors, gamma: float
    ) -> tuple[torch.Tensor, Tensors]:
        """(models, state) from (models, gradients, state, gamma), one row after the other."""
        import torch

        slots = _template(self.choice, self.layout, x.dtype, x.device)
        moved, kept = x.clone(memory_format=torch.contiguous_format), []
        given = state.get(_STATE, x.new_zeros(len(x), 1))
        for row, slopes, remembered in zip(moved, gradient, given, strict=True):
            kept.append(_step(self.choice, self.layout, slots, row, slopes, remembered, gamma))
        return moved, {_STATE: torch.stack(kept)} if _STATE in state else {}


def _parts(row: torch.Tensor, shapes: tuple[tuple[int, ...], ...]) -> list[torch.Tensor]:
    """The parameters in a flat model, as views of it."""
    import torch

    sizes = [math.prod(shape) for shape in shapes]
    return [part.view(shape) for part, shape in zip(torch.split(row, sizes), shapes, strict=True)]


def _step(
    choice: OptimiserChoice,
    layout: Layout,
    slots: list[_Slot],
    row: torch.Tensor,
    slopes: torch.Tensor,
    remembered: torch.Tensor,
    gamma: float,
) -> torch.Tensor:
    """Take one step on a row, in place, and return the state after it."""
    import torch

    places = _parts(row, layout.shapes)
    parameters = [part.detach().requires_grad_() for part in places]
    for parameter, slope in zip(parameters, _parts(slopes, layout.shapes), strict=True):
        parameter.grad = slope.clone()
    optimisers = _optimisers(choice, _groups_of(choice, layout), parameters, gamma)
    if remembered[0] > 0:
        _restore(optimisers, parameters, slots, remembered[1:].clone())
    for each in optimisers:
        each.step()
    for part, parameter in zip(places, parameters, strict=True):
        if parameter.data_ptr() != part.data_ptr():  # an optimiser may put another tensor in place of the old one
            part.copy_(parameter.detach())
    states = _states(optimisers, parameters)
    numbers = [torch.as_tensor(states[each.place][each.key]).reshape(-1).to(row) for each in slots if each.size]
    return torch.cat([row.new_ones(1), *numbers])


def _restore(
    optimisers: list[torch.optim.Optimizer],
    parameters: list[torch.Tensor],
    slots: list[_Slot],
    numbers: torch.Tensor,
) -> None:
    """Give the optimisers the state that a row of numbers holds."""
    import torch

    owner = {p: each for each in optimisers for group in each.param_groups for p in group["params"]}
    states: list[dict[str, Any]] = [{} for _ in parameters]
    for slot, part in zip(slots, torch.split(numbers, [slot.size for slot in slots]), strict=True):
        value: Any = None
        if slot.dtype is not None:
            value = part.view(slot.shape).to(device=slot.device, dtype=slot.dtype)
        elif slot.kind is not None:
            value = slot.kind(round(float(part)) if slot.kind is not float else float(part))
        states[slot.place][slot.key] = value
    for parameter, state in zip(parameters, states, strict=True):
        if state:
            owner[parameter].state[parameter] = state


@lru_cache(maxsize=16)
def _groups_of(choice: OptimiserChoice, layout: Layout) -> list[_Group]:
    return _groups(choice, layout)


@lru_cache(maxsize=16)
def _template(choice: OptimiserChoice, layout: Layout, dtype: torch.dtype, device: torch.device) -> list[_Slot]:
    """What the state of a model's parameters consists of, from one step on a model of zeros."""
    import torch

    parameters = [torch.zeros(each, dtype=dtype, device=device, requires_grad=True) for each in layout.shapes]
    with torch.random.fork_rng(devices=[]):
        optimisers = _optimisers(choice, _groups_of(choice, layout), parameters, 0.1)
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        with _saying(choice.optimiser, "cannot take a step", "choose another, or give such parameters one in a group"):
            for each in optimisers:
                each.step()
        return _slots(choice.optimiser, _states(optimisers, parameters))


@lru_cache(maxsize=64)
def has_state(choice: OptimiserChoice) -> bool:
    """Try an optimiser, and those of its groups, on a small matrix; whether they remember anything.

    What needs a closure, refuses gradients that are not sparse, draws random numbers, or remembers something outside
    its state is refused in one sentence.
    """
    stateful = [_try(OptimiserChoice(choice.optimiser, choice.options))]
    for pattern, group in read_groups(choice.groups).items():
        options = {name: value for name, value in group.items() if name not in ("rate", "optimiser")}
        kind = group.get("optimiser", choice.optimiser)
        own = _own(choice, kind)
        try:
            positive("rate", group.get("rate", 1.0))
            stateful.append(_try(OptimiserChoice(kind, spelled({**own, **options}))))
        except InputError as error:
            raise InputError(f"In the group {pattern}: {error}") from None
    return any(stateful)


def _try(choice: OptimiserChoice) -> bool:
    """Compare one optimiser that takes a few steps with one that is made anew for each."""
    import torch

    name, kind = choice.optimiser, made_by(choice.optimiser)
    step: Any = getattr(kind, "step", None)
    closure = inspect.signature(step).parameters.get("closure") if callable(step) else None
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise InputError(
            f"The local optimiser {name} evaluates the loss several times in a step (it needs a closure), and a"
            " worker's step has one gradient; choose another optimiser."
        )
    layout = Layout(("x",), ((4, 3),))
    slopes = [torch.linspace(-1.0, 2.0, 12).roll(turn) + turn for turn in range(_TRIED)]
    alone, row = torch.linspace(0.5, 1.5, 12), torch.linspace(0.5, 1.5, 12)
    remedy = "choose another optimiser, or correct its options"
    with torch.random.fork_rng(devices=[]), _saying(name, "cannot be used", remedy):
        parameters = [alone.view(4, 3).requires_grad_()]
        optimisers = _optimisers(choice, _groups(choice, layout), parameters, 0.1)
        for slope in slopes:
            parameters[0].grad = slope.view(4, 3).clone()
            optimisers[0].step()
        slots = _template(choice, layout, row.dtype, row.device)
        state = row.new_zeros(1)
        for slope in slopes:
            state = _step(choice, layout, slots, row, slope, state, 0.1)
    if _slots(name, _states(optimisers, parameters)) != slots or not torch.equal(parameters[0].reshape(-1), row):
        raise InputError(
            f"The local optimiser {name} remembers something outside its state, or draws random numbers, so that a run"
            " could not be resumed; choose another optimiser."
        )
    return any(slot.size for slot in slots)
