"""Long-lived keys of owners and coordinators, and signatures for one purpose each."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from ._files import write_private
from ._libraries import library

SIGNATURE_BYTES = 64
_KEY_BYTES = 32
_KIND = "ed25519:"
_ED25519 = "cryptography.hazmat.primitives.asymmetric.ed25519"
_SERIALIZATION = "cryptography.hazmat.primitives.serialization"


class SigningKey:
    """A private key with which an owner or coordinator signs its messages.

    :meth:`create` makes a key and :meth:`open` reads one. Give `public` to the others in a way
    that they trust, such as a phone call or a signed contract. Then the name is bound to the key.

    Parameters
    ----------
    private : bytes
        The 32 bytes of an Ed25519 private key.

    Attributes
    ----------
    public : str
        The public key, as a text: ``"ed25519:"`` and 44 letters.

    Raises
    ------
    ValueError
        If these are not 32 bytes.

    Notes
    -----
    Signatures are Ed25519 (RFC 8032), by the package ``cryptography``. A key cannot be pickled or
    copied, and is never printed.

    Examples
    --------
    >>> from skdpot.federation import SigningKey
    >>> key = SigningKey.create()
    >>> key.public[:8], len(key.public)
    ('ed25519:', 52)
    """

    def __init__(self, private: bytes) -> None:
        if not isinstance(private, bytes) or len(private) != _KEY_BYTES:
            raise ValueError(f"a signing key is made of {_KEY_BYTES} bytes.")
        self._key = library(_ED25519).Ed25519PrivateKey.from_private_bytes(private)
        self.public = _KIND + base64.b64encode(self._key.public_key().public_bytes_raw()).decode()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.public}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a signing key cannot be pickled or copied: save() writes it to a file.")

    @classmethod
    def create(cls) -> "SigningKey":
        """Return a new key, from the randomness of the operating system.

        Returns
        -------
        SigningKey
            The new key. Save it, because it cannot be made again.
        """
        return cls(library(_ED25519).Ed25519PrivateKey.generate().private_bytes_raw())

    def save(self, path: Any) -> None:
        """Write the key to a new file that only you can read.

        Parameters
        ----------
        path : path-like
            The file: PEM with PKCS #8, as other programs read it. It is not encrypted.

        Raises
        ------
        FileExistsError
            If the file exists, because a lost key cannot be made again.
        """
        form = library(_SERIALIZATION)
        text = self._key.private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
        )
        write_private(path, text)

    @classmethod
    def open(cls, path: Any) -> "SigningKey":
        """Return the key in a file.

        Parameters
        ----------
        path : path-like
            The file that `save` wrote.

        Returns
        -------
        SigningKey
            The same key.

        Raises
        ------
        ValueError
            If the file does not hold a key.
        """
        text = Path(path).read_bytes()
        try:
            key = library(_SERIALIZATION).load_pem_private_key(text, password=None)
        except (ValueError, TypeError):
            key = None
        if not isinstance(key, library(_ED25519).Ed25519PrivateKey):
            raise ValueError(f"there is no unencrypted Ed25519 private key in {path}.") from None
        return cls(key.private_bytes_raw())

    def sign(self, purpose: str, content: bytes) -> bytes:
        """Return a signature.

        Parameters
        ----------
        purpose : str
            Purpose of the signature, for which alone it is valid.
        content : bytes
            The signed bytes.

        Returns
        -------
        bytes
            64 of them.
        """
        return self._key.sign(_signed(purpose, content))


def is_signed(public: str, purpose: str, content: bytes, signature: bytes) -> bool:
    """Tell whether a signature belongs to a public key, a purpose and a content.

    The signature may be any bytes. Raises ValueError if the public key is invalid.

    Examples
    --------
    >>> from skdpot.federation._keys import SigningKey, is_signed
    >>> key = SigningKey.create()
    >>> signature = key.sign("a packet", b"content")
    >>> is_signed(key.public, "a packet", b"content", signature)
    True
    >>> is_signed(key.public, "a list", b"content", signature)
    False
    """
    try:
        _public_key(public).verify(signature, _signed(purpose, content))
    except library("cryptography.exceptions").InvalidSignature:
        return False
    return True


def checked_public(public: Any) -> str:
    """Return a public key, or raise ValueError if it is not in its canonical form."""
    _public_key(public)
    return public


def checked_publics(owners: Mapping[str, str]) -> dict[str, str]:
    """Return public keys by name, or raise ValueError if one is invalid or two are equal."""
    publics = {str(name): checked_public(public) for name, public in owners.items()}
    if len(set(publics.values())) < len(publics):
        raise ValueError("two owners have one public key: each must have a key of its own.")
    return publics


def _public_key(public: Any) -> Any:
    try:
        raw = base64.b64decode(public.removeprefix(_KIND), validate=True)
        if public == _KIND + base64.b64encode(raw).decode():
            return library(_ED25519).Ed25519PublicKey.from_public_bytes(raw)
    except (ValueError, AttributeError):
        pass
    raise ValueError(f"a public key is like 'ed25519:...', see SigningKey.public; got {public!r}.")


def _signed(purpose: str, content: bytes) -> bytes:
    """Return the signed bytes; the length separates the purpose from the content."""
    encoded = purpose.encode()
    return b"skdpot federation 1" + len(encoded).to_bytes(8, "big") + encoded + content
