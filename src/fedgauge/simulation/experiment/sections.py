"""The sections of an experiment: every key with its type, its default and the help that the command shows for it."""

from __future__ import annotations

import dataclasses
import functools
import json
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from fedgauge.algorithms.parameters import parameters
from fedgauge.base.errors import InputError, count
from fedgauge.simulation.options import check_engine

if TYPE_CHECKING:
    from fedgauge.algorithms.cost import Cost
    from fedgauge.simulation.options import Compute, StopAt


def _key(help: str, default: Any = None) -> Any:
    """A key, with the help text that the command shows for it."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class DataSection:
    """Which data to use, and how to divide it among the workers."""

    name: str = _key(
        "A data set (see 'fedgauge data list'), an .npz file, your own as package.module:function, or the .json file of"
        " a quadratic federation.",
        "digits",
    )
    dir: str | None = _key("Directory that holds the data sets [default: $FEDGAUGE_DATA, or your user data directory].")
    scale: Literal["unit", "published", "measured", "features", "none", "auto"] | None = _key(
        "How to scale the inputs: unit, published, measured, features (each by itself), none for tokens, or auto, which"
        " is unit, or features for floats far above 1 [default: unit; whole numbers other than bytes are tokens]."
    )
    targets: Literal["classes", "values"] | None = _key(
        "Whether the targets are classes or values, as in regression [default: fractions are values]."
    )
    context: int | None = _key("Number of characters in an example, for the data set shakespeare [default: 64].")
    scheme: str | None = _key(
        "How to divide the data: paper, iid, dirichlet, shards, quantity or id [default: paper; iid without classes]."
    )
    workers: int | None = _key("Number of workers N [default: 10; with the scheme id, one worker per id].")
    percent: float | None = _key(
        "Percentage X of a worker's data with its own label [default: 50; for the scheme paper]."
    )
    divide_by: str | None = _key(
        "Divide the data by this instead of the labels: coarse, writer, role, play, or the name of an array in the .npz"
        " file."
    )
    labels_per_worker: int | None = _key(
        "Number of labels that each worker has as its own [default: 1; for the scheme paper]."
    )
    per_worker: int | None = _key("Examples per worker, for the scheme paper [default: all examples, divided equally].")
    fill: bool | None = _key(
        "If a label has too few examples, take the missing ones from other labels; for the scheme paper."
    )
    alpha: float | None = _key(
        "Concentration of the Dirichlet distribution [default: 0.5 for dirichlet, 1 for quantity]."
    )
    least: int | None = _key("Minimum number of examples per worker [default: 1; for dirichlet and quantity].")
    shards: int | None = _key("Number of shards per worker [default: 2; for the scheme shards].")
    grouping: Literal["random", "similar"] | None = _key(
        "Which ids share a worker where there are fewer workers than ids: random ones, or those with similar data"
        " [default: random; for the scheme id]."
    )
    shift: str | tuple[str, ...] | Mapping[str, float] | None = _key(
        "Change every worker's examples in its own way, by KIND=STRENGTH with a strength from 0 to 1; may be repeated."
        " Inputs: rotation, gain, contrast, blur, mixing, noise. Targets: swap, label-noise, offset."
    )
    shift_test: bool | None = _key("Shift the test examples too, each as a random worker's [default: no].")
    test_examples: int | None = _key("Use only the first N test examples [default: all].")
    partition_seed: int | None = _key("Seed of the partition and of shifts [default: the seed of the run].")

    def __post_init__(self) -> None:
        for name in ("test_examples", "context"):
            if getattr(self, name) is not None:
                count(name, getattr(self, name))
        if self.context is not None and self.name != "shakespeare":
            raise InputError(f"context is for the data set shakespeare, not for {self.name}; leave it out.")
        if self.shift is not None:
            # Imported here, so that the command's help need not wait for numpy.
            from fedgauge.data.shifts import parse_shifts, spell_shifts

            object.__setattr__(self, "shift", spell_shifts(parse_shifts(self.shift)) or None)
        if self.shift_test is not None and self.shift is None:
            raise InputError("shift_test says whether shifts change test examples too; give a shift or leave it out.")

    @property
    def is_quadratic(self) -> bool:
        """Whether the name is the file of a quadratic federation."""
        return self.name.endswith(".json")

    @property
    def is_user_code(self) -> bool:
        """Whether the name is a function of the user's own, ``package.module:function``."""
        return ":" in self.name and not self.name.endswith((".npz", ".json"))

    @property
    def scheme_parameters(self) -> dict[str, Any]:
        """The parameters of the scheme that have a value."""
        names = ("percent", "labels_per_worker", "per_worker", "fill", "alpha", "least", "shards", "grouping")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def num_workers(self) -> int | None:
        """The number N of workers; None if only the data determines it, as with the scheme id."""
        return 10 if self.workers is None and self.scheme != "id" else self.workers


