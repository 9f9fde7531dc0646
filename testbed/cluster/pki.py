"""Certificates and keys of one control plane, or of one server.

Every cluster has its own authority, so a credential of one cluster is useless on
another. Keys are created once and stored with the cluster's data, so pods, kubeconfigs
and stored Secrets stay valid after a reboot.
"""

import datetime as dt
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = dt.timedelta(days=3650)
SERVICE_ADDRESS = "10.96.0.1"
"""The first address of the service range, at which pods would find the API server."""

_CLIENTS: dict[str, tuple[str, str | None]] = {
    "admin": ("testbed-admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", None),
    "scheduler": ("system:kube-scheduler", None),
    "front-proxy-client": ("front-proxy-client", None),
    "etcd-client": ("kube-apiserver", None),
}
_SERVERS: dict[str, list[str]] = {
    "apiserver": [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        SERVICE_ADDRESS,
    ],
    "etcd": [],
    "webhook": [],
}


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """The certificates of one cluster, in one folder.

    Missing certificates are created. The default pairs are the clients admin,
    controller-manager, scheduler, front-proxy-client and etcd-client, and the servers
    apiserver, etcd and webhook. `webhook/` is a folder with tls.crt and tls.key, as
    controllers expect.
    """

    def __init__(
        self,
        folder: Path,
        clients: Mapping[str, tuple[str, str | None]] = _CLIENTS,
        servers: Mapping[str, list[str]] = _SERVERS,
    ) -> None:
        self.folder = folder
        self._clients, self._servers = clients, servers
        self.ca = folder / "ca.crt"
        self.service_account = Pair(folder / "sa.pub", folder / "sa.key")

    def pair(self, name: str) -> Pair:
        """Return the files of one pair."""
        if name == "webhook":
            return Pair(
                self.folder / "webhook" / "tls.crt", self.folder / "webhook" / "tls.key"
            )
        return Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")

    def ensure(self) -> None:
        """Create missing files.

        The marker is written last. An interrupted run starts over, so an incomplete
        pair is never used.
        """
        marker = self.folder / "complete"
        if marker.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "testbed")])
        ca = (
            _builder(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(authority=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
                critical=False,
            )
            .sign(key, hashes.SHA256())
        )
        _write(self.ca, ca.public_bytes(serialization.Encoding.PEM))
        for client, (user, group) in self._clients.items():
            self._issue(client, _subject(user, group), [], ca, key)
        for server, names in self._servers.items():
            self._issue(
                server, _subject(server), ["localhost", "127.0.0.1", *names], ca, key
            )
        signer = ec.generate_private_key(ec.SECP256R1())
        _write(self.service_account.key, _private(signer))
        public = signer.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        _write(self.service_account.certificate, public)
        marker.touch()

    def _issue(
        self,
        name: str,
        subject: x509.Name,
        hosts: list[str],
        ca: x509.Certificate,
        ca_key: ec.EllipticCurvePrivateKey,
    ) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        # etcd also presents its server certificate as a client of itself, so servers
        # may act as clients.
        purposes = [
            ExtendedKeyUsageOID.CLIENT_AUTH,
            *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else []),
        ]
        builder = (
            _builder(subject, ca.subject, key.public_key())
            .add_extension(
                x509.BasicConstraints(ca=False, path_length=None), critical=True
            )
            .add_extension(_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
                critical=False,
            )
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]),
                critical=False,
            )
        pair = self.pair(name)
        _write(pair.key, _private(key))
        _write(
            pair.certificate,
            builder.sign(ca_key, hashes.SHA256()).public_bytes(
                serialization.Encoding.PEM
            ),
        )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)  # noqa: TID251 - needs the wall clock
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
    )


def _subject(user: str, group: str | None = None) -> x509.Name:
    """Return a client's name as Kubernetes reads it.

    The common name is the user, the organization is the group.
    """
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
    ) as file:
        file.write(content)
