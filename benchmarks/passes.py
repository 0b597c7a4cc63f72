"""Exact passes over all data compared with bare matrix products of the same shapes, as ratios measured in one run.

    python benchmarks/passes.py [--turns 9] [--only ten thousand] [--json]

ten:      N = 10 workers with 6,000 samples of 784, the paper's MLP (one hidden layer of 100, 10 classes).
thousand: N = 1,000 workers with 60 samples of 784, the same model.

The data is random numbers of those shapes, in consecutive shards. Everything runs in one thread and is measured in
processor time, so that other work on the machine matters as little as possible. The contestants take turns:

- pooled: ``federation.pooled`` over all workers at one model: the weighted loss and gradient;
- gradients: ``federation.gradients`` with a separate model for every worker, as after local steps, and
  ``federation.chunk`` rows at a time;
- Hessian: ``federation.hessian_products`` with a separate model and vector for every worker, as above;
- pooled Hessian: ``federation.pooled_hessian`` at one model along one vector.

Each is compared with its raw products: over the same data without copying it, into memory that is already allocated,
and without biases, ReLU, softmax, losses and sums. A gradient takes 5 products: for the layer into 100 units, the
forward product and the gradient of the weights; for the layer into 10 units, both of these and the backward product. A
Hessian product takes 11, for its forward and backward pass and their derivatives along the vector; 3 of them are of the
wide layer. If all workers share a model, the data is multiplied in blocks of 512 or 2,048 samples. If each has its own,
a ``bmm`` has 1, 5, 10 or 20 workers, in blocks of at most 2,048 samples per worker. The fastest of these ways counts.

The target is that a pass of gradients reaches at least 0.8 of the raw products' speed.

The last line is how much longer a recorded round of ``simulate`` takes (one process, I = 1, batch 20) than one that is
not recorded, in passes of ``gradients``: a record takes three passes, one of them pooled, and work on their rows.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version

import numpy as np
import torch

import fedgauge
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.models import mlp
from fedgauge.federation.supervised import SupervisedFederation

FEATURES, WIDTH, CLASSES = 784, 100, 10
WORKLOADS = {"ten": (10, 6000), "thousand": (1000, 60)}
AIM = 0.8
Pass = Callable[[], object]


def _buffers(rows: int, samples: int) -> dict[str, torch.Tensor]:
    """All tensors, other than the data, that the products read and write."""
    return {
        "first": torch.randn(rows, WIDTH, FEATURES),
        "second": torch.randn(rows, CLASSES, WIDTH),
        "first_out": torch.empty(rows, WIDTH, FEATURES),
        "second_out": torch.empty(rows, CLASSES, WIDTH),
        "hidden": torch.randn(rows, samples, WIDTH),
        "hidden_out": torch.empty(rows, samples, WIDTH),
        "outputs": torch.randn(rows, samples, CLASSES),
        "outputs_out": torch.empty(rows, samples, CLASSES),
    }


def gradient_products(x: torch.Tensor, on: dict[str, torch.Tensor]) -> None:
    """The products of one gradient."""
    torch.bmm(x, on["first"].mT, out=on["hidden_out"])
    torch.bmm(on["hidden"], on["second"].mT, out=on["outputs_out"])
    torch.bmm(on["outputs"].mT, on["hidden"], out=on["second_out"])
    torch.bmm(on["outputs"], on["second"], out=on["hidden_out"])
    torch.bmm(on["hidden"].mT, x, out=on["first_out"])


def hessian_products(x: torch.Tensor, on: dict[str, torch.Tensor]) -> None:
    """The products of one Hessian product: both passes, and their derivatives along the vector."""
    for _ in range(2):  # inputs times the weights, and times the vector
        torch.bmm(x, on["first"].mT, out=on["hidden_out"])
    for _ in range(3):  # activations times the weights and times the vector; their derivative times the weights
        torch.bmm(on["hidden"], on["second"].mT, out=on["outputs_out"])
    for _ in range(2):  # the residual's derivative times the activations; the residual times their derivative
        torch.bmm(on["outputs"].mT, on["hidden"], out=on["second_out"])
    for _ in range(3):  # the residual times the weights and times the vector; its derivative times the weights
        torch.bmm(on["outputs"], on["second"], out=on["hidden_out"])
    torch.bmm(on["hidden"].mT, x, out=on["first_out"])


def raw(products: Callable[..., None], data: torch.Tensor, rows: int, block: int) -> Pass:
    """A pass of bare products over data of shape (workers, samples, features); ``rows`` workers share a product.

    There are ten models, or ``rows`` if that is more. As in a chunk, a model has left the fastest cache before it is
    used again.
    """
    held: dict[tuple[int, ...], dict[str, torch.Tensor]] = {}
    steps = []
    for number, group in enumerate(torch.split(data, rows)):
        for piece in torch.split(group, block, dim=1):
            key = (*piece.shape[:2], number % max(10 // rows, 1))
            steps.append((piece, held.setdefault(key, _buffers(*piece.shape[:2]))))

    def run() -> None:
        for piece, on in steps:
            products(piece, on)

    return run


def contestants(num_workers: int, federation: SupervisedFederation) -> dict[str, tuple[Pass, dict[str, Pass]]]:
    """For every kind of pass, fedgauge's own and the raw ones."""
    everyone, weights = np.arange(num_workers), np.full(num_workers, 1 / num_workers)
    model, vector = federation.start(0), torch.randn(federation.dim)
    chunk = federation.chunk(num_workers)
    parts = [everyone[first : first + chunk] for first in range(0, num_workers, chunk)]
    draws = federation.draws(Streams(0, Purpose.NOISE), 0, everyone[:chunk], np.zeros(chunk, dtype=np.int64), 1)
    models = federation.local_sgd(model.expand(chunk, -1), everyone[:chunk], draws, 0.01)
    vectors = torch.randn(chunk, federation.dim)
    x = federation.inputs

    def gradients() -> None:
        for part in parts:
            federation.gradients(models[: len(part)], part)

    def hessian() -> None:
        for part in parts:
            federation.hessian_products(models[: len(part)], vectors[: len(part)], part)

    def whole(products: Callable[..., None]) -> dict[str, Pass]:
        return {f"raw, {block} per block": raw(products, x.unsqueeze(0), 1, block) for block in (512, 2048)}

    def own(products: Callable[..., None]) -> dict[str, Pass]:
        shards = x.view(num_workers, -1, FEATURES)
        return {f"raw, {rows} per product": raw(products, shards, rows, 2048) for rows in (1, 5, 10, 20)}

    return {
        "pooled": (lambda: federation.pooled(model, everyone, weights), whole(gradient_products)),
        "gradients": (gradients, own(gradient_products)),
        "Hessian": (hessian, own(hessian_products)),
        "pooled Hessian": (
            lambda: federation.pooled_hessian(model, vector, everyone, weights),
            whole(hessian_products),
        ),
    }


