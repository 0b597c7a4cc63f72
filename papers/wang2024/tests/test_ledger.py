"""The ledger says what the results say: made again it is the same, and other numbers give other verdicts."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedgauge.base.errors import InputError
from fedgauge.cli import main
from fedgauge_wang2024 import glance, ledger, ledger_page, printed_sizes
from fedgauge_wang2024.claims import CLAIMS
from fedgauge_wang2024.verdicts import Claim, ResultData

RESULTS = Path(__file__).parents[1] / "results"
KEPT = ledger.read(RESULTS)
HELD = [claim for claim in CLAIMS if claim.judged(KEPT).found.verdict.startswith("reproduced")]


def _deciding(claim: Claim) -> Any:
    """A copy of the result that decides a claim."""
    cost = claim.judged(KEPT).cost
    return copy.deepcopy(next(result for result in KEPT[claim.result] if claim.cost(result) == cost))


def _verdict(claim: Claim, result: ResultData) -> str:
    return claim.judged({claim.result: [result]}).found.verdict


def test_the_page_is_made_from_the_results() -> None:
    notes = ledger.notes_in(RESULTS)
    rows = ledger.rows(KEPT, notes)
    page = ledger_page.page(rows, ledger.kept_in(RESULTS), notes.page, printed_sizes.compared(KEPT))
    assert (RESULTS / "ledger.md").read_text(encoding="utf-8") == page
    assert json.loads((RESULTS / "ledger.json").read_text(encoding="utf-8"))["claims"] == rows


def test_at_a_glance_every_claim_has_one_sign(capsys: pytest.CaptureFixture[str]) -> None:
    rows = ledger.rows(KEPT)
    blocks = glance.blocks(rows)
    shown = [row for block in blocks for row in block.rows]
    assert sorted(row["claim"] for row in shown) == sorted(row["claim"] for row in rows)
    for block in blocks:
        for line in block.lines:
            # What a column says at its head is what each claim in it says.
            assert tuple(row["short"] for row in line.rows) == block.heads
            expected = [
                next(s for v, s in reversed(glance.SIGNS.items()) if row["verdict"].startswith(v)) for row in line.rows
            ]
            assert list(line.signs) == expected
    ledger.show(rows)
    assert glance.summary(rows) in " ".join(capsys.readouterr().out.split())


def test_the_page_leads_from_each_sign_to_its_claim_and_from_each_picture_to_its_numbers() -> None:
    page = (RESULTS / "ledger.md").read_text(encoding="utf-8")
    grid = page[: page.index("</div>")]
    assert "\n\n" not in grid[grid.index("<div") :]  # an empty line would end the HTML
    wanted = re.findall(r'href="#([^"]+)"', grid)
    assert len(wanted) == len(CLAIMS)
    assert sorted(wanted) == sorted(re.findall(r'<a id="([^"]+)"', page))
    pictures = re.findall(r"\[!\[[^]]*\]\(([^)]+)\)\]\(([^)]+)\)", page)
    assert len(pictures) >= len(KEPT)
    for picture, numbers in pictures:
        assert (RESULTS / picture).exists()
        assert (RESULTS / numbers).exists()
        assert Path(picture).parent == Path(numbers).parent
    assert page.count("<details") == page.count("</details>") == len({claim.result for claim in CLAIMS}) + 2


def _curves(result: Any) -> None:
    """The smallest and the largest number of local steps change places; one step has trained all the same."""
    for study in result["studies"].values():
        by = {(each["values"]["percent"], each["values"]["local_steps"]): each for each in study["combinations"]}
        for percent in {percent for percent, _ in by}:
            steps = [number for p, number in by if p == percent]
            few, many = by[percent, min(steps)], by[percent, max(steps)]
            for key in ("loss", "accuracy"):
                few[key], many[key] = many[key], few[key]


def _trajectory(cell: Any) -> dict[str, Any]:
    """A cell's estimates by symbol, as the paper estimates them."""
    (found,) = (each for each in cell["measured"]["readings"] if each["name"] == "trajectory")
    return {each["symbol"]: each for each in found["estimates"]}


def _table1(result: Any) -> None:
    """Rows the other way round, and with one seed L_tilde below the others."""
    first = _trajectory(result["cells"][0])  # a row whose models have learned something
    first["L_tilde"]["value"] = 0.9 * min(first["L_h"]["value"], first["L_g"]["value"])
    readings = [row["readings"] for row in result["rows"]]
    for row, other in zip(result["rows"], reversed(readings), strict=True):
        found = copy.deepcopy(other)
        h, t = found["trajectory"]["L_h"], found["trajectory"]["L_tilde"]
        found["trajectory"] |= {"L_h": t, "L_tilde": h}
        row["readings"] = found
    result["rows"][0]["readings"]["trajectory"]["L_g"] = (1e9, 0.0)


