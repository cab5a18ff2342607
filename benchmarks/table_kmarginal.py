"""The K-marginal of ours by NIST's own scorer, SDNist, on its excerpt national2019 of the census.

Run with ``python -m benchmarks.table_kmarginal --data FOLDER --sdnist PYTHON --excerpts FOLDER``: a
folder with national2019.csv, an interpreter that has sdnist 2.5, and its BenchmarkData with that
file in it. 1,000 is best. Nothing is downloaded.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import pandas as pd

from benchmarks.table_sets import SOURCES, Numbers

# The columns of NIST's own samples of AIM and MST at an epsilon of 1, which reach 976 and 958.
TEN = (
    *("AGEP", "SEX", "MSP", "RAC1P", "HOUSING_TYPE", "OWN_RENT", "EDU", "PINCP_DECILE", "DVET"),
    "DEYE",
)
_SCORER = """
import json, pathlib, sys
import sdnist.utils
from sdnist.load import TestDatasetName
from sdnist.metrics.kmarginal import KMarginal
from sdnist.report.dataset import Dataset
made, root = map(pathlib.Path, sys.argv[1:])
log = sdnist.utils.SimpleLogger()
data = Dataset(made, log, TestDatasetName.national2019, root, False)
score = KMarginal(data.d_target_data, data.d_synthetic_data).compute_score()
print(json.dumps({"score": score, "columns": len(data.features)}))
"""


def records(folder):
    """Return all records of the excerpt, and what is publicly known of its columns."""
    table = SOURCES["national"].read(Path(folder, SOURCES["national"].file))
    return pd.concat([table.train, table.test], ignore_index=True), table.columns


def written(made, columns, path):
    """Write records as NIST's file has them: N is what does not apply."""
    told = {}
    for name in made:
        if isinstance(columns[name], Numbers):
            digits = 1 if name in ("PINCP", "DENSITY") else 0
            known = made[name].astype(float).round(digits)
            words = known.map(lambda value, digits=digits: f"{value:.{digits}f}")
            told[name] = words.where(known.notna(), "N")
        else:
            told[name] = made[name]
    pd.DataFrame(told).to_csv(path, index=False)


def score(path, chosen):
    """Return the K-marginal of a file's records, and of how many columns it is."""
    ended = subprocess.run(
        [chosen.sdnist, "-W", "ignore", "-c", _SCORER, path, chosen.excerpts],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(ended.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sdnist", type=Path, required=True)
    parser.add_argument("--excerpts", type=Path, required=True)
    parser.add_argument("--columns", choices=["ten", "all"], nargs="+", default=["ten", "all"])
    parser.add_argument("--target")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    chosen = parser.parse_args()
    from skdpot import DPSinkhornGenerator

    frame, columns = records(chosen.data)
    for kind in chosen.columns:
        names = list(TEN) if kind == "ten" else list(columns)
        schema = {name: columns[name].declared for name in names}
        for seed in chosen.seeds:
            start = time.process_time()
            generator = DPSinkhornGenerator(
                *(chosen.epsilon, chosen.delta),
                schema=schema,
                target=chosen.target,
                random_state=seed,
            )
            made = generator.fit(frame[names]).sample(len(frame))
            seconds = time.process_time() - start
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "made.csv")
                written(made, columns, path)
                found = score(path, chosen)
            print(f"{kind}: seed {seed}, {found}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