@dataclass(frozen=True)
class ModelSection:
    """Which model to train, and its options."""

    name: str | None = _key(
        "The model: mlp, linear, softmax, cnn, vgg11, vgg16, resnet20, transformer, or your own as"
        " package.module:factory [default: mlp]."
    )
    batch_norm: Literal["frozen", "local", "averaged"] | None = _key(
        "By whose statistics BatchNorm layers normalise: frozen (the module's own), local (each batch's) or averaged"
        " (running ones, averaged with the model) [default: frozen]."
    )
    options: Mapping[str, Any] = field(
        default_factory=dict, metadata={"help": "An option of the model, as in width=200; may be repeated."}
    )

    def __hash__(self) -> int:
        return hash((self.name, self.batch_norm, json.dumps(self.options, sort_keys=True, default=str)))


@dataclass(frozen=True)
class AlgorithmSection:
    """Which algorithm to run, and its parameters in ``options``: all that some algorithm has are keys of the file."""

    name: str = _key(
        "The algorithm: one that 'fedgauge theory algorithms' lists, or your own as package.module:factory.", "fedavg"
    )
    options: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"help": "A parameter of the algorithm, of your own or not, as in decay=0.9; may be repeated."},
    )

    def __hash__(self) -> int:
        return hash((self.name, json.dumps(self.parameters, sort_keys=True, default=str)))

    @property
    def is_user_code(self) -> bool:
        """Whether it is the user's own algorithm, ``package.module:factory``."""
        return ":" in self.name

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that have a value."""
        return {key: value for key, value in self.options.items() if value is not None}

    @property
    def gamma(self) -> float | None:
        """The local learning rate, which may be missing for an algorithm of the user's own."""
        return self.parameters.get("gamma")

    def parameters_in(self, rounds: int, steps: float | None) -> dict[str, Any]:
        """The parameters in a run of ``rounds`` rounds and ``steps`` local steps, at the end of which schedules end."""
        from fedgauge.algorithms.schedules import OPTIONS, Schedule

        parameters = self.parameters
        named = [name for name in OPTIONS if isinstance(parameters.get(name), str) and not self.is_user_code]
        return {**parameters, **{name: str(Schedule.parse(parameters[name]).over_run(rounds, steps)) for name in named}}


