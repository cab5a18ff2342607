"""The example of synthetic digits: what it spends, what it prints, and that the digits teach."""

import numpy as np
import pytest

FEW_STEPS = {
    "per record": {"gradient": "per_record", "sampling_rate": 1.0, "n_iter": 40},
    "per image": {"gradient": "per_image", "clipping": "per_image", "sampling_rate": 1.0,
                  "n_iter": 2},
}  # fmt: skip


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
    """Return what two of the ways make in few steps, and one of them without noise."""
    return example.train_all(split, FEW_STEPS)


def test_a_release_is_charged_and_guaranteed(example, split):
    generator, ledger = example.release_once(split, n_iter=2)
    guarantee = generator.privacy_guarantee_
    assert (guarantee.epsilon, guarantee.delta) == (example.EPSILON, example.DELTA)
    assert ledger.spent() == pytest.approx((example.EPSILON, example.DELTA))


def test_digits_of_sums_over_records_teach(example, split, found):
    assert example.accuracy(split.X, split.y, split) > 0.95
    assert found["per record"].accuracy > 0.6
    assert found[example.NO_NOISE].accuracy > 0.6


def test_the_noise_is_that_of_the_budget(example, found):
    assert found["per record"].generator.noise_multiplier_ == pytest.approx(3.79, rel=0.01)
    assert found[example.NO_NOISE].generator.noise_multiplier_ == 0
    # Seeded, as the page says.
    assert all(made.generator.privacy_guarantee_ is None for made in found.values())


def test_published_accounting_is_told_for_what_it_is(example, split):
    made, warning = example.train_as_published(split, sampling_rate=0.5, n_iter=2)
    assert "epsilon=8 guarantees nothing" in warning
    assert made.generator.privacy_guarantee_ is None
    assert float(warning.rstrip(".").split()[-1]) > 1.5 * example.EPSILON


def test_tables_and_figure(example, split, found, capsys):
    example.print_table(found, split)
    printed = capsys.readouterr().out
    assert all(name in printed for name in found)
    example.print_settings_of_paper()
    assert "10.0     846      13.8" in capsys.readouterr().out
    figure = example.draw(split, found)
    images = [place.images[0].get_array() for place in figure.axes]
    assert len(images) == 10 * (1 + len(found))
    assert all(
        image.shape == (8, 8) and 0 <= np.min(image) <= np.max(image) <= 16 for image in images
    )
    example.plt.close(figure)
