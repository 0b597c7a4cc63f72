"""An experiment: data, model, algorithm and run, as one frozen value that is read from TOML and written back.

    [data]
    name = "mnist"        # a data set, an .npz file, or the .json file of a quadratic federation
    percent = 50

    [model]
    name = "mlp"          # or package.module:factory; further keys are the model's own options

    [algorithm]
    name = "fedavg"
    gamma = 0.1

    [run]
    local_steps = 10

Every key is also an option of the command (``local_steps`` is ``--local-steps``), which takes types and help from here.
A key that is left out has no value at all, so that an experiment can refuse a key that does not apply to it. Paths are
relative to the current directory, not to the file.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import tomllib
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from fedgauge.algorithms import make_algorithm
from fedgauge.codec import decoder, toml, toml_key
from fedgauge.errors import InputError, count, nearest
from fedgauge.simulation.engines.choice import check_engine

if TYPE_CHECKING:
    from fedgauge.pace.cost import Cost
    from fedgauge.simulation.options import Compute, StopAt


def _key(help: str, default: Any = None) -> Any:
    """A key, with the help text that the command shows for it."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class DataSection:
    """Which data to use, and how to divide it among the workers."""

    name: str = _key(
        "A data set (see 'fedgauge data list'), an .npz file, or the .json file of a quadratic federation.", "digits"
    )
    dir: str | None = _key("Directory that holds the data sets [default: $FEDGAUGE_DATA, or your user data directory].")
    scale: Literal["unit", "published", "measured"] | None = _key(
        "How to scale the inputs: unit, published or measured [default: unit]."
    )
    scheme: str | None = _key("How to divide the data: paper, iid, dirichlet, shards, quantity or id [default: paper].")
    workers: int | None = _key("Number of workers N [default: 10; with the scheme id, one worker per id].")
    percent: float | None = _key(
        "Percentage X of each worker's data that comes from its own label (paper) [default: 50]."
    )
    labels: str | None = _key(
        "Divide the data by these instead of the labels: coarse, writer, or the name of an array in the .npz file."
    )
    labels_per_worker: int | None = _key("Number of labels that each worker has as its own (paper) [default: 1].")
    per_worker: int | None = _key("Examples per worker (paper) [default: all examples, divided equally].")
    fill: bool | None = _key("If a label has too few examples, take the missing ones from other labels (paper).")
    alpha: float | None = _key(
        "Concentration of the Dirichlet distribution (dirichlet [default: 0.5], quantity [default: 1])."
    )
    least: int | None = _key("Minimum number of examples per worker (dirichlet, quantity) [default: 1].")
    shards: int | None = _key("Number of shards per worker (shards) [default: 2].")
    test_examples: int | None = _key("Use only the first N test examples [default: all].")
    partition_seed: int | None = _key("Seed of the partition [default: the seed of the run].")

    def __post_init__(self) -> None:
        if self.test_examples is not None:
            count("test_examples", self.test_examples)

    @property
    def is_quadratic(self) -> bool:
        """Whether the name is the file of a quadratic federation."""
        return self.name.endswith(".json")

    @property
    def num_workers(self) -> int | None:
        """The number N of workers; None if only the data determines it, as with the scheme id."""
        return 10 if self.workers is None and self.scheme != "id" else self.workers


@dataclass(frozen=True)
class ModelSection:
    """Which model to train, and its options."""

    name: str | None = _key(
        "mlp, linear, softmax, cnn, vgg11, vgg16, or your own as package.module:factory [default: mlp]."
    )
    options: Mapping[str, Any] = field(
        default_factory=dict, metadata={"help": "An option of the model, as in width=200; may be repeated."}
    )

    def __hash__(self) -> int:
        return hash((self.name, json.dumps(self.options, sort_keys=True, default=str)))


