"""Results draw themselves, and show themselves in a notebook."""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch
from IPython.core.formatters import DisplayFormatter
from tests.report.made import experiment as made_experiment
from torch import nn
from torch.nn import functional

import fedgauge as fg
import fedgauge_inspection as fi
import fedgauge_planning as fp
import fedgauge_verification as fv
from fedgauge.base.symbols import SYMBOLS
from fedgauge.data.partition import Partition
from fedgauge.data.shifts import Shifted
from fedgauge.measurement.parts import Decomposition
from fedgauge.theory.corollaries import CorollaryRates
from fedgauge.theory.search import Tuned
from fedgauge.values import Estimate
from fedgauge.values.answer import StepEfficiency
from fedgauge.values.display import Displayed
from fedgauge_explorer import region
from fedgauge_planning.sweep import Combination, SeedCurve, SweepResult
from fedgauge_wang2024.design_result import Design, Designed

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
            how: Any = {"over": over, "options": fp.PlanOptions(seeds=1, jobs=1)}
            return fp.plan(FEDERATION, algorithm, goal=fp.Goal("grad2", 0.1), cost=cost, **how)
        case "theory plan":
            constants = fg.Constants(
                tuple(Estimate.exact(name, VALUES[name], "given") for name in ("F", "sigma2", "zeta2", "L_g", "L_h"))
            )
            return fp.theory_plan(constants, goal=fp.Goal("grad2", 0.1), cost=cost, num_workers=8)
        case "bound":
            return fg.bound("nonconvex", **VALUES)
        case "gauge":
            return fg.gauge(FEDERATION, algorithm, rounds=30, options=fg.GaugeOptions(local_steps=(4, 16)))
        case "reading":
            return made("measurement").readings[0]
        case "constants":
            return made("measurement").constants
        case "a theorem's bound":
            return made("bound").bound
        case "infinite bound":
            return fg.bound("nonconvex", **{**VALUES, "gamma": 10.0, "I": 100})
        case "diverged run":
            return fg.simulate(FEDERATION, fg.fedavg(gamma=1e3), local_steps=9, rounds=80)
        case "partition":
            return Partition("iid", {}, 0, 5, np.array([2, 2]), np.array([0, 3, 1, 4]))
        case "workers":
            return fg.evaluate_workers(FEDERATION, FEDERATION.start(0))
        case "design":
            each = Designed("labels", 0.5, 1.0, True, 1.0, 1.1, 0.2, None, None, StepEfficiency(4, 0.8, 0.7, 0.9), {})
            return Design({"along": "common"}, 1.0, 0.1, 4, (each,))
        case "certified":
            return fv.certify(softmax_regression())
        case "decomposition":
            with fg.Meter(FEDERATION) as meter:
                return fg.decompose(meter, FEDERATION.start(0))
        case "best rate":
            return fg.best_gamma("nonconvex", **{name: value for name, value in VALUES.items() if name != "gamma"})
        case "best local steps":
            known = {name: value for name, value in VALUES.items() if name not in ("gamma", "I", "R")}
            return fg.best_local_steps("nonconvex", budget=1000, communication=10, **known)
        case "corollary":
            return fg.corollary_rates("4.4", F=1, I=4, R=200, N=8, sigma2=1, zeta2=1, L_g=1, L_h=0.5)
        case "sweep that was run":
            place = Path(tempfile.mkdtemp())
            FEDERATION.write(place / "federation.json")
            base = fg.Experiment.of({"source": str(place / "federation.json"), "gamma": 0.1, "rounds": 5})
            return fp.run_sweep(fp.Sweep(base, {"local_steps": [1, 4]}), place / "runs", jobs=1, report=None)
        case "sweep":
            curve = SeedCurve((2.0, 1.0), (0.1, 0.2))
            each_ = Combination({"local_steps": 4}, 0, (0, 1), 1.0, curve, None, ())
            return SweepResult(made_experiment().to_json(), {"local_steps": (4,)}, 2, (each_,), "fedgauge runs sweep")
        case "answer":
            entries = (fg.StepEfficiency(1, 1, 1, 1, False), fg.StepEfficiency(16, 0.8, 0.7, 0.9))
            return fg.Answer(entries, "synchronous training", cost=10.0, using=4)
        case "inspection":
            weight = torch.zeros(3)
            return fi.inspect_models({"w": weight}, [{"w": weight + 1}, {"w": weight + torch.arange(3.0)}])
        case "probe":
            probe = fg.Probe(lambda model, batch: model(batch).square().mean(), [torch.eye(2)], start=nn.Linear(2, 1))
            local = nn.Linear(2, 1)
            probe.before(local)
            probe.after(local)
            return probe.summary()
        case "found run":
            place = Path(tempfile.mkdtemp()) / "run"
            fg.simulate(FEDERATION, algorithm, local_steps=2, rounds=3, keep=place)
            return fg.read_run(place)
    return region.compute(region.make_axis("sigma", points=2), region.make_axis("I", points=2))


def softmax_regression() -> fg.SupervisedFederation:
    x, y, shards = torch.eye(4), torch.tensor([0, 1, 1, 0]), [[0, 1], [2, 3]]
    return fg.SupervisedFederation(lambda: nn.Linear(4, 2), functional.cross_entropy, x, y, shards, l2=0.1)


