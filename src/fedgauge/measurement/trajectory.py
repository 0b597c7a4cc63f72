"""The constants along FedAvg's own trajectory: what happened, as the paper estimates it.

In each round, x_i is worker i's model at the end of its local steps, and x_mean is the average of these models. (The
paper's text has the models at the beginning of a round, but those are all equal: theory audit, 8.5.) With exact
gradients,

    L_h^2   = |sum_i w_i grad F_i(x_i) - grad f(x_mean)|^2 / sum_i w_i |x_i - x_mean|^2,
    L_tilde = max_i |grad F_i(x_i) - grad F_i(x_mean)| / |x_i - x_mean|,
    L_g     = |grad f(x_mean) - grad f(x)| / |x_mean - x|,

where x is the global model at the beginning of the round. The constant in the assumption is at least each such ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedgauge.algorithms.base import Algorithm
from fedgauge.base.errors import InputError
from fedgauge.base.threads import undisturbed
from fedgauge.federation.participation import Participation
from fedgauge.federation.protocols import Federation
from fedgauge.measurement.intervals import of_runs
from fedgauge.measurement.passes import OutOfBudgetError, why_ended
from fedgauge.measurement.values import Reading
from fedgauge.simulation.loop import InterruptedRunError, simulate
from fedgauge.simulation.options import HERE, Compute, Recording, StopAt
from fedgauge.values import Estimate, Kind, Observer, Round, Trace

MEAN = "What happened on average along FedAvg's own steps from this model, as the paper estimates it."
MAXIMUM = "The largest values in any round of FedAvg from this model."

_RATIOS: dict[str, Callable[[Round], float | None]] = {
    "L_h": lambda record: record.L_h_ratio,
    "L_g": lambda record: record.L_g_ratio,
    "L_tilde": lambda record: record.L_tilde_ratio,
    "zeta_rms": lambda record: None if record.zeta2 is None else record.zeta2**0.5,
}


@undisturbed
def trajectory(
    federation: Federation,
    algorithm: Algorithm,
    model: torch.Tensor,
    *,
    local_steps: int | Sequence[int],
    rounds: int = 10,
    seeds: Sequence[int] = (0,),
    weights: tuple[float, ...] | None = None,
    compute: Compute = HERE,
    stop: Callable[[Sequence[Round]], bool] | None = None,
    observer: Observer | None = None,
) -> tuple[Reading, Reading]:
    """Run an algorithm from a model, with all workers taking part, and compute the constants from its rounds.

    Args:
        federation: the federation to measure.
        algorithm: the algorithm to run; the paper uses FedAvg.
        model: the model from which to start; the paper starts near convergence, see :func:`near_convergence`.
        local_steps: the number I of local steps, or one number per worker.
        rounds: the number of rounds of each run.
        seeds: the seeds of the runs' mini-batches, one run per seed.
        weights: the weights w_i in f = sum_i w_i F_i; equal by default.
        compute: where to compute: this process, several processes or a cluster.
        stop: a function that is called at every round with the records so far and returns true when time is up; the
            rounds up to then are used.
        observer: called after every round.

    Returns:
        Two readings. The first is the mean over rounds and seeds (of the squares, as in the paper), with a 95%
        interval; the second is the maximum.

    >>> from fedgauge import fedavg, random_quadratics
    >>> federation = random_quadratics(4, 3)
    >>> mean, most = trajectory(federation, fedavg(0.1), federation.start(0), local_steps=5)
    >>> tight = federation.constants()["L_h"].value
    >>> mean.constants["L_h"].value <= most.constants["L_h"].value <= tight * (1 + 1e-9)
    True
    """
    traces: list[Trace] = []
    reason = ""
    for seed in seeds:
        try:
            trace = simulate(
                federation,
                algorithm,
                local_steps=local_steps,
                rounds=rounds,
                participation=Participation(weights=weights),
                seed=seed,
                start=model,
                record=Recording(every=1, observer=observer),
                stop=StopAt(when=stop),
                compute=compute,
            )
        except InterruptedRunError as interrupt:
            trace, reason = interrupt.trace, why_ended(interrupt)
        if trace.status == "diverged":
            raise InputError(
                f"{algorithm.name} diverges from this model in round {trace.stopped_at}, so there is no trajectory"
                " to measure; use a smaller gamma or fewer local steps."
            )
        traces.append(trace)
        if trace.status == "target":
            reason = why_ended(OutOfBudgetError())
        if reason:
            break
    settings = {"algorithm": {"name": algorithm.name, **algorithm.parameters}, "local_steps": local_steps}
    mean, most = readings(traces, settings)
    if not reason:
        return mean, most
    note = f"Not all of {len(seeds)} seeds were run for {rounds} rounds: {reason}."
    return replace(mean, notes=(*mean.notes, note), complete=False), replace(most, complete=False)


def readings(traces: Sequence[Trace], settings: Mapping[str, Any]) -> tuple[Reading, Reading]:
    """Compute the two readings from finished runs."""
    watched = [[record for record in trace.rounds if record.spread is not None] for trace in traces]
    cost = {"gradient passes": 3.0 * sum(map(len, watched))}
    means, most, notes = [], [], []
    for symbol, ratio in _RATIOS.items():
        squares = [[value**2 for record in run if (value := ratio(record)) is not None] for run in watched]
        squares = [values for values in squares if values]
        if not squares:
            notes.append(_undefined(symbol))
            continue
        interval, over = of_runs(squares)
        value, low, high = map(float, interval.root())
        # L_h and zeta of some workers may be larger than those of all; L_tilde is the largest of any worker.
        alike = symbol == "L_tilde" or all(_all_took_part(record) for run in watched for record in run)
        kind: Kind = "lower" if alike else "sample"
        means.append(Estimate(symbol, value, low, high, kind, f"root of the mean square over {over}", cost))
        top = max(map(max, squares)) ** 0.5
        most.append(Estimate(symbol, top, top, top, kind, "maximum over rounds and seeds", cost))
    details = {
        **settings,
        "rounds": [
            {"seed": trace.settings["seed"], **_described(record)}
            for trace, run in zip(traces, watched, strict=True)
            for record in run
        ],
    }
    return (
        Reading("trajectory", MEAN, tuple(means), details, tuple(notes)),
        Reading("trajectory maximum", MAXIMUM, tuple(most), notes=tuple(notes)),
    )


def _all_took_part(record: Round) -> bool:
    """Whether all workers took part in a round; only then is L_g's ratio recorded."""
    return record.L_g_ratio is not None


