"""Files of earlier versions: of the first with other parameters, of both without statistics."""

from pathlib import Path

import numpy as np
import pytest

from skdpot import DPSinkhornGenerator
from skdpot.generative import CosineEncoder, ImageSketch, PoseEncoder
from skdpot.published import SinkhornGradientGenerator

FOLDER = Path(__file__).parent
FILES = FOLDER / "version_1"


def linear(n_inputs, n_features):
    return pytest.importorskip("torch").nn.Linear(n_inputs, n_features)


# What the first version drew of them, with a seed of 0; intensities of images are mapped as today.
VECTORS = {"vectors": [0.4404, 0.5362, 0.5188], "images": [0.1843, 0.2696, 0.0957]}
NETWORKS = {
    "network": (DPSinkhornGenerator, [0.3402, 0.3809, 0.3175]),
    "gradients": (SinkhornGradientGenerator, [0.5949, 0.5439, 0.6287]),
}


def first_column(generator):
    drawn = generator.set_params(random_state=0).sample(3)
    return np.asarray(drawn[0] if isinstance(drawn, tuple) else drawn)[:, 0]


def independent_rows(generator):
    """Return rows of a table as they were drawn before they were dealt out evenly."""
    rng = np.random.RandomState(0)
    return generator._fitted._sample(3, None, None, rng, evenly=False).to_numpy().tolist()


@pytest.mark.parametrize("name", VECTORS)
def test_sketches_draw_the_same(name, tmp_path):
    generator = DPSinkhornGenerator.load(FILES / f"{name}.npz")
    np.testing.assert_allclose(first_column(generator), VECTORS[name], atol=1e-4)
    assert generator.neighbouring == "add_remove" and generator.n_records_ > 0
    # It is written again in the form of today.
    generator.save(tmp_path / "again")
    again = DPSinkhornGenerator.load(tmp_path / "again")
    np.testing.assert_array_equal(first_column(again), first_column(generator))


def test_parameters_have_their_places():
    vectors = DPSinkhornGenerator.load(FILES / "vectors.npz")
    assert vectors.classes_.tolist() == ["a", "b"] and vectors.model.n_clusters == 2
    assert vectors.bounds == [0.0, [1.0, 2.0]]
    images = DPSinkhornGenerator.load(FILES / "images.npz")
    assert isinstance(images.model, ImageSketch) and images.image_shape == [3, 3]
    assert isinstance(images.model.encoder, PoseEncoder)
    assert images.get_params()["model__encoder__n_coefficients"] == 2
    assert CosineEncoder().n_coefficients is None


def test_tables_draw_the_same():
    generator = DPSinkhornGenerator.load(FILES / "table.npz")
    assert independent_rows(generator) == [[2, "M"], [3, "M"], [2, "M"]]
    assert generator.target == "sex" and list(generator.schema) == ["age", "sex"]


def test_tables_without_statistics_say_so(tmp_path):
    generator = DPSinkhornGenerator.load(FOLDER / "version_2" / "table.npz")
    assert independent_rows(generator) == [[1, "F"], [3, "M"], [1, "F"]]
    generator.save(tmp_path / "again")
    for table in (generator._fitted, DPSinkhornGenerator.load(tmp_path / "again")._fitted):
        assert table.statistics is None
        with pytest.raises(
            ValueError, match="an earlier version saved the generator without the released counts"
        ):
            table.known_statistics  # noqa: B018


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_draw_the_same(name):
    kind, drawn = NETWORKS[name]
    generator = kind.load(FILES / f"{name}.npz", network=linear)
    np.testing.assert_allclose(first_column(generator), drawn, atol=1e-4)
    assert generator.n_iter_ == generator.network.n_iter == 2
    if kind is SinkhornGradientGenerator:
        assert generator.gradient == "images"


def test_another_class_says_which_it_is():
    with pytest.raises(ValueError, match="the file is of a SinkhornGradientGenerator"):
        DPSinkhornGenerator.load(FILES / "gradients.npz", network=linear)
    with pytest.raises(ValueError, match="the file is of a DPSinkhornGenerator"):
        SinkhornGradientGenerator.load(FILES / "vectors.npz")
