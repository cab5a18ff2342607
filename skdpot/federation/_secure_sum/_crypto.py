"""Cryptographic primitives of secure sums, from well-kept libraries.

The libraries are imported when something is first asked of them.
"""

import hmac
import secrets
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .._libraries import library

# Of private and public keys, seeds and derived keys.
KEY_BYTES = 32
# Of commitments and hashes of shares. They hide what has 32 random bytes, and to find another one
# for a hash takes 2**128 trials. Two with one hash take 2**64: to deal those spoils a sum, which a
# dealer can do for nothing, and says nothing of others' vectors.
HASH_BYTES = 16
# Elements of the field of 2**128 elements that Shamir's scheme calculates in.
_ELEMENT_BYTES = 16
_FIELD_POLYNOMIAL = (1 << 128) + 0b10000111
_NONCE_BYTES, _TAG_BYTES = 12, 16
SEALING_BYTES = _NONCE_BYTES + _TAG_BYTES

_PRIMITIVES = "cryptography.hazmat.primitives"


def new_secret() -> bytes:
    """Return fresh bytes of the operating system, for a private key or a seed."""
    return secrets.token_bytes(KEY_BYTES)


def public_key(private: bytes) -> bytes:
    """Return the X25519 public key of a private one."""
    return _private_key(private).public_key().public_bytes_raw()


def agree(private: bytes, public: bytes, context: bytes) -> bytes:
    """Return the key that two have in common, for one purpose.

    Raises
    ------
    ValueError
        If the public key is one of the points with which every private key gives the same.
    """
    x25519 = library(f"{_PRIMITIVES}.asymmetric.x25519")
    try:
        point = _private_key(private).exchange(x25519.X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise ValueError("no key can be agreed on with this public key.") from None
    return derive(point, context)


def check_public_key(public: bytes) -> None:
    """Raise ValueError unless keys can be agreed on with a public key."""
    agree(new_secret(), public, b"")


def derive(secret: bytes, context: bytes) -> bytes:
    """Return a key for one purpose, by HKDF with SHA-256."""
    hkdf = library(f"{_PRIMITIVES}.kdf.hkdf")
    sha256 = library(f"{_PRIMITIVES}.hashes").SHA256()
    return hkdf.HKDF(sha256, KEY_BYTES, salt=None, info=context).derive(secret)


def seal(key: bytes, text: bytes, context: bytes) -> bytes:
    """Encrypt and authenticate, bound to a context."""
    # A random nonce: one who restores an old state and shares again does not repeat it.
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + _cipher(key).encrypt(nonce, text, context)


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Undo `seal`, or raise ValueError for whatever did not come from it."""
    invalid_tag = library("cryptography.exceptions").InvalidTag
    try:
        return _cipher(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], context)
    except invalid_tag:
        raise ValueError("a ciphertext is not what was sealed in this context.") from None


def mask_words(key: bytes, size: int) -> np.ndarray:
    """Return the first words of the ChaCha20 stream of a key, uniform on all 64-bit words."""
    algorithm = library(f"{_PRIMITIVES}.ciphers.algorithms").ChaCha20(key, bytes(16))
    stream = library(f"{_PRIMITIVES}.ciphers").Cipher(algorithm, mode=None).encryptor()
    # Little-endian on every machine, so that masks cancel between different ones.
    return np.frombuffer(stream.update(bytes(8 * size)), dtype="<u8").astype(np.uint64, copy=False)


def same(first: bytes, second: bytes) -> bool:
    """Tell whether two are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(first, second)


def split_secret(secret: bytes, threshold: int, n_shares: int) -> np.ndarray:
    """Split a secret by Shamir's scheme; any `threshold` of the shares give it back.

    Returns
    -------
    ndarray of shape (n_shares, KEY_BYTES) and dtype uint8
        The share in row r is the one at point r + 1.
    """
    shamir = library("Crypto.Protocol.SecretSharing").Shamir
    halves = [
        shamir.split(threshold, n_shares, secret[start : start + _ELEMENT_BYTES])
        for start in range(0, KEY_BYTES, _ELEMENT_BYTES)
    ]
    joined = b"".join(
        first + second for (_, first), (_, second) in zip(halves[0], halves[1], strict=True)
    )
    return np.frombuffer(joined, dtype=np.uint8).reshape(n_shares, KEY_BYTES)


def combine_shares(points: Sequence[int], shares: Sequence[bytes]) -> bytes:
    """Return the secret of shares at different points, as many as the threshold.

    The polynomials' values at zero, as ``Shamir.combine`` gives them; its weights are worked out
    anew for every secret, in a time quadratic in their number, and here the same points occur for
    all secrets. Wrong shares give a wrong secret: compare it with what was advertised.
    """
    weights = _weights_at_zero(tuple(points))
    halves = [0, 0]
    for weight, share in zip(weights, shares, strict=True):
        for half in range(2):
            part = share[half * _ELEMENT_BYTES : (half + 1) * _ELEMENT_BYTES]
            halves[half] ^= _multiply(weight, int.from_bytes(part, "big"))
    return b"".join(value.to_bytes(_ELEMENT_BYTES, "big") for value in halves)


@lru_cache(maxsize=128)
def _weights_at_zero(points: tuple[int, ...]) -> list[int]:
    """Return the weights of a polynomial's values in its value at zero (Lagrange)."""
    if len(set(points)) < len(points) or min(points) < 1:
        raise ValueError("the points of shares must be positive and different.")
    weights = []
    for point in points:
        numerator = denominator = 1
        for other in points:
            if other != point:
                numerator = _multiply(numerator, other)
                denominator = _multiply(denominator, point ^ other)
        weights.append(_multiply(numerator, _inverse(denominator)))
    return weights


def _multiply(first: int, second: int) -> int:
    """Multiply in the field; it takes as many steps as the second has bits."""
    product = 0
    while second:
        if second & 1:
            product ^= first
        first <<= 1
        if first >> 128:
            first ^= _FIELD_POLYNOMIAL
        second >>= 1
    return product


def _inverse(element: int) -> int:
    """Return the element's power of 2**128 - 2."""
    power, result = element, 1
    for _ in range(127):
        power = _multiply(power, power)
        result = _multiply(result, power)
    return result


def _private_key(private: bytes) -> Any:
    x25519 = library(f"{_PRIMITIVES}.asymmetric.x25519")
    return x25519.X25519PrivateKey.from_private_bytes(private)


def _cipher(key: bytes) -> Any:
    return library(f"{_PRIMITIVES}.ciphers.aead").ChaCha20Poly1305(key)