@dataclass(frozen=True)
class AlgorithmSection:
    """Which algorithm to run, and its parameters."""

    name: str = _key(
        "The algorithm: one that 'fedgauge algorithms' lists, or your own as package.module:factory.", "fedavg"
    )
    gamma: float | None = _key("Local learning rate of the workers.")
    eta: float | None = _key("Global learning rate of the server [default: depends on the algorithm].")
    beta: float | None = _key("Momentum coefficient (momentum, slowmo).")
    beta1: float | None = _key("Decay rate of the first moment (fedadam, fedadagrad, fedyogi).")
    beta2: float | None = _key("Decay rate of the second moment (fedadam, fedyogi).")
    tau: float | None = _key(
        "Small number added to the denominator of the adaptive step (fedadam, fedadagrad, fedyogi)."
    )
    proximal: float | None = _key("Strength of the pull towards the global model (fedprox).")
    options: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"help": "A parameter of your own algorithm, as in decay=0.9; may be repeated."},
    )

    def __hash__(self) -> int:
        return hash((self.name, json.dumps(self.parameters, sort_keys=True, default=str)))

    @property
    def is_own(self) -> bool:
        """Whether it is the user's own algorithm, ``package.module:factory``."""
        return ":" in self.name

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that have a value."""
        known = {
            key: value for key, value in vars(self).items() if key not in ("name", "options") and value is not None
        }
        return {**known, **self.options}


@dataclass(frozen=True)
class RunSection:
    """How to run the experiment."""

    local_steps: int | tuple[int, ...] | Literal["auto"] = _key(
        "Local steps I per round: one number, one number per worker as in 1,2,1, or auto, which adapts I to the cost.",
        10,
    )
    cost: str | None = _key(
        "Cost of a round, to which auto adapts the local steps: cross-device, cross-silo, or either with changed"
        " numbers, as in cross-silo,step=0.02 [default: cross-device]."
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
    record_every: int = _key("Record every N-th round; each record takes exact passes over all data.", 1)
    watch: bool | None = _key(
        "Also record how far the workers' models spread and the L_h that was seen; takes two more passes"
        " [default: yes]."
    )
    target_loss: float | None = _key("Stop when the loss is at most this.")
    target_accuracy: float | None = _key("Stop when the test accuracy, from 0 to 1, is at least this.")
    target_grad2: float | None = _key("Stop when the squared norm of the gradient of f is at most this.")
    processes: int | None = _key(
        "Number of processes that compute a round [default: one per core; one for quadratics]."
    )
    engine: Literal["local", "ray"] | None = _key(
        "Where to compute: local (this machine) or ray (a Ray cluster) [default: local]."
    )
    address: str | None = _key(
        "Address of the cluster: HOST:PORT or auto [default: $RAY_ADDRESS, or a cluster started on this machine]."
    )
    chunk: int | None = _key(
        "Number of workers whose models are in memory at once [default: the fastest for the model]."
    )
    device: str | None = _key("Torch device to compute on [default: cpu].")
    checkpoint_every: int = _key("Save a checkpoint every N rounds.", 100)

    def __post_init__(self) -> None:
        counts = ("rounds", "batch_size", "participants", "record_every", "processes", "chunk", "checkpoint_every")
        for name in (*counts, "most_local_steps"):
            value = getattr(self, name)
            if value is not None:
                count(name, value)
        adapts = self.local_steps == "auto"
        # A cost is parsed, and so checked, only if there is one, because parsing it imports numpy.
        if (adapts or self.cost is not None) and self.round_cost.step is None and adapts:
            raise InputError(
                f"local_steps = auto needs the seconds that a local step takes, which the cost {self.cost} leaves open;"
                " add them, as in local,step=0.001."
            )
        if self.most_local_steps is not None and self.local_steps != "auto":
            raise InputError("most_local_steps is for local_steps = auto only; leave it out.")
        check_engine(self.engine, self.address)
        if self.target_accuracy is not None and not 0 < self.target_accuracy <= 1:
            raise InputError(f"target_accuracy must be above 0 and at most 1, not {self.target_accuracy!r}.")

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

        return StopAt(loss=self.target_loss, accuracy=self.target_accuracy, grad2=self.target_grad2)

    @property
    def round_cost(self) -> Cost:
        """The cost of a round: the one in ``cost``, or the default."""
        # Imported here, so that the command's help need not wait for numpy.
        from fedgauge.pace.cost import Cost

        return Cost.parse(self.cost or "cross-device")


_SECTIONS = {"data": DataSection, "model": ModelSection, "algorithm": AlgorithmSection, "run": RunSection}


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
    (['source', 'data', 'scale', 'scheme'], True)
    """
    return tuple(_keys())


def _keys() -> Iterator[Key]:
    called = {"data.name": "source", "data.dir": "data", "model.name": "model", "model.options": "model_option"}
    called |= {"algorithm.name": "algorithm", "algorithm.options": "algorithm_option"}
    for section, kind in _SECTIONS.items():
        hints = typing.get_type_hints(kind)
        for item in dataclasses.fields(kind):
            option = called.get(f"{section}.{item.name}", item.name)
            yield Key(section, item.name, option, hints[item.name], item.metadata["help"], item.default)


