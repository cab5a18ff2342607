"""How Sphinx builds the documentation."""

import json
import os
import re
import sys
from pathlib import Path

from sphinx_gallery.utils import scale_image

import skdpot

DOC = Path(__file__).parent
# Examples import `examples.datasets`.
sys.path[:0] = [str(DOC), str(DOC.parent)]
from gallery_results import pictures_of, results_of  # noqa: E402

project = "skdpot"
copyright = "The skdpot developers"
author = "The skdpot developers"
release = version = skdpot.__version__

extensions = [
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.extlinks",
    "sphinx.ext.mathjax",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",  # formulas are set without a network, too
]
exclude_patterns = ["_build", "_templates", "auto_examples/**/*.ipynb", "auto_examples/**/*.json"]
templates_path = ["_templates"]
extlinks = {
    "arxiv": ("https://arxiv.org/abs/%s", "arXiv:%s"),
    "doi": ("https://doi.org/%s", "doi:%s"),
}
# Every link within the package must lead somewhere, but for those of annotations to what has no
# page of its own. Other packages' pages are not asked for, since builds need no network.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!skdpot\.).*"),
    (r"py:.*", r"skdpot\.(.+\.)?_.*"),
    (r"py:.*", r"skdpot\.(releases|tables)\..*"),
    (r"py:.*", r"skdpot\.privacy\.[a-z]\w*\..*"),
    (r"py:.*", r"skdpot\.(transport\.(costs|wasserstein_projection)|privacy\.sensitivity\s+\.\w+)"),
    (r"py:class", r"skdpot\.transport\.(base_measure|exact|projection|sinkhorn)\..*"),
]
# What is inherited from scikit-learn refers to its glossary.
suppress_warnings = ["ref.term"]
linkcheck_anchors = False  # of other sites, which make them by scripts
linkcheck_timeout = 20
linkcheck_workers = 4

html_theme = "pydata_sphinx_theme"
html_title = "skdpot"
html_static_path = ["_static"]
html_css_files = ["skdpot.css"]
html_js_files = ["skdpot.js"]
html_show_sourcelink = False
html_sidebars = {"index": []}
html_theme_options = {
    "logo": {"text": "skdpot"},
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "navbar_persistent": ["search-button"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "show_prev_next": True,
}

# Reference: a page for each class, with all its methods but those that scikit-learn documents.
autosummary_generate = True
autosummary_context = {
    "without_members_of": ", ".join(
        (
            "TransformerMixin", "OneToOneFeatureMixin", "DensityMixin", "MetaEstimatorMixin",
            "RegressorMixin", "BaseEstimator", "_SetOutputMixin", "_MetadataRequester", "tuple",
            "RandomizedSearchCV", "BaseSearchCV", "CallbackSupportMixin", "BaseException", "object",
        )
    ),
    "without_members": ", ".join(
        f"set_{method}_request" for method in (
            "fit", "transform", "predict", "predict_proba", "sample", "score"
        )
    ),
}  # fmt: skip
numpydoc_show_class_members = False  # they are documented where they stand

# Gallery. These run at every build, for less than ten seconds each. Others take longer, or need
# data that do not come with the package: they show what `gallery_results.py` has kept of a run,
# unless the environment variable SKDPOT_GALLERY is "all".
QUICK = ("plot_drift", "plot_projected_distributions", "plot_table")
EVERY = tuple(path.stem for path in DOC.parent.glob("examples/*/plot_*.py"))
RUN = EVERY if os.environ.get("SKDPOT_GALLERY") == "all" else QUICK
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "ignore_pattern": r"^(__init__|datasets)\.py$",
    "filename_pattern": rf"/({'|'.join(RUN)})\.py",
    "subsection_order": [
        f"../examples/{topic}"
        for topic in (
            "sampling", "distance", "fairness", "generative", "allocation", "model_selection",
            "privacy",
        )
    ],
    "thumbnail_size": (480, 336),
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "api/examples",
    "doc_module": ("skdpot",),
    "default_thumb_file": str(DOC / "_static" / "thumbnail.png"),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "reset_modules": ("matplotlib", "gallery_results.set_style"),
    "show_signature": False,
    "write_computation_times": False,
}  # fmt: skip

# Where the pages that sphinx-gallery writes have a title, a picture, and their end.
TITLE = re.compile(r"^(?:=+\n)?\S.*\n=+\n", re.MULTILINE)
PICTURE = re.compile(r"^ *\.\. image-sg:: (\S+)\n(?: +:.*\n)*", re.MULTILINE)
DOWNLOAD = ".. _sphx_glr_download_"
NOT_RUN = """
.. note::

   This example takes longer, or needs data that do not come with the package, and was not run when
   this page was built. What it draws and prints is kept from an earlier run.

"""
# What each picture shows, for those who do not see it.
SHOWN = json.loads((DOC / "images" / "gallery" / "shown.json").read_text())


def show_results(app, docname, source):
    """Put the pictures of an example under its title, and kept output at its end."""
    name, text = docname.rpartition("/")[2], source[0]
    if name not in EVERY:
        return
    kept = [] if name in RUN else [f"/{path.relative_to(DOC)}" for path in results_of(name)]
    pictures = PICTURE.findall(text) or [file for file in kept if file.endswith(".png")]
    shown = [
        f".. image:: {file}\n   :alt: {SHOWN[name][k]}\n   :class: sphx-glr-single-img\n\n"
        for k, file in enumerate(pictures)
    ]
    printed = [
        f".. rst-class:: sphx-glr-script-out\n\n.. literalinclude:: {file}\n   :language: none\n\n"
        for file in kept
        if file.endswith(".txt")
    ]
    body, download = PICTURE.sub("", text).split(DOWNLOAD, 1)
    start = TITLE.search(body).end()
    note = [] if name in RUN else [NOT_RUN]
    source[0] = "".join(
        (body[:start], "\n", *shown, body[start:], *note, *printed, DOWNLOAD, download)
    )


def show_kept_thumbnails(app):
    """Make thumbnails of kept pictures, in place of those of examples that were not run."""
    width, height = app.config.sphinx_gallery_conf["thumbnail_size"]
    for thumbnail in DOC.glob("auto_examples/*/images/thumb/sphx_glr_*_thumb.png"):
        name = thumbnail.stem.removeprefix("sphx_glr_").removesuffix("_thumb")
        pictures = pictures_of(name)
        if pictures and name not in RUN:
            scale_image(str(pictures[0]), str(thumbnail), width, height)


def setup(app):
    """Have the results shown once the pages of the gallery are made."""
    app.connect("builder-inited", show_kept_thumbnails, priority=900)
    app.connect("source-read", show_results)
