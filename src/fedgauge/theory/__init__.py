"""The convergence theorems as values: term by term, as printed, corrected, sharp, star and prior.

>>> for theorem in THEOREMS.values():
...     print(f"{theorem.name:21}{theorem.locator:13}{', '.join(theorem.versions)}")
nonconvex            Theorem 4.3  printed, corrected, sharp, star, prior
partial              Theorem 4.5  printed, corrected, sharp, star, prior
equal-hessians       Theorem 5.5  printed, corrected, star, prior
minibatch            Theorem 5.5  printed, corrected, star, prior
quadratic            Theorem A.2  printed, corrected, sharp, prior
momentum             Theorem A.5  printed, corrected, star, prior
fedadam              Theorem A.7  printed, corrected, prior
strongly-convex      Theorem A.9  printed, corrected, sharp, star, prior
strongly-convex-last Theorem A.9  printed, corrected, sharp, star, prior
partial-shared       Theorem 4.5  corrected, sharp, star, prior
partial-without      Theorem 4.5  corrected, sharp, star, prior
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedgauge.base.errors import InputError, nearest
from fedgauge.federation.participation import Sampling
from fedgauge.theory import equal_hessians, fedadam, minibatch, momentum, nonconvex, partial, quadratic, strongly_convex
from fedgauge.theory.base import Theorem
from fedgauge.theory.inputs import Measure, Objectives
from fedgauge.values import Bound, Kind, Version

THEOREMS: dict[str, Theorem] = {
    theorem.name: theorem
    for theorem in (
        nonconvex.THEOREM,
        partial.THEOREM,
        equal_hessians.THEOREM,
        minibatch.THEOREM,
        quadratic.THEOREM,
        momentum.THEOREM,
        fedadam.THEOREM,
        strongly_convex.AVERAGE,
        strongly_convex.LAST,
        # Last, because the falsifier's random problems are addressed by the place in this list.
        partial.SHARED,
        partial.WITHOUT,
    )
}

__all__ = [
    "COROLLARIES",
    "THEOREMS",
    "CorollaryRates",
    "Theorem",
    "Tuned",
    "best_gamma",
    "best_local_steps",
    "corollary_rates",
    "covering",
    "evaluate",
    "find",
    "local_beats_minibatch",
]


def find(name: str) -> Theorem:
    """Look a theorem up by name.

    >>> find("nonconvx")
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: There is no theorem nonconvx; did you mean nonconvex?
    """
    if name not in THEOREMS:
        raise InputError(f"There is no theorem {name}; {nearest(name, THEOREMS)}")
    return THEOREMS[name]


def covering(
    algorithm: str,
    sampling: Sampling = "full",
    objectives: Objectives = "smooth",
    measure: Measure = "grad2",
) -> Theorem | None:
    """Look for the theorem about an algorithm, or None where there is none.

    Args:
        algorithm: its name, as in ``fedgauge.algorithms.ALGORITHMS``.
        sampling: who takes part in a round.
        objectives: what is known of the workers' objectives.
        measure: what is to be bounded, ``grad2`` or ``loss``.

    >>> covering("fedavg").name, covering("fedavg", "with-replacement").name, covering("scaffold")
    ('nonconvex', 'partial', None)
    """
    wanted = (algorithm, sampling, objectives, measure)
    for theorem in THEOREMS.values():
        if (theorem.algorithm, theorem.sampling, theorem.objectives, theorem.quantity.measure) == wanted:
            return theorem
    return None


def evaluate(
    name: str, version: Version | None = None, kinds: Mapping[str, Kind] | None = None, **values: Any
) -> Bound:
    """Evaluate a theorem at your own numbers.

    A rate outside the conditions is not an error: the bound is returned with a condition that does not hold.

    Args:
        name: the theorem, one of :data:`THEOREMS`.
        version: ``printed``, ``corrected``, ``sharp``, ``star`` or ``prior``; not every theorem has all of them. By
            default ``star`` where there is one, otherwise ``corrected``.
        kinds: the kind of each measured constant; one that may be too small makes the bound a plug-in.
        **values: F I R N M sigma2 zeta2 L_g L_h L_tilde gamma eta beta kappa tau G beta1 beta2 mu d0 (and L_h_rms for
            ``quadratic``), each a number or an array; arrays broadcast. Symbols that the theorem does not use are
            checked and then ignored.

    Returns:
        The bound, whose terms add up to ``total``; ``gamma_max`` is the largest admissible gamma.

    >>> values = dict(F=1, R=100, N=8, sigma2=1, zeta2=1, L_g=1, L_h=0.1, gamma=0.01)
    >>> bound = evaluate("nonconvex", I=[1, 4, 16], **values)
    >>> bound.total.round(3).tolist(), bound.admissible.tolist()
    ([1.006, 0.263, 0.08], [True, True, True])
    """
    return find(name).evaluate(version, kinds, **values)


# These look theorems up here, so that they can only be imported once everything above is defined.
from fedgauge.theory.corollaries import COROLLARIES, CorollaryRates, corollary_rates, local_beats_minibatch  # noqa: E402
from fedgauge.theory.search import Tuned, best_gamma, best_local_steps  # noqa: E402
