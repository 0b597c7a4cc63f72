"""Plays by role, on texts that are written here: who says what, what is for testing, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedgauge as fg
from fedgauge.base.errors import InputError
from fedgauge.data.loader import load_dataset
from fedgauge.simulation.experiment.prepare import execute, prepare

# Three roles with letters of their own, one that says nothing, and a speech in two stanzas.
LINES = {"ANNE": "abba cab ", "BEN": "noon moon ", "First Lord": "abac cabba "}


def play(turns: int = 20) -> str:
    text = "A prologue that nobody speaks.\n\n"
    for turn in range(turns):
        for role, line in LINES.items():
            text += f"{role}:\n{line * (1 + turn % 3)}\n{line}.\n\n"
        text += "All:\n\n"
    return text + "ANNE:\nabba.\n\ncab.\n"


def documents(text: str) -> dict[str, str]:
    """What each role says, by a loop over the lines."""
    found: dict[str, list[str]] = {}
    role = ""
    speech: list[str] = []
    for line in [*text.split("\n"), "", "END:"]:
        if line.endswith(":"):
            if "".join(speech).strip() and role:
                found.setdefault(role, []).append("\n".join(each for each in speech if each).rstrip() + "\n")
            role, speech = line[:-1], []
        else:
            speech.append(line)
    return {name: "".join(parts) for name, parts in found.items()}


def write(directory: Path, text: str) -> Path:
    (directory / "tinyshakespeare").mkdir(parents=True, exist_ok=True)
    (directory / "tinyshakespeare" / "input.txt").write_text(text, "utf-8")
    return directory


def test_a_roles_examples_are_its_text_in_order_and_the_last_sixth_is_for_testing(tmp_path: Path) -> None:
    data = load_dataset("shakespeare", write(tmp_path, play()), context=7)
    expected = documents(play())
    assert list(expected) == list(LINES)
    tests = 0
    for number, text in enumerate(expected.values()):
        rows = [text[begin : begin + 8] for begin in range(0, len(text) - 1, 7)]
        later = len(rows) // 6
        own = data.ids["role"] == number
        assert own.sum() == len(rows) - later
        here = [(data.train_inputs[own], data.train_labels[own], rows[: len(rows) - later])]
        here.append((data.test_inputs[tests : tests + later], data.test_labels[tests : tests + later], rows[-later:]))
        tests += later
        for inputs, labels, wanted in here:
            for x, y, row in zip(inputs, labels, wanted, strict=True):
                known = len(row) - 1
                assert "".join(data.classes[token] for token in x[:known]) == row[:known]
                assert "".join(data.classes[token] for token in y[:known]) == row[1:]
                assert (y[known:] == -1).all()
                assert all(data.classes[token] == "\n" for token in x[len(row) :])
    assert tests == data.num_test
    assert data.classes == tuple(sorted(set("".join(expected.values()))))


def test_plays_are_told_apart_by_their_first_lines(tmp_path: Path) -> None:
    first = "First Citizen:\nBefore we proceed any further, hear me speak.\n\n"
    second = "GLOUCESTER:\nNow is the winter of our discontent\nmade glorious summer by this sun of York\n\n"
    data = load_dataset("shakespeare", write(tmp_path, first + play(9) + second * 3 + play(3)), context=5)
    of_first, of_second = (set(data.ids["role"][data.ids["play"] == number]) for number in (0, 1))
    assert (of_first, of_second) == ({0, 1, 2, 3}, {1, 2, 3, 4})
    assert data.ids["play"].max() == 1
    assert "play" not in load_dataset("shakespeare", write(tmp_path, play())).ids


def test_the_scheme_id_goes_by_role_and_similar_roles_share_a_worker(tmp_path: Path) -> None:
    data = load_dataset("shakespeare", write(tmp_path, play()), context=8)
    alone = fg.make_partition(data, "id")
    assert alone.num_workers == 3
    assert alone.parameters == {"divide_by": "role"}
    together = fg.make_partition(data, "id", 2, grouping="similar")
    roles = [set(data.ids["role"][together.worker(number)]) for number in range(2)]
    assert roles == [{0, 2}, {1}]  # who says abba and cab, and who says noon and moon
    assert together.parameters == {"divide_by": "role", "grouping": "similar"}
    assert together.dropped == 0
    assert fg.make_partition(data, "id", 3, grouping="similar").num_workers == 3
    assert fg.make_partition(data, "iid", 4).sizes.max() - fg.make_partition(data, "iid", 4).sizes.min() <= 1


@pytest.mark.parametrize(
    ("text", "context", "said"),
    [
        ("No one speaks.\n\nNot even here.", 4, "has no roles: speeches must be separated by blank lines"),
        ("ANNE:\n\nBEN:\n", 4, "has no roles"),
        (play(), 4000, "context must be smaller than [0-9]+, the number of characters of the longest role, not 4000"),
        (play() + "\nANNE:\nExit!\n", 7, "The character '!' is only in the last sixth of a role"),
    ],
)
def test_a_text_that_cannot_be_used_is_refused(text: str, context: int, said: str, tmp_path: Path) -> None:
    asked = {"source": "shakespeare", "data": str(write(tmp_path, text)), "context": context, "gamma": 0.1}
    with pytest.raises(InputError, match=said):
        prepare(fg.Experiment.of({**asked, "model": "transformer"}))


def test_other_mistakes_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="context is for the data set shakespeare, not for digits"):
        fg.Experiment.of({"source": "digits", "gamma": 0.1, "context": 8})
    with pytest.raises(InputError, match="context is for the data set shakespeare, not for text"):
        load_dataset("text", context=8)
    with pytest.raises(InputError, match=r"input.txt is missing .*fedgauge data get shakespeare"):
        load_dataset("shakespeare", tmp_path)
    data = load_dataset("shakespeare", write(tmp_path, play()), context=8)
    with pytest.raises(InputError, match="workers must be at most 3, the number of different ids, not 4"):
        fg.make_partition(data, "id", 4, grouping="similar")
    with pytest.raises(InputError, match="needs their number; give workers"):
        fg.make_partition(data, "id", grouping="similar")
    with pytest.raises(InputError, match="did you mean similar"):
        fg.make_partition(data, "id", 2, grouping="similiar")
    (tmp_path / "tinyshakespeare" / "input.txt").write_bytes(b"ANNE:\n\xff\xfe\n")
    with pytest.raises(InputError, match="it is not text in UTF-8"):
        load_dataset("shakespeare", tmp_path)


def test_an_experiment_trains_the_transformer_on_roles(tmp_path: Path) -> None:
    write(tmp_path, play())
    text = f"""
[data]
name = "shakespeare"
dir = {str(tmp_path)!r}
context = 8
scheme = "id"
workers = 2
grouping = "similar"

[model]
name = "transformer"
width = 16
heads = 2
layers = 1

[algorithm]
gamma = 0.5

[run]
rounds = 8
processes = 1
"""
    experiment = fg.Experiment.from_toml(text)
    assert fg.Experiment.from_toml(experiment.to_toml()) == experiment
    trace = execute(experiment)
    assert trace.losses[-1] < 0.8 * trace.losses[0]
    assert trace.accuracies[-1] > 0.25
    setup = prepare(experiment)
    assert setup.federation.num_workers == 2


def test_the_transformer_has_a_few_million_parameters_if_it_is_made_wide() -> None:
    made = fg.make_model("transformer", (128,), 65, width=256, heads=8, layers=4).make()
    each = 12 * 256**2 + 13 * 256  # four matrices of attention, two of eight times that, biases and norms
    assert sum(part.numel() for part in made.parameters()) == 4 * each + (65 + 128) * 256 + 2 * 256 + 65 * 257
