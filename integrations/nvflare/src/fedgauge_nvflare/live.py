"""An aggregator for NVFlare's FedAvg: it averages models, and a live gauge chooses the local steps of each round."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nvflare.apis.dxo import from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, FLMetaKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper

from fedgauge.algorithms.live.gauge import LiveGauge
from fedgauge.base.errors import InputError, MachineError
from fedgauge_nvflare import LOCAL_STEPS


class LiveAggregator(ModelAggregator):
    """Averages the clients' models as FedAvg does, and decides how many local steps the next round has.

    Every model that a client receives has the number in its meta data: ``flare.receive().meta["local_steps"]``. The
    loss at the averaged model is computed on the server: write a subclass with :meth:`evaluate`, and give it to
    ``FedAvgRecipe(aggregator=...)``. The averaged model has the metrics ``loss`` and ``steps``, so that
    ``stop_cond="steps >= 4000"`` ends the job when all steps have been taken. The answer is logged when the job ends,
    and written to ``answer.json`` in the server's directory of the job.

    Args:
        local_steps: as for :class:`fedgauge.LiveGauge`, and so are the others.
        steps: the local steps of the whole run.
        cost: the cost of a round.
        candidates: the numbers to try.
        explore: the share of the run that may be spent on trying.
    """

    def __init__(
        self,
        local_steps: int,
        steps: int,
        cost: float | None = None,
        candidates: Sequence[int] | None = None,
        explore: float = 0.3,
    ) -> None:
        super().__init__()
        # NVFlare makes the job's configuration from attributes that are called like the arguments.
        self.local_steps, self.steps, self.cost = local_steps, steps, cost
        self.candidates, self.explore = None if candidates is None else list(candidates), explore
        self.live = LiveGauge(local_steps, steps, cost=cost, candidates=candidates, explore=explore)
        self._done = 0
        self.reset_stats()

    def evaluate(self, params: Mapping[str, Any]) -> float:
        """The loss of a model, always on the same held-out examples."""
        raise NotImplementedError(f"{type(self).__name__} needs a method evaluate(params) that returns a loss.")

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Put the local steps into what clients receive, and keep the answer at the end."""
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.BEFORE_TASK_DATA_FILTER:
            task = fl_ctx.get_prop(FLContextKey.TASK_DATA)
            with suppress(ValueError):  # a task without a model is left as it is
                model = from_shareable(task)
                model.set_meta_prop(LOCAL_STEPS, self.live.local_steps)
                model.update_shareable(task)
        elif event_type == EventType.END_RUN:
            answer = self.live.answer()
            place = Path(fl_ctx.get_engine().get_workspace().get_run_dir(fl_ctx.get_job_id()))
            (place / "answer.json").write_text(json.dumps(answer.to_json(), indent=2), encoding="utf-8")
            for line in str(answer).splitlines():
                self.info(line)

    def accept_model(self, model: FLModel) -> None:
        """Add a client's model to the average."""
        if model.params_type != ParamsType.FULL:
            raise InputError("A LiveAggregator needs whole models; set params_transfer_type=TransferType.FULL.")
        weight = float(model.meta.get(FLMetaKey.NUM_STEPS_CURRENT_ROUND) or 1)
        self._sum.add(model.params, weight, str(model.meta.get("client_name")), model.current_round or 0)

    def aggregate_model(self) -> FLModel:
        """The averaged model; its loss decides how many local steps are next."""
        params = self._sum.get_result()
        if not params:
            raise MachineError("No client has sent a model that can be used, so that there is none to go on with.")
        loss = self.evaluate(params)
        self._done += self.live.local_steps
        self.live.record(loss)
        return FLModel(params_type=ParamsType.FULL, params=params, metrics={"loss": loss, "steps": self._done})

    def reset_stats(self) -> None:
        """Begin a round."""
        self._sum = WeightedAggregationHelper()
