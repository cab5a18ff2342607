"""Releases of many files: every file once, whatever is done twice or stops halfway."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from skdpot import (
    PrivacyLedger,
    SphericalProjectionSampler,
    WassersteinProjectionSampler,
    release_files,
)
from skdpot.privacy import BudgetAccountant, BudgetExceededError
from skdpot.sampling import _file_release as steps
from skdpot.sampling._file_formats import read_users, write_samples
from skdpot.sampling._file_journal import Claim, FileJournal, journal_of

N_USERS = 40


class Killed(BaseException):
    """What stands for the end of a process: nothing catches it."""


class Setting:
    """Three files of users in a folder, and a ledger for one sample of each."""

    def __init__(self, folder, random_state=None):
        self.folder = folder
        rng = np.random.default_rng(0)
        self.sources = [folder / f"users-{number}.npy" for number in range(3)]
        for source in self.sources:
            np.save(source, rng.integers(1, 9, (N_USERS, 5)))
        self.targets = [folder / f"samples-{number}.npy" for number in range(3)]
        self.ledger = PrivacyLedger(
            2.0, path=folder / "ledger", allow_seeded=random_state is not None
        )
        self.sampler = WassersteinProjectionSampler(
            2.0, base_measure="uniform", random_state=random_state
        ).fit(np.ones((1, 5)))

    def release(self, **changed):
        arguments = {
            "sampler": self.sampler,
            "sources": self.sources,
            "targets": self.targets,
            "ledger": self.ledger,
            **changed,
        }
        return release_files(**arguments)

    def contents(self):
        return {file: file.read_bytes() for file in self.targets if file.exists()}

    def leftovers(self):
        return sorted(self.folder.glob(".unfinished-*"))

    def assert_finished(self, released):
        """Raise unless every file was released and charged once, and nothing else is left."""
        assert [file.target for file in released] == [str(file) for file in self.targets]
        assert [np.load(file).shape for file in self.targets] == [(N_USERS, 1)] * 3
        assert self.ledger.spent() == (2.0, 0.0)
        assert len(self.ledger.entries()) == 3
        assert self.ledger.verify(file.receipt for file in released) == 3
        assert not self.leftovers()


@pytest.fixture
def setting(tmp_path):
    return Setting(tmp_path)


def test_every_user_is_released_and_charged_once(setting):
    released = setting.release()
    setting.assert_finished(released)
    assert [file.n_users for file in released] == [N_USERS] * 3
    before = setting.contents()
    assert setting.release() == released
    assert setting.contents() == before


# Where a call ends for good: a function, and whether that is before or after its second call.
STEPS = [
    (steps, "inspect", "after"),
    (FileJournal, "claim", "before"),
    (FileJournal, "claim", "after"),
    (PrivacyLedger, "partition", "after"),
    (PrivacyLedger, "charge_parts", "before"),
    (PrivacyLedger, "charge_parts", "after"),
    (steps, "pack", "after"),
    (steps, "draw", "after"),
    (FileJournal, "record", "before"),
    (FileJournal, "record", "after"),
    (steps, "_move", "before"),
    (os, "link", "before"),
    (os, "link", "after"),
    (steps, "_move", "after"),
    (os, "unlink", "after"),
    (FileJournal, "recorded", "before"),
]
ONCE = ("claim", "partition", "charge_parts", "pack", "recorded")


def kill_at(monkeypatch, place, name, when):
    """Let a function end the process at its second call, or its first if there is but one."""
    function, calls = getattr(place, name), []

    def deadly(*args, **params):
        calls.append(name)
        is_last = len(calls) == (1 if name in ONCE else 2)
        if is_last and when == "before":
            raise Killed
        result = function(*args, **params)
        if is_last:
            raise Killed
        return result

    monkeypatch.setattr(place, name, deadly)


@pytest.mark.parametrize("n_together", [1, 2])
@pytest.mark.parametrize(("place", "name", "when"), STEPS)
def test_a_killed_call_is_resumed(setting, monkeypatch, place, name, when, n_together):
    monkeypatch.setattr(steps, "_MOST_FILES", n_together)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        kill_at(patched, place, name, when)
        setting.release()
    before = setting.contents()
    released = setting.release()
    setting.assert_finished(released)
    assert before.items() <= setting.contents().items()
    assert setting.release() == released


def test_nothing_is_drawn_again_that_was_recorded(setting, monkeypatch):
    monkeypatch.setattr(steps, "_MOST_FILES", 1)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        kill_at(patched, steps, "_move", "before")
        setting.release()
    with FileJournal(journal_of(setting.ledger.path, "files")) as journal:
        recorded = {result.target: result.digest for result in journal.recorded()}
    assert len(recorded) == 2 and len(setting.contents()) == 1
    released = setting.release()
    assert recorded.items() <= {file.target: file.digest for file in released}.items()


def twice(function, tasks):
    return [function(task) for task in tasks for _ in range(2)]


def test_tasks_that_are_done_twice_are_committed_once(setting):
    before, moved = {}, steps._move

    def watched(files):
        assert before.keys().isdisjoint(target for _, target in files)
        moved(files)
        before.update({target: Path(target).read_bytes() for _, target in files})

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(steps, "_move", watched)
        setting.assert_finished(setting.release(client=twice))
    assert len(before) == 3
    assert all(Path(target).read_bytes() == content for target, content in before.items())


def test_a_worker_that_wakes_up_late_writes_nothing(setting, monkeypatch):
    monkeypatch.setattr(steps, "_MOST_FILES", 1)
    tasks = []

    def mapped(function, some):
        tasks.extend((function, task) for task in some)
        return map(function, some)

    setting.assert_finished(setting.release(client=mapped))
    draws = [(function, task) for function, task in tasks if function is steps.draw]
    assert len(draws) == 3
    for function, task in draws:
        with pytest.raises(FileNotFoundError):
            function(task)
    assert not setting.leftovers()


@pytest.mark.parametrize(("lost", "charged"), [("inspect", 0), ("draw", 3)])
def test_a_lost_result_is_an_error(setting, monkeypatch, lost, charged):
    monkeypatch.setattr(steps, "_MOST_FILES", 1)

    def forgetful(function, tasks):
        return map(function, tasks[function.__name__ == lost :])

    with pytest.raises(RuntimeError, match="1 results are missing"):
        setting.release(client=forgetful)
    assert len(setting.ledger.entries()) == charged
    setting.assert_finished(setting.release())


def test_small_files_share_a_task():
    def sizes(*n_users):
        claims = [Claim(number, "", "", "", size, "") for number, size in enumerate(n_users)]
        return [[claim.n_users for claim in batch] for batch in steps._batches(claims)]

    assert sizes(20_000, 20_000) == [[20_000], [20_000]]
    assert sizes(1, 20_000, 2000, 3000, 1) == [[1], [20_000], [2000, 3000], [1]]
    assert [len(batch) for batch in sizes(*[3] * 130)] == [64, 64, 2]


def test_samples_do_not_depend_on_who_draws_them(tmp_path, monkeypatch):
    ways = {
        "here": {},
        "one by one": {},
        "backwards": {"client": lambda function, tasks: map(function, tasks[::-1])},
        "threads": {"client": ThreadPoolExecutor(2)},
    }
    found = {}
    for name, way in ways.items():
        (tmp_path / name).mkdir()
        setting = Setting(tmp_path / name, random_state=3)
        monkeypatch.setattr(steps, "_MOST_FILES", 64 if name == "here" else 1)
        setting.assert_finished(setting.release(**way))
        found[name] = np.stack([np.load(target) for target in setting.targets])
    ways["threads"]["client"].shutdown()
    for name in ways:
        np.testing.assert_array_equal(found["here"], found[name])
    assert not np.array_equal(found["here"][0], found["here"][1])


def test_a_target_of_somebody_else_is_left_alone(setting):
    setting.targets[1].write_bytes(b"mine")
    with pytest.raises(FileExistsError, match=re.escape(str(setting.targets[1]))):
        setting.release()
    assert not setting.ledger.entries()
    setting.targets[1].unlink()
    setting.assert_finished(setting.release())


def test_a_target_that_appears_meanwhile_is_left_alone(setting, monkeypatch):
    def late(tasks, draw=steps.draw):
        setting.targets[tasks[0].number].write_bytes(b"mine")
        return draw(tasks)

    monkeypatch.setattr(steps, "_MOST_FILES", 1)
    with monkeypatch.context() as patched, pytest.raises(FileExistsError, match="meanwhile"):
        patched.setattr(steps, "draw", late)
        setting.release()
    assert setting.targets[0].read_bytes() == b"mine"
    with pytest.raises(RuntimeError, match="not what was released") as error:
        setting.release()
    assert "nothing is charged again" in error.value.__notes__[-1]
    setting.targets[0].unlink()
    setting.assert_finished(setting.release())


def test_a_changed_or_lost_target_is_not_drawn_again(setting):
    setting.release()
    content = setting.targets[2].read_bytes()
    setting.targets[2].write_bytes(content + b" ")
    with pytest.raises(RuntimeError, match="Put the released file back"):
        setting.release()
    setting.targets[2].unlink()
    with pytest.raises(RuntimeError, match="was released, and is gone"):
        setting.release()
    setting.targets[2].write_bytes(content)
    setting.assert_finished(setting.release())


def test_a_changed_source_is_not_released(setting, monkeypatch):
    monkeypatch.setattr(steps, "_MOST_FILES", 1)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        kill_at(patched, steps, "_move", "before")
        setting.release()
    users = setting.sources[2].read_bytes()
    np.save(setting.sources[2], np.ones((N_USERS, 5)))
    with pytest.raises(RuntimeError, match="changed since it was claimed") as error:
        setting.release()
    assert str(setting.sources[2]) in error.value.__notes__[0]
    assert not setting.targets[2].exists()
    setting.sources[2].write_bytes(users)
    setting.assert_finished(setting.release())


def test_a_file_that_cannot_be_used_is_named_before_the_charge(setting):
    users = np.load(setting.sources[1])
    users[7] = 0
    np.save(setting.sources[1], users)
    with pytest.raises(ValueError, match="row 7") as error:
        setting.release()
    assert str(setting.sources[1]) in error.value.__notes__[0]
    assert not setting.ledger.entries()
    np.save(setting.sources[1], users + 1)
    setting.assert_finished(setting.release())


def test_a_refused_call_can_be_made_with_other_arguments(setting):
    with pytest.raises(BudgetExceededError, match="Nothing was charged"):
        setting.release(n_samples=2)
    setting.assert_finished(setting.release())
    with pytest.raises(BudgetExceededError, match="Nothing was charged"):
        setting.release(partition="more", targets=[f"{target}.npy" for target in setting.targets])


def test_a_charge_that_is_refused_late_leaves_no_claim(setting, monkeypatch):
    def refuse(*args, **params):
        raise BudgetExceededError("somebody was quicker", None, None, None)

    with monkeypatch.context() as patched, pytest.raises(BudgetExceededError):
        patched.setattr(PrivacyLedger, "charge_parts", refuse)
        setting.release()
    setting.sampler.set_params(epsilon=1.0).fit(np.ones((1, 5)))
    setting.release()
    assert setting.ledger.spent() == (1.0, 0.0)


@pytest.mark.parametrize("is_anchored", [False, True])
def test_a_journal_from_a_backup_draws_nothing_again(setting, monkeypatch, is_anchored):
    """The backup is made after the charge, and restored when the samples have left."""
    folder = setting.folder / "restored"
    folder.mkdir()
    anchor = setting.folder / "anchor" if is_anchored else None
    setting.ledger = PrivacyLedger(2.0, path=folder / "ledger", anchor=anchor)
    with monkeypatch.context() as patch:
        patch.setattr(FileJournal, "record", killed)
        with pytest.raises(Killed):
            setting.release()
    # Without an anchor, the journal alone is restored.
    kept = [file for file in folder.iterdir() if is_anchored or "journal" in file.name]
    contents = {file: file.read_bytes() for file in kept}
    setting.release()
    for target in setting.targets:
        target.unlink()
    for file, content in contents.items():
        file.write_bytes(content)
    with pytest.raises(RuntimeError, match="is an old one, from a backup"):
        setting.release()
    assert not setting.contents() and setting.ledger.spent() == (2.0, 0.0)


def test_a_journal_that_was_copied_during_the_call_draws_nothing_again(setting, monkeypatch):
    copied, record = {}, FileJournal.record

    def copying(journal, drawn):
        copied.update({file: file.read_bytes() for file in setting.folder.glob("*journal*")})
        return record(journal, drawn)

    with monkeypatch.context() as patch:
        patch.setattr(FileJournal, "record", copying)
        setting.release()
    for target in setting.targets:
        target.unlink()
    for file, content in copied.items():
        file.write_bytes(content)
    with pytest.raises(RuntimeError, match="is an old one, from a backup"):
        setting.release()
    assert not setting.contents()


def test_a_release_whose_journal_is_lost_is_charged_again(setting):
    setting.ledger = PrivacyLedger(4.0, path=setting.folder / "larger")
    for n_charges in (3, 6):
        setting.release()
        assert len(setting.ledger.entries()) == n_charges
        for file in (*setting.targets, *setting.folder.glob("larger.files.*")):
            file.unlink()
    assert setting.ledger.spent() == (4.0, 0.0)


def test_noise_without_a_seed_does_not_come_again(setting):
    setting.release()
    first = [np.load(target) for target in setting.targets]
    setting.targets = [setting.folder / f"again-{number}.npy" for number in range(3)]
    setting.release(ledger=PrivacyLedger(2.0, path=setting.folder / "other"))
    # Equal in all 40 users of a file with a probability below 1e-13.
    assert not any(map(np.array_equal, first, map(np.load, setting.targets)))


def killed(*arguments):
    raise Killed


def test_another_call_is_told_apart(setting):
    setting.release()
    squared = clone(setting.sampler).set_params(order=2).fit(np.ones((1, 5)))
    for changed, what in (
        ({"n_samples": 2}, "event, n_samples"),
        ({"sources": setting.sources[:2], "targets": setting.targets[:2]}, "files"),
        ({"targets": setting.targets[::-1]}, "files"),
        ({"sampler": squared}, "parameters"),
    ):
        with pytest.raises(ValueError, match=f"differs in {what}"):
            setting.release(**changed)
    ledger = PrivacyLedger(2.0, path=setting.folder / "other")
    with pytest.raises(FileExistsError, match="another release wrote it"):
        setting.release(ledger=ledger)
    assert not ledger.entries()


def test_one_process_at_a_time_releases(setting):
    with (
        FileJournal(journal_of(setting.ledger.path, "files")),
        pytest.raises(RuntimeError, match="another process is releasing these files"),
    ):
        setting.release()
    setting.assert_finished(setting.release())


def test_temporary_files_are_for_the_account_of_the_call_alone(setting):
    def write(samples, path):
        folder = os.stat(os.path.dirname(path))
        assert folder.st_mode & 0o777 == 0o700
        write_samples(samples, path)

    setting.assert_finished(setting.release(write=write))


def test_the_journal_is_for_its_owner_alone(setting):
    setting.release()
    assert os.stat(journal_of(setting.ledger.path, "files")).st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"sampler": "one"}, TypeError, "sampler must be"),
        ({"ledger": None}, TypeError, "ledger must be a PrivacyLedger"),
        ({"ledger": BudgetAccountant()}, TypeError, "ledger must be a PrivacyLedger"),
        ({"n_samples": 0}, ValueError, "n_samples must be"),
        ({"targets": []}, ValueError, "got 3 sources and 0 targets"),
        ({"sources": []}, ValueError, "got 0 sources and 3 targets"),
        ({"sources": ["a.csv", "b.npy", "c.npy"]}, ValueError, "pass a function as read"),
        ({"targets": ["a.txt", "b.npy", "c.npy"]}, ValueError, "pass a function as write"),
        ({"targets": ["a.npy", "b.npy", "a.npy"]}, ValueError, "all different"),
    ],
)
def test_wrong_arguments_are_refused(setting, changed, error, message):
    with pytest.raises(error, match=message):
        setting.release(**changed)
    assert not setting.ledger.entries()


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_source_under_two_names_is_refused(setting, link):
    setting.sources[1].unlink()
    link(setting.sources[1], setting.sources[0])
    with pytest.raises(ValueError, match="all different"):
        setting.release()


def test_samplers_that_would_charge_elsewhere_are_refused(setting):
    setting.sampler.set_params(ledger=PrivacyLedger(2.0))
    with pytest.raises(ValueError, match="another ledger"):
        setting.release()
    setting.sampler.set_params(ledger=setting.ledger)
    setting.assert_finished(setting.release())
    setting.sampler.set_params(random_state=np.random.RandomState(0))
    with pytest.raises(ValueError, match="None or an integer"):
        setting.release()


def test_seeded_samples_need_a_ledger_that_takes_them(setting):
    setting.sampler.set_params(random_state=0)
    with pytest.raises(ValueError, match="random_state is not private"):
        setting.release()


def test_functions_read_and_write_what_else_there_is(setting):
    def read(path):
        return np.loadtxt(path, delimiter=",")

    def write(samples, path):
        np.savetxt(path, samples, fmt="%d")

    texts = [source.with_suffix(".csv") for source in setting.sources]
    for source, text in zip(setting.sources, texts, strict=True):
        np.savetxt(text, np.load(source), delimiter=",")
    targets = [target.with_suffix(".txt") for target in setting.targets]
    released = setting.release(sources=texts, targets=targets, read=read, write=write)
    assert [len(Path(file.target).read_text().split()) for file in released] == [N_USERS] * 3


def test_arrays_and_sparse_matrices_are_read(tmp_path):
    users = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
    np.save(tmp_path / "dense.npy", users)
    np.savez(tmp_path / "dense.npz", users)
    sparse.save_npz(tmp_path / "sparse.npz", sparse.csr_array(users))
    for file in ("dense.npy", "dense.npz", "sparse.npz"):
        found = read_users(str(tmp_path / file), 3)
        np.testing.assert_array_equal(found.toarray() if sparse.issparse(found) else found, users)


def test_tables_are_read_by_their_columns(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"name": ["ann", "ben"], "b": [1, 2], "a": [3, 4]}
    parquet.write_table(pa.table(columns), tmp_path / "users.parquet")
    found = read_users(str(tmp_path / "users.parquet"), 2, ["a", "b"])
    np.testing.assert_array_equal(found, [[3, 1], [4, 2]])
    # Without names, the column of users would be read as one of places.
    with pytest.raises(
        ValueError, match=r"the file has 3 columns, and fit had 2 .*rename\(columns"
    ):
        read_users(str(tmp_path / "users.parquet"), 2)


def test_lists_in_tables_are_sparse_rows(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    places = pa.chunked_array([[[2, 0]], [[], [1]]], pa.list_(pa.uint8()))
    counts = pa.chunked_array([[[5, 1]], [[], [7]]], pa.large_list(pa.int64()))
    parquet.write_table(pa.table({"p": places, "c": counts}), tmp_path / "users.parquet")
    found = read_users(str(tmp_path / "users.parquet"), 4)
    np.testing.assert_array_equal(found.toarray(), [[1, 0, 5, 0], [0, 0, 0, 0], [0, 7, 0, 0]])
    uneven = pa.chunked_array([[[5, 1], [7], []]])
    parquet.write_table(pa.table({"p": places, "c": uneven}), tmp_path / "users.parquet")
    with pytest.raises(ValueError, match="do not go together"):
        read_users(str(tmp_path / "users.parquet"), 4)


def test_samples_are_written_in_all_formats(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    numbers, vectors = np.arange(6).reshape(3, 2), np.arange(12.0).reshape(3, 2, 2)
    for samples in (numbers, vectors):
        for suffix in (".npy", ".npz", ".parquet"):
            write_samples(samples, str(tmp_path / f"samples{suffix}"))
        np.testing.assert_array_equal(np.load(tmp_path / "samples.npy"), samples)
        np.testing.assert_array_equal(np.load(tmp_path / "samples.npz")["samples"], samples)
        table = parquet.read_table(tmp_path / "samples.parquet")
        found = [np.stack(column.to_pylist()) for column in table.columns]
        np.testing.assert_array_equal(np.stack(found, axis=1), samples)


def test_columns_are_chosen_by_their_names(setting):
    pa = pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    from pyarrow import parquet

    tables = [source.with_suffix(".parquet") for source in setting.sources]
    for source, table in zip(setting.sources, tables, strict=True):
        columns = dict(zip("abcde", np.load(source).T, strict=True))
        parquet.write_table(pa.table({"name": ["x"] * N_USERS, **columns}), table)
    setting.sampler.fit(pd.DataFrame(np.ones((1, 5)), columns=list("abcde")))
    setting.assert_finished(setting.release(sources=tables))


def test_directions_are_released(tmp_path):
    source, target = tmp_path / "users.npy", tmp_path / "samples.npy"
    np.save(source, np.random.default_rng(0).normal(size=(N_USERS, 3)))
    sampler = SphericalProjectionSampler(2.0).fit(np.ones((1, 3)))
    ledger = PrivacyLedger(4.0, path=tmp_path / "ledger")
    release_files(sampler, [source], [target], ledger=ledger, n_samples=2)
    assert np.load(target).shape == (N_USERS, 2, 3)
    assert ledger.spent() == (4.0, 0.0)
