"""How Sphinx builds the documentation."""

import skdpot

project = "skdpot"
copyright = "2026, The skdpot developers"
author = "The skdpot developers"
release = version = skdpot.__version__

extensions = ["numpydoc", "sphinx.ext.autodoc", "sphinx.ext.extlinks", "sphinx.ext.mathjax"]
extlinks = {
    "arxiv": ("https://arxiv.org/abs/%s", "arXiv:%s"),
    "doi": ("https://doi.org/%s", "doi:%s"),
}
exclude_patterns = ["_build"]
html_theme = "alabaster"
# Methods are documented by autodoc where they stand; a second list of them would only repeat it.
numpydoc_show_class_members = False
