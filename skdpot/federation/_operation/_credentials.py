"""Certificates and node keys of a federation, by the package cryptography."""

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from .._files import write_private
from .._libraries import library

_X509 = "cryptography.x509"
_EC = "cryptography.hazmat.primitives.asymmetric.ec"
_HASHES = "cryptography.hazmat.primitives.hashes"
_SERIALIZATION = "cryptography.hazmat.primitives.serialization"
_USAGE = "cryptography.x509.oid"
_AUTHORITY_DAYS, _SERVER_DAYS = 3650, 397


def make_node_key(path: Path) -> str:
    """Write the key by which a SuperNode is known, and return its public half."""
    key, form = library(_EC).generate_private_key(library(_EC).SECP384R1()), library(_SERIALIZATION)
    write_private(path, _pem(key, form.PrivateFormat.OpenSSH))
    return public_node_key(path)


def public_node_key(path: Path) -> str:
    """Return the public half of a SuperNode's key, as ``ssh-keygen`` writes it."""
    form = library(_SERIALIZATION)
    key = form.load_ssh_private_key(path.read_bytes(), password=None)
    public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    return public.decode()


def make_authority(certificate: Path, key: Path) -> None:
    """Write the certificate and key of an authority for this federation only."""
    x509, private = library(_X509), _new_key()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority of a federation")])
    built = _builder(name, name, private, _AUTHORITY_DAYS, is_authority=True)
    write_private(key, _pem(private, library(_SERIALIZATION).PrivateFormat.PKCS8))
    _write_certificate(certificate, built.sign(private, library(_HASHES).SHA256()))


def make_server_certificate(
    host: str, authority: tuple[Path, Path], server: Path, key: Path
) -> None:
    """Write a certificate and key of the SuperLink, in place of earlier ones.

    It is valid for the name or address that owners use, and for this machine.
    """
    x509, form = library(_X509), library(_SERIALIZATION)
    issuer = x509.load_pem_x509_certificate(authority[0].read_bytes())
    signing = form.load_pem_private_key(authority[1].read_bytes(), password=None)
    private = _new_key()
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "SuperLink")])
    built = _builder(subject, issuer.subject, private, _SERVER_DAYS, is_authority=False)
    names = dict.fromkeys([host, "localhost", "127.0.0.1"])
    for extension in (
        x509.SubjectAlternativeName([_alternative(name) for name in names]),
        x509.ExtendedKeyUsage([library(_USAGE).ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()),
    ):
        built = built.add_extension(extension, critical=False)
    key.unlink(missing_ok=True)
    write_private(key, _pem(private, form.PrivateFormat.PKCS8))
    _write_certificate(server, built.sign(signing, library(_HASHES).SHA256()))


def problems_of_certificates(host: str, authority: Path, server: Path, key: Path) -> list[str]:
    """Return the problem of the SuperLink's certificate, in words."""
    x509, form = library(_X509), library(_SERIALIZATION)
    problems = problems_of_authority(authority)
    if problems:
        return problems
    issuer = x509.load_pem_x509_certificate(authority.read_bytes())
    try:
        presented = x509.load_pem_x509_certificate(server.read_bytes())
        private = form.load_pem_private_key(key.read_bytes(), password=None)
    except (OSError, ValueError):
        return [f"{server} or {key} cannot be read."]
    try:
        presented.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, library("cryptography.exceptions").InvalidSignature):
        problems.append(f"{server} was not signed by {authority}.")
    if presented.public_key() != private.public_key():
        problems.append(f"{key} is not the key of {server}.")
    names = presented.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    problems += [
        f"{server} is not for {name}."
        for name in dict.fromkeys([host, "127.0.0.1"])
        if _alternative(name) not in names
    ]
    return problems + _problems_of_dates(presented, server)


def problems_of_authority(authority: Path) -> list[str]:
    """Return the problem of an authority's certificate, in words."""
    try:
        certificate = library(_X509).load_pem_x509_certificate(authority.read_bytes())
    except (OSError, ValueError):
        return [f"there is no certificate in {authority}."]
    return _problems_of_dates(certificate, authority)


def _problems_of_dates(certificate: Any, path: Path) -> list[str]:
    now = datetime.datetime.now(datetime.UTC)
    if now < certificate.not_valid_before_utc:
        return [f"{path} is valid from {certificate.not_valid_before_utc:%Y-%m-%d}: see the clock."]
    if now > certificate.not_valid_after_utc - datetime.timedelta(days=14):
        return [f"{path} expires, or expired, on {certificate.not_valid_after_utc:%Y-%m-%d}."]
    return []


def _new_key() -> Any:
    return library(_EC).generate_private_key(library(_EC).SECP256R1())


def _pem(key: Any, form: Any) -> bytes:
    encoding = library(_SERIALIZATION)
    return key.private_bytes(encoding.Encoding.PEM, form, encoding.NoEncryption())


def _builder(subject: Any, issuer: Any, key: Any, days: int, *, is_authority: bool) -> Any:
    x509, now = library(_X509), datetime.datetime.now(datetime.UTC)
    usage = dict.fromkeys(
        ["content_commitment", "key_encipherment", "data_encipherment", "key_agreement"]
        + ["encipher_only", "decipher_only"],
        False,
    )
    usage |= {"digital_signature": not is_authority}
    usage |= {"key_cert_sign": is_authority, "crl_sign": is_authority}
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _alternative(name: str) -> Any:
    x509 = library(_X509)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_certificate(path: Path, certificate: Any) -> None:
    path.write_bytes(certificate.public_bytes(library(_SERIALIZATION).Encoding.PEM))
