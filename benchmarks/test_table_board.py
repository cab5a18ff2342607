"""The board of private tables: bins and back, measures, standings, and the page that shows them."""

import signal
import subprocess
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from benchmarks import table_run
from benchmarks.table_board import (
    OURS,
    PAGE,
    REAL,
    SUMMARY,
    TableBoard,
    TableResult,
    behind_of,
    page_of,
    summary_of,
    table_of,
)
from benchmarks.table_measures import (
    marginal_error,
    measures,
    measures_of_real,
    noise_of,
    with_noise,
)
from benchmarks.table_methods import run_independent
from benchmarks.table_sets import (
    NAMES,
    SOURCES,
    TITLES,
    Numbers,
    TableSet,
    Words,
    _column,
    load_set,
)


def result(method, boosting, *, seed=0, epsilon=1.0, one_way=0.01):
    return TableResult(
        *("made", method, epsilon, seed, {"boosting": boosting, "one_way": one_way}),
        seconds=1.0,
        megabytes=100.0,
        version="1",
    )


def board_with(peer):
    return TableBoard([result(OURS, 0.80), result(OURS, 0.82, seed=1), result("peer", peer)])


def small_table():
    columns = {
        "age": Numbers(0, 99, (0, 20, 50)),
        "rate": Numbers(0.0, 1.0, (0.0, 0.5), is_whole=False, missing=True),
        "word": Words(("a", "b"), missing=True),
        "y": Words(("no", "yes")),
    }
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame(
        {
            "age": rng.integers(0, 100, n),
            "rate": np.where(rng.random(n) < 0.2, np.nan, rng.random(n)),
            "word": np.array(["a", "b", None], dtype=object)[rng.integers(0, 3, n)],
        }
    )
    frame["y"] = np.where(frame["age"] > 50, "yes", "no").astype(object)
    return TableSet("small", columns, "y", "yes", frame, frame)


def test_values_of_codes_are_in_the_same_bins():
    table = small_table()
    codes = table.codes(table.train)
    assert (codes.max() < pd.Series(table.sizes)).all()
    pd.testing.assert_frame_equal(table.codes(table.values(codes, 0)), codes)
    assert table.values(codes, 0)["age"].between(0, 99).all()


def test_measures_of_the_records_themselves():
    table = small_table()
    found = measures(table, table.train)
    assert found["boosting"] > 0.95
    assert found["linear"] > 0.95
    for name in (
        "one_way",
        "two_way",
        "three_way",
        "correlation",
        "wasserstein",
        "tails",
        "missing",
    ):
        assert found[name] == 0.0
    assert found["propensity"] < 0.6


def test_values_that_are_missing_together():
    table = small_table()
    made = table.train.assign(word=table.train["word"].where(table.train["rate"].notna(), None))
    lost = (table.train["rate"].isna() & table.train["word"].notna()).mean()
    assert measures(table, made)["missing"] == pytest.approx(lost)


def test_a_target_of_noise_is_not_predicted():
    table = small_table()
    assert noise_of(table, table.train) > 0.95
    noisy = with_noise(table, 0)
    assert sorted(noisy.train["y"]) == sorted(table.train["y"])
    assert 0.3 < noise_of(noisy, noisy.train) < 0.7


def test_columns_that_a_dictionary_declares():
    column = _column("number 0 5 20 100 missing by 5")
    assert column == Numbers(0, 100, (0, 5, 10, 15, 20), missing=True)
    assert _column("number 0 100 log by 3") == Numbers(0, 100, (0, 1, 10), scale="log")
    assert _column("number 0 1 real by 2").edges == (0.0, 0.5)
    assert _column("count 2 4").edges == (2, 3, 4)
    assert _column("codes 0 2") == Words(("0", "1", "2"))
    assert _column("letters 28").categories[-2:] == ("aa", "ab")
    assert _column("missing, a b, c") == Words(("a b", "c"), missing=True)


def test_columns_drawn_by_themselves_keep_their_counts(tmp_path):
    codes = pd.DataFrame({"a": np.repeat([0, 1, 2], [600, 300, 100]), "b": 0})
    codes.to_csv(tmp_path / "codes.csv", index=False)
    task = {"epsilon": 10.0, "delta": 1e-6, "seed": 0, "sizes": {"a": 3, "b": 2}}
    made = run_independent(tmp_path, task)
    assert marginal_error(made, codes, task["sizes"], 1) < 0.05


def test_a_target_of_numbers_is_predicted():
    table = small_table()
    age = Numbers(0, 99, tuple(range(0, 100, 10)))
    table = replace(table, columns=table.columns | {"age": age}, target="age", positive=None)
    assert table.is_regression
    found = measures(table, table.train)
    assert found["boosting"] > 0.5
    assert found["linear"] > 0.5


