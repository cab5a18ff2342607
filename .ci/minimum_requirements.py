"""Print, as a constraint file, the lowest versions that setup.cfg says the package works with.

Read are the package's own requirements and those of the extras that the tests import, so that the
minimum-versions run tries the very bounds that users are promised.
"""

import configparser
import re
from pathlib import Path

EXTRAS = ("plot", "dask", "dev", "test")
LOWER_BOUND = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([^,;\s]+)")


def minimum_requirements(setup_cfg: Path) -> list[str]:
    """Return a line `name==version` for each line `name>=version` of setup.cfg."""
    config = configparser.ConfigParser()
    config.read_string(setup_cfg.read_text())
    sections = [config["options"]["install_requires"]]
    sections += [config["options.extras_require"][extra] for extra in EXTRAS]
    lines = [line for section in sections for line in section.split()]
    bounds = [LOWER_BOUND.fullmatch(line) for line in lines]
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound]


if __name__ == "__main__":
    print("\n".join(minimum_requirements(Path(__file__).parents[1] / "setup.cfg")))
