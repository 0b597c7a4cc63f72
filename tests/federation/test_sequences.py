"""Tokens, sequences, values and several labels as targets; data that are read lazily; shards of one example."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.federation.networks import mlp
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from fedgauge import Compute, SupervisedFederation, fedavg, federate, simulate
from fedgauge.base.errors import InputError
from fedgauge_verification import certify

pytestmark = pytest.mark.usefixtures("one_thread")
GENERATOR = torch.Generator().manual_seed(0)
TOKENS = torch.randint(7, (13, 5), generator=GENERATOR)
FEATURES = torch.randn(13, 6, generator=GENERATOR)
LABELS = torch.randint(3, (13,), generator=GENERATOR)
SHARDS = [slice(0, 8), slice(8, 12), slice(12, 13)]


class Tagger(nn.Module):
    """A class for every token; classes first, as torch's cross-entropy wants them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm, self.head = nn.Embedding(7, 4), nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.lstm(self.embed(x))[0]).transpose(1, 2)
        return outputs


def pairs(x: torch.Tensor, y: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(x[part], y[part]) for part in SHARDS]


MULTI = torch.randint(2, (13, 3), generator=GENERATOR).float()
VALUES = torch.randn(13, 1, generator=GENERATOR)


def multi_label(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(outputs, targets)


@pytest.mark.parametrize(
    ("model", "loss", "x", "y"),
    [
        (Tagger, functional.cross_entropy, TOKENS, TOKENS.roll(-1, dims=1)),
        (lambda: mlp(6, 4, 3), multi_label, FEATURES, MULTI),
        (lambda: mlp(6, 4, 1), functional.mse_loss, FEATURES, VALUES),
        (lambda: mlp(6, 4, 3), functional.cross_entropy, FEATURES, LABELS),
    ],
    ids=["tokens", "several labels", "values", "one label"],
)
def test_losses_are_those_of_the_module_and_training_lowers_them(model: Any, loss: Any, x: Any, y: Any) -> None:
    of = federate(model, loss, pairs(x, y), batch_size=4)
    assert of.sizes(np.arange(3)).tolist() == [8, 4, 1]
    assert of.remarks == ()
    with torch.no_grad():
        expected = [float(loss(of.module(x[part]), y[part])) for part in SHARDS]
    found = of.losses(of.start(0).expand(3, -1), np.arange(3))
    # start(0) are the module's own parameters: it was made with seed 0.
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)
    trace = simulate(of, fedavg(0.1), local_steps=3, rounds=5, compute=Compute(processes=1))
    assert trace.losses[-1] < trace.losses[0]


def test_padding_is_left_out_by_torchs_own_sign() -> None:
    y = TOKENS.clone()
    y[:, 3:] = -100
    of = federate(Tagger, functional.cross_entropy, pairs(TOKENS, y), batch_size=4)
    assert of.remarks == ()  # as much padding everywhere: still a mean over samples
    assert np.isfinite(simulate(of, fedavg(0.1), local_steps=2, rounds=2, compute=Compute(processes=1)).losses).all()


class Read(Dataset[Any]):
    """Counts what is read, and where."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, log: Path | None = None) -> None:
        self.x, self.y, self.log = x, y, log

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(f"{os.getpid()} {number}\n")
        return self.x[number], int(self.y[number])


def opened(part: slice) -> DataLoader[Any]:
    return DataLoader(Read(FEATURES[part], LABELS[part]), batch_size=4, shuffle=True)


LAZY: dict[str, list[Any]] = {
    "data sets": [Read(FEATURES[part], LABELS[part]) for part in SHARDS],
    "loaders": [opened(part) for part in SHARDS],
    "factories": [lambda part=part: opened(part) for part in SHARDS],
    "tensors": [TensorDataset(FEATURES[part], LABELS[part]) for part in SHARDS],
}


@pytest.mark.parametrize("kind", LAZY)
@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_read_lazily_gives_the_bits_of_what_is_in_memory(kind: str, processes: int) -> None:
    module = mlp(6, 4, 3)
    eager = federate(module, functional.cross_entropy, pairs(FEATURES, LABELS), batch_size=4, path="plain")
    path = "plain" if kind == "tensors" else "auto"
    lazy = federate(module, functional.cross_entropy, LAZY[kind], batch_size=4, path=path)
    assert lazy.path == "plain"
    how: dict[str, Any] = {"local_steps": 3, "rounds": 3, "compute": Compute(processes=processes)}
    runs = [simulate(each, fedavg(0.1), **how) for each in (eager, lazy)]
    assert np.array_equal(runs[0].model, runs[1].model)
    # Workers of one size are evaluated together where they are in memory, which rounds differently.
    np.testing.assert_allclose(runs[0].losses, runs[1].losses, rtol=1e-6)
    assert lazy.subset(2, _streams()).sizes(np.arange(3)).tolist() == [2, 2, 1]


def _streams() -> Any:
    from fedgauge.base.randomness import Purpose, Streams

    return Streams(0, Purpose.SUBSET)


def test_only_what_is_used_is_read_and_every_process_reads_for_itself(tmp_path: Path) -> None:
    log = tmp_path / "log"
    shards = [Read(FEATURES[part], LABELS[part], log) for part in SHARDS]
    of = federate(lambda: mlp(6, 4, 3), functional.cross_entropy, shards, batch_size=2)
    log.unlink()
    one = np.array([0])
    of.local_sgd(of.start(0)[None], one, of.draws(_streams(), 0, one, np.zeros(1, dtype=np.int64), 3), 0.1)
    assert len(log.read_text().splitlines()) == 6
    simulate(of, fedavg(0.1), local_steps=2, rounds=1, compute=Compute(processes=2))
    readers = {line.split()[0] for line in log.read_text().splitlines()}
    assert len(readers - {str(os.getpid())}) == 2


class Padded(Dataset[torch.Tensor]):
    """Sequences of several lengths, padded to the longest of a batch when they are put together."""

    def __init__(self, part: slice) -> None:
        self.rows: list[torch.Tensor] = [row[: 2 + number % 4] for number, row in enumerate(TOKENS[part])]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> torch.Tensor:
        return self.rows[number]


def together(rows: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    x = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    y = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
    return x, y


def each_sequence(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean over sequences of the mean over their own tokens: still a mean over samples."""
    losses = functional.cross_entropy(outputs, targets, ignore_index=-1, reduction="none")
    return (losses.sum(dim=1) / (targets >= 0).sum(dim=1)).mean()


