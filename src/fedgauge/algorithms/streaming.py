"""DiLoCo in fragments: parts of the model that are sent one after the other, and arrive while the workers train on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fedgauge.algorithms.base import Algorithm, SgdStep, Tensors
from fedgauge.algorithms.fedavg import fedavg
from fedgauge.base.errors import InputError, count, fraction, nearest, positive

if TYPE_CHECKING:
    import torch

WIRES = ("float32", "bfloat16", "int8")
_INT8 = 127.0


def streaming(
    optimised: Callable[[Algorithm], Algorithm],
    gamma: float,
    eta: float | Sequence[float],
    beta: float | Sequence[float],
    *,
    fragments: int,
    delay: int,
    mix: float,
    wire: str,
) -> Algorithm:
    """Local steps of workers that go on from their own models; after each round one fragment is synchronised.

    Round r ends with fragment r modulo P: the averaged change goes through Nesterov's momentum, and the new fragment
    arrives at the workers after ``delay`` further local steps, so that every fragment is sent every P rounds. Fragments
    are pieces of equal length of the parameters in their order.

    Args:
        optimised: gives an algorithm with SGD on its workers their local optimiser.
        gamma: local learning rate.
        eta: outer learning rate, one for all fragments or one for each.
        beta: outer momentum, likewise.
        fragments: P.
        delay: local steps between sending and applying, fewer than those of a round.
        mix: the share of its own fragment that a worker keeps where the new one arrives.
        wire: how changes are sent: ``float32``, ``bfloat16``, or ``int8`` with one scale for each fragment.
    """
    P, delay = count("fragments", fragments), count("delay", delay, least=0)
    rates, momenta = _each("eta", eta, P, positive), _each("beta", beta, P, fraction)
    mix = fraction("mix", mix)
    if wire not in WIRES:
        raise InputError(f"There is no wire {wire!r}; {nearest(str(wire), WIRES)}")

    def part(model: torch.Tensor, rounds: torch.Tensor) -> slice:
        """The fragment that is synchronised after so many earlier rounds."""
        number, size = int(rounds.reshape(-1)[0]) % P, model.shape[-1]
        return slice(number * size // P, (number + 1) * size // P)

    def init(model: torch.Tensor) -> Tensors:
        return {"u": model.new_zeros(model.shape), "rounds": model.new_zeros(1)}

    def worker_init(model: torch.Tensor) -> Tensors:
        return {"own": model}

    def arrived(own: torch.Tensor, model: torch.Tensor, rounds: torch.Tensor) -> torch.Tensor:
        """The workers' models with the fragment of the last round."""
        x, last = own.clone(), part(model, rounds - 1)
        x[..., last] = model[..., last].lerp(own[..., last], mix)
        return x

    def begin(model: torch.Tensor, server: Tensors, memory: Tensors) -> Tensors:
        own, rounds = memory["own"], server["rounds"]
        if not int(rounds[0]):
            return {"x": own, "rounds": rounds, "model": model, "steps": own.new_full((1,), delay + 1.0)}
        if not delay:
            own = arrived(own, model, rounds)
        return {"x": own, "rounds": rounds, "model": model, "steps": own.new_zeros(1)}

    def finish(model: torch.Tensor, local: Tensors, steps: torch.Tensor) -> tuple[Tensors, Tensors]:
        if delay >= int(steps.min()) and int(local["rounds"].max()):
            raise InputError(
                f"A delay of {delay} local steps needs rounds of more than that many, not {int(steps.min())}; choose a"
                " smaller delay or more local steps."
            )
        sent = part(model, local["rounds"])
        change = (model - local["x"]).clone()
        change[..., : sent.start] = 0
        change[..., sent.stop :] = 0
        return {"change": _on_wire(change, wire)}, {"own": local["x"]}

    def update(model: torch.Tensor, server: Tensors, mean: Tensors, fraction: float) -> tuple[torch.Tensor, Tensors]:
        if fraction != 1:
            raise InputError(
                "DiLoCo in fragments needs every worker in every round: an absent one would go on from an old model;"
                " let all take part, or take one fragment without a delay."
            )
        here, rounds = part(model, server["rounds"]), server["rounds"]
        number = int(rounds[0]) % P
        change, u, moved = mean["change"][here], server["u"].clone(), model.clone()
        u[here] = change.add(u[here], alpha=momenta[number])
        moved[here] = model[here].sub(change.add(u[here], alpha=momenta[number]), alpha=rates[number])
        return moved, {"u": u, "rounds": rounds + 1}

    base = Algorithm(
        "diloco",
        {"gamma": gamma, "eta": _plain(eta), "beta": _plain(beta)},
        step=SgdStep(gamma),
        update=update,
        init=init,
        worker_init=worker_init,
        begin=begin,
        finish=finish,
        repeats=False,
        synchronous=fedavg(gamma),
    )
    made = optimised(base)

    def step(local: Tensors, gradient: torch.Tensor) -> Tensors:
        """A step of the local optimiser, and then the delayed fragment, if it arrives."""
        moved = {**made.step(local, gradient), "steps": local["steps"] + 1}
        # Workers that have taken all of their steps no longer count them.
        if int(moved["steps"].max()) != delay:
            return moved
        return {**moved, "x": arrived(moved["x"], local["model"], local["rounds"])}

    extra = {"fragments": P, "delay": delay, "mix": mix, "wire": wire}
    return replace(made, step=step if delay else made.step, parameters={**made.parameters, **extra})


def _each(name: str, value: float | Sequence[float], number: int, check: Callable[[str, float], float]) -> list[float]:
    """One value for each fragment."""
    values = list(value) if isinstance(value, Sequence) else [value] * number
    if len(values) != number:
        raise InputError(f"There are {number} fragments and {len(values)} values of {name}; give one, or one for each.")
    return [check(name, each) for each in values]


def _plain(value: float | Sequence[float]) -> float | list[float]:
    return list(value) if isinstance(value, Sequence) else value


def _on_wire(change: torch.Tensor, wire: str) -> torch.Tensor:
    """What arrives of a change that is sent with fewer bits."""
    if wire == "bfloat16":
        return change.bfloat16().to(change.dtype)
    if wire == "int8":
        scale = change.abs().amax(dim=-1, keepdim=True).clamp(min=1e-30) / _INT8
        return (change / scale).round() * scale
    return change
