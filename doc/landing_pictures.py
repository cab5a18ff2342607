"""Draw the pictures of the landing page, from the settings of the code beside them.

python doc/landing_pictures.py
"""

from pathlib import Path

from skdpot.display import COLOURS

IMAGES = Path(__file__).parent / "images"
(BLUE, ORANGE, *_), GREY = COLOURS, "#999999"


def draw_synthetic(axes):
    """Draw the ages of private records, and of synthetic ones."""
    import numpy as np
    import pandas as pd

    from skdpot import DPSinkhornGenerator

    age = np.random.default_rng(0).gamma(4, 6, 5000).clip(0, 72).round() + 18
    people = pd.DataFrame({"age": age, "retired": np.where(age > 65, "yes", "no")})
    schema = {"age": range(18, 91), "retired": ["no", "yes"]}
    made = DPSinkhornGenerator(epsilon=1.0, schema=schema, random_state=0).fit(people).sample(5000)
    edges = np.arange(17.5, 91, 2)
    axes.hist(people["age"], edges, color="0.8", label="private")
    style = {"histtype": "step", "color": BLUE, "linewidth": 1.5, "label": "synthetic, epsilon = 1"}
    axes.hist(made["age"], edges, **style)
    axes.legend(frameon=False)
    axes.set(xlabel="age", ylabel="records", title="Can they be told apart?")


def draw_repair(axes):
    """Draw how well the sex is found in patients' rows, as they are and repaired."""
    from sklearn.datasets import load_diabetes
    from sklearn.model_selection import train_test_split

    from skdpot import FairBarycenterPreprocessor
    from skdpot.fairness.metrics import group_auc

    patients = load_diabetes(as_frame=True, scaled=False).data
    train, test = train_test_split(patients, random_state=0)
    fair = FairBarycenterPreprocessor("sex", random_state=0).fit(train)
    areas = [
        group_auc(rows, test["sex"], random_state=0)
        for rows in (test.drop(columns="sex"), fair.transform(test))
    ]
    bars = axes.bar(["rows as they are", "rows repaired"], areas, color=[ORANGE, BLUE], width=0.6)
    axes.bar_label(bars, fmt="%.2f")
    axes.axhline(0.5, color=GREY, linestyle="--", linewidth=1)
    axes.set(ylim=(0, 1), ylabel="AUC, 0.5 is a coin", title="Can a model tell the sex?")


def draw_sample(axes):
    """Draw a user's distribution, the one that is sampled in its place, and a sample."""
    import numpy as np
    from sklearn.datasets import load_digits

    from skdpot import WassersteinProjectionSampler

    users = load_digits().data
    pixels = [[row, column] for row in range(8) for column in range(8)]
    sampler = WassersteinProjectionSampler(
        2.0, input_points=pixels, base_measure="uniform", random_state=0
    ).fit(users)
    own, private = users[0] / users[0].max(), sampler.project(users[:1])[0]
    gap = np.zeros((8, 1))
    maps = [own.reshape(8, 8), gap, (private / private.max()).reshape(8, 8)]
    axes.imshow(np.hstack(maps), cmap="Blues", vmax=1.2)
    row, column = sampler.transform(users[:1])[0]
    axes.plot(column + 9, row, "o", color=ORANGE, markersize=10)
    axes.text(3.5, 8.3, "her own", ha="center")
    axes.text(12.5, 8.3, "what is sampled", ha="center")
    axes.set(title="One private place of a user's 64")
    axes.set_axis_off()


def main():
    """Draw and save all."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    pictures = {"synthetic": draw_synthetic, "fair": draw_repair, "sampler": draw_sample}
    for name, draw in pictures.items():
        figure, axes = plt.subplots(figsize=(4.4, 2.6), layout="constrained")
        draw(axes)
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(IMAGES / f"landing_{name}.png", dpi=110)


if __name__ == "__main__":
    main()
