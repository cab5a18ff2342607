"""Groups of whatever labels: which there are, and which of them further rows are in."""

import numpy as np
import pytest

from skdpot.fairness._groups import find_groups, read_labels


def groups_of(labels, **options):
    return find_groups(read_labels(labels), **options)


def test_equal_labels_are_one_group_and_all_types_are_sorted():
    groups = groups_of([1, "b", 1.0, np.str_("b"), 0.5, True, "a"])
    assert groups.names.tolist() == [0.5, 1, "a", "b"]
    assert groups.codes.tolist() == [1, 3, 1, 3, 0, 1, 2]
    assert groups.sizes.tolist() == [1, 3, 1, 2]
    mixed = groups_of([("a", 1), ("a", "x"), (2, 1)])
    assert mixed.names.tolist() == [(2, 1), ("a", 1), ("a", "x")]
    assert groups.encode(read_labels(np.array([1, 0.5]))).tolist() == [1, 0]


def test_small_groups_merge_into_one_or_into_the_largest():
    groups = groups_of(list("aaabbcd"), min_group_size=2, small_groups="merge")
    assert groups.names.tolist() == ["a", "b", "other"]
    assert groups.encode(read_labels(list("cdab"))).tolist() == [2, 2, 0, 1]
    groups = groups_of(list("aaabbc"), min_group_size=2, small_groups="merge")
    assert groups.names.tolist() == ["a", "b"] and groups.sizes.tolist() == [4, 2]
    groups = groups_of(["other", "other", "x"], min_group_size=2, small_groups="merge")
    assert groups.names.tolist() == ["other"]
    groups = groups_of([1.0, 2.0, 3.0], min_group_size=2, small_groups="merge")
    assert groups.names.tolist() == ["other"]
    with pytest.raises(ValueError, match="n_samples=1 is fewer than min_size=2"):
        groups_of([1.0], min_group_size=2, small_groups="merge")


def test_small_groups_can_be_refused_or_left_out():
    with pytest.raises(ValueError, match="1 of 2 groups have fewer than 2 rows, the smallest 1"):
        groups_of(list("aab"), min_group_size=2)
    groups = groups_of(list("aab"), min_group_size=2, small_groups="drop")
    assert groups.names.tolist() == ["a"]
    assert groups.codes.tolist() == groups.encode(read_labels(list("aab"))).tolist() == [0, 0, -1]


def test_unknown_labels_are_refused():
    groups = groups_of(list("aab"))
    with pytest.raises(ValueError, match="2 rows, the first at position 1, are in groups"):
        groups.encode(read_labels(list("axx")))


def test_unknown_labels_go_where_the_most_similar_one_is():
    ages = groups_of([20, 30, 40])
    assert ages.encode(read_labels([33, 36.0, -5]), unknown="nearest").tolist() == [1, 2, 0]
    letters = groups_of(list("abb"))
    assert letters.encode(read_labels(["x"]), unknown="nearest").tolist() == [1]
    merged = groups_of(list("aaabcc"), min_group_size=3, small_groups="merge")
    assert merged.encode(read_labels(["x"]), unknown="nearest").tolist() == [1]
    pairs = groups_of([("f", 20), ("m", 50), ("m", 30)])
    new = read_labels([("f", 60), ("m", 38), ("x", 50), ("x", 24)])
    chosen = [pairs.names[g] for g in pairs.encode(new, unknown="nearest")]
    assert chosen == [("f", 20), ("m", 30), ("m", 50), ("f", 20)]
