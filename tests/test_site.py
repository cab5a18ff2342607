"""The documentation and the reports, in a browser: nothing is cut off."""

import html
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from skdpot import PrivacyLedger
from skdpot.privacy import GaussianDpEvent, PlannedDpEvent

PROJECT = Path(__file__).parents[1]
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def cut_off(folder, pages, widths):
    """Return which tables, blocks of code and pictures of pages do not fit their boxes."""
    look = shutil.copy(PROJECT / "tests" / "cut_off.html", folder)
    address = f"{Path(look).as_uri()}#{quote(json.dumps([pages, widths]))}"
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               "--allow-file-access-from-files", "--virtual-time-budget=600000", "--dump-dom",
               address]  # fmt: skip
    seen = subprocess.run(command, capture_output=True, text=True, timeout=500, check=True).stdout
    return json.loads(html.unescape(re.search(r"<pre id=.found.>(.*?)</pre>", seen, re.S)[1]))


@pytest.mark.skipif(BROWSER is None, reason="needs a browser")
def test_reports_fit_a_screen_and_a_sheet_of_paper(tmp_path):
    ledger = PrivacyLedger(epsilon=30.0, delta=1e-3)
    event = PlannedDpEvent(GaussianDpEvent(3.730631634853457), 1e-5)
    ledger.charge(event, unit="record", label="DPSinkhornGenerator, a sketch")
    ledger.report().save(tmp_path / "report.html")
    (tmp_path / "notebook.html").write_text(ledger._repr_html_())
    assert cut_off(tmp_path, ["notebook.html"], [1000]) == []
    # The width of a sheet of A4 between its margins, in pixels.
    assert cut_off(tmp_path, ["report.html"], [1000, 718]) == []


@pytest.mark.experiment
@pytest.mark.skipif(BROWSER is None, reason="needs a browser")
@pytest.mark.skipif(importlib.util.find_spec("sphinx_gallery") is None, reason="needs [doc]")
def test_no_table_and_no_code_of_the_documentation_is_cut_off(tmp_path):
    # A build leaves files beside what it is made from.
    for name in ("doc", "examples"):
        left = shutil.ignore_patterns("api", "auto_examples", "_build")
        shutil.copytree(PROJECT / name, tmp_path / name, ignore=left)
    command = [sys.executable, "-m", "sphinx", "-q", "-D", "plot_gallery=0", "-b", "html"]
    site = tmp_path / "site"
    subprocess.run([*command, tmp_path / "doc", site], cwd=PROJECT, check=True)
    pages = [str(path.relative_to(site)) for path in sorted(site.rglob("*.html"))]
    shown = [page for page in pages if not page.startswith("_static")]
    assert len(shown) > 100 and cut_off(site, shown, [1280, 390]) == []
