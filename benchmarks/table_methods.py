"""Synthesizers of tables, each of which runs in a process of an interpreter that has it.

``python table_methods.py METHOD FOLDER`` reads ``task.json`` and ``codes.csv`` from the folder,
and writes ``made.csv`` and ``told.json`` into it. It imports nothing of the benchmarks, since a
peer may need other versions of what both depend on. All peers get the same bins and the same codes;
the number of records is public. Ours gets the records, in ``records.pkl``, and their schema; and,
as a method of its own, what the peers get.

What is set right, for a valid comparison: records are in a random order beforehand, since a method
may keep it, and those of a graphical model of ``mbi`` are drawn independently given its marginals,
where ``mbi`` by default deals out values in order.
"""

import functools
import json
import os
import resource
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import ndtr

# Of memory, where seconds are limited as well.
_MOST_BYTES = 10 * 2**30


def run_ours(folder, task):
    from skdpot import DPSinkhornGenerator

    records = pd.read_pickle(folder / "records.pkl")
    generator = DPSinkhornGenerator(
        task["epsilon"],
        task["delta"],
        schema=task["schema"],
        target=task["target"],
        random_state=task["seed"],
        **task["options"],
    )
    return generator.fit(records).sample(len(records))


def run_ours_in_bins(folder, task):
    """Run ours with the public knowledge that peers have: the bins of numbers, as integers."""
    codes, schema, n_known = pd.read_csv(folder / "codes.csv"), {}, {}
    for name, declared in task["schema"].items():
        missing = declared["missing"]
        n_known[name] = task["sizes"][name] - missing
        schema[name] = {"categories": list(range(n_known[name])), "missing": missing}
        if "bounds" in declared:
            schema[name] = {"bounds": (0, n_known[name] - 1), "integer": True, "missing": missing}
        codes[name] = codes[name].where(codes[name] < n_known[name]).astype("Int64")
    codes.to_pickle(folder / "records.pkl")
    return run_ours(folder, task | {"schema": schema}).fillna(n_known).astype(int)


def run_dpmm(pipeline, folder, task):
    """Run a pipeline of dpmm on codes, without a step that bins again."""
    import dpmm.pipelines

    codes = shuffled(folder, task)
    made = getattr(dpmm.pipelines, pipeline)(
        epsilon=task["epsilon"],
        delta=task["delta"],
        disable_processing=True,
        n_jobs=1,
        max_model_size=task["options"].pop("max_model_size", None),
        gen_kwargs=task["options"],
    )
    rng = np.random.RandomState(task["seed"])
    made.fit(codes, domain=task["sizes"], random_state=rng)
    return made.generate(n_records=len(codes), random_state=rng)


def run_mst(folder, task):
    """Run MST of private-pgm; the environment names the folder of its mechanisms."""
    from mbi import Dataset, Domain, MarkovRandomField

    MarkovRandomField.synthetic_data = functools.partialmethod(
        MarkovRandomField.synthetic_data, method="sample"
    )
    sys.path.insert(0, os.environ["SKDPOT_PRIVATE_PGM"])
    from mst import MST

    sizes = task["sizes"]
    data = Dataset(shuffled(folder, task), Domain(tuple(sizes), tuple(sizes.values())))
    np.random.seed(task["seed"])
    return MST(data, task["epsilon"], task["delta"]).df


def run_swift(folder, task):
    """Run SWIFT of dpsynth, with the options of the task; columns are compressed by noise."""
    from dpsynth.discrete_mechanisms import DiscreteConfig, SWIFTConfig
    from mbi import Dataset, Domain

    sizes = task["sizes"]
    domain = Domain(tuple(sizes), tuple(sizes.values()))
    codes = shuffled(folder, task)
    config = DiscreteConfig(mechanism=SWIFTConfig(**task["options"]), compress_columns=True)
    mechanism = config.calibrate(epsilon=task["epsilon"], delta=task["delta"])
    rng = np.random.default_rng(task["seed"])
    data = Dataset({name: codes[name].to_numpy() for name in sizes}, domain)
    made = mechanism(rng, data).synthetic_data
    drawn = pd.DataFrame({name: np.asarray(made.data[name]) for name in sizes})
    return drawn.sample(len(codes), replace=len(drawn) < len(codes), random_state=task["seed"])


def run_independent(folder, task):
    """Draw each column by itself, from counts whose noise has an equal share of the budget.

    The deviation of Gaussian noise is that of Balle and Wang, 2018. The number of records is
    public.
    """
    codes, epsilon = pd.read_csv(folder / "codes.csv"), task["epsilon"]

    def excess(noise):
        first, second = 0.5 / noise - epsilon * noise, -0.5 / noise - epsilon * noise
        return ndtr(first) - np.exp(epsilon) * ndtr(second) - task["delta"]

    deviation = np.sqrt(len(task["sizes"])) * brentq(excess, 1e-3, 1e3)
    rng = np.random.default_rng(task["seed"])
    made = {}
    for name, size in task["sizes"].items():
        counts = np.bincount(codes[name], minlength=size) + rng.normal(0, deviation, size)
        # What is below 0 is 0, and so much less is what the others have, until all add up.
        low, high = 0.0, counts.max()
        for _ in range(60):
            middle = (low + high) / 2
            is_above = np.maximum(counts - middle, 0).sum() > len(codes)
            low, high = (middle, high) if is_above else (low, middle)
        shares = np.maximum(counts - high, 0) + 1e-12
        made[name] = rng.choice(size, len(codes), p=shares / shares.sum())
    return pd.DataFrame(made)


def shuffled(folder, task):
    codes = pd.read_csv(folder / "codes.csv")
    return codes.sample(frac=1, random_state=task["seed"]).reset_index(drop=True)


# How each is run, and the package whose version is told.
METHODS = {
    "ours": (run_ours, "skdpot"),
    "ours, in bins": (run_ours_in_bins, "skdpot"),
    "AIM": (functools.partial(run_dpmm, "AIMPipeline"), "dpmm"),
    "MST": (functools.partial(run_dpmm, "MSTPipeline"), "dpmm"),
    "PrivBayes": (functools.partial(run_dpmm, "PrivBayesPipeline"), "dpmm"),
    "MST, private-pgm": (run_mst, "mbi"),
    "SWIFT": (run_swift, "mbi"),
    "independent": (run_independent, "scipy"),
}


def version_of(package):
    """Return the version of a package; ours may be a copy that is not installed."""
    return sys.modules["skdpot"].__version__ if package == "skdpot" else version(package)


def main(method, folder):
    """Run one method and say how long it took, with how much memory, and in which version.

    The process is ended after so many seconds of the processor as the task allows.
    """
    run, package = METHODS[method]
    folder = Path(folder)
    task = json.loads((folder / "task.json").read_text())
    if task["limit"]:
        resource.setrlimit(resource.RLIMIT_CPU, (task["limit"], task["limit"]))
        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
    start = time.process_time()
    made = run(folder, task)
    told = {
        "seconds": time.process_time() - start,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "version": f"{package} {version_of(package)}",
    }
    made.to_pickle(folder / "made.pkl") if method == "ours" else made.to_csv(
        folder / "made.csv", index=False
    )
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