def test_real_records_that_are_drawn_again_have_errors():
    found = measures_of_real(small_table())
    assert found["boosting"] > 0.95
    assert 0 < found["one_way"] < found["two_way"] < found["three_way"] < 0.5


def test_marginal_errors_are_mean_distances():
    made = pd.DataFrame({"a": [0, 0, 0, 0], "b": [0, 1, 0, 1]})
    real = pd.DataFrame({"a": [0, 0, 1, 1], "b": [0, 1, 0, 1]})
    sizes = {"a": 2, "b": 2}
    assert marginal_error(made, real, sizes, 1) == pytest.approx(0.25)
    assert marginal_error(made, real, sizes, 2) == pytest.approx(0.5)


def test_a_peer_that_is_ahead():
    standing = board_with(0.86).standing("made", 1.0, "boosting")
    assert standing.peer == "peer"
    assert standing.lead == pytest.approx(-0.05)
    # Of ours .01; of the peer's single run that of a run of ours, .0141.
    assert standing.error == pytest.approx(np.hypot(0.01, 0.01 * np.sqrt(2)))
    assert standing.is_behind
    assert "peer" in "".join(behind_of(board_with(0.86), {"made": "Made"}))


@pytest.mark.parametrize("peer", [0.70, 0.815])
def test_a_peer_that_is_behind_or_level(peer):
    assert not board_with(peer).standing("made", 1.0, "boosting").is_behind


def test_of_errors_the_smaller_one_is_better():
    board = board_with(0.7)
    board.add(result("better", 0.7, one_way=0.002))
    standing = board.standing("made", 1.0, "one_way")
    assert standing.peer == "better"
    assert standing.is_behind


def test_no_standing_without_a_peer():
    assert TableBoard([result(OURS, 0.8)]).standing("made", 1.0, "boosting") is None


def test_single_runs_have_no_standard_error():
    board = TableBoard([result(OURS, 0.8), result("peer", 0.81)])
    assert board.standing("made", 1.0, "boosting").error == 0.0
    assert board.standing("made", 1.0, "boosting").is_behind


def test_results_are_kept_and_replaced(tmp_path):
    board, path = board_with(0.8), tmp_path / "results.json"
    board.save(path)
    kept = TableBoard.load(path)
    assert sorted(kept.results, key=lambda one: one.key) == sorted(
        board.results, key=lambda one: one.key
    )
    kept.add(replace(result("peer", 0.9), seconds=2.0))
    assert [one.seconds for one in kept.select(method="peer")] == [2.0]
    assert TableBoard.load(tmp_path / "none.json").results == []


def test_lines_of_a_table():
    board = board_with(0.8)
    board.add(replace(result(REAL, 0.9), epsilon=0.0))
    lines = table_of(board, "made")
    assert lines.index("   * - real records") < lines.index("   * - **ours**")
    assert "     - .810(10)" in lines


def test_a_measure_that_older_runs_lack():
    board = board_with(0.8)
    board.add(replace(result(OURS, 0.8), measures={"boosting": 0.8, "noise": 0.5}))
    lines = table_of(board, "made")
    assert [one for one in lines if ".5000" in one] == ["     - .5000"]
    assert lines[lines.index("   * - peer") + 4].strip() == "-"


def test_a_failure_is_shown_and_not_compared():
    board = board_with(0.8)
    board.add(replace(result("slow", 0.0), measures={}, failure="over 60 s"))
    lines = table_of(board, "made")
    assert lines.index("     - over 60 s") > lines.index("   * - slow")
    assert board.standing("made", 1.0, "boosting").peer == "peer"


@pytest.mark.parametrize(("status", "failure"), [(-signal.SIGKILL, "over 60 s"), (1, "error")])
def test_a_run_that_ends_early_is_a_failure(tmp_path, monkeypatch, status, failure):
    ended = subprocess.CompletedProcess([], status)
    monkeypatch.setattr(table_run.subprocess, "run", lambda *_, **__: ended)
    found = table_run.run_method(small_table(), "AIM", 1.0, 0, tmp_path, limit=60)
    assert found.failure == failure
    assert found.measures == {}
    assert found.seconds == 60.0


def test_simulated_tables_tell_nothing_by_pairs():
    table = load_set("xor3", [])
    assert len(table.train) + len(table.test) == 50_000
    shares = table.train.groupby("b0")["y"].mean()
    assert abs(shares[0] - shares[1]) < 0.02


def test_a_table_whose_file_is_missing(tmp_path):
    assert load_set("bank", [tmp_path]) is None
    assert set(SOURCES) < set(NAMES)


def test_the_page_shows_the_results():
    assert PAGE.read_text() == page_of(TableBoard.load(), TITLES)
    assert SUMMARY.read_text() == summary_of(TableBoard.load(), TITLES)
