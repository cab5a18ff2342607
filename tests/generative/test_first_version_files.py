"""Files that version 0.1 saved are refused, with a sentence that says how to go on."""

from pathlib import Path

import pytest

from skdpot import DPSinkhornGenerator
from skdpot.published import SinkhornGradientGenerator

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("kind", [DPSinkhornGenerator, SinkhornGradientGenerator])
@pytest.mark.parametrize("path", sorted(FOLDER.glob("version_?/*.npz")), ids=lambda path: path.stem)
def test_files_of_the_first_version_say_how_to_go_on(kind, path):
    with pytest.raises(ValueError, match="was saved by skdpot 0.1, and this version .* fit again"):
        kind.load(path)