def _table2(result: Any) -> None:
    """Every column takes as many rounds as the first, but for the last rates."""
    for cell in result["cells"]:
        cell["rounds"] = [[2 * r for r in cell["rounds"][0]] if place == 3 else cell["rounds"][0] for place in range(9)]


def _fig1(result: Any) -> None:
    result["panels"].reverse()


def _sampling(result: Any) -> None:
    for line in result["lines"]:
        line["left"] = 0.02


SPOILED: dict[str, Callable[[Any], None]] = {"table2": _table2, "fig1": _fig1, "sampling": _sampling}


@pytest.mark.parametrize("claim", HELD, ids=lambda claim: claim.text)
def test_other_numbers_would_not_be_called_reproduced(claim: Claim) -> None:
    spoiled = _deciding(claim)
    spoil = SPOILED.get(claim.result) or (_table1 if claim.result.startswith("table1") else _curves)
    spoil(spoiled)
    assert _verdict(claim, spoiled) == "not reproduced"


@pytest.mark.parametrize("claim", [claim for claim in HELD if claim.result.startswith("table1")], ids=lambda c: c.text)
def test_results_of_table1_that_agree_in_the_mean_alone_are_not_called_reproduced(claim: Claim) -> None:
    """Where an order is claimed each seed has it; where growth is claimed, it is more than the spread."""
    wide = _deciding(claim)
    _table1_seed(wide)
    assert _verdict(claim, wide) == "not reproduced"


def _table1_seed(result: Any) -> None:
    for row in result["rows"]:
        for reading in row["readings"].values():
            for symbol, (value, _) in reading.items():
                reading[symbol] = (value, 10 * value)
    first = _trajectory(result["cells"][0])
    first["L_tilde"]["value"] = 0.9 * min(first["L_h"]["value"], first["L_g"]["value"])


def test_no_difference_within_the_spread_is_called_reproduced() -> None:
    claim = next(claim for claim in HELD if claim.result.startswith("fig") and claim.result != "fig1")
    wide = _deciding(claim)
    for study in wide["studies"].values():
        for each in study["combinations"]:
            for key in ("loss", "accuracy"):
                each[key]["deviation"] = [10.0] * len(each[key]["mean"])
    assert _verdict(claim, wide) == "not reproduced"


def test_a_place_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "ledger", str(tmp_path), "--out", str(tmp_path / "none" / "x.md")]) == 2
    assert f"there is no directory {tmp_path / 'none'}; create it" in capsys.readouterr().err


def test_a_smoke_run_has_no_verdict() -> None:
    smoke: Any = copy.deepcopy(KEPT)
    for result in (*smoke["fig2"], *smoke["fig3"]):
        result["scale"] = "smoke"
    verdicts = {row["verdict"] for row in ledger.rows(smoke) if row["where"].startswith(("Figure 2", "Figure 3"))}
    assert verdicts == {"not run"}


def test_bad_results_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no directory"):
        ledger.read(tmp_path / "none")
    with pytest.raises(InputError, match=r"There is no result in"):
        ledger.read(tmp_path)
    (tmp_path / "fig1").mkdir()
    place = tmp_path / "fig1" / "result.json"
    place.write_text("{half")
    with pytest.raises(InputError, match=r"is not a JSON result"):
        ledger.read(tmp_path)
    place.write_text(json.dumps({"panels": [{}]}))
    with pytest.raises(InputError, match=r"The result fig1 is damaged, or another version wrote it"):
        ledger.rows(ledger.read(tmp_path))


def test_pictures_are_drawn_again_from_stored_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from shutil import copytree

    from fedgauge.cli import main

    for name in ("fig1", "fig4", "sampling", "table1", "table2"):
        copytree(RESULTS / name, tmp_path / name)
        picture = next((tmp_path / name).glob("*.png"))
        picture.write_bytes(b"")
    assert main(["paper", "draw", str(tmp_path)]) == 0
    assert "fig4/fig4.png" in capsys.readouterr().out
    for picture in tmp_path.glob("*/*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG"), picture
    assert main(["paper", "draw", str(tmp_path / "gone")]) == 2
    (tmp_path / "fig1" / "result.json").write_text("{}")
    assert main(["paper", "draw", str(tmp_path)]) == 2
    assert "fig1/result.json is damaged" in capsys.readouterr().err


# -- which result decides, and whether it can -------------------------------------------------------------------------


