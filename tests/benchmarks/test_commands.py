"""Every command under benchmarks, with a setting so small that its figures mean nothing.

A command's constants are replaced while it runs here. Programs that a command starts itself do not see that, so these
commands have options that make them small.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = {
    path.relative_to(ROOT): ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted(ROOT.rglob("*.py"))
    if 'if __name__ == "__main__"' in path.read_text() and path.parent.name != "contestants"
}
Command = Callable[..., str]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: Captured) -> Command:
    """Runs a script's ``main`` with options and other constants, and returns what it prints."""

    def run(name: str, options: str, **constants: Any) -> str:
        module = importlib.import_module(name)
        for constant, value in constants.items():
            monkeypatch.setattr(module, constant, value)
        monkeypatch.setattr(sys, "argv", [str(module.__file__), *options.split()])
        module.main()
        return capfd.readouterr().out

    return run


@pytest.mark.parametrize("path", SCRIPTS, ids=str)
def test_help_names_the_command_and_every_option(
    path: Path, command: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command(SCRIPTS[path], "--help")
    assert not ended.value.code
    said = capfd.readouterr().out
    (usage, rest) = said.split("\n\n", 1)
    examples = [line for line in rest.splitlines() if line.startswith(f"    python benchmarks/{path}")]
    assert examples, f"{path} does not say how it is called."
    known = set(re.findall(r"--[a-z-]+", usage))
    assert set(re.findall(r"--[a-z-]+", " ".join(examples))) <= known


def test_every_command_is_run_here_or_beside() -> None:
    here = Path(__file__)
    text = "".join(path.read_text() for path in (here, here.with_name("test_peers.py")))
    unrun = {name for name in SCRIPTS.values() if f'command("{name}", ' not in text and name != "peers.run"}
    assert not unrun


def digits(**options: Any) -> dict[str, Any]:
    return {"source": "digits", "gamma": 0.1, "workers": 3, **options}


def test_answer_and_regret_and_tasks(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from live_runs import Case

    one, other = (Case(digits(**scheme), steps=64) for scheme in ({"scheme": "iid"}, {"scheme": "shards", "shards": 3}))
    cases = {"developed": {"digits a": one}, "fresh": {"digits b": other}}
    runs, small = tmp_path / "runs", {"FIXED": (1, 16), "COSTS": (10.0,)}
    command("regret", f"--out {runs} --set developed", SETS=cases, **small)
    command("regret", f"--out {runs} --set fresh", SETS=cases, **small)
    command("regret", f"--out {runs} --score {tmp_path}", SETS=cases, **small)
    found = json.loads((tmp_path / "regret.json").read_text())
    assert [row["cost"] for row in found["sets"]["fresh"]["rows"]] == [10.0]
    monkeypatch.setattr("answer.FRESH", {})  # its goals and times are in the results, not in these runs
    command("local_steps.tasks", f"--runs {runs} --out {tmp_path}")
    (task,) = json.loads((tmp_path / "tasks-1.json").read_text())
    assert (task["name"], task["track"], list(task["best"])) == ("digits b", "during", ["10"])
    command("answer", f"--out {runs}", CASES=cases, COSTS=(10.0,))
    command("answer", f"--out {runs} --score {tmp_path}", CASES=cases, COSTS=(10.0,))
    found = json.loads((tmp_path / "answer.json").read_text())
    assert {"gauge", "one epoch", "always 16", "QSR"} == set(found["sets"]["fresh"]["summary"])


def test_live(command: Command, tmp_path: Path) -> None:
    from live_runs import Case

    cases = {"digits a": Case(digits(scheme="iid"), steps=128, candidates=(1, 4), block=8, seeds=1)}
    runs = tmp_path / "runs"
    command("live_runs", f"--data {tmp_path} --out {runs}", CASES=cases)
    command("live", f"--runs {runs} --out {tmp_path}", SETS={"fresh": cases, "developed": {}})
    found = json.loads((tmp_path / "numbers.json").read_text())
    assert found["sets"]["fresh, whole run"]["summary"]["predictions"] == 1


def test_live_outer(command: Command, tmp_path: Path) -> None:
    from live_outer import CHANGES
    from live_runs import Case

    experiment = digits(algorithm="diloco", gamma=0.001)
    cases = {"a": Case(experiment, steps=128, candidates=(2, 8), block=16, seeds=1)}
    small = {"CASES": cases, "SEEDS": (3,), "CHANGES": {name: CHANGES[name] for name in ("live", "scaled")}}
    command("live_outer", f"--out {tmp_path / 'runs'}", **small)
    said = command("live_outer", f"--out {tmp_path / 'runs'} --score {tmp_path}", **small)
    assert len(json.loads((tmp_path / "outer.json").read_text())["rows"]) == 8
    assert json.loads(said) is not None


def test_auto(command: Command, tmp_path: Path) -> None:
    small = {"GRID": (1, 8), "GAMMAS": (0.05,), "ROUNDS": 400}
    rows = json.loads(command("auto", f"--out {tmp_path} --only quadratic-equal --json", **small))
    assert [row["cell"] for row in rows] == ["quadratic-equal"] * 3
    assert "within 1.10" in command("auto", f"--out {tmp_path} --only quadratic-equal", **small)


def test_gauge(command: Command, tmp_path: Path) -> None:
    from gauge import Ways

    ways = Ways({"digits, few": digits(scheme="iid")}, steps=100, seeds=(0,), gauged=(0,), tried=(4, 16))
    said = command("gauge", f"--out {tmp_path}", SETS={"developed": ways}, LOCAL_STEPS=(4, 16))
    assert "digits, few" in said
    (cell,) = json.loads((tmp_path / "result.json").read_text())["developed"]["cells"]
    known = {"developed": {"cells": [cell]}}
    (tmp_path / "known.json").write_text(json.dumps(known))
    command("gauge", f"--out {tmp_path} --truth {tmp_path / 'known.json'}", SETS={"developed": ways})
    assert json.loads((tmp_path / "result.json").read_text())["developed"]["cells"] == [cell]


def test_gauge_cifar_scores_its_kept_parts(command: Command, tmp_path: Path) -> None:
    """Without CIFAR-10, from the parts that are published."""
    kept = json.loads((ROOT.parent / "docs" / "results" / "gauge" / "numbers.json").read_text())["short, CIFAR-10"]
    for cell in kept["cells"]:
        for found in cell["gauge"]:
            (tmp_path / f"{cell['federation'].replace(' ', '-')}-5.json").write_text(json.dumps(found))
    command("gauge_cifar", f"--data {tmp_path} --out {tmp_path}")
    found = json.loads((tmp_path / "result.json").read_text())["summary"]
    assert found == pytest.approx(kept["summary"])


def test_gauge_intervals(command: Command) -> None:
    few = {"few": ({"hessian_spread": 0.3, "sigma2": 0.05, "seed": 1}, 0.03)}
    found = json.loads(command("gauge_intervals", "--seeds 1 --json", FEDERATIONS=few, STEPS=200, LOCAL_STEPS=(4, 16)))
    assert [row["I"] for row in found["rows"]] == [4, 16]


def test_gauge_weighted(command: Command, tmp_path: Path) -> None:
    small = {"SETS": {"fresh": [200]}, "STEPS": 60, "LOCAL_STEPS": (4,)}
    command("gauge_weighted", f"--set fresh --out {tmp_path}", **small)
    assert json.loads((tmp_path / "weighted-fresh.json").read_text())["intervals"] <= 2


def test_language_and_its_scores(command: Command, tmp_path: Path) -> None:
    from language import every

    names = [line.split()[1] for line in command("language", f"--out {tmp_path} --list --only role-m4").splitlines()]
    assert names == [cell.name for cell in every() if "role-m4" in cell.name]
    place = tmp_path / "tinyshakespeare"
    place.mkdir()
    speeches = [
        f"ROLE {role}:\n" + f"The words of {role} are said once more. " * 20 for role in range(8) for _ in range(9)
    ]
    (place / "input.txt").write_text("\n\n".join(speeches))
    small = {
        "STEPS": 64,
        "CONTEXT": 8,
        "MODEL": {"width": 8, "layers": 1, "heads": 1},
        "EVALUATED": 16,
        "WATCHED": (32,),
    }
    for steps in (1, 4, 16):
        command("language", f"--data {tmp_path} --out {tmp_path} --only role-m4-mean-h{steps}-s0 --most 1", **small)
    command("language_scores", f"--runs {tmp_path} --out {tmp_path}", STEPS=64)
    found = json.loads((tmp_path / "numbers.json").read_text())
    assert [row["cell"] for row in found["rows"]] == ["role-m4-mean-h4-s0", "role-m4-mean-h16-s0"]


def test_optimiser_state(command: Command, tmp_path: Path) -> None:
    from optimiser_state import OPTIMISERS

    kept = {name: OPTIMISERS[name] for name in ("adamw, kept",)}
    small = {"STEPS": 8, "LOCAL_STEPS": (4,), "OPTIMISERS": kept, "DATA": {"iid": {"scheme": "iid"}}}
    said = command("optimiser_state", f"--seeds 1 --json {tmp_path / 'all.json'}", **small)
    assert "| adamw, kept |" in said
    assert len(json.loads((tmp_path / "all.json").read_text())) == 6


def test_own(command: Command) -> None:
    said = command("own", "--turns 2 --only lstm --threads 1 --json", SAMPLES=20, STEPS=1)
    assert set(json.loads(said)["results"]["lstm"]["ratios"]["medians"]) == {"one", "two", "watched"}


def test_passes(command: Command) -> None:
    said = command("passes", "--turns 2 --json", WORKLOADS={"few": (2, 40)})
    assert [row["pass"] for row in json.loads(said)["results"][0]["rows"]] == [
        "pooled", "gradients", "Hessian", "pooled Hessian",
    ]  # fmt: skip


def test_quadratic(command: Command) -> None:
    assert len(json.loads(command("quadratic", "--turns 1 --json", ROUNDS=2))["rows"]) == 6


def test_rounds(command: Command) -> None:
    from rounds import WORKLOADS

    mlp, _, cnn, _ = (replace(work, num_workers=5, samples=20, participants=5, local_steps=1) for work in WORKLOADS)
    small = {"WORKLOADS": (mlp, replace(cnn, num_workers=2, participants=1)), "BATCH": 4, "THREADS": 1}
    found = json.loads(command("rounds", "--turns 2 --json", **small))["results"]
    assert [result["workload"] for result in found] == ["mlp", "cnn"]


def test_theory(command: Command) -> None:
    from theory import RATES, STEPS

    found = json.loads(command("theory", "--turns 1 --json", STEPS=STEPS[:20], RATES=RATES[:, :20]))
    assert found["points"] == 400


def test_plans(command: Command, tmp_path: Path) -> None:
    from plans.federations import CASES, COSTS

    case = replace(CASES["quad-equal"], gammas=(0.06, 0.18, 0.54), steps=(4, 16), seeds=1, narrow=True)
    options = f"--out {tmp_path} --only quad-equal --jobs 1"
    small = {"CASES": {case.name: case}, "COSTS": {"near": COSTS["near"]}}
    assert [row["cost"] for row in json.loads(command("plans.run", f"{options} --json", **small))["rows"]] == ["near"]
    assert command("plans.run", f"{options} --markdown", **small).count("| quad-equal |") == 1


def test_engines(command: Command) -> None:
    (row,) = json.loads(command("engines", "--only tiny --turns 1 --local --json"))["rows"]
    assert row["same"]


def test_measuring(command: Command) -> None:
    (row,) = json.loads(command("measuring", "--workers 2 --only divergence --json"))
    assert row["megabytes"] > 0


def test_memory(command: Command) -> None:
    said = command("memory", "--workers 2 --parameters 0.001 --only simulate")
    assert [line.split()[0] for line in said.splitlines()] == ["federation", "simulate"]


def test_scale(command: Command) -> None:
    found = json.loads(command("scale", "--turns 2 --workers 1000 --json"))
    assert found["rows"][0]["time_over_first"] == 1.0


def test_runs(command: Command) -> None:
    assert len(command("runs", "--records 20 --runs 1 --times 1").splitlines()) == 4


def test_size(command: Command) -> None:
    found = json.loads(command("size", "--json"))
    assert found["a call passes through"]["simulate"]["files"] > 10


def test_probe(command: Command) -> None:
    assert "A measured round takes" in command("probe", "--steps 1 --rounds 2 --models mlp")


def test_flower(command: Command) -> None:
    (row,) = json.loads(command("flower", "--parameters 1000 --workers 2 --rounds 2 --how forked --json"))["rows"]
    assert row["flower"] > 0


def test_local_steps(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from local_steps.tasks import Task

    few = [Task(track, track, digits(scheme="iid"), 64, 2.0, {"10": 40.0}) for track in ("before", "during")]
    (tmp_path / "mine.py").write_text("def rule(setup, cost, steps):\n    return 4 if cost < 100 else 16\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    said = command("local_steps.run", "--rule mine:rule --out runs", tasks=lambda: few)
    assert said.count("| mine:rule | 1 |") == 2
    found = json.loads((tmp_path / "runs" / "version-1" / "before" / "before-10.json").read_text())
    assert found["chosen"] == 4
    assert "mine:rule" not in command("local_steps.run", "")


def test_the_tables_of_pages(command: Command) -> None:
    """What they say is compared with the pages by tests/docs/test_result_pages.py."""
    assert command("gauge_page", "").count("| median error of the slowdown |") == 2
    assert command("plans.page", "").count("| quad-equal |") == 3
