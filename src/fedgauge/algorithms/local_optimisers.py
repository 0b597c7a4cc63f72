"""The optimisers that workers can run in place of plain SGD: pure functions on rows, with explicit state.

Each is the optimiser of that name in ``torch.optim``, applied to every row by itself. State is a dict of matrices with
one row per worker, like all local state; a number per worker is a column.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fedgauge.algorithms.base import Algorithm, CorrectedStep, SgdStep, Tensors
from fedgauge.algorithms.optimiser_choices import (
    OptimiserChoice,
    is_torch,
    name_of,
    read_options,
    spelled,
    spelled_groups,
)
from fedgauge.algorithms.optimiser_states import STATEFUL, named, of
from fedgauge.algorithms.torch_optimisers import Layout, ShapedOptimiser, has_state
from fedgauge.base.errors import InputError, fraction, nearest, non_negative, positive

if TYPE_CHECKING:
    import torch


_CLIPPING = 1e-6
"""What torch.nn.utils.clip_grad_norm_ adds to the norm."""


def _nothing(model: torch.Tensor) -> Tensors:
    return {}


@dataclass(frozen=True)
class LocalOptimiser:
    """A local optimiser with its parameters bound, except for its rate.

    Attributes:
        parameters: what it was made with, under the names that an algorithm and an experiment have for them.
        step: (models, state) from (models, gradients, state, gamma).
        init: the state of one worker before its first step, from its model.
        shaped: makes it for models of one layout, where it has to know the shapes of their parameters.
    """

    parameters: Mapping[str, Any]
    step: Callable[[torch.Tensor, torch.Tensor, Tensors, float], tuple[torch.Tensor, Tensors]]
    init: Callable[[torch.Tensor], Tensors] = field(default=_nothing)
    shaped: Callable[[Layout], LocalOptimiser] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is plain SGD."""
        return self.parameters == {"optimiser": "sgd"}

    @property
    def has_state(self) -> bool:
        """Whether it remembers anything from one step to the next."""
        return self.init is not _nothing


def clip_rows(gradients: torch.Tensor, most: float) -> torch.Tensor:
    """Shorten the rows that are longer than ``most``, as ``torch.nn.utils.clip_grad_norm_`` does."""
    norms: torch.Tensor = gradients.norm(dim=1, keepdim=True)
    return gradients * (most / (norms + _CLIPPING)).clamp(max=1.0)


def sgd(
    local_momentum: float = 0.0,
    local_nesterov: bool = False,
    weight_decay: float = 0.0,
) -> LocalOptimiser:
    """SGD with momentum u and weight decay w: d = g + w x; u <- m u + d; x <- x - gamma u, or gamma (d + m u).

    Args:
        local_momentum: momentum m of a worker's steps.
        local_nesterov: whether a worker's momentum is Nesterov's; the second form of the step.
        weight_decay: weight decay w of a worker's steps; it is added to the gradient.
    """
    local_momentum = fraction("local_momentum", local_momentum)
    weight_decay = non_negative("weight_decay", weight_decay)
    if not isinstance(local_nesterov, bool):
        raise InputError(f"local_nesterov must be true or false, not {local_nesterov!r}.")
    if local_nesterov and not local_momentum:
        raise InputError("local_nesterov needs local_momentum above 0; give it, as in local_momentum=0.9.")

    def init(model: torch.Tensor) -> Tensors:
        return {"u": model.new_zeros(model.shape)}

    def step(x: torch.Tensor, gradient: torch.Tensor, state: Tensors, gamma: float) -> tuple[torch.Tensor, Tensors]:
        direction = gradient.add(x, alpha=weight_decay) if weight_decay else gradient
        if not local_momentum:
            return x.sub(direction, alpha=gamma), {}
        u = direction.add(state["u"], alpha=local_momentum)
        direction = direction.add(u, alpha=local_momentum) if local_nesterov else u
        return x.sub(direction, alpha=gamma), {"u": u}

    parameters: dict[str, Any] = {"optimiser": "sgd"}
    if local_momentum:
        parameters |= {"local_momentum": local_momentum, "local_nesterov": local_nesterov}
    if weight_decay:
        parameters["weight_decay"] = weight_decay
    return LocalOptimiser(parameters, step, init if local_momentum else _nothing)


