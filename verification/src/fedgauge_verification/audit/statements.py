"""What the library says with constants that may belong to something else: in a report, a plan and a bound."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedgauge.algorithms.cost import Cost
from fedgauge.base.errors import InputError
from fedgauge.show.results.background import background_of
from fedgauge.show.results.reading import read_results
from fedgauge.simulation.experiment.prepare import execute
from fedgauge.simulation.options import Keep
from fedgauge.theory import find
from fedgauge.theory.answer import TheoremAnswer, bound
from fedgauge.theory.arguments import collect
from fedgauge.values import Version
from fedgauge_planning.goal import Goal
from fedgauge_planning.measured_constants import theory_of
from fedgauge_planning.theorem_inputs import planning_theorems
from fedgauge_verification.audit.cases import AuditCase

_MOST_STEPS = {True: 5000, False: 300}
"""Plans with more local steps in all rounds are not run: for quadratics, and for data."""


@dataclass(frozen=True)
class StatedBound:
    """One bound that was stated, and the run that it is about.

    Attributes:
        by: who stated it: report, plan or bound.
        theorem: by which theorem.
        version: in which version.
        standing: what it was said to be worth.
        bound: the number.
        about: the case that it speaks about.
        run: gamma, eta, I and R.
        notes: why constants counted for less.
    """

    by: str
    theorem: str
    version: Version
    standing: str
    bound: float
    about: AuditCase
    run: tuple[float, float, int, int]
    notes: tuple[str, ...] = ()

    def truth(self) -> float:
        """What happens in that run."""
        return self.about.seen(*self.run, find(self.theorem).quantity)


def _statement(
    by: str, answer: TheoremAnswer, about: AuditCase, run: tuple[float, float, int, int], notes: Any
) -> StatedBound:
    found = answer.bound
    return StatedBound(
        by, answer.theorem, found.source.version, answer.standing, float(found.total), about, run, tuple(notes)
    )


def by_report(file: Path, about: AuditCase, settings: tuple[float, int, int], place: Path) -> list[StatedBound]:
    """Run a case, and set the theorem with the constants of a file beside the run."""
    gamma, I, R = settings  # noqa: E741
    changed = about.experiment.changed({"gamma": gamma, "local_steps": I, "rounds": R})
    execute(changed, keep=Keep(place), start=about.start)
    found = background_of(read_results(place, {"measure": file})).comparison
    if found is None:
        return []
    run = (gamma, 1.0, I, R)
    return [_statement("report", answer, about, run, found.notes) for answer in found.answers.values()]


def by_plan(file: Path, about: AuditCase, goal: float) -> list[StatedBound]:
    """Plan an experiment by theory with the constants of a file, to a fraction of its first squared gradient norm."""
    federation, first = about.setup.federation, about.setup.first_model
    workers = np.arange(federation.num_workers)
    gradient = federation.pooled(first, workers, np.full(len(workers), 1 / len(workers)))[1]
    wanted = Goal("grad2", goal * float(gradient.double() @ gradient.double()))
    plan = theory_of(about.experiment, wanted, Cost("given", fixed=1.0, step=0.1), values=file)
    if not _MOST_STEPS[about.experiment.data.is_quadratic] >= plan.R * plan.I:
        return []
    run = (plan.gamma, plan.eta, plan.I, int(plan.R))
    return [_statement("plan", plan.answer, about, run, plan.notes)]


def by_bound(
    file: Path, about: Mapping[tuple[str, str], AuditCase], share: float, counts: tuple[int, int]
) -> list[StatedBound]:
    """Evaluate the theorems about FedAvg with the constants of a file, about whatever F says that it belongs to.

    Args:
        file: the constants.
        about: the cases, by the digests of federation and first model.
        share: gamma as a fraction of the largest that a theorem admits.
        counts: I and R.
    """
    whole = json.loads(file.read_text(encoding="utf-8"))
    entries = whole["constants"]
    scope = entries.get("F", {}).get("scope", {})
    case = about.get((scope.get("federation", ""), scope.get("start", "")))
    if case is None:
        return []
    said, (I, R) = [], counts  # noqa: E741
    for theorem in planning_theorems():
        if theorem.sampling != "full":
            continue
        typed = [f"I={I}", f"N={case.setup.num_workers}", *(() if "R" in entries else (f"R={R}",))]
        try:
            values = collect(theorem, [*typed, "gamma=1"], file).values
            gamma = share * float(theorem.evaluate(**cast(Any, values)).gamma_max)
            if not 0 < gamma < np.inf:
                continue
            found = collect(theorem, [*typed, f"gamma={gamma!r}"], file)
        except InputError:
            continue  # a symbol is missing
        for version in theorem.versions:
            if version != "printed" and all(name in found.values for name in theorem.needed(version)):
                answer = bound(theorem.name, version, found.kinds, (), found.notes, **found.values)
                said.append(_statement("bound", answer, case, (gamma, 1.0, I, R), found.notes))
    return said
