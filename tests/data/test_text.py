"""The generated documents: always the same, told apart by their authors, and in the same language."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import pytest

from fedgauge.data.loader import load_dataset
from fedgauge.data.scaling import standardise
from fedgauge.data.schemes import make_partition
from fedgauge.data.text import CHARACTERS, DOCUMENTS, documents


def test_the_text_is_the_same_on_every_machine() -> None:
    digest = hashlib.sha256("\f".join(documents()).encode()).hexdigest()
    assert digest == "d4cb3e3c40e417e31551980cf742a7dcffe2f44ae5915bf952ab28251a95339e"


def test_targets_are_the_next_characters_and_examples_follow_each_other() -> None:
    text = load_dataset("text")
    np.testing.assert_array_equal(text.train_inputs[:, 1:], text.train_labels[:, :-1])
    first = text.train_inputs[text.ids["document"] == 3].ravel()
    assert "".join(CHARACTERS[token] for token in first) == documents()[3][: len(first)]
    assert standardise(text).train_inputs.dtype == np.int64
    assert text.classes == tuple(CHARACTERS)


def test_documents_are_divided_by_the_scheme_id() -> None:
    text = load_dataset("text")
    parts = make_partition(text, "id")
    assert parts.num_workers == DOCUMENTS
    assert set(parts.sizes) == {120}
    five = make_partition(text, "id", 5)
    assert all(len(set(text.ids["document"][five.worker(i)])) == 4 for i in range(5))


def test_authors_share_a_dictionary_and_differ_in_their_words() -> None:
    counts = [Counter(text.replace(".", " ").replace(",", " ").replace(";", " ").split()) for text in documents()]
    # The end of a document may cut a word.
    shared = set().union(*(set(count) for count in counts[:10])), set().union(*(set(count) for count in counts[10:]))
    assert len(shared[0] & shared[1]) > 0.8 * max(map(len, shared))
    words = sorted(shared[0] | shared[1])
    table = np.array([[count[word] for word in words] for count in counts], float)
    table /= table.sum(axis=1, keepdims=True)
    distances = np.abs(table[:, None] - table[None]).sum(axis=2)[np.triu_indices(DOCUMENTS, 1)] / 2
    halves = [Counter(part.split()) for part in (documents()[0][:2300], documents()[0][2300:])]
    total = [sum(half.values()) for half in halves]
    own = sum(abs(halves[0][w] / total[0] - halves[1][w] / total[1]) for w in halves[0] | halves[1]) / 2
    assert own < 0.7 * np.median(distances)


@pytest.mark.parametrize("text", documents()[::7])
def test_sentences_follow_the_grammar(text: str) -> None:
    for sentence in text.split("\n")[:-1]:
        assert sentence.endswith(".")
        assert "  " not in sentence
        assert ".." not in sentence
