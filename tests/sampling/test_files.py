"""Releases of many files: every file once, whatever is done twice, lost or restored."""

import json
import multiprocessing
import os
import re
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import numpy as np
import pandas as pd
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
        seeded = random_state is not None
        self.ledger = PrivacyLedger(2.0, path=folder / "ledger", allow_seeded=seeded)
        self.key = folder / "ledger.files.key"
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

    def kill_after(self, n_files):
        """Release, and die when so many files are drawn."""

        def dying(function, tasks):
            for number, task in enumerate(tasks):
                if task.token and number == n_files:
                    raise Killed
                yield function(task)

        with pytest.raises(Killed):
            self.release(client=dying)

    def restore(self, ledger):
        """Put an older ledger in the place of this one."""
        self.ledger.path.write_bytes(ledger)
        self.ledger = PrivacyLedger.open(self.ledger.path)

    def contents(self):
        return {file: file.read_bytes() for file in self.targets if file.exists()}

    def send(self):
        """Move all targets away; return what they held."""
        sent = self.contents()
        for target in sent:
            target.unlink()
        return sent

    def assert_finished(self, released):
        """Raise unless every file was released and charged once, and nothing else is left."""
        assert [file.target for file in released] == [str(file) for file in self.targets]
        assert [file.n_users for file in released] == [N_USERS] * 3
        assert [np.load(file).shape for file in self.targets] == [(N_USERS, 1)] * 3
        assert self.ledger.spent() == (2.0, 0.0)
        assert len(self.ledger.entries()) == 3
        assert self.ledger.verify(file.receipt for file in released) == 3
        assert not list(self.folder.glob(".*"))
        assert self.key.read_text().startswith("0" * 64 + "\n")


@pytest.fixture
def setting(tmp_path):
    return Setting(tmp_path)


def test_every_user_is_released_and_charged_once(setting):
    released = setting.release()
    setting.assert_finished(released)
    before = setting.contents()
    assert setting.release() == released
    assert setting.contents() == before


def test_progress_is_shown_over_files(setting, capsys):
    released = setting.release(verbose=1)
    printed = capsys.readouterr()
    assert printed.out == ""
    for title in ("files checked", "files drawn"):
        assert f"{title}: 100%" in printed.err and "| 3/3 [" in printed.err
    # Nothing is drawn any more, and it does not matter whether the sampler itself shows bars.
    setting.sampler.set_params(verbose=1)
    assert setting.release() == released
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("n_files", [0, 2])
def test_a_killed_call_is_resumed(setting, n_files):
    """What is done is not done again; samples that were sent come again as they were."""
    setting.kill_after(n_files)
    before = setting.contents()
    assert len(before) == n_files
    if before:
        setting.targets[0].unlink()
    drawn = []

    def mapped(function, tasks):
        drawn.extend(task.number for task in tasks)
        return map(function, tasks)

    released = setting.release(client=mapped)
    assert drawn == ([0, 2] if before else [0, 1, 2])
    setting.assert_finished(released)
    assert before.items() <= setting.contents().items()


def test_a_key_that_is_erased_draws_nothing_again(setting):
    setting.release()
    content = setting.targets[2].read_bytes()
    setting.send()
    with pytest.raises(RuntimeError, match="was released, and is gone"):
        setting.release()
    assert not setting.contents() and len(setting.ledger.entries()) == 3
    # Of somebody else.
    setting.targets[0].write_bytes(content)
    with pytest.raises(RuntimeError, match="is not what was released"):
        setting.release()


@pytest.mark.parametrize("kept", ["key", "all", "ledger"])
def test_backups_draw_nothing_again(setting, kept):
    """The backup is made in a call that is killed, and restored when the samples have left."""
    setting.kill_after(2)
    found = [setting.key, *setting.folder.glob("ledger*")]
    copies = {
        file: file.read_bytes()
        for file in found
        if kept == "all" or (file == setting.key) == (kept == "key")
    }
    released = setting.release()
    sent = setting.send()
    for file, content in copies.items():
        file.write_bytes(content)
    setting.ledger = PrivacyLedger.open(setting.ledger.path)
    if kept == "ledger":
        with pytest.raises(RuntimeError, match="is gone"):
            setting.release()
        return
    assert setting.release() == released
    assert setting.contents() == sent
    assert setting.ledger.spent() == (2.0, 0.0)


