"""Draw images that were made privately, beside real ones.

``python doc/image_pictures.py FOLDER`` from the folder of the repository, with the archives that
``benchmarks/image_sets.py`` names in FOLDER.

- ``board_of_images.png`` has a row for each set of the board of private images. Real images are
  those held out, which no generator sees; made ones are the first of each class, by the default
  generator at an epsilon of 1.
- In ``mnist.png`` and ``fashion_mnist.png`` what the default generator makes of all training images
  is drawn again, at epsilons of 10, 1 and 0.2; what else is in them stays.
"""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "doc" / "images"
LARGEST = 150_000  # bytes
SIDE, GAP, LINES = 28, 6, 2
# Of the pictures that are drawn again in part: lines of a block, the place of what is new, and how
# far apart blocks are.
BLOCK_LINES, FIRST_COLUMN, BLOCK_GAP = 4, 288, 8


def lines_of(X, y, images, n_lines):
    """Return a picture of the first images of each class, a class a column."""
    columns = []
    for c in images.classes:
        of_class = X[y == c][:n_lines].reshape(-1, *images.image_shape)
        parts = [
            Image.fromarray(np.rint(255 * one).astype(np.uint8)).convert("RGB") for one in of_class
        ]
        columns.append(np.vstack([part.resize((SIDE, SIDE)) for part in parts]))
    return np.hstack(columns)


def keep(picture, name):
    """Save a picture with as many colours as there is room for."""
    for n_colours in (256, 128, 64, 32, 16):
        picture.quantize(n_colours).save(PICTURES / name, optimize=True)
        if (PICTURES / name).stat().st_size < LARGEST:
            break
    print(f"{name}: {(PICTURES / name).stat().st_size:,} bytes")


def draw_board(folder):
    """Draw a row for each set: real images on the left, made ones on the right."""
    from benchmarks.image_methods import make_best
    from benchmarks.image_sets import NAMES, load_set

    rows = []
    for name in NAMES:
        images = load_set(name, [folder])
        made = make_best(images, 1.0, 0).fit(images.X, images.y).sample(2000)
        blocks = [lines_of(X, y, images, LINES) for X, y in ((images.X_test, images.y_test), made)]
        between = np.full((LINES * SIDE, GAP, 3), 255, dtype=np.uint8)
        rows += [np.hstack([blocks[0], between, blocks[1]])]
        rows += [np.full((GAP, rows[0].shape[1], 3), 255, dtype=np.uint8)]
    keep(Image.fromarray(np.vstack(rows[:-1])), "board_of_images.png")


def draw_again(folder, name):
    """Draw what is made of a set at three epsilons, from top to bottom, into its picture."""
    from benchmarks.image_methods import make_best
    from benchmarks.image_sets import TEST, load_set

    images = load_set(name, [folder], TEST)
    picture = Image.open(PICTURES / f"{name}.png").convert("RGB")
    for place, epsilon in enumerate((10.0, 1.0, 0.2)):
        made = make_best(images, epsilon, 0).fit(images.X, images.y).sample(2000)
        block = Image.fromarray(lines_of(*made, images, BLOCK_LINES))
        picture.paste(block, (FIRST_COLUMN, place * (BLOCK_LINES * SIDE + BLOCK_GAP)))
    keep(picture, f"{name}.png")


def main(folder):
    """Draw all of them."""
    # Not what another project may have installed under this name.
    sys.modules["tests"] = tests = ModuleType("tests")
    tests.__path__ = [str(ROOT / "tests")]
    sys.path.insert(0, str(ROOT))
    draw_board(folder)
    for name in ("mnist", "fashion_mnist"):
        draw_again(folder, name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
