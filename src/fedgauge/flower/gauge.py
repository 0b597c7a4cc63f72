"""The server's part of measuring around any Flower strategy.

    strategy = Gauge(FedAvg(...), out="runs/flower")         # on the server
    app = ClientApp(mods=[gauge_mod(load)])                   # on the nodes

In every round each node sends what the strategy wants and, beside it, its loss and gradient at the global model and its
gradient at its own model after training. With the next round's message it sends its gradient at the mean of those
models. The record of a local run is made from the same numbers. No example leaves its node; docs/howto/flower.md
explains what gradients reveal.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedgauge.errors import InputError, positive
from fedgauge.federation.participation import Participation
from fedgauge.flower.fleet import EVENTS, Fleet, PromptGrid, write_event
from fedgauge.flower.mod import MEAN, MODEL, REQUEST, SEEN, VALUES, flat, own_arrays
from fedgauge.flower.noise import Noise
from fedgauge.flower.result import write_measurement
from fedgauge.runs.directory import RunDirectory
from fedgauge.simulation.rounds import compare
from fedgauge.simulation.workers import Secants, Spread, Sums
from fedgauge.values import Round, Trace

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Answer:
    """The answer of one node in a round."""

    node: int
    weight: float
    values: Mapping[str, Any]
    seen: Mapping[str, torch.Tensor]
    after: torch.Tensor | None = None


@dataclass
class _Round:
    """A round whose participants have trained, but have not yet evaluated their mean model."""

    number: int
    model: torch.Tensor
    answers: list[_Answer]
    everyone: bool
    loss: float
    gradient: torch.Tensor
    sums: Sums = field(default_factory=Sums)


class Gauge(Strategy):
    """Measures L_h, L_g, L_tilde, zeta and sigma in every round of a strategy that it wraps.

    An answer is refused and recorded, and the strategy does not see it, if its numbers are not finite, if its shapes
    are not the model's, or if it belongs to another round.

    Args:
        strategy: the strategy that decides how to train; any Flower strategy that does not override ``start``.
        out: the directory for the run, which ``fedgauge report``, ``runs show`` and ``plan --mode theory`` can read. It
            is created when the first round begins, and written during the run.
        settings: settings to record with the run, such as ``{"local_steps": 5, "gamma": 0.1}``.
        weighted_by: the metric that gives the weight of a node. By default, the strategy's own if it has one; otherwise
            all nodes have the same weight.
        timeout: the number of seconds to wait for the answers about the last round.

    Attributes:
        rounds: the records so far.
        events: the answers that were refused, and the nodes that did not answer.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        out: str | Path | None = None,
        settings: Mapping[str, Any] | None = None,
        weighted_by: str | None = None,
        timeout: float = 300.0,
    ) -> None:
        if type(strategy).start is not Strategy.start:
            raise InputError(
                f"{type(strategy).__name__} overrides start, which a gauge would not run; wrap a strategy that does"
                " not override it."
            )
        self.strategy, self.out = strategy, None if out is None else Path(out)
        self._settings = dict(settings or {})
        self._weighted_by = weighted_by or getattr(strategy, "weighted_by_key", None)
        self._timeout = positive("timeout", timeout)
        self._arrays: ArrayRecord | None = None
        self._grid: Grid | None = None
        self._pending: _Round | None = None
        self._recipients: set[int] = set()
        self._numbers: list[tuple[int, int]] = []  # nodes asked and nodes available, by round
        self._num_rounds = 0
        self._stack = ExitStack()
        self._directory: RunDirectory | None = None
        self._seconds: list[float] = []
        self._noise = Noise()
        self.rounds: list[Round] = []
        self.events: list[dict[str, Any]] = []

    # -- the strategy's part ---------------------------------------------------------------------------------------

    def summary(self) -> None:
        """Log the strategy's own summary."""
        self.strategy.summary()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The same as in the wrapped strategy."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The same as in the wrapped strategy."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The strategy's messages, each with the gauge's request added."""
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._arrays, self._grid = arrays, grid
        self._recipients = {message.metadata.dst_node_id for message in messages}
        if messages:
            self._numbers.append((len(self._recipients), len(self._recipients | set(grid.get_node_ids()))))
        if messages and self.out is not None and self._directory is None:
            # Open it now: the participants are known, and if the directory is already in use, nobody has trained yet.
            self._directory = self._stack.enter_context(RunDirectory.open(self.out, self._described()))
            self._noise = Noise(self.out)
        pending = self._pending
        if pending is not None and not {answer.node for answer in pending.answers} <= self._recipients:
            # Some of the last round's participants get no message this time, so the mean model is sent separately.
            self._finish(self._look(pending))
            pending = None
        for message in messages:
            self._add(message.content, server_round, pending, "train")
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the gauge's part out of the answers, and pass the usable ones on to the strategy."""
        sound: list[Message] = []
        taken: list[_Answer] = []
        received = list(replies)
        for node in self._recipients - {reply.metadata.src_node_id for reply in received}:
            self._report("lost", node, server_round, "no answer in time")
        for reply in sorted(received, key=_number):
            if reply.has_error():
                self._report("lost", reply.metadata.src_node_id, server_round, str(reply.error.reason))
                sound.append(reply)
                continue
            mistake = self._mistake(reply, server_round)
            if mistake:
                self._report("refused", reply.metadata.src_node_id, server_round, mistake)
                continue
            taken.append(self._take(reply))
            sound.append(reply)
        if self._pending is not None:
            self._finish({each.node: each for each in taken})
        if taken:
            self._pending = self._trained(server_round, taken)
        return self.strategy.aggregate_train(server_round, sound)

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *arguments: Any, **named: Any
    ) -> Result:
        """Run the strategy as Flower does, then measure the last round; records are written during the run."""
        self._begin = time.perf_counter()
        self._grid, self._num_rounds, self._directory = grid, num_rounds, None
        with self._stack:
            result = super().start(PromptGrid(grid), initial_arrays, num_rounds, *arguments, **named)
            last = self._pending
            if last is not None and result.arrays is not None:
                answers = self._look(last, result.arrays)
                self._finish(answers)
                if answers:
                    loss, gradient, _ = _mean(list(answers.values()))
                    self._keep(Round(last.number + 1, loss, float(gradient @ gradient)), list(answers.values()))
            if self._directory is not None and result.arrays is not None and self.rounds:
                self._write(self._directory, result.arrays)
        return result

    # -- the gauge's part --------------------------------------------------------------------------------------------

    def _add(self, content: RecordDict, round: int, pending: _Round | None, part: str) -> None:
        parts = [part]
        request: dict[str, Any] = {"round": round}
        if pending is not None and pending.sums.spread.mean is not None:
            parts.append("look")
            request["seen_from"] = pending.number + 1
            mean = pending.sums.spread.mean.to(pending.model.dtype)
            content[MEAN] = ArrayRecord({"mean": Array(mean.numpy())})
        content[REQUEST] = ConfigRecord({**request, "parts": parts})

    def _look(self, pending: _Round, arrays: ArrayRecord | None = None) -> dict[int, _Answer]:
        """Ask a round's participants for their gradients at their mean model and at a global model."""
        assert self._grid is not None
        messages = {}
        for answer in pending.answers:
            about = arrays if arrays is not None else self._arrays
            assert about is not None
            content = RecordDict({MODEL: about})
            self._add(content, pending.number + 2, pending, "evaluate")
            messages[answer.node] = Message(content, answer.node, "train")
        weights = {answer.node: answer.weight for answer in pending.answers}
        answers = {}
        for node, reply in Fleet(self._grid, self._timeout).exchange(messages).items():
            if reply is None or reply.has_error():
                why = "no answer in time" if reply is None else str(reply.error.reason)
                self._report("lost", node, pending.number + 1, why)
            else:
                answers[node] = _Answer(node, weights[node], _values(reply.content), _tensors(reply.content))
        return answers

    def _mistake(self, reply: Message, round: int) -> str:
        """What is wrong with an answer; empty if it can be used."""
        content, sent = reply.content, self._arrays
        values: Any = content.config_records.get(VALUES)
        if values is None or SEEN not in content.array_records:
            return "its answer has nothing for the gauge: the ClientApp has no gauge_mod"
        if values["round"] != round:
            return f"it answers round {values['round']}, not {round}"
        arrays = own_arrays(content)
        assert sent is not None
        for key, array in sent.items():
            if key not in arrays or tuple(arrays[key].shape) != tuple(array.shape):
                got = tuple(arrays[key].shape) if key in arrays else "nothing"
                return f"its {key} has shape {got}, not {tuple(array.shape)}"
        for key, array in (*arrays.items(), *content.array_records[SEEN].items()):
            if not np.isfinite(array.numpy()).all():
                return f"its {key} is not finite"
        return ""

    def _take(self, reply: Message) -> _Answer:
        content = reply.content
        values, seen = _values(content), _tensors(content)
        for name in (VALUES, SEEN):
            del content[name]
        weight = 1.0
        if self._weighted_by is not None:
            metrics: Any = next(iter(content.metric_records.values()), {})
            weight = float(metrics.get(self._weighted_by, 1.0))
        node = reply.metadata.src_node_id
        return _Answer(node, weight, values, seen, flat(own_arrays(content), list(values["keys"])))

    def _trained(self, server_round: int, answers: list[_Answer]) -> _Round:
        """Sum up the participants' models and gradients after training, before they have seen their mean model."""
        assert self._arrays is not None
        assert self._grid is not None
        loss, gradient, total = _mean(answers)
        # A strategy may average in float64; use the type in which the workers train.
        model = flat(self._arrays, list(answers[0].values["keys"])).to(answers[0].seen["gradient"].dtype)
        everyone = {each.node for each in answers} >= set(self._grid.get_node_ids())
        sums = Sums()
        for each in answers:
            assert each.after is not None
            weight = each.weight / total
            own = Sums(
                spread=Spread(weight, each.after.double(), 0.0), gradient=weight * each.seen["gradient"].double()
            )
            sums.add(own)
        return _Round(server_round - 1, model, answers, everyone, loss, gradient, sums)

    def _finish(self, answers: Mapping[int, _Answer]) -> None:
        """Complete the record of the pending round, now that its participants have evaluated their mean model."""
        pending, self._pending = self._pending, None
        assert pending is not None
        record = Round(pending.number, pending.loss, float(pending.gradient @ pending.gradient))
        replies = [answers.get(answer.node) for answer in pending.answers]
        if all(reply is not None and "look" in reply.seen for reply in replies):
            total = sum(answer.weight for answer in pending.answers)
            seen = Secants(torch.zeros(len(pending.model), dtype=torch.float64))
            for answer, reply in zip(pending.answers, replies, strict=True):
                assert reply is not None
                weight = answer.weight / total
                squares, steepest = float(reply.values["squares"]), float(reply.values["steepest"])
                seen.add(Secants(weight * reply.seen["look"].double(), weight * squares, steepest))
            gradient = pending.gradient if pending.everyone else None
            found = compare(pending.model, gradient, pending.sums, seen)
            record = Round(record.round, record.loss, record.grad2, **found._asdict())
        self._keep(record, pending.answers)

    def _keep(self, record: Round, answers: list[_Answer]) -> None:
        self.rounds.append(record)
        self._seconds.append(time.perf_counter() - self._begin)
        if self._directory is not None:
            self._directory.append(record, self._seconds[-1])
        workers = [int(item.values["worker"]) for item in answers]
        # Nodes need no worker number here, and two may have the same one.
        numbered = min(workers) >= 0 and len(set(workers)) == len(workers)
        names = workers if numbered else [item.node for item in answers]
        noise2 = {str(name): item.values.get("noise2") for name, item in zip(names, answers, strict=True)}
        if each := {name: float(value) for name, value in noise2.items() if value is not None}:
            self._noise.add(record.round, each)
        seen = "" if record.L_h_ratio is None else f", L_h seen {record.L_h_ratio:.4g}"
        logger.info("round %d: loss %.6g%s", record.round, record.loss, seen)

    def _report(self, what: str, node: int, round: int, why: str) -> None:
        self.events.append({"round": round - 1, "worker": None, "node": str(node), "what": what, "why": why})
        if self._directory is not None:
            write_event(self._directory.path / EVENTS, self.events[-1])
        logger.warning("Node %d was %s in round %d: %s.", node, what, round - 1, why)

    def _described(self) -> dict[str, Any]:
        """The settings of the run that are known so far."""
        known = {"gamma", "eta", "beta", "beta1", "beta2", "tau", "proximal"}
        parameters = {name: value for name, value in self._settings.items() if name in known}
        full = all(invited == available for invited, available in self._numbers)
        # If the number of participants varies, plans are made for the smallest.
        fewest = min(invited for invited, _ in self._numbers)
        participation = Participation() if full else Participation("without-replacement", fewest)
        return {
            "federation": "measured over Flower",
            "algorithm": {"name": type(self.strategy).__name__, **parameters},
            "local_steps": self._settings.get("local_steps"),
            "rounds": self._num_rounds,
            "participation": participation.to_json(),
            "seed": self._settings.get("seed", 0),
            "record_every": 1,
            "target_loss": None,
        }

    def trace(self, arrays: ArrayRecord) -> Trace:
        """The run so far: its records, and a model."""
        model, last = flat(arrays, list(arrays)).numpy(), self.rounds[-1].round
        return Trace(self._described(), "finished", last, tuple(self.rounds), model, tuple(self._seconds))

    def _write(self, directory: RunDirectory, arrays: ArrayRecord) -> None:
        trace = self.trace(arrays)
        # Only now is it known who took part in every round.
        directory.restate(trace.settings)
        directory.finish(trace, {key: torch.from_numpy(np.array(array.numpy())) for key, array in arrays.items()})
        write_measurement(directory.path, trace, self._noise, max(there for _, there in self._numbers))


def _number(reply: Message) -> tuple[int, int]:
    """The order in which answers are added up: by worker number, then by node."""
    values: Any = {} if reply.has_error() else reply.content.config_records.get(VALUES) or {}
    return int(values.get("worker", -1)), reply.metadata.src_node_id


def _values(content: RecordDict) -> dict[str, Any]:
    return dict(content.config_records[VALUES])


def _tensors(content: RecordDict) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(array.numpy())) for name, array in content.array_records[SEEN].items()}


def _mean(answers: list[_Answer]) -> tuple[float, torch.Tensor, float]:
    """The mean loss and gradient of the nodes that answered, and the sum of their weights."""
    total = sum(each.weight for each in answers)
    loss = sum(each.weight / total * float(each.values["loss"]) for each in answers)
    gradient = sum(
        (each.weight / total * each.seen["at_global"].double() for each in answers[1:]),
        start=answers[0].weight / total * answers[0].seen["at_global"].double(),
    )
    return loss, gradient, total
