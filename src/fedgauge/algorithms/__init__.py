"""The algorithms by name: those that come with fedgauge, and a user's own as ``module:factory``.

To add one, write its file, import its factory here and name it in ``ALGORITHMS``. :func:`with_optimiser` and
:func:`with_schedules` add local optimisers and schedules to any of them; ``make_algorithm`` takes their parameters too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from fedgauge.algorithms import local_optimisers as optimised
from fedgauge.algorithms import schedules
from fedgauge.algorithms.adaptive import fedadagrad as fedadagrad
from fedgauge.algorithms.adaptive import fedadam as fedadam
from fedgauge.algorithms.adaptive import fedyogi as fedyogi
from fedgauge.algorithms.base import Algorithm as Algorithm
from fedgauge.algorithms.diloco import diloco as diloco
from fedgauge.algorithms.fedavg import fedavg as fedavg
from fedgauge.algorithms.fedavgm import fedavgm as fedavgm
from fedgauge.algorithms.fednova import fednova as fednova
from fedgauge.algorithms.fedprox import fedprox as fedprox
from fedgauge.algorithms.local_optimisers import with_optimiser as with_optimiser
from fedgauge.algorithms.minibatch import minibatch as minibatch
from fedgauge.algorithms.momentum import momentum as momentum
from fedgauge.algorithms.optimiser_choices import made_by
from fedgauge.algorithms.scaffold import scaffold as scaffold
from fedgauge.algorithms.schedules import Schedule as Schedule
from fedgauge.algorithms.slowmo import slowmo as slowmo
from fedgauge.algorithms.torch_optimisers import Layout
from fedgauge.base.errors import InputError, nearest
from fedgauge.base.user_code import error_context, find_user_code

ALGORITHMS: Mapping[str, Callable[..., Algorithm]] = {
    factory.__name__: factory
    for factory in (
        fedavg,
        momentum,
        minibatch,
        fedadam,
        fedadagrad,
        fedyogi,
        fedprox,
        scaffold,
        fednova,
        slowmo,
        fedavgm,
        diloco,
    )
}
OPTIONS = (*optimised.OPTIONS, *schedules.OPTIONS)
"""The parameters with which any algorithm is given a local optimiser or schedules."""


def is_plain(parameters: Mapping[str, Any]) -> bool:
    """Whether an algorithm with these parameters has plain local steps and constant rates, as theorems have them.

    >>> is_plain(fedavg(gamma=0.1).parameters), is_plain(diloco(gamma=0.1).parameters)
    (True, False)
    """
    return not any(name in parameters for name in OPTIONS)


def _factory(name: str) -> Callable[..., Any]:
    """The function that makes an algorithm."""
    if ":" in name:
        factory = find_user_code(name, "algorithm")
        if not callable(factory):
            raise InputError(f"{name} must be a function that makes an algorithm, not a {type(factory).__name__}.")
        return factory
    if name not in ALGORITHMS:
        raise InputError(f"There is no algorithm {name}; {nearest(name, ALGORITHMS)}")
    return ALGORITHMS[name]


def _signature(name: str) -> inspect.Signature:
    factory = _factory(name)
    try:
        return inspect.signature(factory)
    except (TypeError, ValueError):
        raise InputError(f"{name} does not say which parameters it takes; name a function written in Python.") from None


def _named(signature: inspect.Signature) -> dict[str, inspect.Parameter]:
    """The parameters that can be given by name."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: each for name, each in signature.parameters.items() if each.kind in named}


def parameters_of(name: str) -> list[str]:
    """The parameters that an algorithm takes, in order.

    >>> parameters_of("momentum")
    ['gamma', 'beta', 'eta']
    >>> parameters_of("fedgauge.algorithms.fedavg:fedavg")
    ['gamma', 'eta']
    """
    return list(_named(_signature(name)))


def make_algorithm(name: str, **parameters: Any) -> Algorithm:
    """Make an algorithm by name, refusing parameters that it does not have.

    Args:
        name: the name of an algorithm of fedgauge, or ``module:factory`` for your own function that returns an
            :class:`Algorithm`. Its name is then ``module:factory``, and its parameters are the factory's arguments, so
            that it can be made again.
        **parameters: the factory's arguments, of which those without a default are required; and those of
            :func:`with_optimiser` and :func:`with_schedules`.

    >>> make_algorithm("fedavg", gamma=0.1, eta=2.0).name
    'fedavg'
    >>> make_algorithm("fedavg", gamma=0.1, optimiser="adamw", gamma_schedule="cosine,over=100").repeats
    True
    >>> make_algorithm("fedavgg", gamma=0.1)
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: There is no algorithm fedavgg; did you mean fedavg?
    """
    signature = _signature(name)
    allowed = _named(signature)
    open_ended = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in signature.parameters.values())
    composed = {} if open_ended else {key: parameters.pop(key) for key in OPTIONS if key in {*parameters} - {*allowed}}
    for parameter in parameters:
        if parameter not in allowed and not open_ended:
            if parameter == "lr" and "gamma" in allowed:
                raise InputError(f"{name} has no parameter lr; the local learning rate is gamma, as in gamma=0.1.")
            takes = f"it takes {', '.join(allowed)}" if allowed else "it takes none"
            raise InputError(f"{name} has no parameter {parameter}; {takes}.")
    for parameter, each in signature.parameters.items():
        if each.default is inspect.Parameter.empty and parameter in allowed and parameter not in parameters:
            if parameter == "gamma":
                raise InputError(f"{name} needs gamma, the local learning rate; give it, as in gamma=0.1.")
            raise InputError(f"{name} needs {parameter}; give it as a parameter.")
    with error_context(f"The algorithm {name} cannot be made") if ":" in name else nullcontext():
        made = _factory(name)(**parameters)
    if not isinstance(made, Algorithm):
        raise InputError(f"{name} must return an Algorithm, not a {type(made).__name__}.")
    if ":" in name:
        defaults = {parameter: each.default for parameter, each in allowed.items()}
        made = replace(made, name=name, parameters={**defaults, **parameters})
    schedule = {key: composed.pop(key) for key in schedules.OPTIONS if key in composed}
    if composed:
        made = with_optimiser(made, **composed)
    return with_schedules(made, **schedule)


