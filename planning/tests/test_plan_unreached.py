"""A plan whose goal is out of reach: the verdict is saved, and there is nothing to run."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from fedgauge import random_quadratics
from fedgauge.cli import app
from fedgauge_planning.plan_result import Plan


def test_an_unreached_goal_leaves_nothing_to_run_and_every_picture_is_drawn(tmp_path: Path) -> None:
    random_quadratics(4, 3, hessian_spread=0.5, sigma2=1.0).write(tmp_path / "fed.json")
    out = tmp_path / "plan"
    out.mkdir()
    (out / "plan.toml").write_text("left by an earlier plan")
    words = ["plan", str(tmp_path / "fed.json"), "--gamma", "0.1", "--rounds", "5", "--cost", "fixed=1,step=0.01"]
    words += ["--goal", "grad2=1e-12", "--over", "local_steps=1,8,64", "--over", "eta=1", "--jobs", "1"]
    result = CliRunner().invoke(app, [*words, "--out", str(out)])
    assert result.exit_code == 1
    assert "Not reached" in result.output
    assert "run it" not in result.output
    assert not (out / "plan.toml").exists()
    assert (out / "plan.png").exists()
    found = Plan.from_json(json.loads((out / "plan.json").read_text()))
    assert not found.reached
    assert found.race.gradient_steps > 0
    assert min(found.race.entries[0].curve.errors) == min(min(e.curve.errors) for e in found.race.entries)
