"""The measures of the package's structure, each held to its limit."""

import pytest

from tests import house

FROM_SOURCES = [
    house.measure_rituals,
    house.measure_sensitivities,
    house.measure_private_imports,
    house.measure_twins,
    house.measure_constants,
]
LISTS_FROM_SOURCES = [house.measure_code_lines, house.measure_files, house.measure_classes]
FROM_THE_PACKAGE = [house.measure_parameters, house.measure_names, house.measure_charge]


@pytest.fixture(scope="module")
def trees():
    return house.sources()


@pytest.fixture(scope="module")
def walks():
    return {measure.name.rsplit(": ")[-1]: measure for measure in house.measure_walks()}


def assert_met(measure):
    places = "\n".join(measure.places)
    assert measure.met, f"{measure.name}: {measure.value}, at most {measure.limit}\n{places}"


@pytest.mark.parametrize("measure", FROM_SOURCES)
def test_the_code_is_within_its_limits(measure, trees):
    assert_met(measure(trees))


@pytest.mark.parametrize("measures", LISTS_FROM_SOURCES)
def test_lists_of_measures_are_within_their_limits(measures, trees):
    for measure in measures(trees):
        assert_met(measure)


def test_documents_are_within_their_limits():
    for measure in house.measure_documents():
        assert_met(measure)


@pytest.mark.parametrize("measure", FROM_THE_PACKAGE)
def test_the_public_names_are_within_their_limits(measure):
    assert_met(measure())


@pytest.mark.parametrize("name", ["sampler", "distance", "sketch", "preprocessor", "regressor"])
def test_records_are_handed_through_few_functions(name, walks):
    assert_met(walks[name])