def adamw(
    local_beta1: float = 0.9,
    local_beta2: float = 0.999,
    local_epsilon: float = 1e-8,
    weight_decay: float = 0.01,
) -> LocalOptimiser:
    """AdamW with bias correction: x <- (1 - gamma w) x - gamma m̂ / (sqrt(v̂) + epsilon).

    Args:
        local_beta1: decay rate of a worker's first moment m.
        local_beta2: decay rate of a worker's second moment v.
        local_epsilon: small number in the denominator of a worker's step; epsilon.
        weight_decay: weight decay w of a worker's steps.
    """
    local_beta1, local_beta2 = fraction("local_beta1", local_beta1), fraction("local_beta2", local_beta2)
    local_epsilon = positive("local_epsilon", local_epsilon)
    weight_decay = non_negative("weight_decay", weight_decay)

    def init(model: torch.Tensor) -> Tensors:
        m, v = (model.new_zeros(model.shape) for _ in range(2))
        return {"m": m, "v": v, "steps": model.new_zeros(1)}

    def step(x: torch.Tensor, gradient: torch.Tensor, state: Tensors, gamma: float) -> tuple[torch.Tensor, Tensors]:
        steps = state["steps"] + 1
        m = state["m"].lerp(gradient, 1 - local_beta1)
        v = (local_beta2 * state["v"]).addcmul_(gradient, gradient, value=1 - local_beta2)
        # In float64, as 1 - 0.999 has only four digits in float32.
        first, second = ((1 - beta ** steps.double()).to(x.dtype) for beta in (local_beta1, local_beta2))
        root = (v / second).sqrt_().add_(local_epsilon)
        return (x * (1 - gamma * weight_decay)).sub_(m / first / root, alpha=gamma), {"m": m, "v": v, "steps": steps}

    parameters = {
        "optimiser": "adamw",
        "local_beta1": local_beta1,
        "local_beta2": local_beta2,
        "local_epsilon": local_epsilon,
        "weight_decay": weight_decay,
    }
    return LocalOptimiser(parameters, step, init)


OPTIMISERS: Mapping[str, Callable[..., LocalOptimiser]] = {"sgd": sgd, "adamw": adamw}


def make_optimiser(optimiser: str = "sgd", clip: float | None = None, **parameters: Any) -> LocalOptimiser:
    """Make a local optimiser by name.

    Args:
        optimiser: ``sgd`` or ``adamw``.
        clip: the length to which longer gradients of the workers are shortened; by default, they are taken as they are.
        **parameters: those of the optimiser.

    >>> make_optimiser("sgd", local_momentum=0.9).parameters
    {'optimiser': 'sgd', 'local_momentum': 0.9, 'local_nesterov': False}
    >>> make_optimiser("adamw", local_momentum=0.9)
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: The local optimiser adamw has no local_momentum; leave it out, or use sgd.
    """
    if isinstance(optimiser, str) and optimiser.lower() in OPTIMISERS:
        optimiser = optimiser.lower()
    if optimiser not in OPTIMISERS:
        raise InputError(
            f"There is no local optimiser {optimiser!r}; {nearest(str(optimiser), OPTIMISERS)} Those of PyTorch have"
            " their whole name, as in torch.optim.NAdam."
        )
    for name in parameters:
        if name not in takes(optimiser):
            others = [other for other in OPTIMISERS if name in takes(other)]
            remedy = f"leave it out, or use {others[0]}." if others else "leave it out."
            raise InputError(f"The local optimiser {optimiser} has no {name}; {remedy}")
    made = OPTIMISERS[optimiser](**parameters)
    return _clipped(made, clip)


def _clipped(made: LocalOptimiser, clip: float | None) -> LocalOptimiser:
    """The optimiser on gradients of at most this length."""
    if clip is None:
        return made
    most, shaped = positive("clip", clip), made.shaped

    def step(x: torch.Tensor, gradient: torch.Tensor, state: Tensors, gamma: float) -> tuple[torch.Tensor, Tensors]:
        return made.step(x, clip_rows(gradient, most), state, gamma)

    on = None if shaped is None else lambda layout: _clipped(shaped(layout), most)
    return LocalOptimiser({**made.parameters, "clip": most}, step, made.init, on)


def takes(optimiser: str) -> tuple[str, ...]:
    """The parameters of an optimiser."""
    return tuple(inspect.signature(OPTIMISERS[optimiser]).parameters)


OPTIONS = (
    "optimiser",
    "optimiser_options",
    "optimiser_groups",
    *dict.fromkeys(name for each in OPTIMISERS for name in takes(each)),
    "clip",
    "optimiser_state",
)
"""The parameters that :func:`with_optimiser` adds to an algorithm."""


