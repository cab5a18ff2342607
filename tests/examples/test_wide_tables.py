"""The example of narrow and wide tables, on few rows."""

import pytest

pytestmark = pytest.mark.experiment


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    return load_example("fairness/plot_wide_tables.py")


def test_every_third_column_holds_words(example):
    X, y = example.draw_table(6, 50)
    assert len(X) == len(y) == 50
    assert [name.split()[0] for name in X] == ["group", *["number", "count", "word"] * 2]
    numbers, _ = example.draw_table(6, 50, numbers_only=True)
    assert numbers.select_dtypes("number").shape == (50, 6)


def test_repairs_hide_the_group_of_a_wide_table(example):
    with pytest.warns(UserWarning, match="the support has too few points for so many columns"):
        found = example.measure(24, n_rows=1200)
    assert found["no repair"][1] > 0.8
    assert all(found[name][1] < 0.65 for name in ("support", "conditional"))
    assert found["support"][0] < found["no repair"][0]


def test_tables_and_figures(example, capsys):
    figure = example.compare_widths((2, 4), n_rows=400)
    printed = capsys.readouterr().out
    assert all(printed.count(f"\n{name} ") == 2 for name in example.METHODS)
    assert [len(axes.lines) for axes in figure.axes] == [3, 3]
    display = example.draw_frontier(4, n_rows=300, cv=2)
    assert display.labels == ["conditional", *example.PEERS]
    assert [len(line.get_xdata()) for line in display.lines_] == [3, 3, 1, 1]
    example.plt.close("all")