KINDS: dict[str, type] = {
    "trace": fg.Trace,
    "diverged run": fg.Trace,
    "expectation": fg.Expectation,
    "measurement": fg.Measurement,
    "reading": fg.Reading,
    "constants": fg.Constants,
    "gauge": fg.GaugeResult,
    "plan": fp.Plan,
    "theory plan": fp.TheoryPlan,
    "bound": fg.TheoremAnswer,
    "infinite bound": fg.TheoremAnswer,
    "a theorem's bound": fg.Bound,
    "partition": fg.Partition,
    "workers": fg.WorkerEvaluation,
    "design": Design,
    "sweep": SweepResult,
    "sweep that was run": SweepResult,
    "certified": fv.Certified,
    "decomposition": Decomposition,
    "best rate": Tuned,
    "best local steps": Tuned,
    "corollary": CorollaryRates,
    "answer": fg.Answer,
    "inspection": fi.Inspection,
    "probe": fg.ProbeResult,
    "found run": fg.FoundRun,
    "region": region.Region,
}
"""How a test makes each kind of result, and its class."""


PACKAGES = (fg, fi, fp, fv)


def public_things() -> list[Any]:
    """Everything that these packages make public."""
    return [getattr(package, name) for package in PACKAGES for name in package.__all__]


def test_every_public_result_is_among_them() -> None:
    public = {kind for kind in public_things() if isinstance(kind, type) and issubclass(kind, Displayed)}
    assert public <= set(KINDS.values())
    others = {fg.Trace, fg.Measurement, fg.Reading, fg.GaugeResult, fp.Plan, fp.TheoryPlan, fg.Expectation, fg.Bound}
    assert others | {fg.TheoremAnswer, fg.Partition, fg.WorkerEvaluation, fg.FoundRun, fg.Constants} <= public


NOT_RESULTS = {
    fg.Algorithm,
    fg.Dataset,
    fg.Model,
    fg.Setup,
    Shifted,
    fg.SupervisedFederation,
    fg.QuadraticFederation,
    fg.Pace,
}
"""What public functions return for others to take."""


def returned_classes() -> Iterator[type]:
    """Our own classes among what public functions say that they return, also in a list, or with None."""
    places = tuple(f"{package.__name__}." for package in PACKAGES)
    for function in filter(inspect.isfunction, public_things()):
        returned = get_type_hints(function).get("return")
        for kind in (returned, *get_args(returned)):
            if inspect.isclass(kind) and kind.__module__.startswith(places):
                yield kind


def test_what_public_functions_return_draws_itself() -> None:
    assert set(returned_classes()) - NOT_RESULTS == set(KINDS.values()) & set(returned_classes())
    assert {SweepResult, fv.Certified, Decomposition, Tuned, CorollaryRates} <= set(returned_classes())


@pytest.mark.parametrize("kind", KINDS)
def test_every_result_is_short_fits_a_screen_and_has_a_picture(kind: str, tmp_path: Path) -> None:
    result: Any = made(kind)
    assert issubclass(type(result), KINDS[kind])
    figure = result.plot(tmp_path / "picture.svg")
    assert any(axes.lines or axes.patches or axes.collections or axes.images for axes in figure.axes)
    # An infinite bound is a sentence.
    words = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert ("The bound is infinite at these values." in words) == (kind == "infinite bound")
    assert (tmp_path / "picture.svg").read_text().startswith("<?xml")
    assert PICTURE.search(result._repr_html_())
    with pytest.raises(fg.InputError, match=r"must end in \.png"):
        result.plot(tmp_path / "picture.doc")
    assert type(result).__name__ in repr(result)
    assert len(repr(result)) <= 300
    screen = str(result).splitlines()
    assert 1 <= len(screen) <= 40
    # A sentence is a line that a terminal folds.
    assert sum(-(-len(line) // 100) or 1 for line in screen) <= 40
    assert screen[0] != repr(result)


def test_what_is_printed_of_a_long_run_and_of_many_constants_is_one_screen() -> None:
    long = fg.simulate(FEDERATION, fg.fedavg(gamma=0.1), local_steps=1, rounds=500)
    assert len(str(long).splitlines()) < 20
    assert "500" in str(long)
    constants = fg.Constants(tuple(Estimate.exact(name, 1.0, "given") for name in list(SYMBOLS)))
    assert len(str(constants).splitlines()) <= 40
    assert str(constants).endswith("more lines")


def test_what_a_notebook_shows_is_escaped_and_says_the_numbers() -> None:
    constants = fg.Constants((Estimate.exact("L_h", 0.5, "<script>"),))
    shown = constants._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    assert "0.5" in shown
    verdict = fg.bound("nonconvex", **VALUES)
    assert verdict.verdict.split(";")[0] in verdict._repr_html_()


def test_a_drawn_figure_is_a_picture_without_magic() -> None:
    drawn = fg.simulate(FEDERATION, fg.fedavg(gamma=0.1), local_steps=2, rounds=3).plot()
    formatter: Any = DisplayFormatter()
    data, _ = formatter.format(drawn)
    assert data["image/png"].startswith(b"\x89PNG")