def test_a_ledger_that_is_older_than_the_key_is_charged(setting):
    """The same samples come again, and the ledger knows of them."""
    empty = setting.ledger.path.read_bytes()
    setting.kill_after(1)
    sent = setting.send()
    setting.restore(empty)
    assert not setting.ledger.entries()
    setting.assert_finished(setting.release())
    assert sent.items() <= setting.contents().items()
    # After all is done, too.
    setting.restore(empty)
    setting.assert_finished(setting.release())


def test_a_release_whose_key_is_lost_is_charged_again(setting):
    setting.ledger = PrivacyLedger(4.0, path=setting.folder / "ledger-of-two")
    key = setting.folder / "ledger-of-two.files.key"
    for n_charges in (3, 6):
        setting.kill_after(1)
        assert len(setting.ledger.entries()) == n_charges
        key.unlink()
        with pytest.raises(FileExistsError, match="key is lost, its users are charged again"):
            setting.release()
        setting.send()
    with pytest.raises(BudgetExceededError, match="Nothing was charged"):
        setting.release()
    assert not setting.contents() and setting.ledger.spent() == (4.0, 0.0)


def test_moved_sources_and_other_paths_are_resumed(setting, monkeypatch):
    """A ledger may also have another text in front of its labels."""
    first = setting.ledger
    setting.ledger = first.labelled("March")
    setting.kill_after(1)
    setting.ledger = first.labelled("April")
    # No pickle, which would be run.
    claim = json.loads(setting.key.read_text().splitlines()[1])
    assert json.loads(claim["sampler"])["parameters"]["epsilon"] == 2.0
    monkeypatch.chdir(setting.folder)
    moved = [source.rename(source.with_name(f"moved-{source.name}")) for source in setting.sources]
    paths = {"sources": [file.name for file in moved]}
    paths["targets"] = [os.path.relpath(target, setting.folder) for target in setting.targets]
    setting.assert_finished(setting.release(**paths))


@pytest.mark.filterwarnings("ignore:.*exact copies of other files:UserWarning")
@pytest.mark.parametrize("random_state", [None, 3])
@pytest.mark.parametrize("kind", [WassersteinProjectionSampler, SphericalProjectionSampler])
def test_files_with_the_same_content_have_different_noise(tmp_path, kind, random_state):
    """Otherwise equal samples would tell that users are equal."""
    setting = Setting(tmp_path, random_state)
    for source in setting.sources[1:]:
        source.write_bytes(setting.sources[0].read_bytes())
    sampler = kind(2.0, random_state=random_state).fit(np.ones((1, 5)))
    # A refusal, which costs nothing, does not say whether users are equal.
    with warnings.catch_warnings(), pytest.raises(BudgetExceededError):
        warnings.simplefilter("error")
        small = PrivacyLedger(1.0, path=tmp_path / "small", allow_seeded=True)
        setting.release(sampler=sampler, ledger=small)
    with pytest.warns(UserWarning, match="users-2.npy: exact copies of other files"):
        setting.release(sampler=sampler)
    assert len(set(setting.contents().values())) == 3
    # Nor does the ledger tell.
    assert len({entry.token for entry in setting.ledger.entries()}) == 3
    first = setting.send()
    # Nor do two keys have the same noise: 40 users are equal with a probability below 1e-13.
    if random_state is None:
        setting.release(sampler=sampler, ledger=PrivacyLedger(4.0))
        assert not any(first[file] == content for file, content in setting.contents().items())


def test_noise_depends_on_the_users_and_the_sampler(setting, monkeypatch):
    """Even if the checks failed, two data sets or mechanisms would not share noise."""
    tokens = []
    monkeypatch.setattr("secrets.token_bytes", lambda n_bytes: b"k" * n_bytes)
    squared = clone(setting.sampler).set_params(order=2).fit(np.ones((1, 5)))
    for changed in ({}, {"n_samples": 2}, {"sampler": squared}, {"partition": "of others"}):
        if "partition" in changed:
            for source in setting.sources:
                np.save(source, np.load(source) + np.eye(N_USERS, 5))
        ledger = PrivacyLedger(9.0)
        setting.release(ledger=ledger, **changed)
        setting.send()
        tokens += [entry.token for entry in ledger.entries()]
    assert len(set(tokens)) == 12


