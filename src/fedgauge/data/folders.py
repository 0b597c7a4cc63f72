"""Data sets of pictures in folders, one folder a class: CINIC-10 and whatever is laid out like it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedgauge.data.dataset import Array, DamagedFileError, Dataset, Labels, Progress
from fedgauge.errors import InputError
from fedgauge.system.files import open_named

_PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".webp"}


def read_folders(root: Path, name: str, classes: tuple[str, ...] = (), progress: Progress | None = None) -> Dataset:
    """Read ``root/train/CLASS/*.png`` to train on and ``root/test/CLASS/*.png`` to test on, as RGB.

    A folder ``valid`` beside them is left alone. Classes are numbered in the order of their names.
    """
    classes = classes or tuple(sorted(path.name for path in (root / "train").iterdir() if path.is_dir()))
    found = {part: _pictures(root / part, classes) for part in ("train", "test")}
    total = sum(len(paths) for paths, _ in found.values())
    train = _read(found["train"][0], None, 0, total, progress)
    test = _read(found["test"][0], train.shape[1:], len(train), total, progress)
    return Dataset(name, train, found["train"][1], test, found["test"][1], classes)


def _pictures(folder: Path, classes: tuple[str, ...]) -> tuple[list[Path], Labels]:
    paths: list[Path] = []
    labels: list[int] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and path.name not in classes:
            raise InputError(f"{path} is not one of the classes {', '.join(classes)}; remove or rename the folder.")
    for label, name in enumerate(classes):
        inside = sorted(p for p in (folder / name).glob("*") if p.suffix.lower() in _PICTURES)
        if not inside:
            raise InputError(f"{folder / name} holds no pictures; put those of the class {name!r} there.")
        paths += inside
        labels += [label] * len(inside)
    return paths, np.array(labels, np.int64)


def _read(paths: list[Path], shape: tuple[int, ...] | None, done: int, total: int, progress: Progress | None) -> Array:
    try:
        from PIL import Image
    except ImportError:
        raise InputError("Reading pictures needs pillow; run: pip install 'fedgauge[data]'.") from None
    images: Array | None = None
    for index, path in enumerate(paths):
        try:
            with open_named(path) as file, Image.open(file) as picture:
                array = np.moveaxis(np.asarray(picture.convert("RGB")), -1, 0)
        except PermissionError:
            raise
        except Exception as error:  # pillow raises what its many decoders raise
            raise DamagedFileError(path, f"it is not a picture ({error})") from None
        if images is None:
            images = np.empty((len(paths), *(shape or array.shape)), np.uint8)
        if array.shape != images.shape[1:]:
            raise InputError(
                f"{path} must be of {images.shape[3]} by {images.shape[2]} pixels like the first picture, not"
                f" {array.shape[2]} by {array.shape[1]}; resize it."
            )
        images[index] = array
        if progress is not None and index % 500 == 0:
            progress(done + index, total)
    assert images is not None  # _pictures refuses an empty class
    return images
