"""Data sets of the examples: what is read from small files, and the simulated city."""

import numpy as np
import pytest

from examples.datasets import (
    load_adult,
    load_checkins,
    load_compas,
    load_movielens100k,
    make_city_checkins,
)

PEOPLE = [
    "39, ?, 1, Masters, 14, Divorced, ?, Unmarried, Other, Male, 0, 0, 40, ?, <=50K",
    "52, Private, 1, HS-grad, 9, Widowed, Sales, Wife, Black, Female, 9, 0, 45, ?, >50K",
]


def test_adult_is_read_from_its_two_files(tmp_path):
    (tmp_path / "adult.data").write_text("\n".join(PEOPLE) + "\n\n")
    (tmp_path / "adult.test").write_text(f"|1x3 Cross validator\n{PEOPLE[1]}.\n")
    data = load_adult(tmp_path)
    np.testing.assert_array_equal(data.data[:, [0, 2, 5]], [[39, 14, 40], [52, 9, 45], [52, 9, 45]])
    assert data.categories["workclass"].tolist() == ["", "Private", "Private"]
    assert data.target.tolist() == [0, 1, 1] and data.is_test.tolist() == [False, False, True]
    one = load_adult(tmp_path / "adult.data")
    assert one.target.tolist() == [0, 1] and not one.is_test.any()


def test_compas_is_read_by_the_names_of_its_columns(tmp_path):
    path = tmp_path / "compas-scores-two-years.csv"
    path.write_text(
        "sex,age,age_cat,race,juv_fel_count,decile_score,juv_misd_count,juv_other_count,"
        "priors_count,days_b_screening_arrest,c_charge_degree,is_recid,score_text,decile_score,"
        "two_year_recid\n"
        "Male,31,25 - 45,Other,0,4,0,0,2,-1,F,0,Low,9,0\n"
        "Female,24,Less than 25,Caucasian,0,6,1,0,1,,M,1,Medium,9,1\n"
    )
    data = load_compas(path)
    np.testing.assert_array_equal(data.data[:, [0, 4, 5, 6]], [[31, 2, 4, -1], [24, 1, 6, np.nan]])
    assert data.categories["race"].tolist() == ["Other", "Caucasian"]
    assert data.target.tolist() == [0, 1]
    assert load_compas(path, filtered=True).data[:, 0].tolist() == [31]


def test_ratings_are_read_from_a_folder_and_from_an_archive(tmp_path):
    comedy, western = ("|".join("1" if k == g else "0" for k in range(19)) for g in (5, 18))
    (tmp_path / "u.data").write_text("1\t1\t5\t880000000\n2\t1\t3\t880000000\n2\t2\t4\t880000000")
    films = f"1|A Joke (1995)||||{comedy}\n2|A Horse (1996)||||{western}\n"
    (tmp_path / "u.item").write_text(films)
    data = load_movielens100k(tmp_path)
    assert data.ratings.toarray().tolist() == [[5, 0], [3, 4]]
    assert data.genre_names[data.genres[1]].tolist() == ["Western"]
    np.savez(
        tmp_path / "all.npz", user_id=[1, 2, 2], item_id=[1, 1, 2], rating=[5, 3, 4],
        item_genre=data.genres.astype(int), item_title=data.titles, genre_names=data.genre_names,
    )  # fmt: skip
    again = load_movielens100k(tmp_path / "all.npz")
    assert again.ratings.toarray().tolist() == data.ratings.toarray().tolist()
    np.testing.assert_array_equal(again.genres, data.genres)


def test_checkins_of_users_with_enough_of_them_are_counted_by_cell(tmp_path):
    path = tmp_path / "checkins.txt"
    path.write_text(
        "7\t2010-10-17T01:48:53Z\t30.21\t-97.79\t420315\n"
        "7\t2010-10-16T06:02:04Z\t30.28\t-97.71\t316637\n"
        "9\t2010-10-12T15:57:20Z\t40.64\t-73.78\t23261\n"
    )
    data = load_checkins(path, bounds=(30.2, 30.3, -97.8, -97.7), n_bins=2, min_checkins=2)
    assert data.user_id.tolist() == [7] and data.weights.toarray().tolist() == [[1, 0, 0, 1]]
    with pytest.raises(ValueError, match="no user has 3"):
        load_checkins(path, bounds=(30.2, 30.3, -97.8, -97.7), n_bins=2, min_checkins=3)


def test_a_city_is_made_up_in_the_same_form_and_can_be_made_again():
    data, again = (make_city_checkins(n_users=20, n_bins=12, random_state=0) for _ in range(2))
    assert data.weights.shape == (20, 144) and data.cell_centers.shape == (144, 2)
    assert data.weights.sum(axis=1).min() >= 10 and data.extent == (0, 15, 0, 15)
    assert (data.weights != again.weights).nnz == 0


@pytest.mark.parametrize("load", [load_adult, load_compas, load_movielens100k])
def test_a_file_that_is_not_there_is_said_with_its_address(load, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.*https://"):
        load(tmp_path / "nowhere")


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize(
    "name",
    ["sampling/plot_movielens", "distance/plot_group_distances", "fairness/plot_fair_tables"],
)
def test_without_data_examples_say_so(name, load_example, capsys):
    load_example(f"{name}.py").main()
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(line.startswith("No data") and "https://" in line for line in lines)
