"""The board of fair tables: mixtures of levels, leads at equal parity, files that are kept."""

import numpy as np
import pytest

from benchmarks.fair_board import (
    UNTOUCHED,
    Board,
    Result,
    brief,
    frontier_of,
    page_of,
    shares_at,
    summary_of,
    table_of,
)
from benchmarks.fair_tables import SOURCES, load_fair_table


def result(
    contender, accuracy, gap, *, kind="repair", ours=False, level=1.0, split=0, table="made"
):
    return Result(
        *(table, contender, kind, ours, level, "linear", split),
        utility={"accuracy": accuracy, "AUC": 0.7},
        parity={"decisions": gap, "scores": gap},
        group_auc={"boosting": 0.5, "forest": 0.6} if level == 1.0 else {},
        seconds=1.0,
    )


def board_with(peer_accuracy, peer_gap):
    """Return a board where ours goes from .9 with a gap of .3 to .8 with none."""
    of_split = [
        [
            result(UNTOUCHED, 0.9 + shift, 0.3, split=split),
            result("ours", 0.8 + shift, 0.0, ours=True, split=split),
            result("ours", 0.7, 0.29, ours=True, level=0.5, split=split),
            result("peer", peer_accuracy + shift, peer_gap, split=split),
        ]
        for split, shift in enumerate([0.0, 0.01])
    ]
    return Board([one for results in of_split for one in results])


def test_mixtures_reach_the_hull():
    gaps, utilities = np.array([0.3, 0.0, 0.29]), np.array([0.9, 0.8, 0.7])
    np.testing.assert_allclose(shares_at(gaps, utilities, 0.15), [0.5, 0.5, 0])
    np.testing.assert_allclose(shares_at(gaps, utilities, 0.3), [1, 0, 0])
    np.testing.assert_allclose(shares_at(gaps, utilities, 0.5), [1, 0, 0])
    np.testing.assert_allclose(shares_at(gaps, utilities, -0.1), [0, 1, 0])


def test_a_loss_and_a_lead_at_equal_parity():
    lost = board_with(0.89, 0.14).verdict("made", "linear", "accuracy", "ours", "repair")
    # With the tolerance, ours mixes half of each: .85.
    assert lost.lead == pytest.approx(-0.04)
    assert lost.is_lost
    assert lost.reached
    assert lost.words.startswith("**-0.040")
    led = board_with(0.82, 0.14).verdict("made", "linear", "accuracy", "ours", "repair")
    assert led.lead == pytest.approx(0.03)
    assert not led.is_lost


def test_peers_of_another_kind_do_not_count():
    board = board_with(0.89, 0.14)
    assert board.verdict("made", "linear", "accuracy", "ours", "correction") is None


def test_numbers_carry_their_standard_error():
    assert brief([0.8, 0.82]) == ".810(10)"
    assert brief([0.8]) == ".800"
    assert brief([-0.5, -0.5]) == "-.500(0)"
    assert brief([12.0, 12.0], 1) == "12.0(0)"


def test_lists_of_the_documentation():
    board = board_with(0.89, 0.14)
    lines = table_of(board, "made")
    assert lines[0] == ".. list-table::"
    assert "     - .805(5)" in lines
    assert "     - .50(0) / .60(0)" in lines
    summary = summary_of(board)
    peer = summary.index("   * - peer")
    assert summary[peer + 1 : peer + 6] == [
        f"     - {n}" for n in (".895", ".700", ".140", ".140", ".60")
    ]
    shown = frontier_of(board, [("ours", "repair"), ("ours", "correction")])
    assert any("**-0.040" in line for line in shown)
    page = page_of(board, [("ours", "repair")], {"made": "A made table"}).splitlines()
    assert page[0] == "Where ours loses"
    assert "     - -0.040 ± 0.000" in page
    assert page[page.index("A made table") + 1] == "~" * 12
    assert "None." in page_of(board_with(0.82, 0.14), [("ours", "repair")], {"made": ""})


def test_a_later_run_replaces_its_own_tables(tmp_path):
    path = tmp_path / "report" / "fair_tables.json"
    Board([result("ours", 0.1, 0.0), result("ours", 0.2, 0.0, table="other")]).save(path)
    Board([result("ours", 0.3, 0.0)]).save(path)
    found = {one.table: one.utility["accuracy"] for one in Board.load(path).results}
    assert found == {"made": 0.3, "other": 0.2}


@pytest.mark.parametrize("name", SOURCES)
def test_a_missing_table_says_where_it_is(name, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Get it: https://"):
        load_fair_table(name, tmp_path)


def test_another_table_is_refused(tmp_path):
    lines = ["age,sex,bmi,children,smoker,region,charges", "19,female,27.9,0,yes,southwest,16884.9"]
    (tmp_path / "insurance.csv").write_text("\n".join(lines))
    with pytest.raises(ValueError, match="another table than the one that was measured"):
        load_fair_table("insurance", tmp_path)
