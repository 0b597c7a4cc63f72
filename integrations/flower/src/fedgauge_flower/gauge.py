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
import secrets
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from fedgauge.base.errors import InputError, positive
from fedgauge.federation.participation import Participation
from fedgauge.simulation.rounds import compare
from fedgauge.simulation.runs.directory import RunDirectory
from fedgauge.simulation.workers import Secants, Spread, Sums
from fedgauge.values import Round, Status, Trace
from fedgauge_flower.answers import (
    GaugeAnswer,
    RefusedError,
    check_model,
    combined_names,
    far_from_others,
    read_measured,
    read_weight,
)
from fedgauge_flower.fleet import EVENTS, Fleet, PromptGrid, reason_of, write_event
from fedgauge_flower.mod import MEAN, MODEL, REQUEST, SEEN, VALUES, flat
from fedgauge_flower.noise import Noise
from fedgauge_flower.result import write_measurement

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Answer:
    """The answer of one node in a round, its weight in means, and its own model if it has trained."""

    node: int
    weight: float
    said: GaugeAnswer
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

    An answer is refused and recorded, and the strategy does not see it, if a number in it is missing or not finite, if
    an array cannot be read or has another shape than the model's, or if it belongs to another question. Flower's own
    strategies end the training if the nodes' answers have different names of arrays or metrics, or no weight; here the
    answers that differ from most others are refused.

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
        self._keys: tuple[str, ...] | None = None  # the names of the model's parameters, which all nodes agree on
        self._session, self._asked = secrets.token_hex(8), 0
        self._echo: dict[str, Any] = {}
        self._floats: set[str] = set()  # the model's arrays of floating-point numbers
        self._diverged = False
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
        """The same as in the wrapped strategy, for the answers that it can use."""
        received, names = list(replies), {}
        for number, reply in enumerate(received):
            try:
                if not reply.has_error():
                    names[number] = self._names(reply.content)
            except RefusedError as mistake:
                self._report("refused", reply.metadata.src_node_id, server_round, str(mistake))
        alike = self._alike(server_round, received, names)
        usable = [reply for number, reply in enumerate(received) if reply.has_error() or number in alike]
        return self.strategy.aggregate_evaluate(server_round, usable)

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
        self._echo = self._question(server_round)
        for message in messages:
            self._add(message.content, self._echo, pending, "train")
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the gauge's part out of the answers, and pass the usable ones on to the strategy."""
        received = list(replies)
        for node in self._recipients - {reply.metadata.src_node_id for reply in received}:
            self._report("lost", node, server_round, "no answer in time")
        read: dict[int, _Answer] = {}
        names: dict[int, Hashable] = {}
        for number, reply in enumerate(received):
            node = reply.metadata.src_node_id
            try:
                if reply.has_error():
                    self._report("lost", node, server_round, reason_of(reply))
                else:
                    read[number] = self._take(reply)
                    names[number] = read[number].said.keys, self._names(reply.content)
            except RefusedError as mistake:
                self._report("refused", node, server_round, str(mistake))
        for number, why in far_from_others({number: _sizes(each) for number, each in read.items()}).items():
            self._report("refused", received[number].metadata.src_node_id, server_round, why)
            names.pop(number, None)
        # The order in which answers are added up: by worker number, then by node.
        alike = self._alike(server_round, received, names)
        order = sorted(alike, key=lambda number: (read[number].said.worker, read[number].node))
        taken = [read[number] for number in order]
        if self._pending is not None:
            self._finish({each.node: each for each in taken})
        if taken:
            self._keys = taken[0].said.keys
            self._pending = self._trained(server_round, taken)
        errors = [reply for reply in received if reply.has_error()]
        return self.strategy.aggregate_train(server_round, [*(received[number] for number in order), *errors])

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *arguments: Any, **named: Any
    ) -> Result:
        """Run the strategy as Flower does, then measure the last round; records are written during the run."""
        self._begin = time.perf_counter()
        self._grid, self._num_rounds, self._directory = grid, num_rounds, None
        self._floats = {key for key, array in initial_arrays.items() if array.numpy().dtype.kind == "f"}
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
                # As in every run that diverges, the last model with a finite loss is kept.
                self._write(self._directory, self._arrays if self._diverged and self._arrays else result.arrays)
        return result

    # -- the gauge's part --------------------------------------------------------------------------------------------

    def _question(self, round: int) -> dict[str, Any]:
        """The round and the name of a new question, which come back with its answers."""
        self._asked += 1
        return {"round": round, "asked": f"{self._session}.{self._asked}"}

    def _add(self, content: RecordDict, question: Mapping[str, Any], pending: _Round | None, part: str) -> None:
        parts = [part]
        request: dict[str, Any] = dict(question)
        if pending is not None and pending.sums.spread.mean is not None:
            parts.append("look")
            request["seen_from"] = pending.number + 1
            mean = pending.sums.spread.mean.to(pending.model.dtype)
            content[MEAN] = ArrayRecord({"mean": Array(mean.numpy())})
        content[REQUEST] = ConfigRecord({**request, "parts": parts})

    def _look(self, pending: _Round, arrays: ArrayRecord | None = None) -> dict[int, _Answer]:
        """Ask a round's participants for their gradients at their mean model and at a global model."""
        assert self._grid is not None
        about = arrays if arrays is not None else self._arrays
        assert about is not None
        question = self._question(pending.number + 2)
        messages = {}
        for answer in pending.answers:
            content = RecordDict({MODEL: about})
            self._add(content, question, pending, "evaluate")
            messages[answer.node] = Message(content, answer.node, "train")
        weights = {answer.node: answer.weight for answer in pending.answers}
        answers: dict[int, _Answer] = {}
        mistakes: list[RefusedError] = []
        for node, reply in Fleet(self._grid, self._timeout).exchange(messages).items():
            if reply is None or reply.has_error():
                why = "no answer in time" if reply is None else reason_of(reply)
                self._report("lost", node, pending.number + 1, why)
                continue
            try:
                said = self._read(reply.content, question, about, trained=False)
                answers[node] = _Answer(node, weights[node], said)
            except RefusedError as mistake:
                mistakes.append(mistake)
                self._report("refused", node, pending.number + 2, str(mistake))
        if arrays is not None:
            # If no node's numbers are finite at the last model, that is a result, not a node's mistake.
            self._diverged = bool(mistakes) and not answers and all(mistake.not_finite for mistake in mistakes)
        return answers

    def _read(
        self, content: RecordDict, question: Mapping[str, Any], model: ArrayRecord, *, trained: bool
    ) -> GaugeAnswer:
        """What a node answers the gauge; an error if it cannot be used."""
        said = read_measured(content, (VALUES, SEEN), question, model, trained=trained)
        if self._keys is not None and said.keys != self._keys:
            raise RefusedError("its model has its parameters under other names or in another order")
        return said

    def _take(self, reply: Message) -> _Answer:
        """Take the gauge's part out of an answer; an error if it, or the strategy's part, cannot be used."""
        assert self._arrays is not None
        content = reply.content
        said = self._read(content, self._echo, self._arrays, trained=True)
        for name in (VALUES, SEEN):
            del content[name]
        arrays = check_model(content, self._arrays, self._floats)
        weight = 1.0 if self._weighted_by is None else read_weight(content, self._weighted_by)
        return _Answer(reply.metadata.src_node_id, weight, said, flat(arrays, list(said.keys)))

    def _names(self, content: RecordDict) -> Hashable:
        """The names that all answers must share for the strategy to combine them."""
        return combined_names(content, self.strategy.weighted_by_key) if isinstance(self.strategy, FedAvg) else None

    def _alike(self, server_round: int, replies: list[Message], names: Mapping[int, Hashable]) -> set[int]:
        """Which answers have the same names as most others; the rest are refused."""
        usual = Counter(names.values()).most_common(1)
        alike = {number for number, own in names.items() if own == usual[0][0]}
        for number in sorted(set(names) - alike):
            why = "its arrays, metrics or parameters have other names than those of most nodes"
            self._report("refused", replies[number].metadata.src_node_id, server_round, why)
        return alike

    def _trained(self, server_round: int, answers: list[_Answer]) -> _Round:
        """Sum up the participants' models and gradients after training, before they receive their mean model."""
        assert self._arrays is not None
        assert self._grid is not None
        loss, gradient, total = _mean(answers)
        # A strategy may average in float64; use the type in which most workers train.
        usual = Counter(each.said.gradient.dtype for each in answers if each.said.gradient is not None)
        model = flat(self._arrays, list(answers[0].said.keys)).to(usual.most_common(1)[0][0])
        everyone = {each.node for each in answers} >= set(self._grid.get_node_ids())
        sums = Sums()
        for each in answers:
            assert each.after is not None
            assert each.said.gradient is not None
            weight = each.weight / total
            spread = Spread(weight, each.after.double(), 0.0)
            sums.add(Sums(spread=spread, gradient=weight * each.said.gradient.double()))
        return _Round(server_round - 1, model, answers, everyone, loss, gradient, sums)

    def _finish(self, answers: Mapping[int, _Answer]) -> None:
        """Complete the record of the pending round, now that its participants have evaluated their mean model."""
        pending, self._pending = self._pending, None
        assert pending is not None
        record = Round(pending.number, pending.loss, float(pending.gradient @ pending.gradient))
        looks = [answers[answer.node].said for answer in pending.answers if answer.node in answers]
        if len(looks) == len(pending.answers) and all(said.look is not None for said in looks):
            total = sum(answer.weight for answer in pending.answers)
            seen = Secants(torch.zeros(len(pending.model), dtype=torch.float64))
            for answer, said in zip(pending.answers, looks, strict=True):
                assert said.look is not None
                weight = answer.weight / total
                seen.add(Secants(weight * said.look.double(), weight * said.squares, said.steepest))
            gradient = pending.gradient if pending.everyone else None
            found = compare(pending.model, gradient, pending.sums, seen)
            record = Round(record.round, record.loss, record.grad2, **found._asdict())
        self._keep(record, pending.answers)

    def _keep(self, record: Round, answers: list[_Answer]) -> None:
        self.rounds.append(record)
        self._seconds.append(time.perf_counter() - self._begin)
        if self._directory is not None:
            self._directory.append(record, self._seconds[-1])
        workers = [item.said.worker for item in answers]
        # Nodes need no worker number here, and two may have the same one.
        numbered = min(workers) >= 0 and len(set(workers)) == len(workers)
        names = workers if numbered else [item.node for item in answers]
        noise2 = {str(name): item.said.noise2 for name, item in zip(names, answers, strict=True)}
        if each := {name: value for name, value in noise2.items() if value is not None}:
            self._noise.add(record.round, each)
        seen = "" if record.L_h_ratio is None else f", L_h measured {record.L_h_ratio:.4g}"
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
            "chunk": 1,
        }

    def trace(self, arrays: ArrayRecord) -> Trace:
        """The run so far: its records, and a model."""
        model, last = flat(arrays, list(arrays)).numpy(), self.rounds[-1].round
        status: Status = "diverged" if self._diverged else "finished"
        stopped_at = last + self._diverged
        return Trace(self._described(), status, stopped_at, tuple(self.rounds), model, tuple(self._seconds))

    def _write(self, directory: RunDirectory, arrays: ArrayRecord) -> None:
        trace = self.trace(arrays)
        # Only now is it known who took part in every round.
        directory.restate(trace.settings)
        directory.finish(trace, {key: torch.from_numpy(np.array(array.numpy())) for key, array in arrays.items()})
        write_measurement(directory.path, trace, self._noise, max(there for _, there in self._numbers))


def _sizes(answer: _Answer) -> dict[str, float | torch.Tensor]:
    """Which parts of an answer go into means, by name."""
    said = answer.said
    tensors = {"at_global": said.at_global, "gradient": said.gradient, "look": said.look, "model": answer.after}
    tensors["weight"] = torch.tensor([answer.weight])
    numbers = {"loss": said.loss, "noise2": said.noise2 or 0.0, "squares": said.squares, "steepest": said.steepest}
    return {**numbers, **{name: tensor for name, tensor in tensors.items() if tensor is not None}}


def _mean(answers: list[_Answer]) -> tuple[float, torch.Tensor, float]:
    """The mean loss and gradient of the nodes that answered, and the sum of their weights."""
    total = sum(each.weight for each in answers)
    loss = sum(each.weight / total * each.said.loss for each in answers)
    gradient = sum(
        (each.weight / total * each.said.at_global.double() for each in answers[1:]),
        start=answers[0].weight / total * answers[0].said.at_global.double(),
    )
    return loss, gradient, total