def test_tasks_that_are_done_twice_or_late_change_nothing(setting):
    late = []

    def twice(function, tasks):
        late.extend((function, task) for task in tasks)
        return [function(task) for task in tasks for _ in range(2)]

    setting.assert_finished(setting.release(client=twice))
    sent = setting.send()
    for function, task in late[3:]:
        function(task)
    assert setting.contents() == sent
    assert not list(setting.folder.glob(".*"))


@pytest.mark.parametrize(("lost", "charged"), [("checked", 0), ("drawn", 3)])
def test_a_lost_result_is_an_error(setting, lost, charged):
    def forgetful(function, tasks):
        is_charged = bool(tasks[0].token)
        return map(function, tasks[is_charged == (lost == "drawn") :])

    with pytest.raises(RuntimeError, match="1 results are missing"):
        setting.release(client=forgetful)
    assert len(setting.ledger.entries()) == charged
    setting.assert_finished(setting.release())


def test_samples_do_not_depend_on_who_draws_them(tmp_path):
    found = []
    with ThreadPoolExecutor(2) as threads:
        for way in (None, lambda function, tasks: map(function, tasks[::-1]), threads.map):
            folder = tmp_path / str(len(found))
            folder.mkdir()
            setting = Setting(folder, random_state=3)
            setting.assert_finished(setting.release(client=way))
            found.append(np.stack([np.load(target) for target in setting.targets]))
    for others in found[1:]:
        np.testing.assert_array_equal(found[0], others)


@pytest.mark.experiment
def test_processes_that_were_forked_meanwhile_hold_no_key(setting):
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        client = partial(pool.map, timeout=60)
        try:
            released = setting.release(client=client)
            assert setting.release(client=client) == released
        except TimeoutError:
            # A lock that another thread held stays locked in the fork, and the pool would wait.
            for process in multiprocessing.active_children():
                process.kill()
            raise
    setting.assert_finished(released)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_target_of_somebody_else_is_left_alone(setting, when):
    mine = setting.folder / "mine"
    mine.write_bytes(b"mine")
    message = re.escape(str(setting.targets[1]))
    if when == "meanwhile":
        setting.kill_after(1)
        message += " was written by somebody else meanwhile"
    setting.targets[1].symlink_to(mine)
    with pytest.raises(FileExistsError, match=message) as error:
        setting.release()
    assert len(setting.ledger.entries()) == (3 if when == "meanwhile" else 0)
    if when == "meanwhile":
        assert "nothing is charged again" in error.value.__notes__[-1]
    assert setting.targets[1].read_bytes() == mine.read_bytes() == b"mine"
    setting.targets[1].unlink()
    setting.assert_finished(setting.release())


def test_targets_are_written_where_there_are_no_hard_links(setting, monkeypatch):
    def refuse(*names):
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    setting.assert_finished(setting.release())


def test_a_changed_source_is_not_released(setting):
    """Two data sets are never drawn with one key, and never for one charge."""
    setting.kill_after(2)
    before = setting.contents()
    users = setting.sources[2].read_bytes()
    np.save(setting.sources[2], np.ones((N_USERS, 5)))
    with pytest.raises(RuntimeError, match="changed since it was charged") as error:
        setting.release()
    assert str(setting.sources[2]) in error.value.__notes__[0]
    assert setting.contents() == before
    # Also if its samples have left.
    setting.sources[2].write_bytes(users)
    np.save(setting.sources[0], np.ones((N_USERS, 5)))
    setting.targets[0].unlink()
    with pytest.raises(RuntimeError, match="changed since it was charged"):
        setting.release()
    assert not setting.targets[0].exists()
    assert setting.ledger.spent() == (2.0, 0.0)


@pytest.mark.filterwarnings("ignore:.*exact copies of other files:UserWarning")
def test_a_source_that_changes_while_it_is_read_is_not_released(setting):
    """What is drawn is what was read, whatever the file holds before and after."""
    users, reads = np.load(setting.sources[0]), []

    def read(path):
        reads.append(path)
        return users if len(reads) <= 3 else users[::-1]

    with pytest.raises(RuntimeError, match="changed since it was charged"):
        setting.release(read=read)
    assert not setting.contents()


