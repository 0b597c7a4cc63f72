"""Values to start from, and every theorem in every version for a test that asks for ``name`` and ``version``."""

from __future__ import annotations

from typing import Any

import pytest

from fedgauge.theory import THEOREMS

EVERY = [(name, version) for name, theorem in THEOREMS.items() for version in theorem.versions]

TABLE: dict[str, Any] = {
    "F": 1.3, "I": 6, "R": 50, "N": 8, "M": 4, "sigma2": 0.7, "zeta2": 1.9, "L_g": 1.1, "L_h": 0.4, "L_tilde": 1.6,
    "gamma": 0.003, "beta": 0.5, "kappa": 1.3, "tau": 0.2, "G": 0.9, "beta2": 0.9, "mu": 0.3, "d0": 2.1,
}  # fmt: skip


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"name", "version"} <= set(metafunc.fixturenames):
        metafunc.parametrize(("name", "version"), EVERY, ids=[f"{name}-{version}" for name, version in EVERY])


@pytest.fixture
def table() -> dict[str, Any]:
    return dict(TABLE)
