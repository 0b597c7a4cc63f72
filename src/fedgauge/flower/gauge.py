"""The server's part of measuring around a strategy of the user's own.

    strategy = Gauge(FedAvg(...), out="runs/flower")         # on the server
    app = ClientApp(mods=[gauge_mod(load)])                   # on the nodes

In every round each node sends, beside what the strategy wants, its loss and gradient at the global model, its gradient
at its own model after training, and with the next round's message its gradient at the mean of those models. These are
what a local run's record is made of, and they make the same record here. No example leaves its node; what gradients
reveal is in docs/howto/flower.md.
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
from fedgauge.flower.mod import ASKED, MEAN, MODEL, SAID, SEEN, flat, own_arrays
from fedgauge.flower.noise import Noise
from fedgauge.flower.result import write_measurement
from fedgauge.runs.directory import RunDirectory
from fedgauge.simulation.rounds import compare
from fedgauge.simulation.workers import Secants, Spread, Sums
from fedgauge.system.files import write_json
from fedgauge.values import Round, Trace

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Told:
    """What one node said in a round."""

    node: int
    weight: float
    said: Mapping[str, Any]
    seen: Mapping[str, torch.Tensor]
    after: torch.Tensor | None = None


@dataclass
class _Round:
    """A round whose participants have trained, and have yet to be asked about their mean model."""

    number: int
    model: torch.Tensor
    told: list[_Told]
    everyone: bool
    loss: float
    gradient: torch.Tensor
    sums: Sums = field(default_factory=Sums)


class Gauge(Strategy):
    """Measures L_h, L_g, L_tilde, zeta and sigma in every round of a strategy that it wraps.

    Answers with numbers that are not finite, of other shapes than the model, or of another round are refused before the
    strategy sees them, and recorded.

    Args:
        strategy: what decides how to train; any of Flower's that leaves ``start`` as it is.
        out: directory for the run, as ``fedgauge report``, ``runs show`` and ``plan --mode theory`` read it; it is
            opened when the first round begins and written as the run goes.
        settings: what to say of the run there, as ``{"local_steps": 5, "gamma": 0.1}``; what is not said is left open.
        weighted_by: the metric whose value weighs a node; the strategy's own if it has one, else all weigh the same.
        timeout: seconds to wait for the answers about the last round.

    Attributes:
        rounds: the records so far.
        events: answers that were refused, and nodes that gave none.
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
                f"{type(strategy).__name__} has a start of its own, which a gauge would not run; wrap a strategy that"
                " leaves it to Flower."
            )
        self.strategy, self.out = strategy, None if out is None else Path(out)
        self._settings = dict(settings or {})
        self._weighted_by = weighted_by or getattr(strategy, "weighted_by_key", None)
        self._timeout = positive("timeout", timeout)
        self._arrays: ArrayRecord | None = None
        self._grid: Grid | None = None
        self._pending: _Round | None = None
        self._asked: set[int] = set()
        self._numbers: list[tuple[int, int]] = []  # of nodes asked and of nodes there, round by round
        self._num_rounds = 0
        self._stack = ExitStack()
        self._directory: RunDirectory | None = None
        self._seconds: list[float] = []
        self._noise = Noise()
        self.rounds: list[Round] = []
        self.events: list[dict[str, Any]] = []

    # -- what the strategy does ------------------------------------------------------------------------------------

    def summary(self) -> None:
        """Log what the strategy says of itself."""
        self.strategy.summary()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the strategy has it."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As the strategy has it."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The strategy's messages, each with what the gauge asks."""
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._arrays, self._grid = arrays, grid
        self._asked = {message.metadata.dst_node_id for message in messages}
        if messages:
            self._numbers.append((len(self._asked), len(self._asked | set(grid.get_node_ids()))))
        if messages and self.out is not None and self._directory is None:
            # Now, as who takes part is known, and nobody has trained in vain where a run is in the way.
            self._directory = self._stack.enter_context(RunDirectory.open(self.out, self._described()))
            self._noise = Noise(self.out)
        pending = self._pending
        if pending is not None and not {told.node for told in pending.told} <= self._asked:
            # Some of those who took part are not asked this time: the mean model goes to them by itself.
            self._finish(self._look(pending))
            pending = None
        for message in messages:
            self._add(message.content, server_round, pending, "train")
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the gauge's part out of the answers, and give the sound ones to the strategy."""
        sound: list[Message] = []
        told: list[_Told] = []
        given = list(replies)
        for node in self._asked - {reply.metadata.src_node_id for reply in given}:
            self._tell("lost", node, server_round, "no answer in time")
        for reply in sorted(given, key=_number):
            if reply.has_error():
                self._tell("lost", reply.metadata.src_node_id, server_round, str(reply.error.reason))
                sound.append(reply)
                continue
            mistake = self._mistake(reply, server_round)
            if mistake:
                self._tell("refused", reply.metadata.src_node_id, server_round, mistake)
                continue
            told.append(self._take(reply))
            sound.append(reply)
        if self._pending is not None:
            self._finish({each.node: each for each in told})
        if told:
            self._pending = self._trained(server_round, told)
        return self.strategy.aggregate_train(server_round, sound)

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *arguments: Any, **named: Any
    ) -> Result:
        """Run the strategy as Flower does, then ask about the last round; the run is kept as it goes."""
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
        asked: dict[str, Any] = {"round": round}
        if pending is not None and pending.sums.spread.mean is not None:
            parts.append("look")
            asked["seen_from"] = pending.number + 1
            mean = pending.sums.spread.mean.to(pending.model.dtype)
            content[MEAN] = ArrayRecord({"mean": Array(mean.numpy())})
        content[ASKED] = ConfigRecord({**asked, "parts": parts})

    def _look(self, pending: _Round, arrays: ArrayRecord | None = None) -> dict[int, _Told]:
        """Ask a round's participants about their mean model, and about a global model."""
        assert self._grid is not None
        messages = {}
        for told in pending.told:
            about = arrays if arrays is not None else self._arrays
            assert about is not None
            content = RecordDict({MODEL: about})
            self._add(content, pending.number + 2, pending, "evaluate")
            messages[told.node] = Message(content, told.node, "train")
        weights = {told.node: told.weight for told in pending.told}
        answers = {}
        for node, reply in Fleet(self._grid, self._timeout).exchange(messages).items():
            if reply is None or reply.has_error():
                why = "no answer in time" if reply is None else str(reply.error.reason)
                self._tell("lost", node, pending.number + 1, why)
            else:
                answers[node] = _Told(node, weights[node], _said(reply.content), _tensors(reply.content))
        return answers

    def _mistake(self, reply: Message, round: int) -> str:
        """What is wrong with an answer; nothing where it can be used."""
        content, sent = reply.content, self._arrays
        said: Any = content.config_records.get(SAID)
        if said is None or SEEN not in content.array_records:
            return "the gauge got no answer: the ClientApp has no gauge_mod"
        if said["round"] != round:
            return f"it answers round {said['round']}, not {round}"
        arrays = own_arrays(content)
        assert sent is not None
        for key, array in sent.items():
            if key not in arrays or tuple(arrays[key].shape) != tuple(array.shape):
                got = tuple(arrays[key].shape) if key in arrays else "nothing"
                return f"its {key} is of shape {got}, not {tuple(array.shape)}"
        for key, array in (*arrays.items(), *content.array_records[SEEN].items()):
            if not np.isfinite(array.numpy()).all():
                return f"its {key} is not finite"
        return ""

    def _take(self, reply: Message) -> _Told:
        content = reply.content
        said, seen = _said(content), _tensors(content)
        for name in (SAID, SEEN):
            del content[name]
        weight = 1.0
        if self._weighted_by is not None:
            metrics: Any = next(iter(content.metric_records.values()), {})
            weight = float(metrics.get(self._weighted_by, 1.0))
        node = reply.metadata.src_node_id
        return _Told(node, weight, said, seen, flat(own_arrays(content), list(said["keys"])))

    def _trained(self, server_round: int, told: list[_Told]) -> _Round:
        """What the participants' models say before their mean is known to them."""
        assert self._arrays is not None
        assert self._grid is not None
        loss, gradient, total = _mean(told)
        # A strategy may average in float64; the workers' models are of the type that they train in.
        model = flat(self._arrays, list(told[0].said["keys"])).to(told[0].seen["gradient"].dtype)
        everyone = {each.node for each in told} >= set(self._grid.get_node_ids())
        sums = Sums()
        for each in told:
            assert each.after is not None
            weight = each.weight / total
            own = Sums(
                spread=Spread(weight, each.after.double(), 0.0), gradient=weight * each.seen["gradient"].double()
            )
            sums.add(own)
        return _Round(server_round - 1, model, told, everyone, loss, gradient, sums)

    def _finish(self, answers: Mapping[int, _Told]) -> None:
        """Make the record of the round that is pending, now that its participants have seen their mean model."""
        pending, self._pending = self._pending, None
        assert pending is not None
        record = Round(pending.number, pending.loss, float(pending.gradient @ pending.gradient))
        said = [answers.get(told.node) for told in pending.told]
        if all(each is not None and "look" in each.seen for each in said):
            total = sum(told.weight for told in pending.told)
            seen = Secants(torch.zeros(len(pending.model), dtype=torch.float64))
            for told, each in zip(pending.told, said, strict=True):
                assert each is not None
                weight = told.weight / total
                squares, steepest = float(each.said["squares"]), float(each.said["steepest"])
                seen.add(Secants(weight * each.seen["look"].double(), weight * squares, steepest))
            gradient = pending.gradient if pending.everyone else None
            found = compare(pending.model, gradient, pending.sums, seen)
            record = Round(record.round, record.loss, record.grad2, **found._asdict())
        self._keep(record, pending.told)

    def _keep(self, record: Round, told: list[_Told]) -> None:
        self.rounds.append(record)
        self._seconds.append(time.perf_counter() - self._begin)
        if self._directory is not None:
            self._directory.append(record, self._seconds[-1])
        workers = [int(item.said["worker"]) for item in told]
        # Nodes need no number here, and two may have the same.
        numbered = min(workers) >= 0 and len(set(workers)) == len(workers)
        names = workers if numbered else [item.node for item in told]
        noise2 = {str(name): item.said.get("noise2") for name, item in zip(names, told, strict=True)}
        if each := {name: float(value) for name, value in noise2.items() if value is not None}:
            self._noise.add(record.round, each)
        seen = "" if record.L_h_ratio is None else f", L_h seen {record.L_h_ratio:.4g}"
        logger.info("round %d: loss %.6g%s", record.round, record.loss, seen)

    def _tell(self, what: str, node: int, round: int, why: str) -> None:
        self.events.append({"round": round - 1, "worker": None, "node": str(node), "what": what, "why": why})
        if self._directory is not None:
            write_event(self._directory.path / EVENTS, self.events[-1])
        logger.warning("Node %d was %s in round %d: %s.", node, what, round - 1, why)

    def _described(self) -> dict[str, Any]:
        """The settings of the run, as far as they are known by now."""
        known = {"gamma", "eta", "beta", "beta1", "beta2", "tau", "proximal"}
        parameters = {name: value for name, value in self._settings.items() if name in known}
        full = all(asked == there for asked, there in self._numbers)
        # Where strategies ask now more and now fewer, a plan is to reckon with the fewest.
        fewest = min(asked for asked, _ in self._numbers)
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
        """The records so far with a model, as a run."""
        model, last = flat(arrays, list(arrays)).numpy(), self.rounds[-1].round
        return Trace(self._described(), "finished", last, tuple(self.rounds), model, tuple(self._seconds))

    def _write(self, directory: RunDirectory, arrays: ArrayRecord) -> None:
        trace = self.trace(arrays)
        # Who took part is known in full only now.
        write_json(directory.path / "settings.json", trace.settings)
        directory.finish(trace, {key: torch.from_numpy(np.array(array.numpy())) for key, array in arrays.items()})
        write_measurement(directory.path, trace, self._noise, max(there for _, there in self._numbers))


def _number(reply: Message) -> tuple[int, int]:
    """The order in which answers are added up: by worker, and by node where workers have no number."""
    said: Any = {} if reply.has_error() else reply.content.config_records.get(SAID) or {}
    return int(said.get("worker", -1)), reply.metadata.src_node_id


def _said(content: RecordDict) -> dict[str, Any]:
    return dict(content.config_records[SAID])


def _tensors(content: RecordDict) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(array.numpy())) for name, array in content.array_records[SEEN].items()}


def _mean(told: list[_Told]) -> tuple[float, torch.Tensor, float]:
    """f and its gradient over those who answered, and what they weigh together."""
    total = sum(each.weight for each in told)
    loss = sum(each.weight / total * float(each.said["loss"]) for each in told)
    gradient = sum(
        (each.weight / total * each.seen["at_global"].double() for each in told[1:]),
        start=told[0].weight / total * told[0].seen["at_global"].double(),
    )
    return loss, gradient, total
