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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedgauge.algorithms import make_algorithm
from fedgauge.base.codec import decoder, parse_toml, toml, toml_key
from fedgauge.base.errors import InputError, nearest
from fedgauge.base.files import read_input
from fedgauge.simulation.experiment.sections import (
    SECTIONS,
    AlgorithmSection,
    DataSection,
    ModelSection,
    RunSection,
    keys,
)
from fedgauge.simulation.runs.manifest import verified

if TYPE_CHECKING:
    from fedgauge.values import Trace


@dataclass(frozen=True)
class Experiment:
    r"""What to run; checked when it is made, as far as possible without the data.

    >>> text = '[data]\nname = "digits"\n[algorithm]\ngamma = 0.1\n'
    >>> experiment = Experiment.from_toml(text).changed({"local_steps": 5})
    >>> experiment.run.local_steps, Experiment.from_toml(experiment.to_toml()) == experiment
    (5, True)
    >>> Experiment.from_toml('[run]\nround = 3')
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: [run] has no key 'round'; did you mean rounds?
    """

    data: DataSection = field(default_factory=DataSection)
    model: ModelSection = field(default_factory=ModelSection)
    algorithm: AlgorithmSection = field(default_factory=AlgorithmSection)
    run: RunSection = field(default_factory=RunSection)

    def __post_init__(self) -> None:
        if self.algorithm.is_user_code:
            pass  # its module is imported only when it is needed, so that the experiment can be read without it
        else:
            parameters = self.algorithm.parameters_in(self.run.rounds, self.run.rounds)
            make_algorithm(self.algorithm.name, **{"gamma": 1.0, **parameters})
        if self.data.is_quadratic:
            self._refuse_for_quadratics()

    @property
    def lacks_rate(self) -> bool:
        """Whether it has no gamma, which only the gauge can do without."""
        return self.algorithm.gamma is None and not self.algorithm.is_user_code

    def check_rate(self) -> Self:
        """Refuse an experiment without a rate."""
        if self.lacks_rate:
            raise InputError(f"{self.algorithm.name} needs gamma, the local learning rate; give it, as in gamma=0.1.")
        return self

    def _refuse_for_quadratics(self) -> None:
        """Refuse keys about data and models: the file of a quadratic federation already contains all of that."""
        useless = [f"data.{key}" for key, value in vars(self.data).items() if key != "name" and value is not None]
        useless += ["model.name"] * (self.model.name is not None) + [f"model.{key}" for key in self.model.options]
        useless += [f"run.{key}" for key in ("batch_size", "local_epochs") if getattr(self.run, key) is not None]
        useless += ["the goal accuracy"] * (self.run.stop.accuracy is not None)
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
            if section not in SECTIONS:
                belongs = [key.section for key in keys() if key.name == section and key.name != "name"]
                where = f"it belongs in [{belongs[0]}]." if belongs else nearest(section, SECTIONS)
                raise InputError(f"An experiment has no section {section!r}; {where}")
            if not isinstance(content, Mapping):
                raise InputError(f"{section} must be a section, [{section}], not {content!r}.")
        return cls(**{section: _section(section, content) for section, content in data.items()})

    def to_json(self) -> dict[str, Any]:
        """The keys that have a value, section by section."""
        sections: dict[str, Any] = {}
        for section in SECTIONS:
            content = dict(vars(getattr(self, section)))
            options = content.pop("options", {})
            values = {key: value for key, value in {**content, **options}.items() if value is not None}
            if "local_epochs" in values:
                values.pop("local_steps")
            sections[section] = {
                key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
            }
        return {section: content for section, content in sections.items() if content}

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Make an experiment from the text of a TOML file."""
        return cls.from_json(_parsed("This", text))

    @classmethod
    def read(cls, path: str | Path, changes: Mapping[str, Any] | None = None) -> Self:
        """Read a TOML file; ``changes`` are as for :meth:`changed` and override its keys."""
        try:
            text = verified(Path(path), read_input(path, "a TOML file")).decode()
        except UnicodeDecodeError:
            raise InputError(f"{path} is not text; name a TOML file.") from None
        sections = _parsed(str(path), text)
        try:
            return cls.from_json(_merged(sections, changes or {}))
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


def _parsed(what: str, text: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except ValueError as error:
        raise InputError(f"{what} is not TOML that can be used: {str(error).rstrip('.')}; fix the file.") from None


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
    # Each says how much a worker does, so that the one that is changed replaces the other.
    for name, other in (("local_epochs", "local_steps"), ("local_steps", "local_epochs")):
        if changes.get(name) is not None and changes.get(other) is None and isinstance(merged["run"], dict):
            merged["run"].pop(other, None)
    return merged


# -- checking a file ---------------------------------------------------------------------------------------------


def _section(section: str, content: Mapping[str, Any]) -> Any:
    """Make one section; refuse unknown keys and values of a wrong type."""
    kind = SECTIONS[section]
    keys_here = {key.name: key for key in keys() if key.section == section}
    fields = {item.name for item in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in content.items():
        if name in keys_here and name != "options":
            place = values if name in fields else options
            place[name] = decoder(keys_here[name].hint)(value, f"{section}.{name}")
        elif section == "model" or (section == "algorithm" and ":" in str(content.get("name", ""))):
            options[name] = value
        else:
            elsewhere = [key.section for key in keys() if key.name == name]
            hint = f"it belongs in [{elsewhere[0]}]." if elsewhere else nearest(name, keys_here)
            raise InputError(f"[{section}] has no key {name!r}; {hint}")
    if options:
        # In the order of the keys, so that equal experiments are equal files.
        values["options"] = {
            name: options[name] for name in dict.fromkeys((*(name for name in keys_here if name in options), *options))
        }
    return kind(**values)


def ended_run(experiment: Experiment, directory: Path, *, with_any_data: bool = False) -> Trace | None:
    """The run in a directory if it has ended and is a run of this experiment.

    An experiment that names no directory of data may be given the one of the run, with ``with_any_data``.

    None says that only :func:`~fedgauge.execute` can decide: data or code may have changed under the same name,
    or the run began from a model that is not part of the experiment.
    """
    name, names = experiment.data.name, f"{experiment.data.name} {experiment.model.name} {experiment.algorithm.name}"
    if name.endswith(".npz") or ":" in names or not (directory / "result.json").exists():
        return None
    # Imported here, so that reading an experiment does not read runs.
    from fedgauge.simulation.runs.reader import read_trace

    try:
        saved = Experiment.read(directory / "experiment.toml")
        if with_any_data and experiment.data.dir is None:
            experiment = experiment.changed({"data": saved.data.dir})
        if saved != experiment:
            return None
        trace = read_trace(directory)
        if name.endswith(".json"):
            from fedgauge.federation.quadratic import QuadraticFederation

            if QuadraticFederation.read(name).digest != trace.settings.get("federation"):
                return None
    except InputError:
        return None
    return None if "start" in trace.settings else trace
