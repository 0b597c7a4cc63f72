"""What it takes to add one thing of each kind: the new files, and the lines in files that there are.

CONTRIBUTING.md names the same files, ``tests/test_contributing.py`` makes the changes in a copy of the sources and uses
what was added, and ``benchmarks/size.py`` counts them. The new files lie beside this one, in a directory for each kind.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Addition:
    """One thing that is added.

    Attributes:
        kind: as the heading in CONTRIBUTING.md has it.
        folder: holds the new files.
        name: what the new thing is called, in file names too.
        lines: for each file that is changed, the new lines, each with the line that it follows.
    """

    kind: str
    folder: str
    name: str
    lines: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    @property
    def files(self) -> tuple[str, ...]:
        """The new files."""
        place = HERE / self.folder
        found = (path for path in place.rglob("*") if path.is_file() and path.suffix != ".pyc")
        return tuple(sorted(str(path.relative_to(place)) for path in found))

    @property
    def touched(self) -> tuple[str, ...]:
        """All files, with ``NAME`` for the name."""
        return tuple(path.replace(self.name, "NAME") for path in (*self.files, *self.lines))

    def make(self, root: Path) -> None:
        """Make the changes in a copy of the sources."""
        for path in self.files:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(HERE / self.folder / path, root / path)
        for path, added in self.lines.items():
            text = (root / path).read_text("utf-8")
            for after, line in added:
                assert text.count(f"{after}\n") == 1, f"{path} has no single line {after!r}"
                text = text.replace(f"{after}\n", f"{after}\n{line}\n")
            (root / path).write_text(text, "utf-8")


ALGORITHM = Addition(
    "An algorithm",
    "algorithm",
    "fedexp",
    {
        "src/fedgauge/algorithms/__init__.py": (
            (
                "from fedgauge.algorithms.fedavgm import fedavgm as fedavgm",
                "from fedgauge.algorithms.fedexp import fedexp as fedexp",
            ),
            ("        diloco,", "        fedexp,"),
        ),
        "src/fedgauge/__init__.pyi": (
            ("from .algorithms import fedavgm as fedavgm", "from .algorithms import fedexp as fedexp"),
        ),
        "docs/reference/algorithms.md": (
            (
                ".. autofunction:: fedgauge.diloco\n```",
                "\n```{eval-rst}\n.. autofunction:: fedgauge.fedexp\n```",
            ),
        ),
        "tests/strategies.py": (('    "scaffold": {"gamma": 0.1, "eta": 0.8},', '    "fedexp": {"gamma": 0.1},'),),
        "tests/algorithms/naive.py": (
            (
                "            x = x - eta * gamma * np.mean(gradient_means, axis=0)",
                '        elif name == "fedexp":\n'
                "            squares = np.mean([np.sum((x - y) ** 2) for y in ends])\n"
                "            x = x - max(1.0, squares / (2 * np.sum(delta**2))) * delta if delta.any() else x",
            ),
        ),
    },
)
THEOREM = Addition(
    "A theorem",
    "theorem",
    "minibatch_average",
    {
        "src/fedgauge/theory/__init__.py": (
            (
                "from fedgauge.federation.participation import Sampling",
                "from fedgauge.theory import minibatch_average",
            ),
            ("        partial.WITHOUT,", "        minibatch_average.THEOREM,"),
            (
                "partial-without      Theorem 4.5  corrected, sharp, star, prior",
                "minibatch-average    Theorem 4.8 of Bottou et al. 2018printed, corrected, prior",
            ),
        ),
        "tests/theory/test_oracle.py": (
            ('    "minibatch": (GAP, NOISE),', '    "minibatch-average": (GAP, NOISE),'),
            ('    "minibatch": LOCAL_SGD,', '    "minibatch-average": LOCAL_SGD,'),
        ),
        "tests/theory/oracle.py": (
            (
                "    return minibatch_corrected(with_l_tilde(p))",
                '\n\noracle("minibatch-average", "printed")(minibatch_printed)\n'
                'oracle("minibatch-average", "corrected")(minibatch_printed)\n'
                'oracle("minibatch-average", "prior")(minibatch_prior)',
            ),
        ),
        "docs/theory/table.md": (
            (
                "| `minibatch` | gradient noise | 1 | 1 | – |",
                "| `minibatch-average` | initial gap | 2 | 2 | – |\n"
                "| `minibatch-average` | gradient noise | 1 | 1 | – |",
            ),
        ),
    },
)
MEASURE = Addition(
    "A measure",
    "measure",
    "conflict",
    {
        "src/fedgauge/measurement/session.py": (
            (
                "from fedgauge.measurement.curvature import curvature",
                "from fedgauge.measurement.conflict import conflict",
            ),
            ('    "noise": _noise,', '    "conflict": lambda session: [conflict(session.meter, session.model)],'),
        ),
        "src/fedgauge/base/symbols.py": (
            (
                '    Symbol("zeta2", r"\\zeta^2", "squared gradient divergence between workers", "Assumption 3.3"),',
                '    Symbol("conflict", r"C", "share of workers whose gradients point against that of f", "fedgauge"),',
            ),
        ),
    },
)
SECTION = Addition(
    "A report section",
    "section",
    "duration",
    {
        "src/fedgauge/show/page/sections/__init__.py": (
            (
                "from fedgauge.show.page.sections import results, runs",
                "from fedgauge.show.page.sections.duration import DURATION",
            ),
            ("    runs.ROUNDS,", "    DURATION,"),
        ),
    },
)
FAST_PATH = Addition(
    "A fast path",
    "fast_path",
    "linear",
    {
        "src/fedgauge/federation/kernels/__init__.py": (
            (
                "from fedgauge.federation.kernels.dense import DenseStack",
                "from fedgauge.federation.kernels.linear import Linear",
            ),
            ("KERNELS: tuple[type[Kernel], ...] = (", "    Linear,"),
        ),
    },
)
DATA_SET = Addition(
    "A data set",
    "data_set",
    "kmnist",
    {
        "integrations/datasets/src/fedgauge_datasets/catalogue.py": (
            (
                '        Entry("text", "20 documents, generated"),',
                """\
        Entry(
            "kmnist",
            "70,000 hiragana of 28x28",
            ("KMNIST/raw",),
            {
                "train-images-idx3-ubyte.gz": "bdb82020997e1d708af4cf47b453dcf7",
                "train-labels-idx1-ubyte.gz": "e144d726b3acfaa3e44228e80efcd344",
                "t10k-images-idx3-ubyte.gz": "5c965bf0a639b31b8f53240b1b52f4d7",
                "t10k-labels-idx1-ubyte.gz": "7320c461ea6c1c855c0b718fb2a4b134",
            },
            url="http://codh.rois.ac.jp/kmnist/dataset/kmnist",
            classes=tuple("おきすつなはまやれを"),
        ),""",
            ),
        ),
        "integrations/datasets/pyproject.toml": (
            ('shakespeare = "fedgauge_datasets.reading:read"', 'kmnist = "fedgauge_datasets.reading:read"'),
        ),
        "src/fedgauge/data/loader.py": (('    "fashion-mnist",', '    "kmnist",'),),
        "docs/reference/datasets.md": (
            (
                "| `qmnist` | MNIST with the id `writer` | MNIST's files and `qmnist-train-labels-idx2-int.gz` |",
                "| `kmnist` | 60,000 + 10,000 hiragana of 28×28 | `KMNIST/raw/` |",
            ),
        ),
    },
)
INTEGRATION = Addition(
    "An integration",
    "integration",
    "markdown",
    {
        "Makefile": (("\texplorer \\", "\tintegrations/markdown \\"),),
        "pyproject.toml": (('    "integrations/flower/src",', '    "integrations/markdown/src",'),),
    },
)
ADDITIONS = (ALGORITHM, THEOREM, MEASURE, SECTION, FAST_PATH, DATA_SET, INTEGRATION)
