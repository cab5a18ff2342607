"""Cryptographic primitives of secure sums, from well-kept libraries.

The libraries are imported on first use.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .._libraries import library

# Size of private keys, seeds, their shares and derived keys.
KEY_BYTES = 32
# Size of public keys and of points of shares: compressed points of the curve P-256.
POINT_BYTES = 33
# Order of the curve, a prime: private keys, seeds and shares are numbers modulo it.
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_NONCE_BYTES, SEALING_BYTES = 12, 16

_PRIMITIVES = "cryptography.hazmat.primitives"


def new_secret() -> bytes:
    """Return a random number of the operating system, for a private key or a seed."""
    return _bytes_of(1 + secrets.randbelow(_ORDER - 1))


def point_of(number: bytes) -> bytes:
    """Return the point of a number: the public key of a private one.

    Raises a ValueError if the number is not from 1 to below the order of the curve.
    """
    serialization = library(f"{_PRIMITIVES}.serialization")
    encoding, form = serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint
    key: bytes = _private_key(number).public_key().public_bytes(encoding, form)
    return key


def has_point(number: bytes, point: bytes) -> bool:
    """Tell whether a point belongs to a number."""
    try:
        return point_of(number) == point
    except ValueError:
        return False


def agree(private: bytes, public: bytes, context: bytes) -> bytes:
    """Return the common key of two owners, for one purpose.

    Raises a ValueError if the public key is no point of the curve.
    """
    ecdh = _curves().ECDH()
    return derive(_private_key(private).exchange(ecdh, _public_key(public)), context)


def check_public_key(public: bytes) -> None:
    """Raise ValueError unless a public key is valid."""
    _public_key(public)


def derive(secret: bytes, context: bytes) -> bytes:
    """Return a key for one purpose, by HKDF with SHA-256."""
    hkdf = library(f"{_PRIMITIVES}.kdf.hkdf")
    sha256 = library(f"{_PRIMITIVES}.hashes").SHA256()
    return hkdf.HKDF(sha256, KEY_BYTES, salt=None, info=context).derive(secret)


def seal(key: bytes, text: bytes, context: bytes) -> bytes:
    """Encrypt and authenticate a text, bound to a context; use a key only once."""
    return _cipher(key).encrypt(bytes(_NONCE_BYTES), text, context)


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Decrypt the result of `seal`, or raise ValueError."""
    invalid_tag = library("cryptography.exceptions").InvalidTag
    try:
        return _cipher(key).decrypt(bytes(_NONCE_BYTES), sealed, context)
    except invalid_tag:
        raise ValueError("a ciphertext was not sealed in this context.") from None


def mask_words(key: bytes, size: int) -> np.ndarray:
    """Return the first 64-bit words of the ChaCha20 stream of a key."""
    algorithm = library(f"{_PRIMITIVES}.ciphers.algorithms").ChaCha20(key, bytes(16))
    stream = library(f"{_PRIMITIVES}.ciphers").Cipher(algorithm, mode=None).encryptor()
    # Little-endian on every machine, so that masks of different machines cancel.
    return np.frombuffer(stream.update(bytes(8 * size)), dtype="<u8").astype(np.uint64, copy=False)


def split_secret(secret: bytes, threshold: int, n_shares: int) -> np.ndarray:
    """Split a secret by Shamir's scheme; any `threshold` of the shares determine it.

    Row r of the uint8 array of shape (n_shares, KEY_BYTES) is the value at r + 1 of a random
    polynomial with the secret at 0.
    """
    drawn = [secrets.randbelow(_ORDER) for _ in range(threshold - 1)]
    coefficients = [int.from_bytes(secret, "big"), *drawn]
    shares = b"".join(_bytes_of(_value(coefficients, at)) for at in range(1, n_shares + 1))
    return np.frombuffer(shares, dtype=np.uint8).reshape(n_shares, KEY_BYTES)


def combine_shares(positions: Sequence[int], shares: Sequence[bytes]) -> bytes:
    """Return the secret of shares at different positions, as many as the threshold."""
    weights = _weights_at_zero(tuple(positions))
    numbers = [int.from_bytes(share, "big") for share in shares]
    return _bytes_of(sum(map(int.__mul__, weights, numbers)) % _ORDER)


def are_of_one_secret(points: Mapping[int, bytes], threshold: int) -> bool:
    """Tell whether any `threshold` of the shares behind points give the same secret.

    `points` are given by the position of each share; the secret itself has the position 0. The
    shares are values of a polynomial with a degree below the threshold if and only if their
    weighted sum with any polynomial of the complementary degree is zero (SCRAPE, Lemma 1). One
    random polynomial is tried, which errs with probability 2**-255. Raises ValueError if a point is
    not on the curve.
    """
    n_spare = len(points) - threshold
    if n_spare < 1:
        return True
    of_point = library("Crypto.PublicKey.ECC").EccPoint
    coefficients = [secrets.randbelow(_ORDER) for _ in range(n_spare)]
    total = of_point(0, 0, "P-256")
    for at, point in points.items():
        weight = pow(math.prod(at - other for other in points if other != at), -1, _ORDER)
        numbers = _public_key(point).public_numbers()
        factor = weight * _value(coefficients, at) % _ORDER
        total += of_point(numbers.x, numbers.y, "P-256") * factor
    return bool(total.is_point_at_infinity())


def _value(coefficients: Sequence[int], at: int) -> int:
    """Return the value of a polynomial; the first coefficient is the constant."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * at + coefficient) % _ORDER
    return value


@lru_cache(maxsize=128)
def _weights_at_zero(positions: tuple[int, ...]) -> list[int]:
    """Return the weights of a polynomial's values that give its value at zero (Lagrange)."""
    if len(set(positions)) < len(positions) or min(positions) < 1:
        raise ValueError("the positions of shares must be positive and different.")
    weights = []
    for at in positions:
        others = [other for other in positions if other != at]
        below = math.prod(other - at for other in others)
        weights.append(math.prod(others) * pow(below, -1, _ORDER) % _ORDER)
    return weights


def _bytes_of(number: int) -> bytes:
    return number.to_bytes(KEY_BYTES, "big")


def _curves() -> Any:
    return library(f"{_PRIMITIVES}.asymmetric.ec")


def _private_key(private: bytes) -> Any:
    curves = _curves()
    return curves.derive_private_key(int.from_bytes(private, "big"), curves.SECP256R1())


def _public_key(public: bytes) -> Any:
    curves = _curves()
    return curves.EllipticCurvePublicKey.from_encoded_point(curves.SECP256R1(), public)


def _cipher(key: bytes) -> Any:
    return library(f"{_PRIMITIVES}.ciphers.aead").ChaCha20Poly1305(key)
