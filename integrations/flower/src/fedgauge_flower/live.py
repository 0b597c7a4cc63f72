"""A live gauge around any Flower strategy: it sets the local steps of every round, and learns from the losses.

    strategy = LiveStrategy(FedAvg(...), fg.LiveGauge(local_steps=32, steps=4000, cost=10))       # on the server
    steps = message.content["config"]["local-steps"]                                              # on the nodes

The server alone decides, and every node takes the number in its message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedgauge.algorithms.live.gauge import LiveGauge
from fedgauge.base.errors import InputError
from fedgauge.values.answer import Answer
from fedgauge_flower.fleet import PromptGrid

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]
"""Flower's function that evaluates the global model on the server."""


class LiveStrategy(Strategy):
    """Lets a live gauge choose the local steps of a strategy that it wraps.

    The number is in the train config that the strategy sends, under ``key``; the training function must take exactly so
    many steps. The loss at the averaged model comes from the server, where ``start`` has an ``evaluate_fn``, and
    otherwise from the nodes' answers to the strategy's evaluation. Let all nodes evaluate, always on the same examples:
    a loss of other nodes in every round is noise. A round in which an evaluation failed has no loss.

    Once all steps have been taken, no node is asked any more, however many rounds are left.

    Args:
        strategy: the strategy that decides how to train; any Flower strategy that does not override ``start``.
        live: the gauge.
        key: the name of the local steps in the train config.
        loss: the name of the loss in the metrics of an evaluation.
    """

    def __init__(self, strategy: Strategy, live: LiveGauge, *, key: str = "local-steps", loss: str = "loss") -> None:
        if type(strategy).start is not Strategy.start:
            raise InputError(f"{type(strategy).__name__} overrides start; wrap a strategy that does not override it.")
        self.strategy, self.live, self._key, self._loss = strategy, live, key, loss
        self._done = self._asked = 0  # steps so far, and nodes that were asked to evaluate
        self._averaged, self._on_server = False, False
        self._found: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether all local steps of the run have been taken."""
        return self._done >= self.live.steps

    def answer(self) -> Answer:
        """What the run has shown so far."""
        return self.live.answer()

    def summary(self) -> None:
        """Log the strategy's own summary."""
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The strategy's messages, with the local steps of the round in the train config."""
        self._averaged, self._found = False, None
        config[self._key] = self.live.local_steps
        return [] if self.is_over else self.strategy.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The same as in the wrapped strategy; a round from which no model came is not counted."""
        if self.is_over:
            return None, None
        arrays, metrics = self.strategy.aggregate_train(server_round, replies)
        self._averaged = arrays is not None
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The same as in the wrapped strategy."""
        messages = [] if self.is_over else list(self.strategy.configure_evaluate(server_round, arrays, config, grid))
        self._asked = len(messages)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The same as in the wrapped strategy; the round ends here unless the server evaluates."""
        if self.is_over:
            return None
        received = list(replies)
        metrics = self.strategy.aggregate_evaluate(server_round, received)
        if not self._on_server:
            self._end(metrics if sum(not reply.has_error() for reply in received) == self._asked else None)
        return metrics

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """As Flower does; by default with as many rounds as all steps can need."""
        most = -(-self.live.steps // min(self.live.candidates))
        self._on_server = evaluate_fn is not None

        def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            if self.is_over or evaluate_fn is None:
                return None
            metrics = evaluate_fn(server_round, arrays)
            self._end(metrics)
            return metrics

        ask = evaluate if evaluate_fn is not None else None
        number = num_rounds or most
        return super().start(PromptGrid(grid), initial_arrays, number, timeout, train_config, evaluate_config, ask)

    def _end(self, metrics: MetricRecord | None) -> None:
        """Note that a round has ended, if its models were averaged."""
        if self._averaged:
            self._done += self.live.local_steps
            loss = None if metrics is None else metrics.get(self._loss)
            self.live.record(loss)  # type: ignore[arg-type]  # the gauge says what is wrong with it
            self._averaged = False