@dataclass(frozen=True)
class RunSection:
    """How to run the experiment."""

    local_steps: int | tuple[int, ...] | Literal["auto"] | str = _key(
        "Local steps I per round: one number, one number per worker as in 1,2,1; auto, which adapts I to the cost;"
        " live, which measures in the run how many of them count, as in live,local_steps=16,cost=100; or a published"
        " rule: qsr,alpha=0.02,base=4, or post-local,local_steps=8,switch=500, or adacomm,local_steps=16,interval=200."
        " Each takes steps=N to end the run after N local steps.",
        10,
    )
    local_epochs: int | None = _key(
        "Local epochs per round instead of local steps; an epoch is a worker's number of examples divided by the batch"
        " size, rounded up, so workers with more examples take more steps."
    )
    cost: str | None = _key(
        "Cost of a round: the number of local steps that take as long, as in 100; cross-device, cross-silo or local,"
        " with changed numbers if you like, as in cross-device,step=0.2; or numbers alone, as in"
        " fixed=1,bandwidth=1e6,step=0.01. A gauge recommends local"
        " steps for it; a plan and automatic local steps use it, or else cross-device."
    )
    most_local_steps: int | None = _key("Largest number of local steps that auto may choose [default: 128].")
    rounds: int = _key("Number of rounds R.", 100)
    batch_size: int | None = _key("Number of examples in a mini-batch [default: 20].")
    participants: int | None = _key("Number of workers M that take part in a round [default: all].")
    sampling: Literal["full", "with-replacement", "with-replacement-shared", "without-replacement"] | None = _key(
        "How participants are drawn: full, with-replacement, with-replacement-shared or without-replacement"
        " [default: full; with-replacement if the number of participants is given]."
    )
    weights: Literal["sizes"] | tuple[float, ...] | None = _key(
        "One weight per worker, as in 1,2,1, or sizes to weigh workers by their number of examples [default: equal]."
    )
    seed: int = _key("Seed of all random numbers.", 0)
    record_every: int | None = _key(
        "Record every N-th round exactly, in passes over all data [default: every round if that is cheap; otherwise"
        " what takes a quarter of the work at most]."
    )
    record_sample: int | None = _key("Record values of only this many examples of each worker, and say so.")
    watch: bool | None = _key(
        "Also record how far the workers' models spread and the L_h of the round; takes two more passes [default: yes]."
    )
    goal: str | None = _key(
        "Stop when this is reached, as in loss=0.1; accuracy=0.9 is that on test data, and grad2=0.01 the squared norm"
        " of the gradient of f; several, separated by commas, stop at the first."
    )
    goal_records: int | None = _key("How many records in a row must reach the goal [default: 1].")
    processes: int | None = _key(
        "Number of processes that compute a round [default: one per core; one for quadratics]."
    )
    engine: str | None = _key(
        "Where to compute: local (this machine) or ray (a Ray cluster, with fedgauge-ray) [default: local]."
    )
    address: str | None = _key(
        "Address of the cluster: HOST:PORT or auto [default: $RAY_ADDRESS, or a cluster started on this machine]."
    )
    chunk: int | None = _key(
        "Number of workers whose models are in memory at once [default: the fastest for the model]."
    )
    device: str | None = _key(
        "Torch device to compute on, or auto for the accelerator of this machine, if it has one [default: cpu]."
    )
    checkpoint_every: int = _key("Save a checkpoint every N rounds.", 100)

    def __post_init__(self) -> None:
        counts = ("rounds", "batch_size", "participants", "record_every", "processes", "chunk", "checkpoint_every")
        for name in (*counts, "most_local_steps", "local_epochs", "goal_records"):
            value = getattr(self, name)
            if value is not None:
                count(name, value)
        adapts = self.local_steps == "auto"
        if isinstance(self.local_steps, str) and not adapts:
            if self.local_steps[:1].isdigit():
                raise InputError(
                    f"run.local_steps must be a whole number, a list of them or a pace, not {self.local_steps!r};"
                    " leave the quotes out."
                )
            # Imported here, so that the command's help need not wait for it.
            from fedgauge.algorithms.paces import parse_rule

            parse_rule(self.local_steps)
        # A cost is parsed, and so checked, only if there is one, because parsing it imports numpy.
        if (adapts or self.cost is not None) and self.round_cost.step is None and adapts:
            raise InputError(
                f"local_steps = auto needs the seconds that a local step takes, which the cost {self.cost} leaves open;"
                " add them, as in local,step=0.001."
            )
        if self.local_epochs is not None and self.local_steps != type(self).local_steps:
            raise InputError("local_steps and local_epochs both say how much a worker does; leave one of them out.")
        if self.most_local_steps is not None and self.local_steps != "auto":
            raise InputError("most_local_steps is for local_steps = auto only; leave it out.")
        check_engine(self.engine, self.address)
        _ = self.stop

    @property
    def here(self) -> Self:
        """The same settings for one of several parallel runs, each computed on the machine that it is sent to."""
        return dataclasses.replace(self, engine=None, address=None)

    @property
    def compute(self) -> Compute:
        """Where a round is computed."""
        # Imported here, so that the command's help need not wait for numpy.
        from fedgauge.simulation.options import Compute

        return Compute(self.processes, self.engine or "local", self.address, self.chunk)

    @property
    def stop(self) -> StopAt:
        """What ends the run before its last round."""
        from fedgauge.simulation.options import StopAt

        return StopAt.parse(self.goal or "", self.goal_records or 1)

    @property
    def round_cost(self) -> Cost:
        """The cost of a round: the one in ``cost``, or the default."""
        # Imported here, so that the command's help need not wait for numpy.
        from fedgauge.algorithms.cost import Cost

        return Cost.parse(self.cost or "cross-device")


SECTIONS = {"data": DataSection, "model": ModelSection, "algorithm": AlgorithmSection, "run": RunSection}


class Key(NamedTuple):
    """A key of an experiment.

    Attributes:
        section: its section in the file.
        name: its name in the file.
        option: its name on the command line, where there are no sections.
        hint: the type of its value.
        help: what it means.
        default: its value if it is left out.
    """

    section: str
    name: str
    option: str
    hint: Any
    help: str
    default: Any


@functools.cache
def keys() -> tuple[Key, ...]:
    """All keys, in order.

    >>> [key.option for key in keys()][:4], len({key.option for key in keys()}) == len(keys())
    (['source', 'data', 'scale', 'targets'], True)
    """
    return tuple(_keys())


def _keys() -> Iterator[Key]:
    called = {"data.name": "source", "data.dir": "data", "model.name": "model", "model.options": "model_option"}
    called |= {"algorithm.name": "algorithm", "algorithm.options": "algorithm_option"}
    for section, kind in SECTIONS.items():
        hints = typing.get_type_hints(kind)
        for item in dataclasses.fields(kind):
            if kind is AlgorithmSection and item.name == "options":
                for name, each in parameters().items():
                    yield Key(section, name, name, each.kind | None, each.help, None)
            option = called.get(f"{section}.{item.name}", item.name)
            yield Key(section, item.name, option, hints[item.name], item.metadata["help"], item.default)
