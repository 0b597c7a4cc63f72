"""The whole search: all theorems and versions, in several processes, with the results counted and summed up."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from fedgauge.base.errors import InputError, count, nearest
from fedgauge.base.randomness import check_seed
from fedgauge.simulation.options import Compute
from fedgauge.theory import THEOREMS, find
from fedgauge.values import Value, Version
from fedgauge_planning.jobs import make_pool
from fedgauge_verification.check import FORMS
from fedgauge_verification.piecewise import covers
from fedgauge_verification.strategies import Case, SearchFindings, climb, replayable, sample, sample_piecewise

CHUNK = 125
"""Samples in one piece of work."""

PER_PIECEWISE = 10
"""Random quadratics for each problem without quadratics, whose outcomes are followed one by one."""

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class Piece(NamedTuple):
    """A piece of work: some random samples, of quadratics or of others, or one directed search."""

    way: Literal["random", "directed", "piecewise"]
    theorem: str
    version: Version
    seed: int
    first: int
    number: int
    keep: int


@dataclass(frozen=True)
class Row(Value):
    """What was found about one form of one version of a theorem.

    Attributes:
        theorem: its name.
        version: which version.
        form: which form; see :mod:`fedgauge_verification.check`.
        checks: random problems on which the form was tried.
        vacuous: random problems for which the version admits no gamma.
        monte_carlo: how many of the checks compared with a simulated mean.
        violations: how many of the checks the bound failed.
        smallest: the least bound/exact among them; below 1 where one failed.
        median: the median of bound/exact.
        directed: problems that directed searches ended at.
        directed_violations: how many of those the bound failed.
        directed_smallest: the least bound/exact that they reached.
    """

    theorem: str
    version: Version
    form: str
    checks: int
    vacuous: int
    monte_carlo: int
    violations: int
    smallest: float | None
    median: float | None
    directed: int
    directed_violations: int
    directed_smallest: float | None


@dataclass(frozen=True)
class Outcome:
    """The answer of a search: one row per form, the worst cases, and whether the search was completed."""

    rows: tuple[Row, ...]
    cases: tuple[Case, ...]
    settings: Mapping[str, Any]
    seconds: float
    complete: bool


def _work(piece: Piece) -> SearchFindings:
    # Processes start with the theorems of the package; a theorem registered here is searched with one job.
    theorem = find(piece.theorem)
    if piece.way == "directed":
        return climb(theorem, piece.version, piece.seed, piece.first)
    if piece.way == "piecewise":
        return sample_piecewise(theorem, piece.version, piece.seed, piece.first, piece.number, piece.keep)
    return sample(theorem, piece.version, piece.seed, piece.first, piece.number, piece.keep)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let processes that start meanwhile use one thread each: the matrices are small and the cores are taken."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def pairs(theorem: str | None = None, version: str | None = None) -> list[tuple[str, Version]]:
    """Return the theorems and versions that a request names; all of them where it names none.

    >>> pairs("quadratic")
    [('quadratic', 'printed'), ('quadratic', 'corrected'), ('quadratic', 'sharp'), ('quadratic', 'prior')]
    """
    chosen = [find(theorem)] if theorem is not None else list(THEOREMS.values())
    found = [(one.name, each) for one in chosen for each in one.versions if version in (None, each)]
    if not found:
        there = list(dict.fromkeys(each for one in chosen for each in one.versions))
        whose = f"{theorem} has" if theorem else "There is"
        raise InputError(f"{whose} no version {version!r}; {nearest(str(version), there)}")
    return found


def run(
    theorem: str | None = None,
    version: str | None = None,
    *,
    samples: int = 2500,
    searches: int = 6,
    seed: int = 0,
    keep: int = 5,
    jobs: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Outcome:
    """Try to break the theorems: on quadratic federations, and those about smooth objectives on others too.

    Args:
        theorem: which one; all if not given.
        version: which version; all of them if not given.
        samples: random quadratics for each, and a tenth as many problems without quadratics.
        searches: directed searches for each; the first starts from the theorem's named family, where it has one.
        seed: the seed of everything; the answer does not depend on ``jobs``.
        keep: how many violating cases of each version are kept.
        jobs: processes; one per core if not given.
        progress: called with the number of problems done and their total.

    Returns:
        What was found; an interrupted search returns what it had found until then.

    >>> outcome = run("minibatch", "corrected", samples=20, searches=0, jobs=1)
    >>> [(row.form, row.violations) for row in outcome.rows]
    [('stated', 0), ('telescoped', 0)]
    """
    wanted = pairs(theorem, version)
    count("samples", samples, most=10**7)
    count("searches", searches, least=0, most=10**7)
    count("keep", keep, least=0)
    check_seed(seed)
    jobs = count("jobs", jobs if jobs is not None else os.cpu_count() or 1)
    # Long pieces first, so that no process is left with one at the end.
    pieces = [Piece("directed", *pair, seed, start, CHUNK, keep) for start in range(searches) for pair in wanted]
    pieces += [
        Piece("random", *pair, seed, first, min(CHUNK, samples - first), keep)
        for first in range(0, samples, CHUNK)
        for pair in wanted
    ]
    others = -(-samples // PER_PIECEWISE)
    pieces += [
        Piece("piecewise", *pair, seed, first, min(CHUNK // PER_PIECEWISE, others - first), keep)
        for first in range(0, others, CHUNK // PER_PIECEWISE)
        for pair in wanted
        if covers(find(pair[0]))
    ]
    total, done, began = sum(piece.number for piece in pieces), 0, time.perf_counter()
    results: dict[Piece, SearchFindings] = {}
    progress(0, total)
    try:
        with _one_thread_each(), make_pool(Compute(processes=jobs)) as pool:
            for piece, findings in pool.map(_work, {piece: (piece,) for piece in pieces}):
                results[piece] = findings
                done += piece.number
                progress(done, total)
    except KeyboardInterrupt:
        pass
    settings = {"theorem": theorem, "version": version, "samples": samples, "searches": searches, "seed": seed}
    rows, cases = _sum_up(wanted, [(piece, results[piece]) for piece in pieces if piece in results], keep)
    return Outcome(rows, cases, settings, time.perf_counter() - began, done == total)


def _sum_up(
    wanted: list[tuple[str, Version]], results: Iterable[tuple[Piece, SearchFindings]], keep: int
) -> tuple[tuple[Row, ...], tuple[Case, ...]]:
    """Merge in the order of the pieces, not in that in which they were done."""
    found = {(way, *pair): SearchFindings(*pair) for way in ("random", "directed", "piecewise") for pair in wanted}
    for piece, findings in results:
        found[piece.way, piece.theorem, piece.version].merge(findings, keep)
    rows: list[Row] = []
    cases: list[Case] = []
    for pair in wanted:
        drawn, climbed = found["random", *pair], found["directed", *pair]
        vacuous = drawn.vacuous
        drawn.merge(found["piecewise", *pair], keep)
        drawn.vacuous = vacuous
        seen = {*drawn.forms, *climbed.forms} or {"stated"}
        rows += [_row(form, drawn, climbed) for form in FORMS if form in seen]
        both = SearchFindings(*pair)
        both.merge(climbed, keep)
        both.merge(drawn, keep)
        cases += filter(replayable, both.cases)
    return tuple(rows), tuple(cases)


def _row(form: str, drawn: SearchFindings, climbed: SearchFindings) -> Row:
    random, directed = drawn.forms.get(form), climbed.forms.get(form)
    return Row(
        drawn.theorem,
        drawn.version,
        form,
        checks=len(random.slacks) if random else 0,
        vacuous=drawn.vacuous,
        monte_carlo=random.monte_carlo if random else 0,
        violations=random.violations if random else 0,
        smallest=min(random.slacks) if random else None,
        median=float(np.median(random.slacks)) if random else None,
        directed=len(directed.slacks) if directed else 0,
        directed_violations=directed.violations if directed else 0,
        directed_smallest=min(directed.slacks) if directed else None,
    )
