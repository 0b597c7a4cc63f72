"""Exact expectations on quadratics: the limits of averages over many simulated runs, in closed form.

On a quadratic, a worker's k local steps are an affine map of the global state z (the model, and for momentum the
buffer too) plus Gaussian noise:

    z_i = T_i^k z + t_i^k + noise of covariance Q_i^k.

The server adds the weighted average of the changes z_i - z over the participants. So the mean m and the covariance C of
z obey a recursion: with D_i = T_i - 1 and t_i scaled by the worker's weight, and D, t, Q their means over the workers,

    m <- m + E (D m + t)
    C <- (1 + E D) C (1 + E D)' + E [ s mean_i((D_i - D) C (D_i - D)' + u_i u_i') + n Q ] E',
    u_i = (D_i - D) m + t_i - t,

where E multiplies the model by eta, and the sampling sets s (the spread between workers) and n (their noise):

    full                       s = 0                    n = 1/N
    with replacement           s = 1/M                  n = 1/M
    with replacement, shared   s = 1/M                  n = 1/M + (M - 1)/(M N)
    without replacement        s = (N - M)/(M (N - 1))  n = 1/M

If the server has a momentum, z is the model and the server's buffer, which workers leave as it is. With the mean change
z_i - z called delta, the server's step is z <- S z + G delta, so S takes the place of 1 and G that of E:

    fedavgm    u <- beta u - delta             x <- x - eta u, or with Nesterov x - eta (beta u - delta)
    slowmo     u <- beta u - delta/gamma       x <- x - eta gamma u
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedgauge.algorithms import fingerprint, is_plain
from fedgauge.algorithms.base import Algorithm
from fedgauge.base.errors import InputError, count
from fedgauge.base.types import Floats
from fedgauge.federation.participation import Participation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.values import Value
from fedgauge.values.display import Displayed

FULL = Participation()
_MOST_ROUNDS = 10**7
"""Every round is computed one after another, in some microseconds each, and all are returned."""
_LARGEST = 1e150
"""The largest gamma whose square is finite, to the next power of ten that is easy to read."""


@dataclass(frozen=True)
class Maps:
    """A worker's local phase after k steps, for all workers: z_i = T_i z + t_i + noise of covariance Q_i."""

    T: Floats
    t: Floats
    Q: Floats


@dataclass(frozen=True)
class Moments:
    """Mean and covariance of the global model after round r and k local steps (k = 0: the global model itself)."""

    round: int
    step: int
    mean: Floats
    covariance: Floats


@dataclass(frozen=True, eq=False)
class Expectation(Value, Displayed):
    """Exact expectations along a run.

    Attributes:
        index: what the entries belong to: ``round`` (x̄^r for r = 0..R) or ``iteration`` (x̂^t for t = 0..RI).
        grad2: the expected squared gradient norm E‖∇f‖^2 of each entry.
        loss: the expected loss E f of each entry.
        mean: the mean E x of the last model.
        covariance: the covariance of the last model.
    """

    index: str
    grad2: tuple[float, ...]
    loss: tuple[float, ...]
    mean: Floats
    covariance: Floats


def _one_step(federation: QuadraticFederation, algorithm: Algorithm, local_steps: int) -> tuple[Maps, int]:
    """The affine map of one local step, and the number of such steps in a round."""
    N, d = federation.num_workers, federation.dim
    if not is_plain(algorithm.parameters):
        raise InputError(
            f"Exact expectations exist for plain local SGD with constant rates, and this {algorithm.name} has a local"
            " optimiser or a schedule; simulate it instead."
        )
    gamma = algorithm.parameters["gamma"]
    one = np.eye(d)
    noise = federation.sigma2 / d * one
    server_is_linear = algorithm.name == "fedavg" or algorithm.facts.server_momentum is not None
    if server_is_linear or algorithm.name == "minibatch":
        # Mini-batch SGD takes all I gradients at the global model: one step, with the noise of their mean.
        steps, batch = (local_steps, 1) if server_is_linear else (1, local_steps)
        T = one - gamma * federation.hessians
        return Maps(T, -gamma * federation.linear, np.broadcast_to(gamma**2 / batch * noise, (N, d, d))), steps
    if algorithm.name == "momentum":
        beta = algorithm.parameters["beta"]
        A, b = federation.hessians, federation.linear
        ones = np.broadcast_to(one, (N, d, d))
        T = np.block([[ones - gamma * A, -gamma * beta * ones], [A, beta * ones]])
        push = np.concatenate([-gamma * one, one])
        return Maps(T, np.concatenate([-gamma * b, b], axis=1), np.broadcast_to(push @ noise @ push.T, T.shape)), (
            local_steps
        )
    raise InputError(
        f"There are no exact expectations for {algorithm.name}; they exist for fedavg, momentum, minibatch, fedavgm and"
        " slowmo."
    )


