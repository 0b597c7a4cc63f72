"""The workers' part of a round: local steps and exact passes, one chunk of workers at a time, added up as they go.

Chunks are dealt to a fixed number of lanes. Each lane adds up its chunks in order, and then the lanes are added up in
order. An engine may run a lane anywhere: the sums are the same bits wherever it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from fedgauge.algorithms.base import Algorithm, Tensors
from fedgauge.algorithms.carried_statistics import carry_statistics
from fedgauge.algorithms.torch_optimisers import fitted
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.participation import Cohort
from fedgauge.federation.protocols import Federation, HasEffort, HasLosses, HasPooledLoss, HasStatistics, Rows

LANES = 8
"""The number of lanes. It is the same on every machine, because it groups the sums and so determines their rounding."""
_COLUMNS = 8192
"""The number of columns that are converted to float64 at once."""
_KEPT_BYTES = 2**25
"""Memory for local models and gradients until the mean model is known; it does not grow with the number of workers."""


_TOGETHER_BYTES = 2**28
"""If one model for every lane takes more memory than this, results of lanes are added up as they come."""


def is_large(*model: torch.Tensor) -> bool:
    """Whether models or memories are so large that not all lanes' results should be in memory at once."""
    return LANES * sum(each.numel() * each.element_size() for each in model) > _TOGETHER_BYTES


class Drawn(NamedTuple):
    """Consecutive local steps of a round of another run, whose mini-batches are taken.

    Attributes:
        round: the number of the round.
        steps: how many local steps it has.
        first: the first of those that are taken.
        last: the one after the last.
    """

    round: int
    steps: int
    first: int
    last: int


class Lane(NamedTuple):
    """Participants that are added up together, one chunk at a time, and what they remember."""

    cohort: Cohort
    memory: Tensors

    def chunks(self, size: int) -> Iterator[Lane]:
        """Split into consecutive lanes of at most ``size`` participants."""
        for first, part in zip(range(0, len(self.cohort.workers), size), self.cohort.chunks(size), strict=True):
            yield Lane(part, {name: rows[first : first + size] for name, rows in self.memory.items()})


