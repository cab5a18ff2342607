"""The example of synthetic digits: what it spends, what it prints, and that the digits teach."""

import numpy as np
import pytest

pytestmark = pytest.mark.experiment

FEW_STEPS = {"n_iter": 2}


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    pytest.importorskip("torch")
    return load_example("generative/plot_digits.py")


@pytest.fixture(scope="module")
def split(example):
    """Return the digits."""
    return example.load_split()


@pytest.fixture(scope="module")
def found(example, split):
    """Return what all sketches make, and a training of few steps."""
    return example.make_all(split, example.SKETCHES | {example.TRAINED: few_steps(example)})


def few_steps(example):
    """Return the settings of a training that is over at once."""
    return example.GRADIENTS | {"network": example.NetworkTraining("mlp", **FEW_STEPS)}


def test_digits_of_sketches_teach_the_better_the_larger_the_budget(example, split, found):
    real = example.accuracy(split.X, split.y, split)
    assert real > 0.95
    for name in ("sketch, pixels", "sketch, cosines"):
        little, more, much = (found[name, epsilon].accuracy for epsilon in example.EPSILONS)
        # Guessing is right once in ten times.
        assert 0.3 < little < more < much < real
        assert more > 0.7 and much > 0.9
    assert found["sketch, pose", 8.0].accuracy > 0.8


def test_what_is_seeded_guarantees_nothing_as_the_page_says(found):
    assert all(made.generator.privacy_guarantee_ is None for made in found.values())


def test_published_accounting_is_told_for_what_it_is(example, split):
    network = example.NetworkTraining("mlp", sampling_rate=0.5, **FEW_STEPS)
    made, warning = example.make_as_published(split, network=network)
    assert "epsilon=8 guarantees nothing" in warning
    assert made.generator.privacy_guarantee_ is None
    assert float(warning.rstrip(".").split()[-1]) > 1.5 * example.EPSILONS[-1]


def test_tables_and_figure(example, split, found, capsys):
    example.print_table(found, split)
    printed = capsys.readouterr().out
    assert all(f"\n{name}" in printed for name in example.WAYS)
    example.print_settings_of_paper()
    assert "10.0     846      13.8" in capsys.readouterr().out
    figure = example.draw(split, found)
    images = [place.images[0].get_array() for place in figure.axes]
    assert len(images) == 10 * (1 + len(example.EPSILONS)) * len(example.DRAWN)
    assert all(i.shape == (8, 8) and 0 <= np.min(i) <= np.max(i) <= 16 for i in images)
    example.plt.close(figure)