def with_optimiser(
    algorithm: Algorithm,
    optimiser: str | Callable[..., Any] = "sgd",
    *,
    optimiser_state: str | None = None,
    optimiser_options: str | None = None,
    optimiser_groups: str | Mapping[str, Mapping[str, Any]] | None = None,
    **parameters: Any,
) -> Algorithm:
    """Let an algorithm's workers run a local optimiser instead of plain SGD; gamma is its rate.

    Args:
        algorithm: fedavg, fedavgm, fedprox, slowmo, or one of fedadam's family.
        optimiser: optimiser of the workers: ``sgd`` or ``adamw``, which are the fastest, any of torch's such as
            ``torch.optim.Muon``, or your own class as package.module:Class; from Python, the class itself will do.
        optimiser_state: what becomes of a worker's momentum or moments after a round: ``reset``
            (the default, except for diloco), ``kept`` or ``averaged``; ``reset`` forgets them, ``kept`` leaves them
            with the worker for its next round, and ``averaged`` gives every worker the participants' average of them in
            the next round.
        optimiser_options: options of one of torch's optimisers or of your own, as in ``momentum=0.9, nesterov=True``;
            from Python, they are arguments of this function.
        optimiser_groups: groups of parameters with options of their own for such an optimiser, as in
            ``vectors: weight_decay=0.0`` for biases and norms; groups are separated by semicolons, and may have another
            optimiser and another ``rate``, a factor for gamma; ``help(fedgauge.algorithms.optimiser_choices)`` says how
            they are named; from Python, a mapping of mappings.
        **parameters: of ``sgd``: ``local_momentum``, ``local_nesterov`` and ``weight_decay``; of ``adamw``:
            ``local_beta1``, ``local_beta2``, ``local_epsilon`` and ``weight_decay``; of both: ``clip``, the norm to
            which longer gradients are shortened. Torch's names (``momentum``, ``nesterov``, ``betas``, ``eps``) will do
            too. Of other optimisers: their own arguments, ``clip``, and ``lr``, which replaces the algorithm's gamma.

    >>> from fedgauge import fedavg
    >>> made = with_optimiser(fedavg(gamma=0.1), "sgd", local_momentum=0.9, optimiser_state="kept")
    >>> made.parameters["local_momentum"], made.repeats
    (0.9, False)
    >>> with_optimiser(fedavg(gamma=0.1), "torch.optim.Adam", betas=(0.9, 0.95)).parameters["optimiser_options"]
    'betas=(0.9, 0.95)'
    """
    if is_torch(optimiser):
        algorithm, parameters = _at_rate(algorithm, parameters)
        gamma = algorithm.parameters.get("gamma", 1.0)
        made = torch_optimiser(optimiser, optimiser_options, spelled_groups(optimiser_groups, gamma), **parameters)
    else:
        for name, value in (("optimiser_options", optimiser_options), ("optimiser_groups", optimiser_groups)):
            if value is not None:
                raise InputError(
                    f"{name} is for optimisers such as torch.optim.AdamW, not for the hand-written {optimiser}; leave"
                    " it out, or name one of torch's."
                )
        made = make_optimiser(str(optimiser), **_renamed(parameters))
    if optimiser_state is not None and optimiser_state not in STATEFUL:
        raise InputError(f"There is no optimiser_state {optimiser_state!r}; {nearest(str(optimiser_state), STATEFUL)}")
    if not made.has_state and optimiser_state is not None:
        what, remedy = "sgd without local_momentum", ", or give local_momentum"
        if made.shaped is not None:
            what, remedy = f"{made.parameters['optimiser']} with these options", ""
        raise InputError(
            f"optimiser_state is for optimisers that have a state, and {what} has none; leave it out{remedy}."
        )
    return algorithm if made.is_plain else _optimised(algorithm, made, optimiser_state)


def _optimised(algorithm: Algorithm, made: LocalOptimiser, optimiser_state: str | None) -> Algorithm:
    """The algorithm with a local optimiser on its workers."""
    step = algorithm.step
    if algorithm.facts.no_optimiser_because:
        raise InputError(f"A local optimiser cannot be used here: {algorithm.facts.no_optimiser_because}.")
    if not isinstance(step, SgdStep | CorrectedStep) or "optimiser" in algorithm.parameters:
        raise InputError(
            f"{algorithm.name} has local steps of its own, so it takes no local optimiser; leave out"
            f" {next(iter(made.parameters))}, or use fedavg."
        )
    gamma, correction = step.gamma, step.correction if isinstance(step, CorrectedStep) else None
    state = (optimiser_state or "reset") if made.has_state else None

    def optimise(local: Tensors, gradient: torch.Tensor) -> Tensors:
        slope = gradient if correction is None else gradient + correction(local)
        x, remembered = made.step(local["x"], slope, of(local), gamma)
        return {**local, "x": x, **named(remembered)}

    extra = {} if state is None else {"optimiser_state": state}
    parameters = {**algorithm.parameters, **made.parameters, **extra}
    base = algorithm.synchronous or (algorithm if state == "reset" else None)
    synchronous = None if base is None else _optimised(base, made, "averaged" if made.has_state else None)
    plain = replace(algorithm, parameters=parameters, step=optimise, synchronous=synchronous)
    whole = plain if state is None else STATEFUL[state](plain, made.init)
    shaped = made.shaped
    if shaped is None:
        return whole
    return replace(whole, shaped=lambda layout: _optimised(algorithm, shaped(layout), optimiser_state))


