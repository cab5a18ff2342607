"""Noise on integers has exactly the law of a rounded real variable, tails included."""

import decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import chisquare, kstest, laplace, norm

from skdpot.privacy import noise as exact_noise
from skdpot.privacy.noise import make_source, rounded_gaussian, rounded_laplace
from tests.oracles.given_bits import GivenBits

# Levels of tests: of draws that are the same in every run, and of draws that are not.
RARE, NEVER = 1e-4, 1e-9
LAWS = {
    "normal": (rounded_gaussian, exact_noise._GAUSSIAN, norm),
    "laplace": (rounded_laplace, exact_noise._LAPLACE, laplace),
}
by_law = pytest.mark.parametrize("law", LAWS)


def exact_tail(law, magnitude):
    """Return the probability to exceed a magnitude, to 400 bits."""
    if law == "normal":
        return mpmath.erfc(magnitude / mpmath.sqrt(2))
    return mpmath.exp(-magnitude)


@pytest.fixture(autouse=True)
def precision():
    with mpmath.workprec(400):
        yield


def tail_grid(rng):
    """Return tail probabilities over the whole range, and around where `ndtri` changes formula."""
    breaks = np.array([np.exp(-2.0), np.exp(-32.0)]) * 2
    return np.concatenate(
        [
            2.0 ** -rng.uniform(0, 53, 4000),
            1.0 - 2.0 ** -rng.uniform(1, 53, 1000),
            rng.random(2000),
            (breaks * (1 + rng.uniform(-1e-3, 1e-3, (500, 2)))).ravel(),
        ]
    )


@pytest.mark.experiment
def test_doubles_are_right_within_a_margin_many_times_their_error(rng):
    """The one assumption: the largest error is an eighth of what is allowed for, or less."""
    allowed = 2.0**-exact_noise.MARGIN_BITS / 8
    for tail in tail_grid(rng):
        magnitude = mpmath.mpf(float(-ndtri(0.5 * tail)))
        density = mpmath.sqrt(2 / mpmath.pi) * mpmath.exp(-(magnitude**2) / 2)
        error = (exact_tail("normal", magnitude) - mpmath.mpf(tail)) / density
        assert abs(error) <= allowed * (1 + magnitude)
        magnitude = mpmath.mpf(float(-np.log(tail)))
        assert abs(magnitude + mpmath.log(mpmath.mpf(tail))) <= allowed * (1 + magnitude)


@by_law
@pytest.mark.parametrize("n_bits", [62, 310])
def test_enclosures_hold_the_tail_and_are_narrow(law, n_bits, rng):
    magnitudes = np.concatenate([rng.uniform(0, 14, 60), 2.0 ** -rng.uniform(0, 45, 20), [50, 1e9]])
    tail = LAWS[law][1][2]
    for magnitude in magnitudes:
        low, high = tail(Fraction(magnitude), n_bits)
        exact = exact_tail(law, mpmath.mpf(float(magnitude))) * mpmath.mpf(2) ** n_bits
        assert low <= exact <= high
        assert high - low <= 2


@by_law
@pytest.mark.parametrize("below_the_end", [5, 1 << 40, (1 << 62) - 3])
@pytest.mark.parametrize("beside", [-1e-12, 1e-12])
def test_enclosures_hold_a_tail_that_is_next_to_an_integer(law, below_the_end, beside):
    """Where nothing but the allowance for rounding errors is left to decide."""
    whole = (1 << 62) - below_the_end
    p = (whole + mpmath.mpf(beside)) / mpmath.mpf(2) ** 62
    magnitude = mpmath.sqrt(2) * mpmath.erfinv(1 - p) if law == "normal" else -mpmath.log(p)
    low, high = LAWS[law][1][2](Fraction(magnitude.man) * Fraction(2) ** magnitude.exp, 62)
    if beside < 0:
        assert low < whole <= high
    else:
        assert low <= whole < high


@by_law
def test_enclosures_ignore_the_decimal_context_of_the_caller(law):
    tail = LAWS[law][1][2]
    expected = tail(Fraction(5, 3), 124)
    careless = decimal.Context(prec=3, rounding=decimal.ROUND_UP, traps=[decimal.Inexact], Emax=1)
    with decimal.localcontext(careless):
        assert tail(Fraction(5, 3), 124) == expected


@by_law
@pytest.mark.parametrize("scale", [0.7, 1000.1, 2.0**40])
def test_decisions_do_not_depend_on_whether_doubles_were_trusted(law, scale, seed, monkeypatch):
    draw = LAWS[law][0]
    trusting = draw(make_source(seed), scale, 400)
    decided = []
    monkeypatch.setattr(exact_noise, "MARGIN_BITS", -1)
    decide = exact_noise._decide
    monkeypatch.setattr(exact_noise, "_decide", lambda *g: decided.append(g) or decide(*g))
    assert (draw(make_source(seed), scale, 400) == trusting).all()
    assert len(decided) > 200


@by_law
@pytest.mark.parametrize("scale", [1.0, 1000.1, 2.0**30, 2.0**40])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 4.0])
def test_bits_that_straddle_a_boundary_are_decided_by_the_next_ones(law, scale, share):
    magnitude = int(share * scale)
    boundary = (mpmath.mpf(magnitude) + 0.5) / mpmath.mpf(scale)
    tail = int(exact_tail(law, boundary) * mpmath.mpf(2) ** 62)
    for following, expected in ((0, magnitude + 1), ((1 << 62) - 1, magnitude)):
        for sign in (0, 1):
            source = GivenBits(tail << 1 | sign, following)
            noise = LAWS[law][0](source, scale, 1)
            assert noise.tolist() == [expected * (-1 if sign else 1)]
            assert source.left == []