def test_bytes_that_differ_are_not_released(setting, monkeypatch):
    """Another version of a library may write them."""
    setting.kill_after(1)
    setting.send()
    with monkeypatch.context() as patch:
        patch.setattr("numpy.save", lambda file, samples: file.write(b"other"))
        with pytest.raises(RuntimeError, match="other bytes than those that were drawn now"):
            setting.release(client=map)
    assert not setting.targets[0].exists()
    setting.assert_finished(setting.release())


def test_a_file_that_cannot_be_used_is_named_before_the_charge(setting):
    users = np.load(setting.sources[1])
    users[7] = 0
    np.save(setting.sources[1], users)
    with pytest.raises(ValueError, match="row 7") as error:
        setting.release()
    assert str(setting.sources[1]) in error.value.__notes__[0]
    assert not setting.ledger.entries()


def test_a_refused_call_can_be_made_with_other_arguments(setting, monkeypatch):
    with pytest.raises(BudgetExceededError, match="Nothing was charged"):
        setting.release(n_samples=2)

    def refuse(*args, **params):
        raise BudgetExceededError("somebody was quicker", None, None, None)

    with monkeypatch.context() as patched, pytest.raises(BudgetExceededError):
        patched.setattr(PrivacyLedger, "charge_parts", refuse)
        setting.release(sampler=clone(setting.sampler).set_params(epsilon=1).fit(np.ones((1, 5))))
    setting.assert_finished(setting.release())
    with pytest.raises(BudgetExceededError, match="Nothing was charged"):
        setting.release(partition="more", targets=[f"{target}.npy" for target in setting.targets])


def test_another_call_is_told_apart(setting, monkeypatch):
    setting.kill_after(1)
    key = setting.key.read_bytes()
    changes = [
        ({"n_samples": 2}, "event, n_samples"),
        ({"targets": setting.targets[::-1]}, "files"),
        (
            {"sampler": clone(setting.sampler).set_params(order=2).fit(np.ones((1, 5)))},
            "parameters",
        ),
    ]
    for changed, what in changes:
        with pytest.raises(ValueError, match=f"differs in {what}"):
            setting.release(**changed)
    with monkeypatch.context() as patched:
        patched.setattr("skdpot.sampling._files.__version__", "9.0")
        with pytest.raises(ValueError, match="differs in version"):
            setting.release()
    released = setting.release()
    # Nothing is drawn any more, by whatever version.
    monkeypatch.setattr("skdpot.sampling._files.__version__", "9.0")
    assert setting.release() == released
    # A copy of the key is of no use to another ledger or partition.
    (setting.folder / "other.files.key").write_bytes(key)
    with pytest.raises(ValueError, match="differs in version, ledger"):
        setting.release(ledger=PrivacyLedger(2.0, path=setting.folder / "other"))
    (setting.folder / "ledger.more.key").write_bytes(key)
    with pytest.raises(ValueError, match="differs in version, partition"):
        setting.release(partition="more")
    assert len(setting.ledger.entries()) == 3


def test_one_process_at_a_time_releases(setting):
    def twofold(function, tasks):
        with pytest.raises(RuntimeError, match="another process is releasing these files"):
            setting.release()
        return map(function, tasks)

    setting.assert_finished(setting.release(client=twofold))


def test_a_link_to_the_ledger_leads_to_the_same_key(setting):
    setting.kill_after(1)
    sent = setting.send()
    (setting.folder / "elsewhere").mkdir()
    link = setting.folder / "elsewhere" / "ledger"
    link.symlink_to(setting.ledger.path)
    setting.ledger = PrivacyLedger.open(link)
    setting.assert_finished(setting.release())
    assert sent.items() <= setting.contents().items()


def test_a_file_that_is_no_key_is_left_alone(setting):
    for content in (b"mine", b"00\n00\n", b"0" * 64 + b"\n{\n", b"0" * 64 + b"\n[]\n"):
        setting.key.write_bytes(content)
        with pytest.raises(RuntimeError, match="not damaged"):
            setting.release()
        assert setting.key.read_bytes() == content
    setting.key.unlink()
    setting.key.symlink_to(setting.folder / "elsewhere")
    with pytest.raises(RuntimeError, match="no link"):
        setting.release()
    assert not (setting.folder / "elsewhere").exists() and not setting.ledger.entries()