def _undefined(symbol: str) -> str:
    why = {
        "L_h": "the workers' models agree after their local steps (0/0)",
        "L_tilde": "the workers' models agree after their local steps (0/0)",
        "L_g": "the mean model does not leave the global model (0/0)",
    }.get(symbol, "it was not recorded")
    return f"{symbol} is undefined on this trajectory: {why}; curvature still measures it."


def _described(record: Round) -> dict[str, Any]:
    """A round's record with the quantities of Proposition 5.2.

    In their next step, the expected models of averaged SGD and of centralised SGD move apart by gamma times ``drift``.
    """
    entries = record.to_json()
    ratio = record.L_h_ratio
    drift = None if record.deviation2 is None else record.deviation2**0.5
    return {**entries, "L_h_ratio": ratio, "drift": drift}


def exceeded(records: Sequence[Round], limits: Mapping[str, float]) -> list[tuple[int, str, float]]:
    """The rounds that prove a constant too small: (round, symbol, ratio).

    A bound that was evaluated with certain constants does not cover a run that exceeds them. Rounding is allowed for.
    L_h is compared only with rounds in which all workers took part: see :attr:`Round.L_h_ratio`.

    >>> exceeded([Round(3, 1.0, 1.0, spread=1.0, deviation2=4.0, L_g_ratio=1.0)], {"L_h": 1.5})
    [(3, 'L_h', 2.0)]
    """
    names = []
    for record in records:
        if record.sample is not None:
            continue  # a ratio of the sample proves nothing about all examples
        for symbol, limit in limits.items():
            if symbol == "L_h" and not _all_took_part(record):
                continue
            ratio = _RATIOS[symbol](record) if symbol in _RATIOS else None
            if ratio is not None and ratio > limit * (1 + 1e-6):
                names.append((record.round, symbol, ratio))
    return names


def settled(records: Sequence[Round], fall: float) -> bool:
    """Whether the loss has fallen by less than a fraction of itself since the last record, and has not risen.

    >>> [settled([Round(0, 1.0, 1.0), Round(10, loss, 1.0)], fall=0.01) for loss in (0.5, 0.995, 1.01)]
    [False, True, False]
    """
    if len(records) < 2:
        return False
    before, now = records[-2].loss, records[-1].loss
    return 0 <= before - now < fall * abs(before)


@undisturbed
def near_convergence(
    federation: Federation,
    algorithm: Algorithm,
    *,
    local_steps: int | Sequence[int],
    fall: float = 0.01,
    window: int = 10,
    most: int = 1000,
    seed: int = 0,
    weights: tuple[float, ...] | None = None,
    compute: Compute = HERE,
    stop: Callable[[Sequence[Round]], bool] | None = None,
    observer: Observer | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Train until the loss has almost stopped falling.

    The paper begins its estimates at a model "close to convergence". Here, f is recorded every ``window`` rounds, and
    the model is the first at which f has fallen by less than the fraction ``fall`` since the last record. If f has
    risen, training continues, because it may be about to diverge.

    Returns:
        The model; and the rule, the round, and whether the rule was met within ``most`` rounds.

    >>> from fedgauge import fedavg, random_quadratics
    >>> model, outcome = near_convergence(random_quadratics(4, 3), fedavg(0.1), local_steps=5, window=5)
    >>> outcome["reached"]
    True
    """
    trace = simulate(
        federation,
        algorithm,
        local_steps=local_steps,
        rounds=most,
        participation=Participation(weights=weights),
        seed=seed,
        record=Recording(every=window, watch=False, observer=observer),
        stop=StopAt(when=lambda records: settled(records, fall) or (stop is not None and stop(records))),
        compute=compute,
    )
    if trace.status == "diverged":
        raise InputError(
            f"{algorithm.name} diverges in round {trace.stopped_at} of its training, so there is no model near"
            " convergence; use a smaller gamma or fewer local steps."
        )
    rule = f"f falls by less than {fall:g} of itself in {window} rounds"
    outcome = {"rule": rule, "reached": settled(trace.rounds, fall), "round": trace.stopped_at, "seed": seed}
    like = federation.start(seed)
    return torch.from_numpy(np.asarray(trace.model)).to(like), outcome