def recorded_rounds(federation: SupervisedFederation, turns: int) -> float:
    """How many seconds longer a recorded round takes than one that is not recorded."""
    ends = [0.0]
    fedgauge.simulate(
        federation,
        fedgauge.fedavg(0.01),
        local_steps=1,
        rounds=2 * turns + 2,
        record=fedgauge.Recording(every=2, observer=lambda done, record: ends.append(time.process_time())),
        compute=fedgauge.Compute(processes=1),
    )
    seconds = np.diff(ends)[2:-1]  # the first two rounds warm up; the last one is followed by a further record
    return float(np.median(seconds[::2] - seconds[1::2]))


def measure(name: str, turns: int) -> dict[str, object]:
    """The median time of every contestant, and the ratios."""
    num_workers, samples = WORKLOADS[name]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_workers * samples, FEATURES, generator=generator)
    y = torch.randint(CLASSES, (len(x),), generator=generator)
    shards = [range(i * samples, (i + 1) * samples) for i in range(num_workers)]
    model = mlp((FEATURES,), CLASSES, width=WIDTH)
    federation = SupervisedFederation(model.make, model.loss, x, y, shards, batch_size=20)
    rows = []
    for kind, (ours, theirs) in contestants(num_workers, federation).items():
        seconds: dict[str, list[float]] = {one: [] for one in ("fedgauge", *theirs)}
        for turn in range(turns + 1):
            for one, run in {"fedgauge": ours, **theirs}.items():
                began = time.process_time()
                run()
                if turn:  # the first warms up
                    seconds[one].append(time.process_time() - began)
        median = {one: statistics.median(times) for one, times in seconds.items()}
        fastest = min(theirs, key=lambda one: median[one])
        low, _, high = statistics.quantiles(seconds["fedgauge"], n=4)
        rows.append(
            {
                "pass": kind,
                "ms": {one: 1e3 * value for one, value in median.items()},
                "spread": (high - low) / median["fedgauge"],
                "fastest_raw": fastest,
                "raw_over_fedgauge": median[fastest] / median["fedgauge"],
            }
        )
    recording = 1e3 * recorded_rounds(federation, turns)
    own: float = rows[1]["ms"]["fedgauge"]  # type: ignore[index]
    return {
        "workload": name,
        "turns": turns,
        "rows": rows,
        "recorded_round_ms": recording,
        "recorded_round_in_gradient_passes": recording / own,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--only", nargs="+", choices=list(WORKLOADS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = [measure(name, options.turns) for name in options.only or WORKLOADS]
    if options.json:
        versions = {"fedgauge": version("fedgauge"), "torch": torch.__version__, "python": platform.python_version()}
        print(json.dumps({"versions": versions, "aim": AIM, "results": results}))
        return
    for result in results:
        title = f"{result['workload']}, median of {options.turns}"
        print(f"{title:28}{'ms':>8}{'spread':>8}{'raw ms':>8}  {'fastest raw':24}{'of raw speed':>12}")
        for row in result["rows"]:  # type: ignore[attr-defined]
            took, bare = row["ms"]["fedgauge"], row["ms"][row["fastest_raw"]]
            print(
                f"{row['pass']:28}{took:>8.1f}{row['spread']:>8.0%}{bare:>8.1f}  {row['fastest_raw']:24}"
                f"{row['raw_over_fedgauge']:>12.2f}"
            )
        print(
            f"a recorded round: {result['recorded_round_ms']:.1f} ms beyond one that is not,"
            f" {result['recorded_round_in_gradient_passes']:.2f} passes of gradients\n"
        )


if __name__ == "__main__":
    main()