class _Server(NamedTuple):
    """The server's step z <- S z + G delta; where S is left out, it is 1, and G is the diagonal of ``rates``."""

    rates: Floats
    S: Floats | None = None
    G: Floats | None = None


def _server(algorithm: Algorithm, d: int, size: int) -> _Server:
    """The server's step for a state of this size."""
    rates = np.ones(size)
    rates[:d] = algorithm.parameters["eta"]
    if algorithm.facts.server_momentum is None:
        return _Server(rates)
    of_buffer, of_change, beta, sent = algorithm.facts.server_momentum
    one: Floats = np.eye(d)
    S = np.kron(np.array([[1.0, -of_buffer], [0.0, beta]]), one)
    G = np.kron(np.array([[of_change, 0.0], [-sent, 0.0]]), one)
    return _Server(rates, S, G)


def _with_buffer(maps: Maps) -> Maps:
    """The same maps on the model and a buffer that workers leave as it is."""
    N, d = maps.t.shape
    T, Q = np.zeros((N, 2 * d, 2 * d)), np.zeros((N, 2 * d, 2 * d))
    T[:, :d, :d], T[:, d:, d:], Q[:, :d, :d] = maps.T, np.eye(d), maps.Q
    return Maps(T, np.concatenate([maps.t, np.zeros((N, d))], axis=1), Q)


@np.errstate(over="ignore", invalid="ignore")
def local_maps(federation: QuadraticFederation, algorithm: Algorithm, local_steps: int) -> list[Maps]:
    """The workers' maps after 1, 2, ..., I local steps (one entry for mini-batch SGD)."""
    first, steps = _one_step(federation, algorithm, local_steps)
    maps = [first]
    for _ in range(1, steps):
        last = maps[-1]
        maps.append(
            Maps(
                first.T @ last.T,
                np.einsum("nij,nj->ni", first.T, last.t) + first.t,
                first.T @ last.Q @ first.T.swapaxes(1, 2) + first.Q,
            )
        )
    return [_with_buffer(each) for each in maps] if algorithm.facts.server_momentum is not None else maps


def _sampling_factors(participation: Participation, num_workers: int) -> tuple[float, float]:
    """The factors s (spread between workers) and n (their noise) of the recursion."""
    N, M = num_workers, participation.num_participants(num_workers)
    match participation.sampling:
        case "full":
            return 0.0, 1 / N
        case "with-replacement":
            return 1 / M, 1 / M
        case "with-replacement-shared":
            return 1 / M, 1 / M + (M - 1) / (M * N)
        case "without-replacement":
            return ((N - M) / (M * (N - 1)) if N > 1 else 0.0), 1 / M


class _Advance:
    """One application of the recursion, for fixed maps, a server's step and sampling."""

    @np.errstate(over="ignore", invalid="ignore")
    def __init__(self, maps: Maps, server: _Server, scale: Floats, spread: float, noise: float) -> None:
        self.server, self.spread = server, spread
        rates, S, G = server
        D = (maps.T - np.eye(maps.T.shape[1])) * scale[:, None, None]
        t = maps.t * scale[:, None]
        self.D, self.t = D.mean(axis=0), t.mean(axis=0)
        self.P = np.eye(len(rates)) + rates[:, None] * self.D if S is None or G is None else S + G @ self.D
        self.off_D, self.off_t = D - self.D, t - self.t
        self.noise = noise * (maps.Q * (scale**2)[:, None, None]).mean(axis=0)

    # A diverging run overflows to infinity, which is the right result.
    @np.errstate(over="ignore", invalid="ignore")
    def __call__(self, m: Floats, C: Floats) -> tuple[Floats, Floats]:
        added = self.noise
        if self.spread:
            u = self.off_D @ m + self.off_t
            # The mean over workers of off_D C off_D' as one product over stacked rows.
            between = np.tensordot(self.off_D @ C, self.off_D, axes=([0, 2], [0, 2])) + u.T @ u
            added = added + self.spread * between / len(u)
        rates, S, G = self.server
        if S is None or G is None:
            next_m = m + rates * (self.D @ m + self.t)
            next_C = self.P @ C @ self.P.T + rates[:, None] * added * rates
        else:
            next_m = S @ m + G @ (self.D @ m + self.t)
            next_C = self.P @ C @ self.P.T + G @ added @ G.T
        return next_m, (next_C + next_C.T) / 2