@dataclass(frozen=True)
class Experiment:
    r"""What to run; checked when it is made, as far as possible without the data.

    >>> text = '[data]\nname = "digits"\n[algorithm]\ngamma = 0.1\n'
    >>> experiment = Experiment.from_toml(text).changed({"local_steps": 5})
    >>> experiment.run.local_steps, Experiment.from_toml(experiment.to_toml()) == experiment
    (5, True)
    >>> Experiment.from_toml('[run]\nround = 3')
    Traceback (most recent call last):
    fedgauge.errors.InputError: [run] has no key 'round'; did you mean rounds?
    """

    data: DataSection = field(default_factory=DataSection)
    model: ModelSection = field(default_factory=ModelSection)
    algorithm: AlgorithmSection = field(default_factory=AlgorithmSection)
    run: RunSection = field(default_factory=RunSection)

    def __post_init__(self) -> None:
        if self.algorithm.is_own:
            pass  # its module is imported only when it is needed, so that the experiment can be read without it
        elif self.algorithm.gamma is None:
            raise InputError(
                f"{self.algorithm.name} needs gamma, the local learning rate; give --gamma, or gamma in [algorithm];"
                " see 'fedgauge simulate --help'."
            )
        else:
            make_algorithm(self.algorithm.name, **self.algorithm.parameters)
        if self.data.is_quadratic:
            self._refuse_for_quadratics()

    def _refuse_for_quadratics(self) -> None:
        """Refuse keys about data and models: the file of a quadratic federation already contains all of that."""
        useless = [f"data.{key}" for key, value in vars(self.data).items() if key != "name" and value is not None]
        useless += ["model.name"] * (self.model.name is not None) + [f"model.{key}" for key in self.model.options]
        useless += [f"run.{key}" for key in ("batch_size", "target_accuracy") if getattr(self.run, key) is not None]
        useless += ["run.weights = sizes"] * (self.run.weights == "sizes")
        if useless:
            raise InputError(
                f"{self.data.name} is a federation of quadratics, for which {useless[0]} means nothing;"
                " leave it out or name a data set."
            )

    # -- as TOML and JSON --------------------------------------------------------------------------------------

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Make an experiment from an object with the sections of the TOML file."""
        for section, content in data.items():
            if section not in _SECTIONS:
                belongs = [key.section for key in keys() if key.name == section and key.name != "name"]
                where = f"it belongs in [{belongs[0]}]." if belongs else nearest(section, _SECTIONS)
                raise InputError(f"An experiment has no section {section!r}; {where}")
            if not isinstance(content, Mapping):
                raise InputError(f"{section} must be a section, [{section}], not {content!r}.")
        return cls(**{section: _section(section, content) for section, content in data.items()})

    def to_json(self) -> dict[str, Any]:
        """The keys that have a value, section by section."""
        sections: dict[str, Any] = {}
        for section in _SECTIONS:
            content = dict(vars(getattr(self, section)))
            options = content.pop("options", {})
            kept = {key: value for key, value in {**content, **options}.items() if value is not None}
            sections[section] = {key: list(value) if isinstance(value, tuple) else value for key, value in kept.items()}
        return {section: content for section, content in sections.items() if content}

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Make an experiment from the text of a TOML file."""
        try:
            return cls.from_json(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"This is not TOML: {str(error).rstrip('.')}; fix the file.") from None

    @classmethod
    def read(cls, path: str | Path, changes: Mapping[str, Any] | None = None) -> Self:
        """Read a TOML file; ``changes`` are as for :meth:`changed` and override its keys."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(f"Cannot read {path}: {error.strerror}; name a TOML file.") from None
        except UnicodeDecodeError:
            raise InputError(f"{path} is not text; name a TOML file.") from None
        try:
            return cls.from_json(_merged(tomllib.loads(text), changes or {}))
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{path} is not TOML: {str(error).rstrip('.')}; fix the file.") from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def to_toml(self) -> str:
        """The text of a TOML file that describes this experiment."""
        sections = []
        for section, content in self.to_json().items():
            lines = [f"{toml_key(key)} = {toml(value)}" for key, value in content.items()]
            sections.append("\n".join([f"[{section}]", *lines]))
        return "\n\n".join(sections) + "\n"

    @classmethod
    def of(cls, changes: Mapping[str, Any]) -> Self:
        """Make an experiment from values named as the command's options: ``source``, ``gamma``, ``local_steps``, ..."""
        return cls.from_json(_merged({}, changes))

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """The experiment with some keys changed, named as the command's options; None restores the default.

        >>> experiment = Experiment.of({"gamma": 0.1, "weights": "sizes", "rounds": 3})
        >>> experiment.changed({"weights": None, "rounds": None}) == Experiment.of({"gamma": 0.1})
        True
        """
        return type(self).from_json(_merged(self.to_json(), changes))


def _merged(sections: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The sections with changes applied, which are named as the command's options; None removes a key."""
    merged = {name: dict(content) if isinstance(content, Mapping) else content for name, content in sections.items()}
    known = {key.option: key for key in keys()}
    for option, value in changes.items():
        if option not in known:
            raise InputError(f"An experiment has no key {option!r}; {nearest(option, known)}")
        content = merged.setdefault(known[option].section, {})
        if not isinstance(content, dict):
            continue  # from_json refuses it
        if known[option].name != "options":
            value = {known[option].name: value}
        elif value is None:
            names = {key.name for key in keys() if key.section == known[option].section}
            value = {name: None for name in content if name not in names}
        for name, entry in value.items():
            if entry is None:
                content.pop(name, None)
            else:
                content[name] = entry
    return merged


# -- checking a file ---------------------------------------------------------------------------------------------


def _section(section: str, content: Mapping[str, Any]) -> Any:
    """Make one section; refuse unknown keys and values of a wrong type."""
    kind = _SECTIONS[section]
    own = {key.name: key for key in keys() if key.section == section}
    values: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in content.items():
        if name in own and name != "options":
            values[name] = decoder(own[name].hint)(value, f"{section}.{name}")
        elif section == "model" or (section == "algorithm" and ":" in str(content.get("name", ""))):
            options[name] = value
        else:
            elsewhere = [key.section for key in keys() if key.name == name]
            hint = f"it belongs in [{elsewhere[0]}]." if elsewhere else nearest(name, own)
            raise InputError(f"[{section}] has no key {name!r}; {hint}")
    if options:
        values["options"] = options
    return kind(**values)
