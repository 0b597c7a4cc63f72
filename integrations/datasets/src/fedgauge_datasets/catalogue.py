"""The data sets that are known by name: their published files, checksums and places, and which of them are installed.

A directory of data is the one given, or ``FEDGAUGE_DATA``, or else ``fedgauge`` in the user's data directory
(``XDG_DATA_HOME`` or ``~/.local/share``). Checksums are compared by ``fedgauge data list`` and ``data get``, and when
a file cannot be read. Reading itself checks the structure alone, so that a subset in the published layout is welcome.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from fedgauge.base.errors import InputError, nearest
from fedgauge.base.files import open_named
from fedgauge.values import Value

State = Literal["ready", "other", "incomplete", "missing"]
FileState = Literal["published", "differs", "unpacked", "missing"]
_MOST_AT_ONCE = 2**20


class DamagedFileError(InputError):
    """A file whose content does not follow its format."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be read: {reason}; replace the file.")
        self.path, self.reason = path, reason


@dataclass(frozen=True)
class Entry:
    """What is published of a data set.

    Attributes:
        name: the name by which you choose it.
        title: what it is.
        folders: where its files are looked for, under the directory of data; ``data get`` writes to the first.
        files: each file that is needed, with its published MD5.
        optional: files that may be there, with their MD5.
        url: where the files are published, or nothing where they have to be brought by hand.
        archive: name and MD5 of the one file that holds the others, where they are published so.
        elsewhere: folders outside the directory of data that are searched last.
        classes: the name of each class.
        mean: published mean of each channel, on 0 to 1.
        std: published standard deviation of each channel.
        source: who publishes it, said where it cannot be fetched.
    """

    name: str
    title: str
    folders: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None
    archive: tuple[str, str] | None = None
    elsewhere: tuple[Path, ...] = ()
    classes: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    source: str = ""


_QMNIST = {
    "qmnist-train-labels-idx2-int.gz": "0058f8dd561b90ffdd0f734c6a30e5e4",
}
_MNIST = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
_DIGITS = tuple("0123456789")
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