class _Recursion:
    """The recursion of a run: the workers' maps, the server's step, and the first mean and covariance of the state."""

    def __init__(
        self, federation: QuadraticFederation, algorithm: Algorithm, local_steps: int, participation: Participation
    ) -> None:
        N, d = federation.num_workers, federation.dim
        participation.check(N)
        self.maps = local_maps(federation, algorithm, count("local_steps", local_steps))
        self.factors = _sampling_factors(participation, N)
        self.scale = N * participation.objective(N)
        size = self.maps[0].T.shape[1]
        self.server = _server(algorithm, d, size)
        self.first = np.zeros(size), np.zeros((size, size))
        self.first[0][:d] = federation.first_model

    def to_next(self) -> _Advance:
        """The step from one round to the next."""
        return _Advance(self.maps[-1], self.server, self.scale, *self.factors)

    def within(self) -> list[_Advance]:
        """The steps from the start of a round to its averaged models after 1, ..., I - 1 local steps."""
        averaged = _Server(np.ones_like(self.server.rates))
        return [_Advance(part, averaged, self.scale, *self.factors) for part in self.maps[:-1]]


def moments(
    federation: QuadraticFederation,
    algorithm: Algorithm,
    *,
    local_steps: int,
    rounds: int,
    participation: Participation = FULL,
    iterations: bool = False,
) -> Iterator[Moments]:
    """Yield mean and covariance of the global model, round by round (or iteration by iteration).

    With ``iterations``, the averaged models x̂^{r,k} come between the rounds: for k < I the average of the
    participants' models after k steps, and for k = I the next global model.
    """
    d = federation.dim
    recursion = _Recursion(federation, algorithm, local_steps, participation)
    to_next, within = recursion.to_next(), recursion.within() if iterations else []
    m, C = recursion.first
    yield Moments(0, 0, m[:d], C[:d, :d])
    for r in range(count("rounds", rounds, most=_MOST_ROUNDS)):
        for k, advance in enumerate(within, start=1):
            mean, covariance = advance(m, C)
            yield Moments(r, k, mean[:d], covariance[:d, :d])
        m, C = to_next(m, C)
        yield Moments(r + 1, 0, m[:d], C[:d, :d])


@dataclass(frozen=True, eq=False)
class States:
    """The whole state z at all rounds of a run: the model, followed by the buffer if workers or server have momentum.

    Attributes:
        maps: the workers' maps after 1, ..., I local steps.
        mean: the mean E z at the start of each round r = 0..R, one row per round.
        covariance: the covariance of z, one matrix per round.
    """

    maps: list[Maps]
    mean: Floats
    covariance: Floats

    def before_steps(self) -> list[Maps]:
        """The workers' maps from the start of a round to the models where they take gradients: after 0..I-1 steps."""
        last = self.maps[-1]
        still = np.broadcast_to(np.eye(last.t.shape[1]), last.T.shape)
        return [Maps(still, np.zeros_like(last.t), np.zeros_like(last.Q)), *self.maps[:-1]]


def states(
    federation: QuadraticFederation,
    algorithm: Algorithm,
    *,
    local_steps: int,
    rounds: int,
    participation: Participation = FULL,
) -> States:
    """Mean and covariance of the state at every round, stacked into arrays.

    >>> from fedgauge import QuadraticFederation, fedavg
    >>> federation = QuadraticFederation([[[1.0]]], [[0.0]], sigma2=1.0, start=[8.0])
    >>> exact = states(federation, fedavg(gamma=0.5), local_steps=1, rounds=2)
    >>> exact.mean.ravel().tolist(), exact.covariance.ravel().tolist()
    ([8.0, 4.0, 2.0], [0.0, 0.25, 0.3125])
    """
    recursion = _Recursion(federation, algorithm, local_steps, participation)
    to_next, path = recursion.to_next(), [recursion.first]
    for _ in range(count("rounds", rounds, most=_MOST_ROUNDS)):
        path.append(to_next(*path[-1]))
    means, covariances = zip(*path, strict=True)
    return States(recursion.maps, np.array(means), np.array(covariances))


