"""Federations of supervised learners: a torch module, a loss and one shard of data per worker."""

from __future__ import annotations

import hashlib
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy as shallow_copy
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedgauge.base.devices import choose_device
from fedgauge.base.errors import InputError, count, non_negative
from fedgauge.base.fingerprints import Fingerprint, fingerprint
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.terminal import notify
from fedgauge.base.threads import (
    check_number_type,
    seed_generators,
    separate_generator,
    undisturbed,
    usual_torch,
)
from fedgauge.federation import kernels
from fedgauge.federation.checks import as_tensor, check_data, check_loss, check_module, check_output, check_targets
from fedgauge.federation.flat import FlatModule, flatten, forward_work, load_flat
from fedgauge.federation.identity import (
    SAMPLES,
    Identity,
    alone,
    copied_loss,
    copied_module,
    copied_tensor,
    copy_of,
    described,
    looked_at,
)
from fedgauge.federation.kernels.base import Loss, is_mean
from fedgauge.federation.modes import Augment, BatchNorm, Mode, check_choice, counters, examine, running, settle
from fedgauge.federation.protocols import Indices
from fedgauge.federation.shards import MiniBatches, ShardedData, Shards, flat, per_row, pooled

_log = logging.getLogger(__name__)


class SupervisedFederation:
    """Workers that share a model and a loss, each with data of its own.

    The federation has copies of the module, of the data and of a loss that is a module, so that a later change to those
    has no effect. It may be used in several threads; those that call the module wait for each other.

    F_i(x) is the mean loss of the model with trainable parameters x over worker i's shard, plus (l2/2)‖x‖². A
    stochastic gradient is that of a mini-batch drawn uniformly with replacement from the shard, so that its variance is
    that of one sample divided by the batch size, whatever the size of the shard.

    Args:
        model: a function that makes the module (called again, with its own seed, for every run's first model), or a
            module whose present parameters are the first model. Parameters with ``requires_grad=False`` are not part of
            the model: they stay as they are in the module made with seed 0, and count in nothing.
        loss: mean loss from (outputs, targets).
        inputs: the data as a tensor or a numpy array, first axis over samples. Fractions of a numpy array take the
            model's number type; a tensor is used as it is. Or data that say whose they are, such as lazily read ones.
        targets: labels or values, one per sample, as a tensor or a numpy array.
        shards: for every worker the indices of its samples, or all of them in the two arrays of :class:`Shards`.
        batch_size: samples in a mini-batch.
        l2: weight of the squared norm in the objective.
        augment: changes the inputs of a mini-batch at random in local steps, with torch's generator; exact passes use
            the inputs as they are.
        batch_norm: by whose statistics BatchNorm layers normalise: ``frozen``, those of the module; ``local``, those of
            the batch at hand; or ``averaged``, the running ones, which are averaged with the model. The module
            ``fedgauge.federation.modes`` says what each does to F_i.
        path: ``auto``, or the name of a kernel in :data:`fedgauge.federation.kernels.KERNELS`, such as ``dense``
            (several workers in one product) or ``plain`` (any module, one worker at a time, by autograd).
        device: where to compute: a device of torch, or ``auto`` for this machine's accelerator if it has one.

    A module that draws at random in its forward pass, such as one with dropout, does so in local steps only, from the
    run's own addressed streams; it is measured in eval mode. BatchNorm keeps the statistics that the module has, unless
    ``batch_norm`` says otherwise. Either is said in one sentence when the federation is made, and the module is left in
    eval mode where that is needed.

    Attributes:
        path: the path that was taken; it is logged too.
        remarks: what a reader of any result has to know about F_i, in whole sentences; mostly nothing.
        statistics: the names of the running statistics that follow the parameters in a flat model; mostly none.

    See :func:`federate` for data that are one pair of inputs and targets per worker.

    >>> x, y, shards = torch.randn(8, 3), torch.arange(8) % 2, [range(4), range(4, 8)]
    >>> federation = SupervisedFederation(lambda: nn.Linear(3, 2), nn.functional.cross_entropy, x, y, shards)
    >>> federation.num_workers, federation.dim, federation.path
    (2, 8, 'dense')
    """

    @property
    def processes(self) -> int | None:
        """One per core, as it pays off; but one where processes cannot be forked: see :attr:`forks`."""
        return None if self.forks else 1

    @property
    def forks(self) -> bool:
        """Whether a forked process can compute.

        Not on an accelerator; nor by autograd where there is one, as autograd's threads for it survive no fork.
        """
        return self._device.type == "cpu" and not (self._called and torch.accelerator.is_available())

    @undisturbed
    def __init__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        loss: Loss,
        inputs: torch.Tensor | npt.NDArray[Any] | Any,
        targets: torch.Tensor | npt.NDArray[Any] | None = None,
        shards: Shards | Sequence[Any] = (),
        *,
        batch_size: int = 20,
        l2: float = 0.0,
        augment: Augment | None = None,
        batch_norm: BatchNorm = "frozen",
        path: str = "auto",
        device: str = "cpu",
    ) -> None:
        self.batch_size = count("batch_size", batch_size)
        self.l2 = non_negative("l2", l2)
        self._effort: int | None = None
        kernels.check_path(path)
        self._make = model if not isinstance(model, nn.Module) and callable(model) else None
        self._number_type, self._hooks = torch.get_default_dtype(), kernels.hooks_of_all_modules()
        self._device = choose_device(device)
        module = check_module(model if self._make is None else self._made(0))
        self.batch_norm = check_choice(batch_norm)
        make = None if self._make is None else lambda: check_module(self._made(0))
        self._given: weakref.ref[nn.Module] | None = weakref.ref(module)
        module = copied_module(module, make).to(self._device)
        self._module = settle(module, self.batch_norm)
        self.statistics = running(module) if batch_norm == "averaged" else ()
        scratch = {"frozen": (), "local": running(module) + counters(module), "averaged": counters(module)}[batch_norm]
        self.loss, self._augment = copied_loss(check_loss(loss), self._device), augment
        self._first, self._flat = flatten(module, self.statistics), FlatModule(module, self.statistics, scratch)
        number = self._first.dtype
        if isinstance(inputs, ShardedData):
            self._data = inputs
        else:
            x, y = check_data(as_tensor("inputs", inputs, number), as_tensor("targets", targets, number))
            self._data = data = ShardedData(x.to(self._device), y.to(self._device), *flat(shards))
            data.inputs, data.targets = copied_tensor(data.inputs, inputs), copied_tensor(data.targets, targets)
        samples = self._data.few()
        check_output(self._flat, self.loss, self._first, samples, self.targets)
        check_targets(self._flat, self.loss, self._first, samples, (self.inputs, self.targets))
        learner = kernels.Learner(self._module, self.loss, self._first, self.inputs, self.targets, self._flat)
        # Only the plain path takes one worker's mini-batch at a time, just before it is used.
        self._rows = kernels.choose(learner, path if augment is None and not self._data.lazy else "plain")
        self.path = self._rows.name
        # What is written out is known; only a module that is called can do anything else.
        self._called = called = self.path == kernels.KERNELS[-1].name
        examined = (self._flat, self.loss, self._first, samples, augment, self.batch_norm)
        self._mode = examine(*examined) if called else Mode()
        # With any other loss, or with samples that are not here to see, F_i may depend on the size of the blocks.
        if self._mode.even and not self._data.lazy and is_mean(self.loss, self.targets):
            self._data = self._data.in_blocks(self._rows.samples)
        _log.info("path %s: %s", self.path, self._rows.summary)
        for remark in self.remarks:
            notify(remark)

    def __getstate__(self) -> dict[str, Any]:
        """Other processes get everything but what makes the first model, which is often a lambda."""
        return {**self.__dict__, "_make": None, "_given": None}

    def _made(self, seed: int) -> nn.Module:
        """A new module, made with torch's own generator seeded; its state is restored afterwards."""
        if self._make is None:
            return self._module
        with separate_generator(self._device):
            seed_generators(int(Streams(seed, Purpose.START).at().integers(2**63)), self._device)
            return self._make()

    @property
    def module(self) -> nn.Module:
        """A copy of the module; its own parameters are those of some model, not of any particular one."""
        with self._alone():
            module = copy_of(self._module)
        return self._made(0) if module is None else module

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Compute as the federation was made to, whatever the caller has set, and one thread at a time with modules."""
        check_number_type(self._number_type)
        if kernels.hooks_of_all_modules() != self._hooks:
            raise InputError(
                "The hooks that torch calls for all modules have changed since the federation was made; remove the new"
                " ones, or make the federation again."
            )
        with usual_torch(), self._flat.lock if self._called else nullcontext():
            self._mode.measure()
            yield

    # -- the flat model ----------------------------------------------------------------------------------------

    def flatten(self, module: nn.Module) -> torch.Tensor:
        """A module's trainable parameters as one vector, in the order of ``named_parameters``."""
        return flatten(module, self.statistics)

    def unflatten(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """The trainable parameters by name, as views of a flat model."""
        return self._flat.parts(row)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader of any result has to know about F_i, in whole sentences."""
        return self._mode.remarks

    @property
    def averages_samples(self) -> bool:
        """Whether a stochastic gradient is the mean of its samples' own gradients, which exact noise is made of."""
        return self._mode.even and not self._mode.seeded

    @alone
    def outputs(self, model: torch.Tensor, inputs: torch.Tensor) -> Any:
        """What the module returns for these inputs with the parameters of a flat model."""
        return self._flat.outputs(self._flat.parts(model), inputs)

    @property
    def num_workers(self) -> int:
        """N."""
        return len(self._data.offsets) - 1

    @property
    def dim(self) -> int:
        """The number d of trainable parameters, and of averaged statistics."""
        return len(self._first)

    @property
    def num_trained(self) -> int:
        """The number of trainable parameters, which come first in a flat model."""
        return self._flat.num_trained

    @alone
    def effort(self) -> int:
        """About how many products of two numbers the forward pass of one sample takes; counted, not timed."""
        if self._effort is None:
            x, _ = self._data.few()
            with self._flat.lock:
                self._effort = forward_work(self._module, lambda: self.outputs(self._first, x), len(x))
        return self._effort

    def chunk(self, participants: int) -> int:
        """As many rows as the path computes best at once, but at most half, so that two processes can share them."""
        return min(self._rows.rows, -(-participants // 2))

    @cached_property
    def identity(self) -> Identity:
        """Fingerprints of the data, the model, the loss and all else that F_i and the mini-batches depend on."""
        data = hashlib.sha256(self._data.offsets.data)
        self._data.update_digest(data)
        parts = {
            "data": Fingerprint(data.hexdigest(), ()),
            "model": fingerprint([self._module, *kernels.hooks_of_all_modules()], trained=False),
            "first model": fingerprint(self._first),
            "loss": fingerprint(self.loss),
            "augment function": fingerprint(self._augment),
            "collate function": fingerprint(self._data.collating()),
            "batch size": fingerprint(self.batch_size),
            "l2": fingerprint(self.l2),
            "use of BatchNorm": fingerprint(self.batch_norm),
        }
        return Identity(parts)

    @property
    def digest(self) -> str:
        """SHA-256 of the data, the model, the loss and all else that F_i and the mini-batches depend on."""
        return self.identity.digest

    def description(self) -> dict[str, Any]:
        """What a run that is saved says about its federation, by which it is recognised when it is resumed."""
        workers = looked_at(self.num_workers)
        few = self._changed(_data=self._data.firsts(SAMPLES, workers))
        return described(self.identity, self._first, few, len(workers))

    @alone
    def start(self, seed: int) -> torch.Tensor:
        """The first global model: made for the seed, or the given module's."""
        module = None if self._make is None or seed == 0 else self._made(seed)
        # A function that returns one module whenever it is called gives the parameters that this had at first.
        if module is None or (self._given is not None and module is self._given()):
            return self._first.clone()
        made = self.flatten(module).to(self._first.device)
        if made.shape != self._first.shape:
            raise InputError(
                f"The model has {len(made)} trainable parameters with seed {seed}, but {len(self._first)} with seed 0;"
                " make the same layers with every seed."
            )
        return made

    # -- data --------------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> torch.Tensor:
        """The data, worker by worker where it is a partition; of data that are read lazily, a few samples."""
        return self._data.inputs

    @property
    def targets(self) -> torch.Tensor:
        """Labels or values of the inputs."""
        return self._data.targets

    @property
    def is_lazy(self) -> bool:
        """Whether samples are read only when they are needed."""
        return self._data.lazy

    def sizes(self, workers: Indices) -> Indices:
        """How many samples each of the workers has."""
        return self._data.sizes(workers)

    def shard(self, worker: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A worker's own inputs and targets."""
        return self._data.shard(worker)

    def blocks(self, worker: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """A worker's inputs and targets, a block of samples at a time."""
        return self._data.blocks(*self._data.offsets[worker : worker + 2].tolist())

    # -- parts of the federation -------------------------------------------------------------------------------

    def _changed(self, **attributes: Any) -> Self:
        """A federation that shares all but these attributes."""
        other = shallow_copy(self)
        other.__dict__.pop("identity", None)
        other.__dict__.update({"_make": self._make, **attributes})
        return other

    def with_batch_size(self, batch_size: int) -> Self:
        """The same workers and data, with mini-batches of another size."""
        return self._changed(batch_size=count("batch_size", batch_size))

    @alone
    def with_statistics_of(self, model: torch.Tensor) -> SupervisedFederation:
        """The federation whose BatchNorm statistics are those of a flat model, and stay as they are."""
        with self._mode.in_local_steps():
            module = self.module
        load_flat(module, model, self.statistics)
        how: dict[str, Any] = {"batch_size": self.batch_size, "l2": self.l2, "augment": self._augment}
        return SupervisedFederation(module, self.loss, self._data, **how, device=str(model.device))

    def subset_sizes(self, size: int | float, workers: Indices | None = None) -> Indices:
        """How many samples :meth:`subset` takes of each of the workers, at least one."""
        return self._data.subset_sizes(size, np.arange(self.num_workers) if workers is None else workers)

    def subset(
        self, size: int | float, streams: Streams, *, round: int = 0, copy: int = 0, workers: Indices | None = None
    ) -> Self:
        """A federation whose shards are uniformly random subsets of the workers' shards; the data are not copied.

        Args:
            size: samples per worker (all, where it has fewer), or the fraction of them as a float.
            streams: where the subsets come from; worker i's is drawn at the address (round, i, copy).
            round: of the address.
            copy: of the address; subsets at two addresses are independent.
            workers: whose subsets to take, as workers 0, 1, … of the new federation; all workers if not given.

        >>> x, y, shards = torch.randn(8, 3), torch.arange(8) % 2, [range(4), range(4, 8)]
        >>> whole = SupervisedFederation(lambda: nn.Linear(3, 2), nn.functional.cross_entropy, x, y, shards)
        >>> whole.subset(3, Streams(0, Purpose.SUBSET)).sizes(np.arange(2))
        array([3, 3])
        """
        workers = np.arange(self.num_workers) if workers is None else workers
        return self._changed(_data=self._data.subset(size, streams, round, copy, workers))

    def every(self, number: int, first: int) -> Self:
        """A federation of each worker's every ``number``-th sample, beginning with ``first``; at least one of each."""
        return self._changed(_data=self._data.every(number, first))

    # -- exact operations on rows ------------------------------------------------------------------------------

    def _penalised(self, rows: torch.Tensor) -> torch.Tensor:
        """The columns that the l2 term is about: the parameters."""
        return rows[..., : self.num_trained] if self.statistics else rows

    def _with_penalty(self, losses: torch.Tensor, models: torch.Tensor) -> torch.Tensor:
        """Add the l2 term's part of losses, if it has any: squares of a large model take longer than a few samples."""
        if not self.l2:
            return losses
        return losses + self.l2 / 2 * self._penalised(models).double().square().sum(dim=1)

    def _with_l2(self, rows: torch.Tensor, models: torch.Tensor, weight: float = 1.0) -> torch.Tensor:
        """Add the l2 term's part of gradients or of products with Hessians, in place."""
        if self.l2:
            self._penalised(rows).add_(self._penalised(models), alpha=weight * self.l2)
        return rows

    @alone
    def evaluate(self, models: torch.Tensor, workers: Indices) -> tuple[torch.Tensor, torch.Tensor]:
        """Exact losses and gradients over the workers' whole shards, summed over blocks in float64."""
        losses, gradients = per_row(
            self._data, models, workers, lambda rows, x, y: self._rows.evaluate(models[rows], x, y)
        )
        return self._with_penalty(losses, models), self._with_l2(gradients, models)

    @alone
    def pooled(
        self, model: torch.Tensor, workers: Indices, weights: npt.NDArray[np.float64]
    ) -> tuple[float, torch.Tensor]:
        """Weighted sums of the workers' losses and gradients at one model, in float64."""
        row = model.unsqueeze(0)
        loss, gradient = 0.0, torch.zeros_like(model, dtype=torch.float64)
        for weight, (value, slope) in pooled(
            self._data, workers, weights, lambda _, x, y: self._rows.evaluate(row, x, y)
        ):
            loss += weight * float(value)
            gradient.add_(slope[0], alpha=weight)
        if self.l2:
            wide, total = self._penalised(model).double(), float(weights.sum())
            loss += total * self.l2 / 2 * float(wide @ wide)
            self._penalised(gradient).add_(wide, alpha=total * self.l2)
        return loss, gradient

    @alone
    def pooled_loss(self, model: torch.Tensor, workers: Indices, weights: npt.NDArray[np.float64]) -> float:
        """Weighted sum of the workers' losses at one model, by forward passes alone."""
        row = model.unsqueeze(0)
        parts = pooled(self._data, workers, weights, lambda _, x, y: (self._rows.losses(row, x, y),))
        loss = sum(weight * float(value) for weight, (value,) in parts)
        if self.l2:
            wide = self._penalised(model).double()
            loss += float(weights.sum()) * self.l2 / 2 * float(wide @ wide)
        return loss

    @alone
    def losses(self, models: torch.Tensor, workers: Indices) -> torch.Tensor:
        """F_i(x_i), one number per row, exact."""
        (losses,) = per_row(self._data, models, workers, lambda rows, x, y: (self._rows.losses(models[rows], x, y),))
        return self._with_penalty(losses, models)

    @alone
    def gradients(self, models: torch.Tensor, workers: Indices) -> torch.Tensor:
        """The exact local gradients, one row each."""
        (gradients,) = per_row(
            self._data, models, workers, lambda rows, x, y: (self._rows.gradients(models[rows], x, y),)
        )
        return self._with_l2(gradients, models)

    @alone
    def hessian_products(self, models: torch.Tensor, vectors: torch.Tensor, workers: Indices) -> torch.Tensor:
        """H_i(x_i) v_i over the workers' whole shards, the exact Hessian: all of it, not its Gauss-Newton part."""

        def compute(rows: slice, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
            return (self._rows.hessian_products(models[rows], vectors[rows], x, y),)

        (products,) = per_row(self._data, models, workers, compute)
        return self._with_l2(products, vectors)

    @alone
    def pooled_hessian(
        self, model: torch.Tensor, vector: torch.Tensor, workers: Indices, weights: npt.NDArray[np.float64]
    ) -> torch.Tensor:
        """Weighted sum of the workers' H_i v at one model, in float64."""
        row, along = model.unsqueeze(0), vector.to(model.dtype).unsqueeze(0)
        product = torch.zeros_like(model, dtype=torch.float64)
        for weight, (part,) in pooled(
            self._data, workers, weights, lambda _, x, y: (self._rows.hessian_products(row, along, x, y),)
        ):
            product.add_(part[0], alpha=weight)
        return self._with_l2(product, vector, float(weights.sum()))

    @alone
    def sample_variances(self, model: torch.Tensor, workers: Indices) -> torch.Tensor:
        """The variance of one sample's gradient over each worker's whole shard: mean ‖g_s‖² - ‖∇F_i‖².

        The l2 term is the same for all samples and drops out.
        """
        if not self.averages_samples:
            raise InputError(
                "Single samples do not say how noisy mini-batches are here, because a stochastic gradient is not the"
                " mean of its samples' gradients; measure the noise from draws."
            )
        models = model.expand(len(workers), -1)

        def compute(rows: slice, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            squares = self._rows.sample_squares(models[rows], x, y).mean(dim=1)
            return squares, self._rows.evaluate(models[rows], x, y)[1]

        squares, gradients = per_row(self._data, models, workers, compute)
        # Rounding can take a difference of equal numbers below zero.
        return (squares - gradients.double().square().sum(dim=1)).clamp_(min=0.0)

    # -- mini-batches ------------------------------------------------------------------------------------------

    @property
    def _batches(self) -> MiniBatches:
        return MiniBatches(self._data, self._mode, self._augment)

    @alone
    def draws(self, streams: Streams, round: int, workers: Indices, copies: Indices, steps: int) -> Sequence[Any]:
        """Numbers of the mini-batches' samples, one matrix of (rows, batch size) for each step.

        Where the model or the augmentation draws at random itself, a seed for it follows as one more column.
        """
        return self._batches.draws(self.batch_size, streams, round, workers, copies, steps)

    @alone
    def stochastic_gradients(self, models: torch.Tensor, workers: Indices, draws: Any) -> torch.Tensor:
        """Gradients of the mean loss over each row's mini-batch."""
        batches = self._batches
        with self._mode.in_local_steps():
            if batches.apart:
                rows = [
                    self._rows.gradients(row[None], batches.inputs(draw)[None], batches.targets(draw)[None])
                    for row, draw in zip(models, draws, strict=True)
                ]
                gradients = torch.cat(rows)
            else:
                gradients = self._rows.gradients(models, batches.inputs(draws), batches.targets(draws))
        return self._with_l2(gradients, models)

    @alone
    def local_sgd(self, models: torch.Tensor, workers: Indices, draws: Sequence[Any], gamma: float) -> torch.Tensor:
        """All local steps of plain SGD at once: what repeated steps along ``stochastic_gradients`` give."""
        decay, batches = 1.0 - gamma * self.l2, self._batches
        with self._mode.in_local_steps():
            return self._rows.descend(models, draws, batches.inputs, batches.targets, gamma, decay)