def test_batches_may_be_padded_to_their_own_longest() -> None:
    loaders = [DataLoader(Padded(part), batch_size=3, collate_fn=together) for part in SHARDS]
    of = federate(Tagger, each_sequence, loaders, batch_size=3)
    assert of.remarks == ()
    runs = [simulate(of, fedavg(0.1), local_steps=2, rounds=2, compute=Compute(processes=number)) for number in (1, 2)]
    assert runs[0] == runs[1]
    there: SupervisedFederation = pickle.loads(pickle.dumps(of))
    assert there.digest == of.digest


def test_lazy_data_have_a_fingerprint_and_are_not_certified() -> None:
    made = [
        federate(lambda: nn.Linear(6, 3), functional.cross_entropy, shards, batch_size=4)
        for shards in (LAZY["data sets"], LAZY["data sets"], LAZY["data sets"][::-1])
    ]
    assert made[0].digest == made[1].digest != made[2].digest
    with pytest.raises(InputError, match="read lazily"):
        certify(made[0])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([(FEATURES[0], 0)])


class Shaken(Read):
    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        x, y = super().__getitem__(number)
        return x + torch.randn_like(x), y


class Thirds(Read):
    def __getitem__(self, number: int) -> Any:
        return (*super().__getitem__(number), 1)


@pytest.mark.parametrize(
    ("shards", "says"),
    [
        ([Stream()], "a data set with a length and numbered items"),
        ([Shaken(FEATURES, LABELS)], "differ from one reading to the next"),
        ([Thirds(FEATURES, LABELS)], r"must be a pair .* not \(Tensor, int, int\)"),
        ([Read(FEATURES[:0], LABELS[:0])], "Worker 0 has no samples"),
        ([DataLoader(Read(FEATURES, LABELS), batch_size=5)], "give batch_size=5"),
        ([Read(FEATURES, LABELS), (FEATURES, LABELS)], "worker 0 has a Read"),
    ],
)
def test_what_cannot_be_read_lazily_is_refused_in_one_sentence(shards: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as refused:
        federate(lambda: mlp(6, 4, 3), functional.cross_entropy, shards, batch_size=4)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("model", "loss", "x", "y", "says"),
    [
        (lambda: mlp(5), functional.cross_entropy, TOKENS, LABELS, "convert features to floats"),
        (Tagger, functional.cross_entropy, TOKENS, TOKENS + 1, "does not fit labels 1 to 7.*classes first"),
        (Tagger, functional.cross_entropy, TOKENS, LABELS, "does not fit labels"),
        (lambda: nn.LSTM(5, 3), functional.cross_entropy, TOKENS.float(), LABELS, "the model returns a tuple"),
        (lambda: mlp(6), lambda o, y: 1.0, FEATURES, LABELS, "not a float"),
        (lambda: mlp(6), lambda o, y: o.logits, FEATURES, LABELS, "no attribute 'logits'"),
    ],
)
def test_outputs_that_do_not_fit_are_refused_in_one_sentence(model: Any, loss: Any, x: Any, y: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as refused:
        federate(model, loss, pairs(x, y))
    assert "\n" not in str(refused.value)