@np.errstate(over="ignore", invalid="ignore")
def divergence(federation: QuadraticFederation, run: States, participation: Participation = FULL) -> Floats:
    """The mean divergence sum_i w_i E‖∇F_i(x_i) - ∇f(x_i)‖^2 at the workers' own models x_i^{r,k}; w_i is usually 1/N.

    Rows are the rounds r < R, and columns the local steps k < I. The largest entry is the only zeta^2 that the proofs
    of Theorems 4.3, 4.5, A.5, A.7 and A.9 use. The first column is at the global models, as in Theorem A.2. With
    sampling, a worker that is not drawn counts with the steps that it would have taken.

    >>> from fedgauge import QuadraticFederation, fedavg
    >>> federation = QuadraticFederation([[[1.0]], [[3.0]]], [[0.0], [0.0]], start=[1.0])
    >>> divergence(federation, states(federation, fedavg(gamma=0.5), local_steps=2, rounds=1)).tolist()
    [[1.0, 0.25]]
    """
    A, b, _ = _objective(federation, participation)
    N, d = federation.linear.shape
    # Each worker's difference is scaled by the root of N w_i, so that means over workers are weighted.
    root = np.sqrt(N * participation.objective(N)) if participation.weights is not None else np.ones(N)
    off = root[:, None, None] * (federation.hessians - A)
    shift = root[:, None] * (federation.linear - b)
    m, C = run.mean[:-1], run.covariance[:-1]
    columns = []
    for maps in run.before_steps():
        to_gap = off @ maps.T[:, :d]
        gap = m @ to_gap.reshape(N * d, -1).T + (shift + np.einsum("nij,nj->ni", off, maps.t[:, :d])).ravel()
        weight = np.tensordot(to_gap, to_gap, axes=([0, 1], [0, 1]))
        noise = np.sum(off * (off @ maps.Q[:, :d, :d]))
        columns.append((np.sum(gap * gap, axis=1) + np.sum(C * weight, axis=(1, 2)) + noise) / N)
    return np.stack(columns, axis=1)


def _objective(federation: QuadraticFederation, participation: Participation) -> tuple[Floats, Floats, float]:
    """A, b, c of the weighted objective."""
    if participation.weights is None:
        return federation.mean_hessian, federation.mean_linear, federation.mean_constant
    w = participation.objective(federation.num_workers)
    return np.tensordot(w, federation.hessians, 1), w @ federation.linear, float(w @ federation.constant)


def expect(
    federation: QuadraticFederation,
    algorithm: Algorithm,
    *,
    local_steps: int,
    rounds: int,
    participation: Participation | int = FULL,
    iterations: bool | None = None,
) -> Expectation:
    """Exact E‖∇f‖^2 and E f along a run of FedAvg, FedAvg with momentum on workers or server, or mini-batch SGD.

    Args:
        federation: quadratics with additive noise.
        algorithm: one of :func:`fedavg`, :func:`momentum`, :func:`minibatch`, :func:`fedavgm`, :func:`slowmo`.
        local_steps: the number I of local steps per round.
        rounds: the number R of rounds.
        participation: any sampling and weights; a number M means M draws with replacement.
        iterations: return x̂^t for every iteration instead of x̄^r for every round; the default for momentum, whose
            theorem is about iterations.

    >>> from fedgauge import QuadraticFederation, fedavg
    >>> federation = QuadraticFederation([[[1.0]]], [[0.0]], sigma2=1.0, start=[0.0])
    >>> expect(federation, fedavg(gamma=0.5), local_steps=1, rounds=2).grad2
    (0.0, 0.25, 0.3125)
    """
    if fingerprint(algorithm) is not None:
        raise InputError(
            f"Exact expectations exist for fedgauge's own {algorithm.name}, but this one has other functions;"
            " simulate it instead."
        )
    if iterations is None:
        iterations = algorithm.name == "momentum"
    participation = Participation.of(participation, federation.num_workers)
    A, b, c = _objective(federation, participation)
    gamma = algorithm.parameters["gamma"]
    if gamma > _LARGEST:
        raise InputError(f"gamma must be at most {_LARGEST:g} here, because its square is needed, not {gamma!r}.")
    grad2, loss = [], []
    point: Any = None
    for point in moments(
        federation,
        algorithm,
        local_steps=local_steps,
        rounds=rounds,
        participation=participation,
        iterations=iterations,
    ):
        m, C = point.mean, point.covariance
        with np.errstate(over="ignore", invalid="ignore"):
            gradient = A @ m + b
            grad2.append(float(gradient @ gradient + np.sum((A @ C) * A)))
            loss.append(float(m @ (gradient + b) / 2 + c + np.sum(A * C) / 2))
    return Expectation("iteration" if iterations else "round", tuple(grad2), tuple(loss), point.mean, point.covariance)