@by_law
@pytest.mark.parametrize("wrong", [-0.99, 0.99])
def test_doubles_that_are_wrong_by_no_more_than_is_allowed_for_change_nothing(law, wrong, seed):
    """The one assumption is all that is assumed: an error of ``2**-46 (1 + |X|)``."""
    exact, *others = LAWS[law][1]

    def mistaken(tail):
        magnitude = exact(tail)
        return magnitude + wrong * 2.0**-46 * (1 + magnitude)

    noise = exact_noise._rounded(make_source(seed), 2.0**40, 2000, exact, *others)
    found = exact_noise._rounded(make_source(seed), 2.0**40, 2000, mistaken, *others)
    assert (found == noise).all()


@by_law
@pytest.mark.parametrize("tail", [1024, 1025, 5000])
@pytest.mark.parametrize("part", [1e-5, 1 - 1e-5])
def test_a_boundary_anywhere_in_a_wide_cell_is_decided_by_the_next_bits(law, tail, part):
    """Next to either end of what 62 bits leave open, where the doubles look past it."""
    magnitude = 7
    with mpmath.workprec(400):
        p = (tail + mpmath.mpf(part)) / mpmath.mpf(2) ** 62
        at = mpmath.sqrt(2) * mpmath.erfinv(1 - p) if law == "normal" else -mpmath.log(p)
        scale = float((magnitude + mpmath.mpf(0.5)) / at)
    for following, expected in ((0, magnitude + 1), ((1 << 62) - 1, magnitude)):
        source = GivenBits(tail << 1, following)
        assert LAWS[law][0](source, scale, ()) == expected
        assert source.left == []


@by_law
@pytest.mark.parametrize("scale", [0.3, 10.0, 2.0**33])
def test_the_smallest_tails_are_rounded_like_all_others(law, scale):
    for first, second in [(0, 0), (0, 1), (0, 5 << 40), (1, 77), (1000, 1 << 61), (1025, 3)]:
        third = 123456789 << 30
        noise = LAWS[law][0](GivenBits(first << 1, second, third), scale, ())
        tail = mpmath.mpf((first << 124) + (second << 62) + third) / mpmath.mpf(2) ** 186
        for boundary, beyond in ((int(noise) - 0.5, True), (int(noise) + 0.5, False)):
            if boundary > 0:
                reached = exact_tail(law, mpmath.mpf(boundary) / mpmath.mpf(scale)) > tail
                assert reached == beyond


@by_law
@pytest.mark.parametrize("scale", [0.2, 2.5])
def test_frequencies_are_the_exact_probabilities(law, scale, seed):
    draw, _, real = LAWS[law]
    noise = draw(make_source(seed), scale, 100_000)
    middle = int(6 * scale) + 1
    points = np.arange(-middle, middle + 1)
    edges = np.concatenate([[-np.inf], points[:-1] + 0.5, [np.inf]])

    def p_value(factor):
        expected = np.diff(real.cdf(edges / (scale * factor))) * len(noise)
        counts = np.bincount(np.clip(noise, -middle, middle) + middle, minlength=len(points))
        likely = expected > 5
        counts = np.append(counts[likely], counts[~likely].sum())
        expected = np.append(expected[likely], expected[~likely].sum())
        return chisquare(counts[expected > 0], expected[expected > 0]).pvalue

    assert p_value(1.0) > RARE
    for factor in (0.9, 1.1):
        assert p_value(factor) < RARE


@by_law
@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("scale", [2.0**20, 2.0**35])
def test_noise_on_a_fine_grid_has_this_scale_and_no_other(law, seeded, scale, seed):
    """No row of test_every_mechanism.py: nothing is claimed of draws without a mechanism."""
    draw, _, real = LAWS[law]
    noise = draw(make_source(seed if seeded else None), scale, 100_000)
    rare = RARE if seeded else NEVER
    assert kstest(noise / scale, real.cdf).pvalue > rare
    for factor in (0.9, 1.1):
        assert kstest(noise / (scale * factor), real.cdf).pvalue < rare
    low_bits = np.bincount(noise & 15, minlength=16)
    assert chisquare(low_bits).pvalue > rare


@by_law
@pytest.mark.parametrize("scale", [0.0, -1.0, 2.0**40 * (1 + 2.0**-50), float("nan"), float("inf")])
def test_scales_out_of_range_are_refused(law, scale):
    with pytest.raises(ValueError, match="scale must be above 0"):
        LAWS[law][0](make_source(0), scale, 1)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted(LAWS)),
    st.integers(0, (1 << 62) - 1),
    st.integers(0, (1 << 62) - 1),
    st.floats(1e-3, 2.0**40),
)
def test_every_tail_is_rounded_to_the_nearest_integer(law, tail, following, scale):
    noise = abs(int(LAWS[law][0](GivenBits(tail << 1, following, 1 << 60), scale, ())))
    with mpmath.workprec(600):
        low = mpmath.mpf((tail << 124) + (following << 62) + (1 << 60)) / mpmath.mpf(2) ** 186
        high = low + mpmath.mpf(2) ** -186
        reached = 1 if noise == 0 else exact_tail(law, (noise - mpmath.mpf(0.5)) / scale)
        passed = exact_tail(law, (noise + mpmath.mpf(0.5)) / scale)
        assert passed < high and low < reached
