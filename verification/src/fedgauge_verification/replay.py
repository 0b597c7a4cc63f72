"""A violation as files and commands, so that anyone can reproduce it without this search.

A case is a directory with the federation, the values of the bound, and what was found:

    federation.json   what ``fedgauge theory expect`` and ``fedgauge simulate`` read
    values.json       what ``fedgauge theory bound`` reads
    case.json         both sides, what to read off the commands' answers, and the commands themselves
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.theory import find
from fedgauge_verification.check import contraction_factor
from fedgauge_verification.exact import parameters
from fedgauge_verification.problem import QuadraticProblem, is_simulated
from fedgauge_verification.strategies import Case


def _quadratics(case: Case) -> QuadraticProblem:
    assert isinstance(case.problem, QuadraticProblem), "only quadratics can be replayed by commands"
    return case.problem


def federation_of(case: Case) -> QuadraticFederation:
    """The federation of a case, with a constant that makes f* zero where there is one, so that f is f - f*."""
    federation = _quadratics(case).federation
    _, f_star = federation.minimiser()
    constant = None if f_star == -float("inf") else [-f_star] * federation.num_workers
    return QuadraticFederation(federation.hessians, federation.linear, constant, federation.sigma2)


def _quantity(case: Case) -> str:
    """What to read off the answer of the first command."""
    form, quantity = case.check.form, find(case.theorem).quantity_of(case.version)
    if quantity.measure == "loss":
        if form == "weighted" or quantity.taken == "weighted average":
            q = contraction_factor(find(case.theorem), case.version, case.check.values)
            return f"the average of loss over r < R with weights q^-(r+1), q = {q!r}"
        whole = {"last": "the last entry of loss", "least": "the least loss over r < R"}
        return f"{whole.get(quantity.taken, 'the average of loss over r < R')} (f* is 0)"
    last = "t < R I" if quantity.models == "local steps" else "r < R"
    if form == "telescoped" or quantity.taken == "average":
        return f"the average of grad2 over {last}"
    return f"the least grad2 over {last}"


def commands(case: Case, directory: Path) -> list[str]:
    """The two commands that show the exact side and the bound of a case kept in ``directory``."""
    p, theorem, values = _quadratics(case), find(case.theorem), case.check.values
    options: dict[str, Any] = {"algorithm": theorem.algorithm, **parameters(p, theorem, values["gamma"])}
    command = [
        "fedgauge",
        *(["simulate"] if is_simulated(theorem) else ["theory", "expect"]),
        str(directory / "federation.json"),
    ]
    options |= {"local-steps": p.I, "rounds": p.R}
    if theorem.sampling != "full":
        options |= {"participants": p.M, "sampling": theorem.sampling}
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    if theorem.quantity.models == "local steps":
        command.append("--iterations")
    bound = [
        "fedgauge",
        "theory",
        "bound",
        case.theorem,
        "--theorem-version",
        case.version,
        "--values",
        str(directory / "values.json"),
    ]
    return [shlex.join([*command, "--json"]), shlex.join([*bound, "--json"])]


def describe(case: Case, directory: Path) -> dict[str, Any]:
    """What ``case.json`` holds."""
    return {
        "theorem": case.theorem,
        "version": case.version,
        "form": case.check.form,
        "found": case.origin,
        "exact": case.check.exact,
        "exact_is": _quantity(case),
        "bound": case.check.bound,
        "commands": commands(case, directory),
    }


def save(cases: Iterable[Case], out: Path) -> list[dict[str, Any]]:
    """Write each case to a directory of its own under ``out`` and return the descriptions."""
    from fedgauge.base.files import make_directories, write_json

    described: list[dict[str, Any]] = []
    numbers: dict[str, int] = {}
    for case in cases:
        name = f"{case.theorem}-{case.version}"
        numbers[name] = numbers.get(name, 0) + 1
        directory = out / f"{name}-{numbers[name]}"
        make_directories(directory)
        described.append(describe(case, directory))
        for file, data in (
            ("federation.json", federation_of(case).to_json()),
            ("values.json", dict(case.check.values)),
            ("case.json", described[-1]),
        ):
            write_json(directory / file, data)
    return described
