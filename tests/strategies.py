"""Random federations and algorithms for property tests."""

from __future__ import annotations

from typing import Any, get_args

import hypothesis.strategies as st

from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.random_quadratics import Shape, random_quadratics

# Rates at which every algorithm below is stable on federations of smoothness 1, so that laws are seen and not overflow.
PARAMETERS: dict[str, dict[str, Any]] = {
    "fedavg": {"gamma": 0.1, "eta": 1.3},
    "momentum": {"gamma": 0.05, "beta": 0.6, "eta": 0.9},
    "minibatch": {"gamma": 0.1, "eta": 1.3},
    "fedadam": {"gamma": 0.1, "eta": 0.05, "tau": 0.1, "beta1": 0.5, "beta2": 0.8},
    "fedadagrad": {"gamma": 0.1, "eta": 0.05, "tau": 0.1, "beta1": 0.5},
    "fedyogi": {"gamma": 0.1, "eta": 0.05, "tau": 0.1, "beta1": 0.5, "beta2": 0.8},
    "fedprox": {"gamma": 0.1, "proximal": 0.5, "eta": 1.3},
    "scaffold": {"gamma": 0.1, "eta": 0.8},
    "fednova": {"gamma": 0.1, "eta": 1.3},
    "slowmo": {"gamma": 0.1, "beta": 0.4, "eta": 0.9},
    "fedavgm": {"gamma": 0.1, "eta": 0.9, "beta": 0.4, "nesterov": True},
    "diloco": {
        "gamma": 0.02,
        "eta": 0.7,
        "beta": 0.4,
        "local_beta1": 0.6,
        "local_beta2": 0.8,
        "local_epsilon": 0.1,
        "weight_decay": 0.5,
        "clip": 0.5,
        "optimiser_state": "kept",
    },
}
# Those whose update treats every coordinate by itself and so depends on the axes.
COORDINATEWISE = ("fedadam", "fedadagrad", "fedyogi", "diloco")


@st.composite
def federations(draw: st.DrawFn, /, **fixed: Any) -> QuadraticFederation:
    """Federations of every shape, small enough to run many of."""
    arguments: dict[str, Any] = {
        "num_workers": draw(st.integers(1, 6)),
        "dim": draw(st.integers(1, 5)),
        "shape": draw(st.sampled_from(get_args(Shape))),
        "hessian_spread": draw(st.sampled_from([0.0, 0.1, 1.0])),
        "linear_spread": draw(st.sampled_from([0.0, 1.0, 100.0])),
        "conditioning": draw(st.sampled_from([1.0, 10.0])),
        "sigma2": draw(st.sampled_from([0.0, 1.0])),
        "seed": draw(st.integers(0, 2**32)),
    }
    return random_quadratics(**{**arguments, **fixed})
