"""DiLoCo."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedgauge.algorithms.base import Algorithm
from fedgauge.algorithms.fedavgm import fedavgm
from fedgauge.algorithms.local_optimisers import with_optimiser


def diloco(
    gamma: float,
    eta: float = 0.7,
    beta: float = 0.9,
    local_beta1: float = 0.9,
    local_beta2: float = 0.999,
    local_epsilon: float = 1e-8,
    weight_decay: float = 0.1,
    clip: float | None = None,
    optimiser_state: str = "kept",
) -> Algorithm:
    r"""AdamW on the workers, whose state each keeps, and Nesterov's momentum on the server.

    .. math::
        x_i \leftarrow (1 - \gamma w)\, x_i - \gamma\, \hat m_i / (\sqrt{\hat v_i} + \epsilon); \qquad
        u \leftarrow \beta u + \Delta, \quad \bar x^{r+1} = \bar x^r - \eta\,(\Delta + \beta u), \quad
        \Delta = \tfrac1M\sum_{i\in S_r} (\bar x^r - x_i^{r,I})

    Args:
        gamma: the inner learning rate.
        eta: the outer learning rate.
        beta: the outer momentum.
        local_beta1: decay rate of AdamW's first moment.
        local_beta2: decay rate of AdamW's second moment.
        local_epsilon: AdamW's epsilon.
        weight_decay: AdamW's weight decay w.
        clip: the norm to which longer gradients are shortened; by default, they are taken as they are.
        optimiser_state: what becomes of AdamW's state after a round: ``kept``, ``reset`` or ``averaged``.

    It is ``fedavgm`` with Nesterov's momentum and AdamW as the local optimiser; the local steps I are the source's H.

    Source: Douillard et al. 2023 (DiLoCo): the defaults of eta, beta and weight_decay, and states that stay with the
    workers; the decay rates are torch's.
    """
    options: dict[str, Any] = {} if clip is None else {"clip": clip}
    made = with_optimiser(
        fedavgm(gamma, eta, beta, nesterov=True),
        "adamw",
        local_beta1=local_beta1,
        local_beta2=local_beta2,
        local_epsilon=local_epsilon,
        weight_decay=weight_decay,
        optimiser_state=optimiser_state,
        **options,
    )
    fixed = ("nesterov", "optimiser")
    parameters = {name: value for name, value in made.parameters.items() if name not in fixed}
    return replace(made, name="diloco", parameters=parameters)
