"""The report of a ledger: what people read, and what it is rounded to."""

import json
import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skdpot
from skdpot.privacy import (
    ApproximateDpEvent,
    GaussianDpEvent,
    PrivacyLedger,
    PureDpEvent,
    SelfComposedDpEvent,
)
from skdpot.privacy.report import amount, chance, factor

USER = {"unit": "user", "label": "monthly means"}


def number(text):
    return Decimal(text.replace(",", ""))


class TestRounding:
    @given(st.floats(1e-12, 1e6))
    def test_what_is_spent_is_rounded_up_and_what_is_left_down(self, value):
        exact, noise = Decimal(repr(value)), Decimal("1e-8")
        up, down = number(amount(value)), number(amount(value, ROUND_FLOOR))
        assert exact * (1 - noise) <= up <= max(exact * Decimal("1.1"), exact + Decimal("0.01"))
        assert exact * (1 + noise) >= down >= min(exact * Decimal("0.9"), exact)
        assert up >= down

    @pytest.mark.parametrize(
        "value, up, down",
        [
            (2.00000000078653, "2.00", "2.00"),
            (1.9999999999999998, "2.00", "2.00"),
            (2.0001, "2.01", "2.00"),
            (0.0, "0.00", "0.00"),
            (0.00123, "0.0013", "0.0012"),
            (1234.5, "1,234.50", "1,234.50"),
            (1e100, "more than 1,000,000,000,000,000", "more than 1,000,000,000,000,000"),
            (math.inf, "unlimited", "unlimited"),
        ],
    )
    def test_numbers_are_those_that_people_expect(self, value, up, down):
        assert (amount(value), amount(value, ROUND_FLOOR)) == (up, down)

    @given(st.floats(1e-300, 0.999))
    def test_chances_are_rounded_against_the_user(self, delta):
        exact = Decimal(repr(delta))
        (up, one_in), (down, one_in_down) = (
            chance(delta, rounding).rstrip(")").split(" (1 in ")
            for rounding in (ROUND_CEILING, ROUND_FLOOR)
        )
        assert Decimal(down) <= exact <= Decimal(up) <= exact * Decimal("1.1")
        assert number(one_in) <= 1 / exact <= number(one_in_down)

    @pytest.mark.parametrize(
        "epsilon, said", [(0.0, "1.00"), (1.0, "2.72"), (10.0, "22,027"), (31.0, "more than 10")]
    )
    def test_factors_are_rounded_up(self, epsilon, said):
        assert factor(epsilon).startswith(said)


class TestWords:
    def test_it_says_who_is_protected_what_was_released_and_what_is_left(self):
        ledger = PrivacyLedger(epsilon=3.0, delta=1e-5)
        for _ in range(3):
            ledger.charge(PureDpEvent(0.25), **USER)
        part = ledger.partition("region", ["north", "south"], fixed_key=True)["north"]
        part.charge(ApproximateDpEvent(0.2500000001, 1e-6), unit="user", label="a <training>")
        report = ledger.report()
        text, html = " ".join(str(report).split()), report._repr_html_()
        for said in (
            "replacing the data of one user changes the probability of any outcome of all releases "
            "by a factor of at most 2.72 (epsilon 1.00), but for an added probability of 0.000001 "
            "(1 in 1,000,000) (delta).",
            "4 releases, ",
            "Of the budget of epsilon 3.00 and delta 0.00001 (1 in 100,000) for every user, "
            "epsilon 1.00 and delta 0.000001 (1 in 1,000,000) are spent.",
            "at most epsilon 2.00 and delta 0.000009 (1 in 111,112).",
            "Charges are admitted by the sum of (epsilon, delta).",
        ):
            assert said in text and said in html
        assert "monthly means user 3 0.25 0" in text
        assert "a <training> user in region: north 1 0.25 0.000001" in text
        assert "<td>a &lt;training&gt;</td>" in html and "<training>" not in html
        assert "Spent per user: (1.0000000001, 1e-06)" in text
        assert ledger._repr_html_() == html

    def test_it_says_where_the_sensitivity_of_each_estimator_is_proven(self):
        ledger = PrivacyLedger(epsilon=3.0)
        assert "sensitivity" not in str(ledger.report())
        ledger.charge(PureDpEvent(0.25), **USER)
        said = " ".join(str(ledger.report()).split())
        named = re.search(r"the table in (\S+) names", said)
        text = (Path(__file__).parents[2] / named[1]).read_text()
        releasing = [name for name in skdpot.__all__ if hasattr(getattr(skdpot, name), "preview")]
        assert len(releasing) > 5 and [name for name in releasing if name not in text] == []

    def test_other_units_and_relations_have_sentences_of_their_own(self):
        ledger = PrivacyLedger(epsilon=1.0, neighbouring="add_remove")
        ledger.charge(PureDpEvent(1.0), unit="record", label="x")
        text = " ".join(str(ledger.report()).split())
        assert "adding or removing the data of one record changes the probability" in text
        assert "A person with several records is protected less" in text
        assert "epsilon 1.00 and delta 0 are spent. Another release may cost at most" in text
        assert "epsilon 0.00 and delta 0." in text

    def test_what_is_seeded_protects_nobody(self):
        ledger = PrivacyLedger(epsilon=1.0, allow_seeded=True)
        ledger.charge(PureDpEvent(0.5), unit="record", label="toy", seeded=True)
        text = " ".join(str(ledger.report()).split())
        assert "No record is protected from whoever knows the seed of 1 of the releases" in text
        assert "toy (seeded: not private)" in text

    def test_without_releases_or_limits_it_says_so(self):
        assert "Nothing was released." in str(PrivacyLedger(None).report())
        assert "releases are recorded, and none is refused" in str(PrivacyLedger(None).report())
        assert "All of the budget: epsilon 2.00" in str(PrivacyLedger(2.0).report())
        ledger = PrivacyLedger(None)
        ledger.charge(GaussianDpEvent(1.0), **USER)
        assert "No user is protected: what was released has no finite epsilon" in " ".join(
            str(ledger.report()).split()
        )
        assert "by its noise" in str(ledger.report())


class TestFiles:
    @pytest.fixture
    def report(self):
        ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5, slack=1e-5)
        ledger.charge(PureDpEvent(0.25), **USER)
        ledger.charge(SelfComposedDpEvent(GaussianDpEvent(9.0), 3), **USER)
        return ledger.report()

    def test_it_is_saved_as_text_html_and_json(self, report, tmp_path):
        for suffix in ("txt", "html", "json"):
            report.save(tmp_path / f"report.{suffix}")
        assert (tmp_path / "report.txt").read_text() == f"{report}\n"
        html = (tmp_path / "report.html").read_text()
        assert html.startswith("<!DOCTYPE html>") and report._repr_html_() in html
        kept = json.loads((tmp_path / "report.json").read_text())
        assert kept == json.loads(json.dumps(report.as_dict(), allow_nan=False))
        assert kept["budget"] == ["inf", 1e-05]
        assert [charge["epsilon"] for charge in kept["charges"]] == [0.25, None]
        assert kept["charges"][1]["event"]["SelfComposedDpEvent"]["count"] == 3
        with pytest.raises(ValueError, match=r"must end with .txt, .html or .json"):
            report.save(tmp_path / "report.pdf")