def test_the_largest_scale_that_has_the_claim_decides(tmp_path: Path) -> None:
    """A directory with all panels of a laptop and one panel of a workstation: that one decides its own claims only."""
    from shutil import copytree

    copytree(RESULTS / "fig2", tmp_path / "fig2")
    part = json.loads((tmp_path / "fig2" / "result.json").read_text())
    part["scale"] = "workstation"
    del part["studies"]["cnn"]
    mlp = part["studies"]["mlp"]
    mlp["combinations"] = [each for each in mlp["combinations"] if each["values"]["percent"] == 50]
    (tmp_path / "fig2-workstation").mkdir()
    (tmp_path / "fig2-workstation" / "result.json").write_text(json.dumps(part))
    rows = [row for row in ledger.rows(ledger.read(tmp_path)) if row["where"].startswith("Figure 2")]
    scales = {(row["where"][-3:], row["scale"]) for row in rows}
    assert scales == {("(a)", "laptop"), ("(b)", "laptop"), ("(c)", "workstation"), ("(d)", "laptop")}
    assert all(f"--effort {row['scale']}" in row["command"] for row in rows)


def test_claims_have_texts_of_their_own() -> None:
    """A reason is found by the text of its claim."""
    assert len({claim.text for claim in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize(
    "claim",
    [claim for claim in HELD if claim.result.startswith(("fig2", "fig3", "fig4"))],
    ids=lambda claim: claim.text,
)
def test_no_verdict_rests_on_a_reference_that_did_not_train(claim: Claim) -> None:
    result = _deciding(claim)
    for study in result["studies"].values():
        for each in study["combinations"]:
            if each["values"]["local_steps"] == 1:
                each["loss"]["mean"][-1] = 2.2  # a constant guess has 2.303
    assert _verdict(claim, result) == "not decided: the reference did not train"


def _untrained_at(result: Any, *percents: int) -> Any:
    """A copy of Table 1 with models that have learned nothing at some X."""
    result = copy.deepcopy(result)
    for cell in result["cells"]:
        if cell["percent"] in percents:
            cell["measured"]["point"]["loss"] = 2.2
    return result


def test_table1_says_nothing_about_models_that_are_not_trained() -> None:
    claims = [claim for claim in CLAIMS if claim.result == "table1"]
    result = _untrained_at(_deciding(claims[0]), 75, 100)
    found = [claim.judged({"table1": [result]}).found for claim in claims]
    assert {each.verdict for each in found} == {"not decided: the measured model is not trained"}
    assert all("2.2 (2.3) at 100%" in each.ours for each in found)


def test_table1_leaves_out_the_one_row_that_is_not_trained() -> None:
    claims = [claim for claim in CLAIMS if claim.result == "table1"]
    whole = _deciding(claims[0])
    three = {**whole, **{name: [each for each in whole[name] if each["percent"] != 100] for name in ("rows", "cells")}}
    for claim in claims:
        found = claim.judged({"table1": [_untrained_at(whole, 100)]}).found
        assert found.verdict == _verdict(claim, three)
        assert "at 25, 50, 75% only; not trained" in found.ours
        assert "2.2 (2.3) at 100%" in found.ours


def test_one_seed_does_not_say_whether_a_constant_stays_the_same() -> None:
    claims = {claim.text: claim for claim in CLAIMS if claim.result == "table1"}
    result = _deciding(next(iter(claims.values())))
    for row in result["rows"]:
        row["rounds"] = row["rounds"][:1]
    assert _verdict(claims["MLP, MNIST: L_g does not depend on X"], result) == "not run"
    grows = claims["MLP, MNIST: L_h grows with X"].judged({"table1": [result]}).found
    assert grows.verdict.startswith("reproduced")
    assert "±" not in grows.ours


def test_a_row_of_table1_alone_refutes_and_does_not_confirm() -> None:
    claims = [claim for claim in CLAIMS if claim.result == "table1"]
    result = _deciding(claims[0])
    result["rows"] = [row for row in result["rows"] if row["percent"] == 75]
    result["cells"] = [cell for cell in result["cells"] if cell["percent"] == 75]
    assert {_verdict(claim, result) for claim in claims} == {"not run"}
    found = _trajectory(result["cells"][0])
    found["L_tilde"]["value"] = 0.9 * min(found["L_h"]["value"], found["L_g"]["value"])
    verdicts = [_verdict(claim, result) for claim in claims]
    assert verdicts[:3] == ["not run"] * 3  # growth, and not to depend on X, take two rows
    assert set(verdicts[3:]) == {"not reproduced"}
