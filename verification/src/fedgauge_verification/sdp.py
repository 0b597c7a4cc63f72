"""The worst case of a round of FedAvg as a semidefinite program, with a certificate that is checked.

By symmetry over workers, the inner products (expectations) of all vectors of a round form two positive semidefinite
matrices whose size does not depend on N: of means over workers, and of deviations from them. Everything that is assumed
is linear in these matrices and in the values of f: f is L_g-smooth, which is the interpolation inequality

    f_p >= f_q + <g_p + g_q, x_p - x_q>/2 + |g_p - g_q|^2/(4 L_g) - L_g |x_p - x_q|^2/4

between any two of the models of a round; the averaged gradients are pseudo-Lipschitz with L_h; the divergence is at
most zeta at every local model; noise is orthogonal to what came before, and its mean over workers has 1/N of its
variance. The largest |grad f(xbar)|^2 of a round that descends by F/R at most bounds the average over R rounds, as the
rounds descend by F/R on average at most and the largest value is concave in the descent.

The dual multipliers prove the value, whatever the solver did: they must be at least 0, make the values of f cancel, and
leave two matrices positive semidefinite. That is checked with rigorous bounds on rounding, and only then is the value
called certified. It is valid for every gamma at which the program is bounded, also beyond the theorems' limits.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import Any, Literal, NamedTuple

import numpy as np

from fedgauge.base.errors import InputError, count, positive
from fedgauge.base.types import Floats
from fedgauge.values import Value

MOST_STEPS = 16
ALL_PAIRS = 4
"""Up to this many local steps, smoothness is used between any two models of a round."""
_UNIT = 2.0**-53
_MARGIN = 1e-7  # by how much the slack matrices are kept away from 0, in units of the problem
_PARTS = 40  # roundings in one entry of a constraint's matrix, generously

Vector = tuple[Floats, Floats]
"""A vector by its coordinates among the means over workers, and among the deviations from them."""
Worth = Literal["certified", "numerical", "no bound"]


@dataclass(frozen=True)
class SdpBound(Value):
    """What the program says at one point.

    Attributes:
        bound: the certified or numerical bound on the average of E|grad f(xbar^r)|^2; infinite where there is none.
        worth: ``certified`` after the check of the dual, ``numerical`` where that failed, otherwise ``no bound``.
        primal: what the solver says is the largest value.
        margin: by how much the slack matrices pass the check, in units of the problem; below 0 where they fail.
    """

    bound: float
    worth: Worth
    primal: float
    margin: float


class ProgramNode(NamedTuple):
    """A model: its place, its gradient of f and the index of its value of f; means first, then deviations."""

    place: Vector
    gradient: Vector
    value: int


class Program(NamedTuple):
    """<mean_j, G> + <apart_j, H> + values_j f <= limit_j, equations last; ``size`` is the vector to be made large."""

    mean: Floats
    apart: Floats
    values: Floats
    limits: Floats
    equations: int
    size: Floats


def _outer(a: Floats, b: Floats) -> Floats:
    return (np.outer(a, b) + np.outer(b, a)) / 2


class _ProgramMaker:
    """Collects the constraints, with the sum of the absolute values of what each entry adds up."""

    def __init__(self, I: int, gamma: float, eta: float) -> None:  # noqa: E741
        self.I = I
        self.means, self.parts = 4 * I - 1, 3 * I - 1
        names = ["g", *(f"{kind}{k}" for k in range(1, I) for kind in "fmp"), *(f"n{k}" for k in range(I)), "end"]
        aparts = [*(f"a{k}" for k in range(I)), *(f"b{k}" for k in range(1, I)), *(f"v{k}" for k in range(I))]
        self.mean = dict(zip(names, np.eye(self.means), strict=True))
        self.apart = dict(zip(aparts, np.eye(self.parts), strict=True))
        self.mean |= {"m0": self.mean["g"]}
        self.rows: list[tuple[Floats, Floats, Floats, float]] = []
        self.sizes: list[tuple[Floats, Floats]] = []
        self.gamma, self.eta = gamma, eta

    def way(self, k: int, rate: float) -> Floats:
        """The mean model after k steps, less the first."""
        return -rate * sum((self.mean[f"m{m}"] + self.mean[f"n{m}"] for m in range(k)), np.zeros(self.means))

    def spread(self, k: int) -> Floats:
        """A local model before step k, less the mean."""
        return -self.gamma * sum((self.apart[f"a{m}"] + self.apart[f"v{m}"] for m in range(k)), np.zeros(self.parts))

    def add(self, pairs: list[tuple[float, Vector, Vector]], values: Floats, limit: float) -> None:
        """Add sum of coefficient <a, b> + values f <= limit."""
        mean, apart = np.zeros((self.means, self.means)), np.zeros((self.parts, self.parts))
        sizes = mean.copy(), apart.copy()
        for factor, one, two in pairs:
            mean += factor * _outer(one[0], two[0])
            apart += factor * _outer(one[1], two[1])
            sizes[0][:] += abs(factor) * _outer(np.abs(one[0]), np.abs(two[0]))
            sizes[1][:] += abs(factor) * _outer(np.abs(one[1]), np.abs(two[1]))
        self.rows.append((mean, apart, values, limit))
        self.sizes.append(sizes)


def _less(a: Vector, b: Vector) -> Vector:
    return a[0] - b[0], a[1] - b[1]


def _sum(a: Vector, b: Vector) -> Vector:
    return a[0] + b[0], a[1] + b[1]


def make_program(
    I: int, gamma: float, eta: float, N: int, L_h: float, zeta2: float, sigma2: float, descent: float,  # noqa: E741
) -> tuple[Program, tuple[Floats, Floats]]:  # fmt: skip
    """Make the program for L_g = 1, and the sizes by which the rounding of each matrix is bounded."""
    made = _ProgramMaker(I, gamma, eta)
    none, still = np.zeros(made.parts), np.zeros(made.means)
    nodes = [ProgramNode((still, none), (made.mean["g"], none), -1)]
    count_values = 2 * I - 1
    for k in range(1, I):
        nodes.append(ProgramNode((made.way(k, gamma), none), (made.mean[f"f{k}"], none), 2 * (k - 1)))
        nodes.append(
            ProgramNode((made.way(k, gamma), made.spread(k)), (made.mean[f"p{k}"], made.apart[f"b{k}"]), 2 * k - 1)
        )
    nodes.append(ProgramNode((made.way(I, gamma * eta), none), (made.mean["end"], none), count_values - 1))

    def unit(at: int, sign: float) -> Floats:
        row = np.zeros(count_values)
        if at >= 0:
            row[at] = sign
        return row

    for at, p in enumerate(nodes):
        for other, q in enumerate(nodes):
            # In long rounds only neighbours, and every model with the first: fewer assumptions prove as much or less.
            near = abs(at - other) <= 2 or 0 in (at, other) or I <= ALL_PAIRS
            if p is q or not near:
                continue
            x, g, both = _less(p.place, q.place), _less(p.gradient, q.gradient), _sum(p.gradient, q.gradient)
            made.add([(0.5, both, x), (0.25, g, g), (-0.25, x, x)], unit(q.value, 1.0) + unit(p.value, -1.0), 0.0)
    free = np.zeros(count_values)
    for k in range(I):
        own = made.apart[f"a{k}"]
        if k == 0:
            made.add([(1.0, (still, own), (still, own))], free, zeta2)
            continue
        off = made.mean[f"m{k}"] - made.mean[f"p{k}"], own - made.apart[f"b{k}"]
        made.add([(1.0, off, off)], free, zeta2)
        error, spread = (made.mean[f"m{k}"] - made.mean[f"f{k}"], none), (still, made.spread(k))
        made.add([(1.0, error, error), (-L_h * L_h, spread, spread)], free, 0.0)
    for k in range(I):
        noise = made.mean[f"n{k}"], none
        made.add([(1.0, noise, noise)], free, sigma2 / N)
    made.add([], -unit(count_values - 1, 1.0), descent)
    inequalities = len(made.rows)
    for k in range(I):
        noise, apart_noise = (made.mean[f"n{k}"], none), (still, made.apart[f"v{k}"])
        made.add([(1.0, apart_noise, apart_noise), (-(N - 1.0), noise, noise)], free, 0.0)
        earlier = ["g", *(f"{kind}{j}" for j in range(1, k + 1) for kind in "fmp"), *(f"n{j}" for j in range(k))]
        for name in earlier:
            made.add([(1.0, noise, (made.mean[name], none))], free, 0.0)
        before = [*(f"a{j}" for j in range(k + 1)), *(f"b{j}" for j in range(1, k + 1)), *(f"v{j}" for j in range(k))]
        for name in before:
            made.add([(1.0, apart_noise, (still, made.apart[name]))], free, 0.0)
    mean, apart, values, limits = (np.array(part) for part in zip(*made.rows, strict=True))
    sizes = np.array([one for one, _ in made.sizes]), np.array([two for _, two in made.sizes])
    target = made.mean["g"]
    return Program(mean, apart, values, limits, len(limits) - inequalities, target), sizes


def _solve(program: Program, margin: float) -> tuple[float, Floats] | None:
    """Return the largest value and the multipliers; None where the solver finds no finite one."""
    try:
        cvxpy: Any = import_module("cvxpy")  # whose names are made when it is imported
        from scipy.sparse import csr_array
    except ImportError:
        raise InputError(
            "The worst case of a round needs cvxpy and clarabel; install fedgauge-verification[sdp]."
        ) from None
    total, split = len(program.limits), len(program.limits) - program.equations
    n, m = program.mean.shape[1], program.apart.shape[1]
    G, H = cvxpy.Variable((n, n), PSD=True), cvxpy.Variable((m, m), PSD=True)
    f = cvxpy.Variable(program.values.shape[1])
    left = csr_array(program.mean.reshape(total, -1)) @ cvxpy.vec(G, order="C")
    left = left + csr_array(program.apart.reshape(total, -1)) @ cvxpy.vec(H, order="C") + program.values @ f
    held = [left[:split] <= program.limits[:split], left[split:] == program.limits[split:]]
    goal = program.size @ G @ program.size + margin * (cvxpy.trace(G) + cvxpy.trace(H))
    problem = cvxpy.Problem(cvxpy.Maximize(goal), held)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an inaccurate solution is found out by the check, and called numerical
            problem.solve(solver="CLARABEL", tol_gap_abs=1e-8, tol_gap_rel=1e-8, tol_feas=1e-9)
    except cvxpy.error.SolverError:
        return None
    if problem.status not in ("optimal", "optimal_inaccurate") or any(one.dual_value is None for one in held):
        return None
    primal = float(program.size @ G.value @ program.size)
    return primal, np.concatenate([np.maximum(held[0].dual_value, 0.0), np.atleast_1d(held[1].dual_value)])


def _is_positive(matrix: Floats, error: float) -> float:
    """Return a number above 0 where every symmetric matrix within ``error`` of this one is positive semidefinite.

    If a Cholesky factorisation of matrix - c runs to its end in floating point, the matrix is positive definite up to
    c: its backward error is at most (n+1) u/(1 - (n+1) u) times the trace (Demmel; Rump 2006).
    """
    n = len(matrix)
    trace = float(np.abs(np.diag(matrix)).sum())
    shift = 2 * (n + 3) * _UNIT * trace + error
    try:
        np.linalg.cholesky(matrix - shift * np.eye(n))
    except np.linalg.LinAlgError:
        return -1.0
    return float(np.linalg.eigvalsh(matrix)[0] - shift)


def check_dual(program: Program, sizes: tuple[Floats, Floats], multipliers: Floats) -> tuple[float, float]:
    """Check multipliers rigorously: return the bound that they prove, rounded up, and a margin, below 0 if they fail.

    The values of f must cancel exactly. What is left of each, exactly, is added to the multiplier of one inequality
    between that model and the first, of which there is one for either sign; so multipliers only grow.
    """
    split = len(program.limits) - program.equations
    used = multipliers.copy()
    if np.any(used[:split] < 0) or not np.all(np.isfinite(used)):
        return math.inf, -1.0
    exact = [Fraction(float(one)) for one in used]
    single = {}
    for row in range(split):
        at = np.flatnonzero(program.values[row])
        if len(at) == 1 and program.limits[row] == 0:
            single[int(at[0]), float(program.values[row, at[0]])] = row
    for value in range(program.values.shape[1]):
        rows = np.flatnonzero(program.values[:, value])
        left = sum((exact[row] * Fraction(float(program.values[row, value])) for row in rows), Fraction(0))
        if left:
            row = single[value, -1.0 if left > 0 else 1.0]
            exact[row] += abs(left)
            used[row] = float(exact[row])
    # Each multiplier is now right to one rounding, and each entry of a matrix to a few.
    weight = np.abs(used)
    terms = len(used) + _PARTS
    margins = []
    for matrices, size, target in (
        (program.mean, sizes[0], np.outer(program.size, program.size)),
        (program.apart, sizes[1], np.zeros(program.apart.shape[1:])),
    ):
        slack = np.tensordot(used, matrices, axes=1) - target
        slack = (slack + slack.T) / 2
        error = 2 * terms * _UNIT * (np.tensordot(weight, size, axes=1) + np.abs(target))
        margins.append(_is_positive(slack, float(np.abs(error).sum(axis=1).max())))
    bound = float(used[:split] @ program.limits[:split])
    bound += 2 * terms * _UNIT * float(weight[:split] @ np.abs(program.limits[:split]))
    return bound, min(margins)


def sdp_bound(
    *, F: float, I: int, R: float, N: int, sigma2: float, zeta2: float,  # noqa: E741
    L_g: float, L_h: float, gamma: float, eta: float = 1.0,
) -> SdpBound:  # fmt: skip
    """Bound the average of E|grad f(xbar^r)|^2 over R rounds of FedAvg by the worst case of a round.

    Args:
        F: f(x0) - f*.
        I: local steps, at most 16.
        R: rounds.
        N: workers.
        sigma2: variance of a stochastic gradient.
        zeta2: squared gradient divergence.
        L_g: smoothness of f.
        L_h: pseudo-Lipschitz constant of the averaged gradients.
        gamma: local rate.
        eta: global rate.

    >>> found = sdp_bound(F=1, I=1, R=100, N=4, sigma2=0, zeta2=1, L_g=1, L_h=1, gamma=1)
    >>> round(found.bound, 5), found.worth  # gradient descent: 2 F L_g/R
    (0.02, 'certified')
    """
    count("I", I, most=MOST_STEPS)
    for name, value in (("L_g", L_g), ("gamma", gamma), ("eta", eta), ("R", R)):
        positive(name, value)
    for name, value in (("F", F), ("sigma2", sigma2), ("zeta2", zeta2), ("L_h", L_h)):
        if not (math.isfinite(value) and value >= 0):
            raise InputError(
                f"{name} must be a finite number of at least 0 for the worst case of a round, not {value!r}."
            )
    # In units of gradients and lengths in which L_g is 1 and the numbers are of one size. Rounding these few numbers up
    # by a few units only weakens what is assumed.
    unit = max(L_g * F / R, sigma2 * gamma * eta * L_g, zeta2 * (gamma * L_h) ** 2) or 1.0
    up = 1 + 8 * _UNIT
    program, sizes = make_program(
        I, gamma * L_g, eta, N, L_h / L_g * up, zeta2 / unit * up, sigma2 / unit * up, L_g * F / (R * unit) * up
    )
    best = SdpBound(math.inf, "no bound", math.inf, -1.0)
    for margin in (_MARGIN, 30 * _MARGIN, 1000 * _MARGIN):
        solved = _solve(program, margin)
        if solved is None:
            continue
        primal, multipliers = solved
        bound, left = check_dual(program, sizes, multipliers)
        if left > 0:
            return SdpBound(bound * unit * up, "certified", primal * unit, left)
        if best.worth == "no bound":
            best = SdpBound(primal * unit, "numerical", primal * unit, left)
    return best
