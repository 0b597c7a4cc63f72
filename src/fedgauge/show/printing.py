"""Results as they are printed: one screen of text at most.

To print another kind of result, register its lines here.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedgauge.data.partition import Partition
from fedgauge.measurement.certification import Certified
from fedgauge.measurement.parts import Decomposition, Parts
from fedgauge.measurement.values import Design, Measurement, Reading, WorkerEvaluation
from fedgauge.planning.plan import Plan
from fedgauge.planning.theory_plan import TheoryPlan
from fedgauge.show.terminal import measurements
from fedgauge.simulation.experiment.sweep import SweepResult
from fedgauge.simulation.runs.reader import FoundRun
from fedgauge.theory.answer import Answer
from fedgauge.theory.corollaries import CorollaryRates
from fedgauge.theory.expectation import Expectation
from fedgauge.theory.region import Region
from fedgauge.theory.search import Tuned
from fedgauge.values import Bound, Condition, Constants, Estimate, Number, Trace
from fedgauge.values.display import counted, short

_WIDTH, _HEIGHT = 100, 36
"""The columns and lines of a screen."""


def text(result: Any) -> str:
    """What a result says when it is printed: one screen at most."""
    screen = [part for line in said(result) for part in textwrap.wrap(line, _WIDTH, replace_whitespace=False) or [""]]
    more = len(screen) - _HEIGHT
    return "\n".join([*screen[:_HEIGHT], f"… and {counted(more, 'more line')}"] if more > 0 else screen)


@functools.singledispatch
def said(result: object) -> list[str]:
    """The lines of a printed result."""
    return [repr(result)]


def _columns(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Rows as lines whose columns stand below one another."""
    cells = [
        [short(cell) if isinstance(cell, float) else "–" if cell is None else str(cell) for cell in row] for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _constants_lines(found: Iterable[Estimate]) -> list[str]:
    rows = [(each.symbol, each.value, each.low, each.high, each.kind) for each in found]
    return _columns([("constant", "value", "low", "high", "kind"), *rows])


@said.register
def _(result: Trace) -> list[str]:
    records = result.rounds
    kept = records if len(records) <= 12 else [*records[:3], *records[3 :: max(len(records) // 8, 1)], records[-1]]
    rows = [(r.round, r.loss, r.grad2, r.accuracy) for r in dict.fromkeys(kept)]
    return [
        f"A run of {counted(result.stopped_at, 'round')}: {result.status}.",
        *_columns([("round", "loss f", "|grad f|^2", "accuracy"), *rows]),
    ]


@said.register
def _(result: FoundRun) -> list[str]:
    return [result.path, *said(trace_of(result))]


def trace_of(run: FoundRun) -> Trace:
    """A run that was found on disk as a trace, as far as it is shown."""
    status: Any = run.status  # "unfinished" is none that a trace has, and none that is drawn
    return Trace(run.settings, status, run.stopped_at, run.rounds, np.zeros(0), run.seconds)


@said.register
def _(result: Constants) -> list[str]:
    return _constants_lines(result.values())


@said.register
def _(result: Certified) -> list[str]:
    return [certified_words(result), *_constants_lines(result.constants.values())]


def certified_words(result: Certified) -> str:
    """What is certified, and how near its model is to the minimiser."""
    about = f"Constants of {counted(result.num_workers, 'worker')}, proved from the data."
    near = f"at most {short(result.gap)} above" if np.isfinite(result.gap) else "no known distance above"
    return f"{about} At the model that is kept, f = {short(result.loss)}, {near} its minimum."


@said.register
def _(result: Decomposition) -> list[str]:
    lines = []
    for part in result.parts:
        lines += [parts_words(part), *_columns([("worker", "share"), *parts_rows(part)])]
    return lines


_LARGEST_SHARES = 8


def parts_words(part: Parts) -> str:
    """A constant's square, the block that most of it comes from, and the workers that stand out."""
    most = int(np.argmax(part.by_block))
    block = f", {part.by_block[most]:.0%} of it from {part.blocks[most]}" if len(part.blocks) > 1 else ""
    far = ", ".join(map(str, part.outliers[:_LARGEST_SHARES])) or "none"
    return f"{part.symbol}^2 = {short(part.total)}{block}; workers that stand out: {far}."


def parts_rows(part: Parts) -> list[tuple[str, str]]:
    """The workers with the largest shares."""
    order = np.argsort(-part.by_worker, kind="stable")[:_LARGEST_SHARES]
    return [(str(worker), f"{part.by_worker[worker]:.1%}") for worker in order]


@said.register
def _(result: Tuned) -> list[str]:
    return [tuned_words(result)]


def tuned_words(result: Tuned) -> str:
    """The best rates, and the bound that they give."""
    steps = [f"{name} = {_ranged(value)}" for name, value in (("I", result.I), ("R", result.R)) if value is not None]
    rates = ", ".join([*steps, f"gamma = {_ranged(result.gamma)}", f"eta = {_ranged(result.eta)}"])
    return f"Best: {rates}, where {_bound_words(result.bound)}."


@said.register
def _(result: CorollaryRates) -> list[str]:
    return corollary_words(result)


def corollary_words(result: CorollaryRates) -> list[str]:
    """A corollary's rates, from how many rounds on they are allowed, the bound there, and what fails."""
    rates = f"gamma = {_ranged(result.gamma)}, eta = {_ranged(result.eta)}"
    fewest = f"from R = {_ranged(result.R_min)} on" if np.isfinite(np.max(result.R_min)) else "at no R"
    lines = [f"{result.locator}: {rates}, allowed {fewest}; there, {_bound_words(result.bound)}."]
    if result.rival is not None:
        lines.append(f"Instead, {_bound_words(result.rival)}.")
    failed = [each for each in (*result.conditions, *result.bound.conditions) if not np.all(each.holds)]
    return [*lines, *(f"Not satisfied: {_condition_words(each)}." for each in failed), *result.deviations]


def _bound_words(bound: Bound) -> str:
    return f"{bound.source.locator} says {bound.quantity} <= {_ranged(bound.total)}"


def _condition_words(condition: Condition) -> str:
    return f"{condition.name} = {_ranged(condition.value)} is above {condition.formula} = {_ranged(condition.limit)}"


def _ranged(value: Number) -> str:
    """A number, or the least and the largest of several."""
    low, high = float(np.min(value)), float(np.max(value))
    return short(low) if low == high else f"{short(low)} to {short(high)}"


@said.register
def _(result: Reading) -> list[str]:
    return [f"{result.name}: {result.meaning}", *_constants_lines(result.estimates)]


@said.register
def _(result: Measurement) -> list[str]:
    found = f"Readings: {', '.join(each.name for each in result.readings)}. The constants for a bound:"
    return [measurements.verdict(result), found, *_constants_lines(result.constants.values())]


@said.register
def _(result: Plan | TheoryPlan | Answer) -> list[str]:
    return [result.verdict]


@said.register
def _(result: Bound) -> list[str]:
    rows = [(term.name, float(np.max(term.value)), term.formula) for term in result.terms]
    total = short(float(np.max(result.total)))
    return [f"{result.source.locator}, {result.source.version}: {result.quantity} <= {total}", *_columns(rows)]


@said.register
def _(result: Expectation) -> list[str]:
    last, loss, grad2 = len(result.loss) - 1, result.loss[-1], result.grad2[-1]
    return [f"After {last} of {result.index}: E f = {short(loss)} and E |grad f|^2 = {short(grad2)}, exactly."]


@said.register
def _(result: Region) -> list[str]:
    return [result.summary]


@said.register
def _(result: Partition) -> list[str]:
    sizes = f"{result.sizes.min()} to {result.sizes.max()} examples each, {result.dropped} dropped"
    return [f"{counted(result.num_workers, 'worker')} by the scheme {result.scheme}: {sizes}."]


@said.register
def _(result: WorkerEvaluation) -> list[str]:
    found = result.summary()
    rows = [(what, *(found[name][what] for name in found)) for what in found["loss"]]
    return [f"Over {counted(len(result.losses), 'worker')}:", *_columns([("", *found), *rows])]


@said.register
def _(result: Design) -> list[str]:
    rows = [(each.kind, each.strength, each.zeta_rms, each.efficiency.share) for each in result.federations]
    return [f"Federations of zeta_rms {short(result.zeta)}:", *_columns([("kind", "strength", "zeta_rms", "E"), *rows])]


@said.register
def _(result: SweepResult) -> list[str]:
    rows = []
    for each in result.combinations:
        label = ", ".join(f"{key} = {value}" for key, value in each.values.items()) or "all"
        rows.append((label, each.loss.mean[-1] if each.loss and each.loss.mean else None))
    return [f"Mean over {counted(result.seeds, 'seed')}:", *_columns([("", "last loss f"), *rows])]