def torch_optimiser(
    optimiser: str | Callable[..., Any],
    optimiser_options: str | None = None,
    optimiser_groups: str = "",
    clip: float | None = None,
    **options: Any,
) -> LocalOptimiser:
    """One of torch's optimisers, or of the user's own, after a trial; it is complete once it knows a model's shapes.

    Args:
        optimiser: the class, a factory, or the name of either.
        optimiser_options: options as text.
        optimiser_groups: groups as text.
        clip: the length to which longer gradients of the workers are shortened.
        **options: further options.
    """
    for name in options:
        if name.startswith("local_"):
            raise InputError(
                f"{name} is for the hand-written sgd and adamw; give torch's own options in optimiser_options, as in"
                " momentum=0.9 or betas=(0.9, 0.95)."
            )
    everything = {**read_options(optimiser_options or ""), **options}
    if "lr" in everything:
        raise InputError("The rate of a local optimiser is the algorithm's gamma; give it there, not as lr.")
    text = spelled(everything)
    choice = OptimiserChoice(name_of(optimiser), text, optimiser_groups)
    init = _before_shapes if has_state(choice) else _nothing
    spelt = {"optimiser": choice.optimiser, "optimiser_options": text, "optimiser_groups": optimiser_groups}
    parameters: dict[str, Any] = {name: value for name, value in spelt.items() if value}

    def shaped(layout: Layout) -> LocalOptimiser:
        inner = ShapedOptimiser(choice, layout)
        inner.check()
        return LocalOptimiser(parameters, inner.step, _nothing if init is _nothing else inner.init)

    return _clipped(LocalOptimiser(parameters, _step_before_shapes, init, shaped), clip)


def _at_rate(algorithm: Algorithm, parameters: Mapping[str, Any]) -> tuple[Algorithm, dict[str, Any]]:
    """The algorithm with torch's ``lr`` as its gamma, if it is given, and the other parameters."""
    rest = dict(parameters)
    if "lr" not in rest:
        return algorithm, rest
    from fedgauge.algorithms import ALGORITHMS, make_algorithm

    lr = positive("lr", rest.pop("lr"))
    if "gamma" not in algorithm.parameters or not (algorithm.name in ALGORITHMS or ":" in algorithm.name):
        raise InputError(f"lr replaces the rate gamma, which {algorithm.name} is not made with by name; leave it out.")
    return make_algorithm(algorithm.name, **{**algorithm.parameters, "gamma": lr}), rest


def _before_shapes(model: torch.Tensor) -> Tensors:
    raise InputError("This algorithm's optimiser has to know the model's shapes; run it with simulate.")


def _step_before_shapes(
    x: torch.Tensor, gradient: torch.Tensor, state: Tensors, gamma: float
) -> tuple[torch.Tensor, Tensors]:
    return x, _before_shapes(x)


def _renamed(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with torch's names for them replaced by those that they have here."""
    renamed = dict(parameters)
    if "lr" in renamed:
        raise InputError(
            "The rate of a local optimiser is the algorithm's gamma; give it there, as in fedavg(gamma=0.1)."
        )
    if "betas" in renamed:
        betas = renamed.pop("betas")
        if not isinstance(betas, Sequence) or len(betas) != 2:
            raise InputError(f"betas must be a pair of numbers, as in betas=(0.9, 0.999), not {betas!r}.")
        renamed |= {"beta1": betas[0], "beta2": betas[1]}
    for name in ("momentum", "nesterov", "beta1", "beta2", "epsilon"):
        torch_name = {"epsilon": "eps"}.get(name, name)
        if torch_name in renamed:
            if f"local_{name}" in renamed:
                raise InputError(f"{torch_name} and local_{name} are the same parameter; give one of them.")
            renamed[f"local_{name}"] = renamed.pop(torch_name)
    return renamed