def lanes(cohort: Cohort, chunk: int) -> list[Lane]:
    """Deal a cohort's chunks to the lanes; lanes that get no chunk are left out."""
    owner = np.arange(len(cohort.workers)) // chunk % LANES
    dealt = []
    for lane in range(min(LANES, -(-len(cohort.workers) // chunk))):
        mine = np.flatnonzero(owner == lane)
        dealt.append(Lane(Cohort(cohort.workers[mine], cohort.copies[mine], cohort.weights[mine]), {}))
    return dealt


class Remembering(Sequence[Lane]):
    """Lanes with what their participants remember, which is copied only for those that are asked for."""

    def __init__(self, dealt: Sequence[Lane], memory: Tensors) -> None:
        self._dealt, self._memory = dealt, memory

    def __len__(self) -> int:
        return len(self._dealt)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        cohort = self._dealt[place].cohort
        return Lane(cohort, {name: rows[cohort.workers] for name, rows in self._memory.items()})


def _columns(*rows: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Blocks of columns, the same of each argument, in float64.

    Converting blocks takes as long as converting whole rows, but watching 80 workers with the paper's MLP needs 50 MB
    of memory instead of 80 to 100 MB.
    """
    for parts in zip(*(torch.split(each, _COLUMNS, dim=-1) for each in rows), strict=True):
        yield tuple(part.double() for part in parts)


def _weighted(shares: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The weighted sum of rows in float64; one row, as large models have it, is not copied twice."""
    return rows[0].double().mul_(shares[0]) if len(rows) == 1 else shares @ rows.double()


def _first(rows: torch.Tensor, number: int) -> torch.Tensor:
    """The first rows, in memory of their own if there are others, which are then not held on to."""
    return rows if number >= len(rows) else rows[:number].clone()


@dataclass
class Spread:
    """The mean of rows and their weighted squared distance from it, merged without cancellation."""

    weight: float = 0.0
    mean: torch.Tensor | None = None
    squares: float = 0.0

    def add_rows(self, rows: torch.Tensor, weights: torch.Tensor) -> None:
        """Add the rows of a chunk, in float64."""
        weight, means, squares = float(weights.sum()), [], 0.0
        for (part,) in _columns(rows):
            # Relative to the first row, so that equal rows have exactly that row as their mean, and no spread.
            apart = part - part[0]
            gap = weights @ apart / weight
            means.append(part[0] + gap)
            squares += float(weights @ (apart - gap).square().sum(dim=1))
        self.add(Spread(weight, torch.cat(means), squares))

    def add(self, other: Spread) -> None:
        """Add the rows of another spread."""
        if self.mean is None or other.mean is None:
            self.mean = other.mean if self.mean is None else self.mean
        else:
            gap = other.mean - self.mean
            total = self.weight + other.weight
            self.squares += float(gap @ gap) * self.weight * other.weight / total
            self.mean = self.mean + gap * (other.weight / total)
        self.squares += other.squares
        self.weight += other.weight


@dataclass
class Sums:
    """The results of local steps: weighted sums of the messages, memories, and what was measured within the round.

    Attributes:
        message: weighted sums of what the participants send.
        memory: for each chunk, its workers and what they remember.
        spread: the spread of the local models, if the round is watched.
        gradient: weighted sum of the exact gradients, each at its worker's own model, if the round is watched.
        kept: the models and gradients of a lane's first participants, if the round is watched.
        path: messages and memories as they would be if the participants had stopped earlier, one for each earlier end.
    """

    message: dict[str, torch.Tensor] = field(default_factory=dict)
    memory: list[tuple[Any, Tensors]] = field(default_factory=list)
    spread: Spread = field(default_factory=Spread)
    gradient: torch.Tensor | None = None
    kept: Tensors = field(default_factory=dict)
    path: list[Sums] = field(default_factory=list)

    def add(self, other: Sums) -> None:
        """Add another lane's sums, except for its ``kept`` models and gradients."""
        for name, total in other.message.items():
            self.message[name] = self.message[name] + total if name in self.message else total
        self.memory += other.memory
        self.spread.add(other.spread)
        if other.gradient is not None:
            self.gradient = other.gradient if self.gradient is None else self.gradient + other.gradient
        self.path = self.path or [Sums() for _ in other.path]
        for mine, others in zip(self.path, other.path, strict=True):
            mine.add(others)


@dataclass
class Secants:
    """How the workers' gradients change between their own models and the mean model.

    Attributes:
        gradient: weighted sum of the exact gradients at the mean model.
        squares: weighted sum of their squared norms.
        steepest: the largest change of a worker's gradient divided by the distance; 0 if all models are equal.
    """

    gradient: torch.Tensor
    squares: float = 0.0
    steepest: float = 0.0

    def add(self, other: Secants) -> None:
        """Add another lane's sums, and take the larger of the two ratios."""
        self.gradient.add_(other.gradient)
        self.squares += other.squares
        self.steepest = max(self.steepest, other.steepest)


_GROUPS = 8
"""The number of groups of a sample, from whose means its standard error is computed."""


def sample_of(federation: HasEffort, size: int, seed: int) -> tuple[Rows, tuple[HasLosses, ...]]:
    """A fixed sample of every worker's examples, and the same in a few groups, each with examples of every worker."""
    number = min(_GROUPS, size)
    whole = federation.subset(size // number * number, Streams(seed, Purpose.SUBSET), round=1)
    return whole, tuple(cast(HasEffort, whole).every(number, first) for first in range(number))


class LaneWork:
    """What an engine runs: the computations of a federation's workers, one chunk of workers at a time.

    Every computation takes a lane of workers and returns sums, so that memory does not grow with their number.
    """

    def __init__(self, federation: Federation, chunk: int) -> None:
        self.federation, self.chunk = federation, chunk
        # The losses and gradients that count: the workers' own objectives, or those of a part of their examples.
        self.recorded: Rows = federation

    def evaluate(self, lane: Lane, model: torch.Tensor) -> tuple[float, torch.Tensor]:
        """Weighted sums of the workers' losses and gradients at one model."""
        loss, gradient = 0.0, torch.zeros(len(model), dtype=torch.float64, device=model.device)
        for (workers, _, weights), _ in lane.chunks(self.chunk):
            value, slope = self.recorded.pooled(model, workers, weights)
            loss += value
            gradient += slope
        return loss, gradient


def total(parts: Iterable[tuple[float, torch.Tensor]]) -> tuple[float, torch.Tensor]:
    """The sums of :meth:`LaneWork.evaluate` over all lanes; the first lane's gradient is overwritten."""
    loss, gradient = 0.0, None
    for value, slope in parts:
        loss += value
        gradient = slope if gradient is None else gradient.add_(slope)
    assert gradient is not None
    return loss, gradient


class Work(LaneWork):
    """The computations of a run, for one algorithm and seed."""

    def __init__(
        self,
        federation: Federation,
        algorithm: Algorithm,
        local_steps: int | Sequence[int],
        seed: int,
        chunk: int,
        sample: int | None = None,
    ) -> None:
        super().__init__(federation, chunk)
        self.given, self.sample = algorithm, sample
        if algorithm.shaped is not None:
            algorithm = fitted(algorithm, federation)
        self.algorithm = algorithm
        if isinstance(federation, HasStatistics) and federation.statistics:
            self.algorithm = carry_statistics(algorithm, federation.num_trained)
        self._groups: tuple[HasLosses, ...] = ()
        if sample is not None and isinstance(federation, HasEffort):
            self.recorded, self._groups = sample_of(federation, sample, seed)
        self._steps = np.broadcast_to(np.asarray(local_steps), (federation.num_workers,))
        self._equal_steps = bool((self._steps == self._steps[0]).all())
        self._seed = seed
        self._noise = Streams(seed, Purpose.NOISE)

    def __reduce__(self) -> tuple[Any, ...]:
        """Send other processes the constructor's arguments, from which they make it again."""
        steps = int(self._steps[0]) if self._equal_steps else self._steps.tolist()
        made = (self.federation, self.given, steps, self._seed, self.chunk, self.sample)
        return _received, (type(self), torch.get_default_dtype(), made)

    def loss(self, lane: Lane, model: torch.Tensor) -> float:
        """Weighted sum of the workers' losses at one model; without gradients, where the federation can do that."""
        return sum(
            self.recorded.pooled_loss(model, workers, weights)
            if isinstance(self.recorded, HasPooledLoss)
            else self.recorded.pooled(model, workers, weights)[0]
            for (workers, _, weights), _ in lane.chunks(self.chunk)
        )

    def group_losses(self, lane: Lane, model: torch.Tensor) -> list[float]:
        """Weighted sums of the losses of each group of a sample; their differences say how far the mean may be off."""
        sums = [0.0] * len(self._groups)
        for (workers, _, weights), _ in lane.chunks(self.chunk):
            models, shares = model.expand(len(workers), -1), torch.from_numpy(weights).to(model.device)
            for place, group in enumerate(self._groups):
                sums[place] += float(shares @ group.losses(models, workers))
        return sums

    def keepable(self, model: torch.Tensor, lanes: int) -> int:
        """The number of participants of each lane whose models fit in memory until the mean model is known."""
        return max(_KEPT_BYTES // (2 * model.numel() * model.element_size() * lanes), 1)

    def local_phase(
        self,
        lane: Lane,
        round: int,
        model: torch.Tensor,
        server: Tensors,
        watch: int,
        ends: Sequence[int] | None = None,
        drawn: Sequence[Drawn] = (),
    ) -> Sums:
        """Run the local steps of a lane's participants.

        Args:
            lane: the participants.
            round: the number of the round.
            model: the global model.
            server: what the server remembers.
            watch: 0 not to watch the round; otherwise, how many of the final models and gradients to keep.
            ends: growing numbers of local steps. The last replaces every participant's own number; what the
                participants would send after each of the others is summed too.
            drawn: the local steps of another run whose mini-batches are taken; by default, the round has its own.
        """
        sums = Sums()
        kept: dict[str, list[torch.Tensor]] = {"x": [], "gradient": []}
        for part in lane.chunks(self.chunk):
            workers, _, weights = part.cohort
            shares = torch.from_numpy(weights).to(model.device)
            path: list[Sums] = []
            for local, steps in self._stages(part, round, model, server, ends, drawn):
                sent, remembered = self.algorithm.finish(model, local, steps)
                message = {name: shares.to(rows.dtype) @ rows for name, rows in sent.items()}
                path.append(Sums(message, [(workers, remembered)] if remembered else []))
            whole = path.pop()
            if watch:
                whole.spread.add_rows(local["x"], shares)
                slopes = self.recorded.gradients(local["x"], workers)
                whole.gradient = _weighted(shares, slopes)
                wanted = max(watch - sum(map(len, kept["x"])), 0)
                kept["x"].append(_first(local["x"], wanted))
                kept["gradient"].append(_first(slopes, wanted))
            whole.path = path
            sums.add(whole)
        if watch:
            sums.kept = {name: torch.cat(rows) if len(rows) > 1 else rows[0] for name, rows in kept.items()}
        return sums

    def secants(self, lane: Lane, mean: torch.Tensor) -> Secants:
        """Compare the gradients at the kept local models, which are the lane's memory, with those at the mean model."""
        secants = Secants(torch.zeros(len(mean), dtype=torch.float64, device=mean.device))
        for (workers, _, weights), kept in lane.chunks(self.chunk):
            slopes = self.recorded.gradients(mean.expand(len(workers), -1), workers)
            shares = torch.from_numpy(weights).to(mean.device)
            number = len(kept["x"])
            change2, distance2 = shares.new_zeros(number), shares.new_zeros(number)
            into = torch.split(secants.gradient, _COLUMNS)
            blocks = _columns(slopes, kept["gradient"], kept["x"], mean)
            for total, (slope, kept_slope, x, centre) in zip(into, blocks, strict=True):
                change2 += (slope[:number] - kept_slope).square().sum(dim=1)
                distance2 += (centre - x).square().sum(dim=1)
                total += shares @ slope
                secants.squares += float(shares @ slope.square().sum(dim=1))
            ratios = (change2 / distance2).sqrt()[distance2 > 0]
            secants.steepest = max(secants.steepest, float(ratios.max()) if len(ratios) else 0.0)
        return secants

    def local_states(
        self, part: Lane, round: int, model: torch.Tensor, server: Tensors
    ) -> tuple[Tensors, torch.Tensor]:
        """The participants' final local states, and their numbers of steps as a column."""
        (last,) = self._stages(part, round, model, server)
        return last

    def _draws(self, cohort: Cohort, drawn: Sequence[Drawn]) -> Sequence[Any]:
        """The randomness of local steps, one entry for each."""
        workers, copies, _ = cohort
        parts = [
            self.federation.draws(self._noise, each.round, workers, copies, each.steps)[each.first : each.last]
            for each in drawn
        ]
        return parts[0] if len(parts) == 1 else [draw for part in parts for draw in part]

    def _stages(
        self,
        part: Lane,
        round: int,
        model: torch.Tensor,
        server: Tensors,
        ends: Sequence[int] | None = None,
        drawn: Sequence[Drawn] = (),
    ) -> Iterator[tuple[Tensors, torch.Tensor]]:
        """The participants' local states and numbers of steps, after each of ``ends`` or after their own steps."""
        workers = part.cohort.workers
        steps = self._steps[workers]
        together = self._equal_steps or ends is not None
        ends = ends or (int(steps.max()),)
        begun = self.algorithm.begin(model, server, part.memory)
        local: Tensors = {name: tensor.expand(len(workers), tensor.shape[-1]) for name, tensor in begun.items()}
        draws = self._draws(part.cohort, drawn or [Drawn(round, ends[-1], 0, ends[-1])])
        rate = self.algorithm.fused_rate(server)
        begin = 0
        for end in ends:
            taken = np.full(len(workers), end) if together else steps
            column = torch.as_tensor(taken, dtype=model.dtype, device=model.device).unsqueeze(1)
            if rate is not None and together:
                local = {**local, "x": self.federation.local_sgd(local["x"], workers, draws[begin:end], rate)}
                begin = end
            for k, draw in enumerate(draws[begin:end], start=begin):
                moved = self.algorithm.step(local, self.federation.stochastic_gradients(local["x"], workers, draw))
                if together:
                    local = moved
                else:
                    still = torch.from_numpy(k < steps).unsqueeze(1).to(model.device)
                    local = {name: torch.where(still, moved[name], local[name]) for name in moved}
            begin = end
            yield local, column


def _received(kind: type[Work], number_type: torch.dtype, made: tuple[Any, ...]) -> Work:
    """Work in a process that was started for it, where numbers have the same type by default as where it comes from."""
    torch.set_default_dtype(number_type)
    return kind(*made)
