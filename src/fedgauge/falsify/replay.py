"""A violation as files and commands, so that anyone can see it again without this search.

A case is a directory with the federation, the values of the bound, and what was found:

    federation.json   what ``fedgauge expect`` and ``fedgauge simulate`` read
    values.json       what ``fedgauge bound`` reads
    case.json         both sides, what to read off the commands' answers, and the commands themselves
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedgauge.falsify.problem import SETTINGS
from fedgauge.falsify.strategies import Case
from fedgauge.federation.quadratic import QuadraticFederation


def federation_of(case: Case) -> QuadraticFederation:
    """The federation of a case, with a constant that makes f* zero where there is one, so that f is f - f*."""
    federation = case.problem.federation
    _, f_star = federation.minimiser()
    constant = None if f_star == -float("inf") else [-f_star] * federation.num_workers
    return QuadraticFederation(federation.hessians, federation.linear, constant, federation.sigma2)


def _quantity(case: Case) -> str:
    """What to read off the answer of the first command."""
    theorem, form = case.theorem, case.check.form
    if theorem.startswith("strongly-convex"):
        if form == "weighted" or (theorem == "strongly-convex" and case.version != "printed"):
            return "the average of loss over r < R with weights q^-(r+1), q = 1 - mu gamma eta I/4 (sharp: /2)"
        return "the last entry of loss (f* is 0)"
    last = "t < R I" if theorem in ("equal-hessians", "quadratic", "momentum") else "r < R"
    if form == "telescoped" or theorem == "momentum":
        return f"the average of grad2 over {last}"
    return f"the least grad2 over {last}"


def commands(case: Case, directory: Path) -> list[str]:
    """The two commands that show the exact side and the bound of a case kept in ``directory``."""
    p, setting, values = case.problem, SETTINGS[case.theorem], case.check.values
    options: dict[str, Any] = {"algorithm": setting.algorithm, "gamma": values["gamma"], "eta": p.eta}
    command = ["fedgauge", "expect", str(directory / "federation.json")]
    if setting.algorithm == "momentum":
        options["beta"] = p.beta
    if setting.algorithm == "fedadam":
        command[1] = "simulate"
        options |= {"tau": p.tau, "beta1": 0.0, "beta2": p.beta2}
    options |= {"local-steps": p.I, "rounds": p.R}
    if setting.sampled:
        options |= {"participants": p.M, "sampling": "with-replacement"}
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    if case.theorem in ("equal-hessians", "quadratic"):
        command.append("--iterations")
    bound = ["fedgauge", "bound", case.theorem, "--version", case.version, "--values", str(directory / "values.json")]
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
    from fedgauge.system.files import write_json

    described: list[dict[str, Any]] = []
    numbers: dict[str, int] = {}
    for case in cases:
        name = f"{case.theorem}-{case.version}"
        numbers[name] = numbers.get(name, 0) + 1
        directory = out / f"{name}-{numbers[name]}"
        directory.mkdir(parents=True, exist_ok=True)
        described.append(describe(case, directory))
        for file, data in (
            ("federation.json", federation_of(case).to_json()),
            ("values.json", dict(case.check.values)),
            ("case.json", described[-1]),
        ):
            write_json(directory / file, data)
    return described
