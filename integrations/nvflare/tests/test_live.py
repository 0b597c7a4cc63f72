"""The example in NVFlare's simulator, whose server and clients are processes of their own: as in one process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from tests.training import Training

import fedgauge as fg
from fedgauge.base.errors import InputError, MachineError
from fedgauge_nvflare import LOCAL_STEPS, LiveAggregator

EXAMPLE = Path(__file__).parents[3] / "examples" / "nvflare_job.py"
STEPS, WORLD = 256, 2


def alone() -> tuple[fg.LiveGauge, list[float], list[int]]:
    """The training of the example in one process."""
    training = Training(WORLD)
    batches = [torch.Generator().manual_seed(number) for number in range(WORLD)]
    live, done = fg.LiveGauge(16, STEPS, cost=10, candidates=(8, 16), explore=0.5), 0
    losses, ends = [], []
    while done < STEPS:
        shared = training.values
        means = [torch.zeros_like(each) for each in shared]
        for number, generator in enumerate(batches):
            after = training.steps_of(number, shared, live.local_steps, generator)
            means = [mean + each / WORLD for mean, each in zip(means, after, strict=True)]
        training.put(means)
        done += live.local_steps
        losses.append(training.loss())
        ends.append(done)
        live.record(losses[-1])
    return live, losses, ends


def test_the_example_is_that_of_one_process(tmp_path: Path) -> None:
    environment = {**os.environ, "STEPS": str(STEPS), "NVFLARE_SIMULATOR_WORKSPACE_ROOT": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    log = done.stdout + done.stderr
    assert done.returncode == 0, log[-3000:]
    live, losses, ends = alone()
    found = re.findall(r"global metrics: \{'loss': ([\d.e-]+), 'steps': (\d+)\}", log)
    assert [int(steps) for _, steps in found] == ends
    assert np.allclose([float(loss) for loss, _ in found], losses, rtol=1e-5, atol=0)
    (written,) = tmp_path.rglob("answer.json")
    answer = json.loads(written.read_text())
    assert answer["complete"]
    # An answer magnifies differences in the last digits of losses.
    expected = live.answer().efficiency
    assert [each["local_steps"] for each in answer["efficiency"]] == [each.local_steps for each in expected]
    assert [each["value"] for each in answer["efficiency"]] == pytest.approx(
        [each.value for each in expected], rel=1e-2
    )


class Half(LiveAggregator):
    def evaluate(self, params: object) -> float:
        return 0.5


def model_of(value: float, **named: object) -> FLModel:
    return FLModel(params={"w": np.full(2, value)}, **named)


def test_models_are_averaged_by_their_steps_if_they_say_them() -> None:
    aggregator = Half(16, 4000)
    aggregator.accept_model(model_of(1.0, meta={"NUM_STEPS_CURRENT_ROUND": 3}))
    aggregator.accept_model(model_of(5.0, meta={"NUM_STEPS_CURRENT_ROUND": 1}))
    found = aggregator.aggregate_model()
    assert found.params["w"].tolist() == [2.0, 2.0]
    assert found.metrics == {"loss": 0.5, "steps": 4}
    aggregator.reset_stats()
    with pytest.raises(MachineError, match="No client has sent a model"):
        aggregator.aggregate_model()


def test_a_task_with_a_model_has_the_local_steps_and_another_is_left_as_it_is() -> None:
    aggregator, context = Half(16, 4000), FLContext()
    with_model = DXO(DataKind.WEIGHTS, data={"w": np.zeros(2)}).to_shareable()
    for task in (with_model, Shareable({"question": 1})):
        before = dict(task)
        context.set_prop(FLContextKey.TASK_DATA, task, private=True, sticky=False)
        aggregator.handle_event(EventType.BEFORE_TASK_DATA_FILTER, context)
        if task is with_model:
            assert from_shareable(task).get_meta_prop(LOCAL_STEPS) == aggregator.live.local_steps
        else:
            assert dict(task) == before


def test_what_it_cannot_use_is_refused() -> None:
    with pytest.raises(InputError, match="needs whole models"):
        Half(16, 4000).accept_model(model_of(1.0, params_type=ParamsType.DIFF))
    with pytest.raises(NotImplementedError, match="needs a method evaluate"):
        LiveAggregator(16, 4000).evaluate({})
