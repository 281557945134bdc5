"""mTLS between sites: a development CA, and contexts that bind a site's name to its certificate."""

import datetime
import os
import ssl
from pathlib import Path

from ordercast.errors import InputError
from ordercast.live.config import Cluster, private_folder
from ordercast.names import SiteId


def context(cluster: Cluster, me: SiteId, *, server: bool) -> ssl.SSLContext:
    """Return the context of one site: both sides show a certificate of the cluster's CA.

    Files are read each time, so that renewed ones are used. Whatever is wrong with them is an InputError: one that
    cannot be read at this moment may be readable at the next.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.verify_mode = ssl.CERT_REQUIRED
    return _loaded(made, cluster, me)


def client_port(cluster: Cluster, me: SiteId) -> ssl.SSLContext:
    """Return the context of a site's client port: it shows its certificate, clients have tokens instead."""
    return _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), cluster, me)


def _loaded(made: ssl.SSLContext, cluster: Cluster, me: SiteId) -> ssl.SSLContext:
    folder = Path(cluster.folder) / str(cluster.security.certs)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        made.load_verify_locations(folder / "ca.pem")
        made.load_cert_chain(folder / f"{me}.pem", folder / f"{me}.key", password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise InputError(f"{folder}: no usable ca.pem, {me}.pem and {me}.key: {error}") from None
    return made


def _no_password() -> str:
    """A key with a password would be asked for at the terminal, by a daemon that has none."""
    raise ValueError("the key has a password")


def make_certs(folder: Path, names: list[SiteId], days: int = 365) -> None:
    """Write a development CA and a certificate for each name; keys are readable by the owner only."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    for name in ("ca", *names):
        if (folder / f"{name}.key").exists():
            what = "a CA" if name == "ca" else f"a key of {name}"
            raise InputError(f"{folder}: there is {what} already; nothing was changed")
    now = datetime.datetime.now(datetime.UTC)

    def write(name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        with open(folder / f"{name}.key", "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(secret)
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def begin(name: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=days))
        )

    try:
        private_folder(folder)
        ca_key = ec.generate_private_key(ec.SECP256R1())
        key_id = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
        signing = x509.KeyUsage(
            digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        ca = (
            begin("ordercast development CA", "ordercast development CA", ca_key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(signing, critical=True)
            .add_extension(key_id, critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        write("ca", ca_key, ca)
        for name in names:
            key = ec.generate_private_key(ec.SECP256R1())
            certificate = (
                begin(name, "ordercast development CA", key)
                .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
                .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key_id), critical=False)
                .sign(ca_key, hashes.SHA256())
            )
            write(name, key, certificate)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from None