ENTRIES: Mapping[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("digits", "1,797 digits of 8x8"),
        Entry("text", "20 documents, generated"),
        Entry(
            "shakespeare",
            "Tiny Shakespeare by role",
            ("tinyshakespeare",),
            {"input.txt": "6fb458f1232090904fb40fe944165e91"},
            url="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare",
        ),
        Entry(
            "mnist",
            "70,000 digits of 28x28",
            ("MNIST/raw", "."),
            _MNIST,
            url="https://ossci-datasets.s3.amazonaws.com/mnist",
            classes=_DIGITS,
            mean=(0.1307,),
            std=(0.3081,),
        ),
        Entry(
            "qmnist",
            "MNIST, and who wrote it",
            ("MNIST/raw", "QMNIST/raw", "."),
            {**_MNIST, **_QMNIST},
            classes=_DIGITS,
            mean=(0.1307,),
            std=(0.3081,),
            source="the project facebookresearch/qmnist (qmnist-train-labels-idx2-int.gz)",
        ),
        Entry(
            "fashion-mnist",
            "70,000 garments of 28x28",
            ("FashionMNIST/raw", "."),
            {
                "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
                "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
                "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
            },
            url="https://fashion-mnist.s3.eu-central-1.amazonaws.com",
            # Where Debian's package dataset-fashion-mnist puts them.
            elsewhere=(Path("/usr/share/datasets/fashion-mnist"),),
            classes=("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"),
            mean=(0.2860,),
            std=(0.3530,),
        ),
        Entry(
            "cifar10",
            "60,000 pictures of 32x32",
            ("cifar-10-batches-py", "."),
            {
                "data_batch_1": "c99cafc152244af753f735de768cd75f",
                "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                "data_batch_4": "634d18415352ddfa80567beed471001a",
                "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
                "test_batch": "40351d587109b95175f43aff81a1287e",
            },
            {"batches.meta": "5ff9c542aee3614f3951f8cda6e48888"},
            url="https://www.cs.toronto.edu/~kriz",
            archive=("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),
            classes=CIFAR10_CLASSES,
            mean=(0.49139968, 0.48215841, 0.44653091),
            std=(0.24703223, 0.24348513, 0.26158784),
        ),
        Entry(
            "cifar100",
            "60,000 in 100 classes",
            ("cifar-100-python", "."),
            {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
            {"meta": "7973b15100ade9c7d40fb424638fde48"},
            url="https://www.cs.toronto.edu/~kriz",
            archive=("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),
            mean=(0.50707516, 0.48654887, 0.44091784),
            std=(0.26733429, 0.25643846, 0.27615047),
        ),
        Entry(
            "cinic10",
            "180,000 pictures of 32x32",
            ("CINIC-10", "cinic-10", "."),
            classes=CIFAR10_CLASSES,
            mean=(0.47889522, 0.47227842, 0.43047404),
            std=(0.24205776, 0.23828046, 0.25874835),
            source="the project BayesWatch/cinic-10",
        ),
    )
}


@dataclass(frozen=True)
class FileStatus(Value):
    """One file of a data set: where it is, and whether it is the published one.

    ``unpacked`` is an idx file without its gzip compression, for which no checksum is published.
    """

    name: str
    state: FileState
    path: str | None
    md5: str
    md5_found: str | None


@dataclass(frozen=True)
class Status(Value):
    """Which files of a data set are installed.

    Attributes:
        name: of the data set.
        title: what it is.
        state: ``ready``: the published files. ``other``: all files, but some are not the published ones (a subset,
            or damaged). ``incomplete``: some are missing. ``missing``: all are.
        place: the folder they are in.
        files: each file.
        remedy: the command that brings what is missing, or what to do.
    """

    name: str
    title: str
    state: State
    place: str | None
    files: tuple[FileStatus, ...]
    remedy: str | None


def entry(name: str) -> Entry:
    """Look a data set up by name.

    >>> entry("mnits")
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: There is no data set 'mnits'; did you mean mnist?
    """
    if name not in ENTRIES:
        raise InputError(f"There is no data set {name!r}; {nearest(name, ENTRIES)}")
    return ENTRIES[name]


def data_directory(data: str | Path | None = None) -> Path:
    """The directory of data: the one given, or ``FEDGAUGE_DATA``, or the user's own."""
    given = data or os.environ.get("FEDGAUGE_DATA")
    if given:
        return Path(given).expanduser()
    shared = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(shared).expanduser() / "fedgauge"


def command(name: str, data: str | Path | None = None, force: bool = False) -> str:
    """The command that brings a data set.

    >>> command("mnist", "my data")
    "fedgauge data get mnist --data 'my data'"
    """
    words = ["fedgauge", "data", "get", name]
    return shlex.join(words + (["--data", str(data)] if data else []) + (["--force"] if force else []))


def remedy(known: Entry, data: str | Path | None = None, force: bool = False, file: str | None = None) -> str:
    """What brings a data set, or one file of it: a command, or where to take it from and put it."""
    if known.name == "text":
        return "it is generated, so that there is nothing to get"
    if known.name == "digits":
        return "run: pip install 'fedgauge[data]'"
    # QMNIST's table has to be brought by hand, but MNIST's files come with their own command.
    for publisher in (known, ENTRIES["mnist"]):
        if publisher.url and (publisher is known or file in publisher.files):
            return f"run: {command(publisher.name, data, force)}"
    return f"get it from {known.source} and put it in {data_directory(data) / known.folders[0]}"


def md5_of(path: Path) -> str:
    """The MD5 of a file, which names what was published and is no protection against malice."""
    md5 = hashlib.md5(usedforsecurity=False)
    with open_named(path) as file:
        while block := file.read(_MOST_AT_ONCE):
            md5.update(block)
    return md5.hexdigest()


def find(known: Entry, data: str | Path | None = None) -> dict[str, Path]:
    """The files of a data set that are here, by published name; the optional ones too.

    Of the folders where it may be, the first with all needed files counts, or else the one with the most. QMNIST's
    labels may lie in another folder than MNIST's files.
    """
    root = data_directory(data)
    folders = [root / folder for folder in known.folders] + list(known.elsewhere)
    places = [_inside(known, folder) for folder in folders]
    if known.name == "qmnist":
        return {name: path for inside in reversed(places) for name, path in inside.items()}
    return max(places, key=lambda inside: sum(name in known.files for name in inside), default={})


def _inside(known: Entry, folder: Path) -> dict[str, Path]:
    here = {}
    for name in (*known.files, *known.optional):
        choices = (folder / name, folder / name.removesuffix(".gz"))
        path = next((path for path in choices if path.is_file()), None)
        if path is not None:
            here[name] = path
    return {} if here and _is_another(known, here) else here


def _is_another(known: Entry, here: Mapping[str, Path]) -> bool:
    """Whether files that have the names of this data set are the published ones of another.

    MNIST and Fashion-MNIST give their files the same names; the small labels tell them apart.
    """
    for name, path in here.items():
        others = {other.files[name] for other in ENTRIES.values() if name in other.files} - {known.files.get(name)}
        if "labels" in name and others and path.name == name and md5_of(path) in others:
            return True
    return False


def find_folder(known: Entry, data: str | Path | None = None) -> Path | None:
    """The folder of a data set of pictures, which has ``train`` and ``test`` in it."""
    for folder in known.folders:
        place = data_directory(data) / folder
        if all((place / part / known.classes[0]).is_dir() for part in ("train", "test")):
            return place
    return None


def status(name: str, data: str | Path | None = None) -> Status:
    """Say which files of a data set are installed, and whether they are those that were published."""
    known = entry(name)
    if name == "digits":
        here = find_spec("sklearn") is not None
        return _status(known, "ready" if here else "missing", "scikit-learn" if here else None, (), data)
    if name == "text":
        return _status(known, "ready", "generated", (), data)
    if not known.files:
        place = find_folder(known, data)
        return _status(known, "ready" if place else "missing", str(place) if place else None, (), data)
    there = find(known, data)
    files = tuple(file_status(known, file, there.get(file)) for file in known.files)
    missing = sum(file.state == "missing" for file in files)
    state: State = "ready"
    if missing:
        state = "missing" if missing == len(files) else "incomplete"
    elif any(file.state == "differs" for file in files):
        state = "other"
    place = next(iter(there.values())).parent if there else None
    return _status(known, state, str(place) if place else None, files, data)


def _status(
    known: Entry, state: State, place: str | None, files: tuple[FileStatus, ...], data: str | Path | None
) -> Status:
    wrong = next((file.name for file in files if file.state in ("missing", "differs")), None)
    help = None if state == "ready" else remedy(known, data, force=state == "other", file=wrong)
    return Status(known.name, known.title, state, place, files, help)


def file_status(known: Entry, name: str, path: Path | None) -> FileStatus:
    """Compare one file with what was published."""
    expected = known.files.get(name) or known.optional[name]
    if path is None:
        return FileStatus(name, "missing", None, expected, None)
    if path.name != name:
        return FileStatus(name, "unpacked", str(path), expected, None)
    md5 = md5_of(path)
    return FileStatus(name, "published" if md5 == expected else "differs", str(path), expected, md5)
