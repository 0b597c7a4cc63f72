"""Results draw themselves, and show themselves in a notebook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import fedgauge as fg
from fedgauge.exact import region
from fedgauge.values import Estimate

FEDERATION = fg.random_quadratics(4, 3, hessian_spread=0.5, sigma2=0.1, seed=1)
VALUES: dict[str, Any] = {
    "F": 1,
    "I": 4,
    "R": 1000,
    "N": 8,
    "sigma2": 1,
    "zeta2": 1,
    "L_g": 1,
    "L_h": 0.5,
    "gamma": 0.0134,
}
PICTURE = re.compile(r'<img [^>]*src="data:image/png;base64,iVBOR')


def made(kind: str) -> Any:
    algorithm, cost = fg.fedavg(gamma=0.1), fg.Cost("given", fixed=1.0, step=0.01)
    match kind:
        case "trace":
            return fg.simulate(FEDERATION, algorithm, local_steps=2, rounds=5)
        case "expectation":
            return fg.expect(FEDERATION, algorithm, local_steps=2, rounds=5)
        case "measurement":
            options = fg.MeasureOptions(("divergence", "trajectory"), rounds=2, seeds=1)
            return fg.measure(FEDERATION, algorithm, local_steps=2, options=options)
        case "plan":
            over = {"local_steps": [1, 4], "gamma": [0.1], "eta": [1.0]}
            how: Any = {"over": over, "options": fg.PlanOptions(seeds=1, jobs=1)}
            return fg.plan(FEDERATION, algorithm, goal=fg.Goal("grad2", 0.1), cost=cost, **how)
        case "theory plan":
            constants = fg.Constants(
                tuple(Estimate.exact(name, VALUES[name], "given") for name in ("F", "sigma2", "zeta2", "L_g", "L_h"))
            )
            return fg.theory_plan(constants, goal=fg.Goal("grad2", 0.1), cost=cost, num_workers=8)
        case "bound":
            return fg.bound("nonconvex", **VALUES)
    return region.compute(region.make_axis("sigma", points=2), region.make_axis("I", points=2))


@pytest.mark.parametrize("kind", ["trace", "expectation", "measurement", "plan", "theory plan", "bound", "region"])
def test_every_result_draws_itself_and_shows_itself(kind: str, tmp_path: Path) -> None:
    result = made(kind)
    figure = result.plot(tmp_path / "picture.svg")
    assert figure.axes
    assert (tmp_path / "picture.svg").read_text().startswith("<?xml")
    assert PICTURE.search(result._repr_html_())
    with pytest.raises(fg.InputError, match=r"must end in \.png"):
        result.plot(tmp_path / "picture.doc")


def test_what_a_notebook_shows_is_escaped_and_says_the_numbers() -> None:
    constants = fg.Constants((Estimate.exact("L_h", 0.5, "<script>"),))
    shown = constants._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    assert "0.5" in shown
    verdict = fg.bound("nonconvex", **VALUES)
    assert verdict.verdict.split(";")[0] in verdict._repr_html_()
