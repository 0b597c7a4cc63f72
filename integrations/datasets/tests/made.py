"""Small made files in the published layouts."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np

from fedgauge_datasets.catalogue import CIFAR10_CLASSES


def idx(array: Any) -> bytes:
    kind = {"uint8": 8, "int32": 12}[str(array.dtype)]
    head = bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    content: bytes = array.astype(array.dtype.newbyteorder(">")).tobytes()
    return head + content


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def digits(number: int, seed: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (number, 4, 4), np.uint8), (np.arange(number) % 10).astype(np.uint8)


def mnist(folder: Path, plain: bool = False, number: int = 40) -> dict[str, Any]:
    """Write MNIST's four files; return their arrays by name."""
    arrays = {}
    for part, size in (("train", number), ("t10k", 20)):
        arrays[f"{part}-images-idx3-ubyte"], arrays[f"{part}-labels-idx1-ubyte"] = digits(size, size)
    for name, array in arrays.items():
        content = idx(array)
        write(folder / (name if plain else f"{name}.gz"), content if plain else gzip.compress(content))
    return arrays


def writers(folder: Path, labels: Any) -> Any:
    """Write QMNIST's table for these labels; return the writers."""
    table = np.zeros((len(labels), 8), np.int32)
    table[:, 0], table[:, 2] = labels, 2000 + np.arange(len(labels)) // 7
    write(folder / "qmnist-train-labels-idx2-int.gz", gzip.compress(idx(table)))
    return table[:, 2]


def cifar_batch(number: int, seed: int, **labels: int) -> dict[bytes, Any]:
    """A batch with random images, and for each name labels 0, 1, ... below its number of classes."""
    data = np.random.default_rng(seed).integers(0, 256, (number, 3072), np.uint8)
    return {b"data": data, **{name.encode(): [i % c for i in range(number)] for name, c in labels.items()}}


def cifar10(folder: Path, protocol: int = 2) -> dict[str, dict[bytes, Any]]:
    names = [f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]
    batches = {name: cifar_batch(20, seed, labels=10) for seed, name in enumerate(names)}
    for name, batch in batches.items():
        write(folder / name, pickle.dumps(batch, protocol))
    return batches


def cifar100(folder: Path) -> dict[str, dict[bytes, Any]]:
    batches = {
        name: cifar_batch(200, seed, fine_labels=100, coarse_labels=20) for seed, name in enumerate(("train", "test"))
    }
    for name, batch in batches.items():
        write(folder / name, pickle.dumps(batch, 2))
    return batches


def cinic10(folder: Path, number: int = 2) -> None:
    from PIL import Image

    generator = np.random.default_rng(0)
    for part in ("train", "valid", "test"):
        for name in CIFAR10_CLASSES:
            (folder / part / name).mkdir(parents=True)
            for index in range(number):
                pixels = generator.integers(0, 256, (32, 32, 3), np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{index}.png")
