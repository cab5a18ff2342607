"""Signing keys: files, public texts, and what a signature is valid for."""

import copy
import pickle
import stat
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdpot.federation import SigningKey
from skdpot.federation._keys import checked_public, is_signed

KEY, OTHER = SigningKey(bytes(range(32))), SigningKey(bytes(32))


def test_a_key_is_saved_for_its_user_alone_and_never_overwritten(tmp_path):
    path = tmp_path / "north.key"
    key = SigningKey.create()
    key.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SigningKey.open(path).public == key.public
    with pytest.raises(FileExistsError):
        OTHER.save(path)
    assert SigningKey.open(path).public == key.public


def test_a_file_is_read_by_other_programs_and_theirs_by_us(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    KEY.save(ours)
    try:
        made = subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", theirs])
    except FileNotFoundError:
        pytest.skip("there is no openssl on this machine")
    shown = subprocess.run(["openssl", "pkey", "-in", ours, "-noout"])
    assert made.returncode == shown.returncode == 0
    assert SigningKey.open(theirs).public != KEY.public


def test_what_is_no_key_is_refused(tmp_path):
    path = tmp_path / "key"
    for content in (
        b"",
        b"no key",
        b"-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----",
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="no unencrypted Ed25519"):
            SigningKey.open(path)
    with pytest.raises(FileNotFoundError):
        SigningKey.open(tmp_path / "none")
    for private in (b"short", "x" * 32, None):
        with pytest.raises(ValueError, match="32 bytes"):
            SigningKey(private)


def test_a_key_is_shown_and_copied_nowhere():
    assert repr(KEY) == f"<SigningKey of {KEY.public}>"
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            leak(KEY)


def test_signatures_are_those_of_the_standard():
    """Section 7.1 of RFC 8032 derives this public key from this private one."""
    private = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
    public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    key = SigningKey(bytes.fromhex(private))
    assert key._key.public_key().public_bytes_raw().hex() == public


@given(st.text(max_size=9), st.binary(max_size=9), st.text(max_size=9), st.binary(max_size=9))
def test_a_signature_is_valid_for_one_purpose_and_content(purpose, content, other, another):
    signature = KEY.sign(purpose, content)
    assert is_signed(KEY.public, purpose, content, signature)
    assert not is_signed(OTHER.public, purpose, content, signature)
    same = (purpose, content) == (other, another)
    assert is_signed(KEY.public, other, another, signature) == same
    assert not is_signed(KEY.public, purpose, content, signature[:-1] + bytes([signature[-1] ^ 1]))
    assert not is_signed(KEY.public, purpose, content, another)


@pytest.mark.parametrize(
    "public",
    [
        "", None, 3, "ed25519:", KEY.public[8:], KEY.public[:-4], KEY.public + "AAAA",
        "rsa" + KEY.public, KEY.public + "\n", "ed25519:" + "A" * 42 + "B=",
    ],
)  # fmt: skip
def test_there_is_one_text_for_a_public_key(public):
    assert checked_public(KEY.public) == KEY.public
    with pytest.raises(ValueError, match="a public key is like"):
        checked_public(public)


def test_keys_are_imported_alone():
    script = "from skdpot.federation import SigningKey; SigningKey"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