@pytest.mark.parametrize("n_bytes", [0, 65, 300])
def test_a_claim_that_was_cut_off_was_not_charged(setting, n_bytes):
    setting.kill_after(0)
    content, old = setting.key.read_bytes()[:n_bytes], setting.ledger
    setting.ledger = PrivacyLedger(2.0, path=setting.folder / "new")
    setting.key = setting.folder / "new.files.key"
    setting.key.write_bytes(content)
    setting.assert_finished(setting.release())
    assert not {e.token for e in old.entries()} & {e.token for e in setting.ledger.entries()}


def test_a_result_that_was_cut_off_is_computed_again(setting):
    setting.kill_after(2)
    setting.key.write_bytes(setting.key.read_bytes()[:-20])
    before = setting.contents()
    released = setting.release()
    setting.assert_finished(released)
    assert before.items() <= setting.contents().items()
    assert setting.release() == released


def test_the_key_is_for_its_owner_alone(setting):
    """Nor do logs of workers, which print tasks, show the keys of files."""

    def mapped(function, tasks):
        assert all(repr(task.key) not in repr(task) for task in tasks)
        assert os.stat(setting.key).st_mode & 0o777 == 0o600
        return map(function, tasks)

    setting.kill_after(1)
    assert os.stat(setting.key).st_mode & 0o777 == 0o600
    os.chmod(setting.key, 0o644)
    setting.release(client=mapped)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"sampler": "one"}, TypeError, "sampler must be"),
        ({"ledger": BudgetAccountant()}, TypeError, "ledger must be a PrivacyLedger"),
        ({"n_samples": 0}, ValueError, "n_samples must be"),
        ({"targets": []}, ValueError, "got 3 sources and 0 targets"),
        ({"sources": [], "targets": []}, ValueError, "got 0 sources and 0 targets"),
        ({"sources": ["a.csv", "b.npy", "c.npy"]}, ValueError, "pass a function as read"),
        ({"targets": ["a.txt", "b.npy", "c.npy"]}, ValueError, "targets must end with .npy"),
        ({"targets": ["a.npy", "b.npy", "a.npy"]}, ValueError, "all different"),
    ],
)
def test_wrong_arguments_are_refused(setting, changed, error, message):
    with pytest.raises(error, match=message):
        setting.release(**changed)
    setting.sources[1].unlink()
    setting.sources[1].symlink_to(setting.sources[0])
    with pytest.raises(ValueError, match="all different"):
        setting.release()
    assert not setting.ledger.entries()


def test_samplers_that_would_charge_elsewhere_are_refused(setting):
    setting.sampler.set_params(random_state=0)
    with pytest.raises(ValueError, match="random_state is not private"):
        setting.release()
    setting.sampler.set_params(random_state=np.random.RandomState(0))
    with pytest.raises(ValueError, match="None or an integer"):
        setting.release()
    setting.sampler.set_params(random_state=None, ledger=PrivacyLedger(2.0))
    with pytest.raises(ValueError, match="another ledger"):
        setting.release()
    setting.sampler.set_params(ledger=setting.ledger)
    setting.assert_finished(setting.release())


def test_arrays_sparse_matrices_and_whatever_functions_read(tmp_path):
    users = np.random.default_rng(0).integers(0, 9, (N_USERS, 5)) + np.eye(N_USERS, 5)
    frame = pd.DataFrame(users, columns=list("abcde"))
    frame.to_csv(tmp_path / "u.csv", index=False)
    np.save(tmp_path / "u.npy", users)
    sparse.save_npz(tmp_path / "u.npz", sparse.csr_array(users))
    sampler = WassersteinProjectionSampler(2.0, random_state=0).fit(frame)
    ledger = PrivacyLedger(12.0, path=tmp_path / "ledger", allow_seeded=True)
    found = []
    # The names of partitions are those of files.
    for name, given in (("u.npy", {}), ("u.npz", {}), ("u.csv", {"read": pd.read_csv})):
        target = tmp_path / f"s{name[2:]}.npy"
        release_files(
            sampler, [tmp_path / name], [target], ledger=ledger, n_samples=2,
            partition=f"{name}: ä", **given,
        )  # fmt: skip
        found.append(np.load(target))
    assert ledger.spent() == (4.0 * 3, 0.0)
    for samples in found:
        assert samples.shape == (N_USERS, 2) and set(np.unique(samples)) <= set(range(5))
