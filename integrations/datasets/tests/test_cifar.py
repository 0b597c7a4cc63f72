from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integrations.datasets.tests import made

from fedgauge.base.errors import InputError
from fedgauge_datasets.cifar import read_cifar10, read_cifar100, read_pickle


def files(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_of_every_protocol_are_read(tmp_path: Path, protocol: int) -> None:
    batches = made.cifar10(tmp_path, protocol)
    dataset = read_cifar10(files(tmp_path))
    expected = np.concatenate([batches[f"data_batch_{k}"][b"data"] for k in range(1, 6)])
    np.testing.assert_array_equal(dataset.train_inputs.reshape(-1, 3072), expected)
    np.testing.assert_array_equal(dataset.test_inputs.reshape(-1, 3072), batches["test_batch"][b"data"])
    np.testing.assert_array_equal(dataset.train_labels, np.arange(100) % 20 % 10)


def old(content: bytes) -> bytes:
    """The pickle of a 2 by 3 array as Python 2 and numpy before 2.0 wrote it, in a dictionary."""
    head = b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    head += b"(K\x01K\x02K\x03\x86"
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
    return head + kind + struct.pack("<i", len(content)) + content + b"tbs."


def test_the_published_form_is_read(tmp_path: Path) -> None:
    path = made.write(tmp_path / "batch", old(bytes(range(6))))
    np.testing.assert_array_equal(read_pickle(path)["data"], np.arange(6).reshape(2, 3))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(6, dtype=np.uint8)[::2],
        np.zeros((0, 3), np.uint8),
    ],
    ids=["big-endian", "fortran", "strided", "empty"],
)
@pytest.mark.parametrize("protocol", [2, 5])
def test_arrays_come_as_they_went(tmp_path: Path, array: Any, protocol: int) -> None:
    path = made.write(tmp_path / "any", pickle.dumps({"a": array}, protocol))
    np.testing.assert_array_equal(read_pickle(path)["a"], array)


def test_cifar100_has_coarse_labels_and_names(tmp_path: Path) -> None:
    made.cifar100(tmp_path)
    dataset = read_cifar100(files(tmp_path))
    np.testing.assert_array_equal(dataset.ids["coarse"], np.arange(200) % 20)
    assert dataset.classes[:2] == ("0", "1")
    names = [f"name {i}".encode() for i in range(100)]
    made.write(tmp_path / "meta", pickle.dumps({b"fine_label_names": names}, 2))
    assert read_cifar100(files(tmp_path)).classes[99] == "name 99"
    made.write(tmp_path / "meta", pickle.dumps({b"fine_label_names": names[:-1]}, 2))
    with pytest.raises(InputError, match="not 100 names"):
        read_cifar100(files(tmp_path))


class Call:
    """Calls a function when it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def attacks(mark: Path) -> dict[str, bytes]:
    """Pickles that make the file ``mark``, and for some that would only go further."""
    command = f"touch {mark}"
    line = command.encode()
    return {
        "reduce": pickle.dumps({b"data": Call(os.system, command)}, 2),
        "stack global": pickle.dumps({b"data": Call(os.system, command)}, 4),
        "eval": pickle.dumps(Call(eval, f"open({str(mark)!r}, 'w').close()"), 2),
        "inst": b"(S'" + line + b"'\niposix\nsystem\n.",
        "obj": b"(cposix\nsystem\nS'" + line + b"'\no.",
        "numpy": pickle.dumps(Call(np.fromfile, str(mark)), 2),
        "getattr": pickle.dumps(Call(getattr, Call(__import__, "os"), "system"), 2),
        "new": b"\x80\x02csubprocess\nPopen\n]S'touch'\nS'" + str(mark).encode() + b"'\ne\x85\x81.",
    }


@pytest.mark.parametrize("name", attacks(Path("mark")))
def test_a_pickle_that_calls_something_is_refused_and_nothing_runs(tmp_path: Path, name: str) -> None:
    mark = tmp_path / "mark"
    path = made.write(tmp_path / "data_batch_1", attacks(mark)[name])
    with pytest.raises(InputError, match=r"asks for \w+\."):
        read_pickle(path)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["reduce", "stack global", "eval", "inst"])
def test_the_attacks_would_work_elsewhere(tmp_path: Path, name: str) -> None:
    pickle.loads(attacks(tmp_path / "mark")[name])
    assert (tmp_path / "mark").exists()


def test_the_refusal_names_what_was_asked_for(tmp_path: Path) -> None:
    path = made.write(tmp_path / "batch", attacks(tmp_path / "mark")["reduce"])
    with pytest.raises(
        InputError, match=r"it asks for posix\.system, which no data set needs, and nothing was executed"
    ):
        read_pickle(path)


HOSTILE = {
    "changes a function": b"\x80\x02c_codecs\nencode\n}S'x'\nK\x01sb.",
    "changes its slots": b"\x80\x02c_codecs\nencode\nN}S'__defaults__'\nK\x01s\x86b.",
    "object from elsewhere": b"Pmodule\n.",
    "an array of objects": pickle.dumps({"a": np.array([{}], object)}, 2),
    "an array of words": pickle.dumps({"a": np.array(["a"])}, 2),
    "too few bytes": old(bytes(5)),
    "too many bytes": old(bytes(7)),
    "another codec": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.",
    "a list": pickle.dumps([1, 2], 2),
    "an extension": b"\x80\x02\x82\x01.",
    "cut": pickle.dumps({"a": np.arange(100)}, 2)[:-20],
    "empty": b"",
    "not a pickle": b"hello",
    "a mark without end": b"(((",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_dictionary_of_arrays_is_refused(tmp_path: Path, name: str) -> None:
    path = made.write(tmp_path / "batch", HOSTILE[name])
    with pytest.raises(InputError, match=r"batch cannot be read: .*; replace the file\.$"):
        read_pickle(path)


BAD: dict[str, tuple[dict[bytes, Any], str]] = {
    "no data": ({b"data": None}, "'data' is not an array of bytes with 3072 columns"),
    "columns": ({b"data": np.zeros((20, 3071), np.uint8)}, "3072 columns"),
    "type": ({b"data": np.zeros((20, 3072), np.int16)}, "array of bytes"),
    "count": ({b"labels": [0] * 19}, "'labels' is not one whole number for each of 20 images"),
    "words": ({b"labels": ["a"] * 20}, "one whole number"),
    "above": ({b"labels": [0] * 19 + [10]}, "the label 10 in 'labels' is outside its classes 0 to 9"),
    "below": ({b"labels": [-1] + [0] * 19}, "the label -1"),
}


@pytest.mark.parametrize("name", BAD)
def test_batches_that_do_not_fit_are_refused(tmp_path: Path, name: str) -> None:
    made.cifar10(tmp_path)
    changes, sentence = BAD[name]
    batch = {**made.cifar_batch(20, 0, labels=10), **changes}
    made.write(tmp_path / "data_batch_3", pickle.dumps(batch, 2))
    with pytest.raises(InputError, match=f"data_batch_3 cannot be read: .*{sentence}"):
        read_cifar10(files(tmp_path))
