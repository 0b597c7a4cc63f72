"""Every algorithm once more, as a reader of its paper would write it: loops over workers and steps, in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.quadratic import QuadraticFederation

Vector = npt.NDArray[np.float64]


def naive_models(
    federation: QuadraticFederation,
    name: str,
    parameters: dict[str, Any],
    steps: list[int],
    rounds: int,
    seed: int,
) -> list[Vector]:
    """The global models x̄^0 .. x̄^R under full participation; only the noise comes from the package."""
    A, b, N = federation.hessians, federation.linear, federation.num_workers
    p = parameters
    gamma, eta = p["gamma"], p.get("eta", 1.0)
    x = federation.first_model.copy()
    zero = np.zeros_like(x)
    state: dict[str, Any] = {"u": zero, "m": zero, "v": zero, "c": zero, "c_i": [zero] * N}
    adam: list[Any] = [(zero, zero, 0)] * N
    models = [x]
    streams = Streams(seed, Purpose.NOISE)
    for r in range(rounds):
        ends, buffers, gradient_means, new_controls = [], [], [], []
        for i in range(N):
            everyone = np.array([i])
            noise = federation.draws(streams, r, everyone, np.array([0]), steps[i])
            y, u, total = x.copy(), state["u"].copy(), zero.copy()
            for k in range(steps[i]):
                at = x if name == "minibatch" else y
                g = A[i] @ at + b[i] + (0 if noise[k] is None else noise[k][0].numpy())
                total = total + g
                if name == "momentum":
                    u = p["beta"] * u + g
                    y = y - gamma * u
                elif name == "fedprox":
                    y = y - gamma * (g + p["proximal"] * (y - x))
                elif name == "scaffold":
                    y = y - gamma * (g - state["c_i"][i] + state["c"])
                elif name == "diloco":
                    y, adam[i] = _adamw(p, y, g, *adam[i])
                else:
                    y = y - gamma * g
            ends.append(y)
            buffers.append(u)
            gradient_means.append(total / steps[i])
            new_controls.append(state["c_i"][i] - state["c"] + (x - y) / (steps[i] * gamma))
        delta = np.mean([x - y for y in ends], axis=0)
        if name in ("fedavg", "fedprox"):
            x = x - eta * delta
        elif name == "momentum":
            x, state["u"] = x - eta * delta, np.mean(buffers, axis=0)
        elif name == "minibatch":
            x = x - eta * gamma * np.mean(gradient_means, axis=0)
        elif name == "scaffold":
            x = x - eta * delta
            state["c"] = state["c"] + np.mean([n - o for n, o in zip(new_controls, state["c_i"], strict=True)], axis=0)
            state["c_i"] = new_controls
        elif name == "fednova":
            x = x - eta * np.mean(steps) * np.mean([(x - y) / s for y, s in zip(ends, steps, strict=True)], axis=0)
        elif name in ("fedavgm", "diloco"):
            state["u"] = p["beta"] * state["u"] + delta
            nesterov = p.get("nesterov", True)
            x = x - eta * (delta + p["beta"] * state["u"] if nesterov else state["u"])
        elif name == "slowmo":
            state["u"] = p["beta"] * state["u"] + delta / gamma
            x = x - eta * gamma * state["u"]
        else:
            state["m"] = p["beta1"] * state["m"] + (1 - p["beta1"]) * delta
            if name == "fedadam":
                state["v"] = p["beta2"] * state["v"] + (1 - p["beta2"]) * delta**2
            elif name == "fedadagrad":
                state["v"] = state["v"] + delta**2
            elif name == "fedyogi":
                state["v"] = state["v"] - (1 - p["beta2"]) * delta**2 * np.sign(state["v"] - delta**2)
            x = x - eta * state["m"] / (np.sqrt(state["v"]) + p["tau"])
        models.append(x)
    return models


def _adamw(p: dict[str, Any], y: Vector, g: Vector, m: Vector, v: Vector, t: int) -> tuple[Vector, Any]:
    length = np.linalg.norm(g)
    if length > p["clip"]:
        g = g / length * p["clip"]
    b1, b2 = p["local_beta1"], p["local_beta2"]
    m, v, t = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2, t + 1
    y = y - p["gamma"] * p["weight_decay"] * y
    return y - p["gamma"] * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + p["local_epsilon"]), (m, v, t)
