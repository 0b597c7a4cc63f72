"""DiLoCo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fedgauge.algorithms.base import Algorithm
from fedgauge.algorithms.fedavgm import fedavgm
from fedgauge.algorithms.local_optimisers import with_optimiser
from fedgauge.algorithms.streaming import streaming


def diloco(
    gamma: float,
    eta: float | Sequence[float] = 0.7,
    beta: float | Sequence[float] = 0.9,
    local_beta1: float = 0.9,
    local_beta2: float = 0.999,
    local_epsilon: float = 1e-8,
    weight_decay: float = 0.1,
    clip: float | None = None,
    optimiser_state: str = "kept",
    fragments: int = 1,
    delay: int = 0,
    mix: float = 0.0,
    wire: str = "float32",
) -> Algorithm:
    r"""AdamW on the workers, whose state each keeps, and Nesterov's momentum on the server.

    .. math::
        x_i \leftarrow (1 - \gamma w)\, x_i - \gamma\, \hat m_i / (\sqrt{\hat v_i} + \epsilon); \qquad
        u \leftarrow \beta u + \Delta, \quad \bar x^{r+1} = \bar x^r - \eta\,(\Delta + \beta u), \quad
        \Delta = \tfrac1M\sum_{i\in S_r} (\bar x^r - x_i^{r,I})

    Args:
        gamma: the inner learning rate.
        eta: the outer learning rate; from Python also one for each fragment.
        beta: the outer momentum; likewise.
        local_beta1: decay rate of AdamW's first moment.
        local_beta2: decay rate of AdamW's second moment.
        local_epsilon: AdamW's epsilon.
        weight_decay: AdamW's weight decay w.
        clip: the norm to which longer gradients are shortened; by default, they are taken as they are.
        optimiser_state: what becomes of AdamW's state after a round: ``kept``, ``reset`` or ``averaged``.
        fragments: pieces of the model, one of which is sent after each round, so that each is sent once in so many
            rounds.
        delay: local steps between sending a fragment and applying what comes back, fewer than those of a round.
        mix: the share of its own fragment that a worker keeps where the new one arrives.
        wire: how changes are sent: ``float32``, ``bfloat16``, or ``int8`` with one scale for a fragment.

    With one fragment, no delay and all bits it is ``fedavgm`` with Nesterov's momentum and AdamW as the local
    optimiser; the local steps I are the source's H. With P fragments, the H of each is P I.

    Source: Douillard et al. 2023 (DiLoCo): the defaults of eta, beta and weight_decay, and states that stay with the
    workers; the decay rates are torch's. Fragments, delay and mix are those of torchft's DiLoCo, after Douillard et al.
    2025 (Streaming DiLoCo); there, fragments are modules, here they are pieces of equal length.
    """
    options: dict[str, Any] = {} if clip is None else {"clip": clip}
    optimised: Callable[[Algorithm], Algorithm] = partial(
        with_optimiser,
        optimiser="adamw",
        local_beta1=local_beta1,
        local_beta2=local_beta2,
        local_epsilon=local_epsilon,
        weight_decay=weight_decay,
        optimiser_state=optimiser_state,
        **options,
    )
    plain = (fragments, delay, mix, wire) == (1, 0, 0.0, "float32")
    if plain and not isinstance(eta, Sequence) and not isinstance(beta, Sequence):
        made = optimised(fedavgm(gamma, eta, beta, nesterov=True))
    else:
        made = streaming(optimised, gamma, eta, beta, fragments=fragments, delay=delay, mix=mix, wire=wire)
    fixed = ("nesterov", "optimiser")
    parameters = {name: value for name, value in made.parameters.items() if name not in fixed}
    return replace(made, name="diloco", parameters=parameters)