def with_schedules(
    algorithm: Algorithm, gamma_schedule: str | Schedule | None = None, eta_schedule: str | Schedule | None = None
) -> Algorithm:
    """Let the rates of an algorithm follow schedules.

    Args:
        algorithm: an algorithm that its name and parameters identify.
        gamma_schedule: how gamma changes: ``constant``, ``step``, ``cosine`` or ``linear``, with options as in
            ``cosine,warmup=5,by=step`` or ``step,every=30,factor=0.1``; or a :class:`Schedule`.
        eta_schedule: how eta changes, as for gamma.

    >>> with_schedules(fedavg(gamma=0.1), "cosine,over=100").parameters
    {'gamma': 0.1, 'eta': 1.0, 'gamma_schedule': 'cosine,over=100'}
    """
    gamma, eta = _schedule(gamma_schedule), _schedule(eta_schedule)
    if gamma is None and eta is None:
        return algorithm
    if any(name in algorithm.parameters for name in schedules.OPTIONS):
        raise InputError(f"{algorithm.name} has a schedule already; give both schedules at once.")
    if algorithm.name not in ALGORITHMS and ":" not in algorithm.name:
        raise InputError(
            f"A schedule makes {algorithm.name} again with other rates, so it must have a name that fedgauge knows, or"
            " be module:factory."
        )
    items = tuple(algorithm.parameters.items())
    try:
        hash(items)
    except TypeError:
        raise InputError(f"A schedule needs parameters of {algorithm.name} that are numbers or text.") from None
    made = _scheduled(algorithm, _Remake(algorithm.name, items), gamma, eta)
    synchronous = algorithm.synchronous
    return replace(made, synchronous=synchronous and with_schedules(synchronous, gamma))


def _scheduled(algorithm: Algorithm, remake: _Remake, gamma: Schedule | None, eta: Schedule | None) -> Algorithm:
    made, shaped = schedules.scheduled(algorithm, remake, gamma, eta), algorithm.shaped
    if shaped is None:
        return made
    return replace(made, shaped=lambda layout: _scheduled(shaped(layout), replace(remake, layout=layout), gamma, eta))


def _schedule(given: str | Schedule | None) -> Schedule | None:
    made = given if given is None or isinstance(given, Schedule) else Schedule.parse(given)
    return None if made == Schedule("constant") or made == Schedule("constant", by="step") else made


@dataclass(frozen=True)
class _Remake:
    """Makes an algorithm again with its rates multiplied by factors."""

    name: str
    parameters: tuple[tuple[str, Any], ...]
    layout: Layout | None = None

    def __call__(self, gamma: float, eta: float) -> Algorithm:
        return _remade(self, gamma, eta)


@lru_cache(maxsize=64)
def _remade(what: _Remake, gamma: float, eta: float) -> Algorithm:
    factors = {"gamma": gamma, "eta": eta}
    parameters = {key: value * factors[key] if key in factors else value for key, value in what.parameters}
    made = make_algorithm(what.name, **parameters)
    return made if made.shaped is None or what.layout is None else made.shaped(what.layout)


def fingerprint(algorithm: Algorithm) -> str | None:
    """A fingerprint of an algorithm that is not exactly what the registry makes from its name and parameters.

    Returns:
        ``None`` for fedgauge's own algorithms; otherwise SHA-256 of the algorithm's functions (their code, closures,
        default values and the globals that they read), the same in every process of one release of Python.

    >>> fingerprint(fedavg(0.1)) is None
    True
    >>> mine = replace(fedavg(0.1), step=lambda local, gradient: {"x": local["x"] - 0.1 * gradient.sign()})
    >>> len(fingerprint(mine))
    64
    """
    # Imported here, because it needs numpy, which the command's help does not wait for.
    from fedgauge.base.fingerprints import alike, digest

    content = _content(algorithm)
    if algorithm.name in ALGORITHMS:
        try:
            plain = _content(make_algorithm(algorithm.name, **algorithm.parameters))
        except (TypeError, InputError):
            return digest(content)
        if alike(plain, content) or digest(plain) == digest(content):
            optimiser = str(algorithm.parameters.get("optimiser", ""))
            return digest(made_by(optimiser)) if ":" in optimiser else None
    return digest(content)


def described(algorithm: Algorithm) -> dict[str, Any]:
    """The algorithm's name and parameters, and a fingerprint of its code if these do not identify it.

    >>> described(fedavg(0.1))
    {'name': 'fedavg', 'gamma': 0.1, 'eta': 1.0}
    """
    code = fingerprint(algorithm)
    return {"name": algorithm.name, **algorithm.parameters, **({} if code is None else {"code": code})}


def _content(algorithm: Algorithm) -> dict[str, Any]:
    # What an algorithm is compared with, and what others know of it, determine no bit of its runs.
    names = {field.name for field in fields(algorithm)} - {"synchronous", "facts", "shaped"}
    return {name: getattr(algorithm, name) for name in sorted(names)}
