"""``fedgauge theory explore``: the page written or served, and one sentence a mistake."""

from __future__ import annotations

import json
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.cli.command import start

from fedgauge.cli import main

Capture = pytest.CaptureFixture[str]


def test_the_page_is_written_and_the_settings_are_told(tmp_path: Path, capsys: Capture) -> None:
    values = tmp_path / "constants.json"
    values.write_text('{"L_h": {"value": 0.25, "kind": "lower"}, "N": 4}')
    out = tmp_path / "explorer.html"
    assert main(["theory", "explore", "--values", str(values), "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["path"] == str(out)
    assert told["values"]["L_h"] == 0.25
    assert told["values"]["M"] == told["values"]["N"] == 4  # no more can be sampled than there are
    assert {name: kind for name, kind in told["kinds"].items() if kind != "assumed"} == {"N": "exact", "L_h": "lower"}
    assert out.read_text().startswith("<!doctype html>")


def test_a_browser_is_opened_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)  # which returns None, as where there is no browser
    out = tmp_path / "explorer.html"
    assert main(["theory", "explore", "--out", str(out), "--open"]) == 0
    assert opened == [out.as_uri()]
    assert f"open {out.as_uri()} yourself" in capsys.readouterr().err


def test_it_is_served_to_this_machine_until_ctrl_c(tmp_path: Path) -> None:
    with start("theory", "explore", "--json", cwd=tmp_path) as process:
        assert process.stdout
        address = json.loads(process.stdout.readline())["address"]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address) as answer:
            assert b"fedgauge explorer" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404") as missing:
            urllib.request.urlopen(address + "etc/passwd")
        missing.value.close()
        foreign = urllib.request.Request(address, headers={"Host": "example.org"})
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(foreign)
        refused.value.close()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_port_in_use_gets_one_sentence(capsys: Capture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["theory", "explore", "--port", str(port)]) == 2
    assert capsys.readouterr().err == (
        f"fedgauge: Port {port} is in use; name another, or leave --port out to get a free one.\n"
    )


MISTAKES = {
    "no page": (["--out", "page.txt"], "must be a file that ends in .html"),
    "nowhere": (["--out", "nowhere/page.html"], "there is no directory nowhere"),
    "both": (["--out", "page.html", "--port", "8000"], "give only one of them"),
    "port": (["--port", "70000"], "port must be from 0"),
    "missing": (["--values", "missing.json"], "Cannot read missing.json"),
}


@pytest.mark.parametrize(("arguments", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_gets_one_sentence(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["theory", "explore", *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert not list(tmp_path.iterdir())
