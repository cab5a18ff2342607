"""The board of speed: what is kept of a comparison, and the page that shows it."""

import numpy as np

from benchmarks.contest import Contest, Contestant, Row
from benchmarks.speed_board import PAGE, SpeedBoard, page_of


def board_of(*rows):
    board = SpeedBoard()
    board.add_rows("a test", 0, list(rows), Contest())
    return board


def row(ratio, **more):
    return Row(
        *("estimator", 'a "work"', "ours", "theirs"),
        **{"seconds": (1e-3, ratio * 1e-3), "ratio": ratio, "ratios": (ratio, 2 * ratio)},
        **more,
    )


def test_results_are_read_as_they_were_kept(tmp_path):
    contest = Contest()
    peers = [Contestant("theirs", lambda: 1.0), Contestant("absent", int, "no_such_package")]
    contest.compare("x", "y", Contestant("ours", lambda: 0.0), peers, {"error": float})
    board, path = board_of(*contest.rows), tmp_path / "results.json"
    board.save(path)
    assert page_of(SpeedBoard.load(path)) == page_of(board)
    assert [one.key for one in SpeedBoard.load(path).results] == [(0, 0), (0, 1)]


def test_a_row_of_the_page():
    page = page_of(board_of(row(3.0, figures={"error": (1e-9, 1e-2)}, tolerance=1e-6)))
    assert '"a \'work\', ours", "theirs", "1 ms", "3 ms", "3 (3 to 6)"' in page
    assert "error 1e-09; 0.01: the peer misses the tolerance" in page


def test_ratios_below_one_are_in_bold():
    assert '"**0.5** (0.5 to 1)"' in page_of(board_of(row(0.5)))


def test_what_was_not_measured_says_why():
    page = page_of(board_of(Row("estimator", "work", "ours", "HiGHS", "not finished in 60 s")))
    assert '"HiGHS", "", "", "not finished in 60 s", ""' in page


def test_other_programs_and_versions_are_on_the_page():
    page = page_of(board_of(row(2.0, others=1.5), row(2.0, others=0.1), row(2.0)))
    assert "In 1 of 2 comparisons" in page and "at most 1.5" in page
    assert page.count("Machine and versions") == 1 and f"numpy {np.__version__}" in page


def test_the_page_shows_the_results():
    assert PAGE.read_text() == page_of(SpeedBoard.load())
