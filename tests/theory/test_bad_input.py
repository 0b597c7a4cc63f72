"""Every mistake gets one sentence that names the argument, what is allowed and what was given."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fedgauge.base.errors import InputError
from fedgauge.theory import THEOREMS, evaluate
from fedgauge.theory.corollaries import corollary_rates
from fedgauge.theory.search import best_gamma, best_local_steps
from fedgauge_verification.propositions import lemma_b_2, lemma_b_4, proposition_5_3

CASES: list[tuple[str, dict[str, Any], str]] = [
    ("nonconvex", {"L_hh": 1}, "have no symbol L_hh; did you mean L_h?"),
    ("nonconvex", {"sigma": 1}, "have no symbol sigma; did you mean sigma2?"),
    ("nonconvex", {"L_g": -1}, "L_g must be a finite number of at least 0, not -1."),
    ("nonconvex", {"zeta2": float("nan")}, "zeta2 must be a finite number of at least 0, not nan."),
    ("nonconvex", {"sigma2": float("inf")}, "sigma2 must be a finite number of at least 0, not inf."),
    ("nonconvex", {"sigma2": np.array([1.0, -2.0])}, "sigma2 must be a finite number of at least 0, not an array"),
    ("nonconvex", {"R": 0}, "R must be a whole number of at least 1, not 0."),
    ("nonconvex", {"I": 0}, "I must be a whole number of at least 1, not 0."),
    ("nonconvex", {"I": 2.5}, "I must be a whole number of at least 1, not 2.5."),
    ("nonconvex", {"N": 0.5}, "N must be a finite number of at least 1, not 0.5."),
    ("partial", {"N": 8.5}, "N must be a whole number for partial, not 8.5: drawing workers at random"),
    ("nonconvex", {"R": float("nan")}, "R must be a whole number of at least 1, not nan."),
    ("nonconvex", {"gamma": 0}, "gamma must be a finite number above 0, not 0."),
    ("nonconvex", {"gamma": "fast"}, "gamma must be a number or an array of numbers, not 'fast'."),
    ("nonconvex", {"gamma": True}, "gamma must be a number or an array of numbers, not True."),
    ("nonconvex", {"gamma": None}, "gamma must be a number or an array of numbers, not None."),
    ("nonconvex", {"gamma": [[1.0], [1.0, 2.0]]}, "gamma must be a number or an array of numbers, not [[1.0]"),
    ("nonconvex", {"gamma": [1, 2], "I": [1, 2, 3]}, "must broadcast to one shape, not I (3,), gamma (2,)"),
    ("partial", {"M": 9, "N": 8}, "M must be at most N, not M = 9 of N = 8"),
    ("momentum", {"beta": 1}, "beta must be at least 0 and below 1, not 1."),
    ("momentum", {"beta": -0.1}, "beta must be at least 0 and below 1, not -0.1."),
    ("fedadam", {"tau": 0}, "tau must be a finite number above 0, not 0."),
    ("quadratic", {"kappa": 3}, "kappa must be between 0 and 2"),
    ("strongly-convex", {"mu": 0}, "mu must be a finite number above 0, not 0."),
    ("nonconvx", {}, "There is no theorem nonconvx; did you mean nonconvex?"),
    ("momentum", {"version": "sharp"}, "has no version 'sharp'; choose one of printed, corrected, star, prior."),
    ("nonconvex", {"kinds": {"L_h": "guess"}}, "The kind of L_h must be one of exact, upper, lower, sample"),
    ("nonconvex", {"kinds": {"L_hh": "exact"}}, "kinds has the unknown symbol L_hh; did you mean L_h?"),
]  # fmt: skip


def one_sentence(sentence: str) -> bool:
    return sentence[-1] in ".?" and not re.search(r"[.?] [A-Z]", sentence)


@pytest.mark.parametrize(("name_", "changes", "sentence"), CASES, ids=[case[2][:50] for case in CASES])
def test_mistake(name_: str, changes: dict[str, Any], sentence: str, table: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)) as raised:
        evaluate(name_, **{**table, **changes})
    assert one_sentence(str(raised.value))


def test_a_missing_symbol_says_what_the_theorem_needs(name: str, version: Any, table: dict[str, Any]) -> None:
    for symbol in THEOREMS[name].needed(version):
        with pytest.raises(InputError, match=rf"lacks {symbol}; it needs F?.*{symbol}") as raised:
            evaluate(name, version, **drop(table, symbol))
        assert one_sentence(str(raised.value))


BAD_CALLS: list[tuple[Any, str]] = [
    (lambda v: best_gamma("nonconvex", eta=None, **v), "fix eta or give gamma_min"),
    (lambda v: best_gamma("fedadam", eta=None, **v), "L_h with them, drops out"),
    (lambda v: best_gamma("nonconvex", gamma=1, **v), "gamma is what is being tuned"),
    (lambda v: best_gamma("nonconvex", gamma_min=10, **v), "gamma_min must be admissible, at most 0.1"),
    (lambda v: best_gamma("nonconvex", eta=None, gamma_min=10, **v), "gamma_min must be admissible for some eta"),
    (lambda v: best_gamma("nonconvex", gamma_min=-1, **v), "gamma_min must be a finite number above 0, not -1"),
    (lambda v: best_gamma("nonconvex", **{**v, "F": 0}), "F must be above 0"),
    (lambda v: best_gamma("nonconvex", **{**v, "L_g": 0, "L_h": 0}), "sets no limit on gamma"),
    (lambda v: best_gamma("quadratic", "printed", **{**v, "kappa": 1}), "admits no gamma at these values"),
    (lambda v: best_gamma("momentum", eta=2.0, **v), "|eta - 1| <= 0"),
    (lambda v: best_local_steps("nonconvex", budget=10, **v), "I is chosen under the budget; leave it out."),
    (lambda v: best_local_steps("nonconvex", budget=0.5, **drop(v, "I", "R")), "budget must cover one round"),
    (lambda v: best_local_steps("nonconvex", budget=9, candidates=[0], **drop(v, "I", "R")), "I must be a whole"),
    (lambda v: corollary_rates("4.5", **v), "There is no corollary 4.5; did you mean 4."),
    (lambda v: corollary_rates("4.4", gamma=1, **v), "Corollary 4.4 chooses gamma itself; leave it out."),
    (lambda v: corollary_rates("4.4", **drop(v, "L_h")), "nonconvex (Theorem 4.3, corrected) lacks L_h"),
    (lambda v: corollary_rates("4.4", **{**v, "F": 0}), "Corollary 4.4 has no rate where L_g or F is 0"),
    (lambda v: lemma_b_4([[[0.0]]], 1, 0.1, 0.5, 0, 0, 1, 1, version="sharp"), "Lemma B.4 has no version 'sharp'"),
    (lambda v: lemma_b_2([0.0], 0.1, 0, 0, 1, 1), "models must end in the shape (any, any, any)"),
    (lambda v: proposition_5_3([[[1.0, 2.0], [0.0, 1.0]]], [[0.0, 0.0]], [[0.0, 0.0]]), "hessians must be symmetric"),
    (lambda v: proposition_5_3([[[1.0]]], [[0.0, 0.0]], [[0.0]]), "linear must end in the shape (1, 1)"),
]  # fmt: skip


def drop(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return {symbol: value for symbol, value in values.items() if symbol not in names}


@pytest.mark.parametrize(("call", "sentence"), BAD_CALLS, ids=[case[1][:50] for case in BAD_CALLS])
def test_bad_call(call: Any, sentence: str, table: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)) as raised:
        call(drop(table, "gamma"))
    assert one_sentence(str(raised.value))
