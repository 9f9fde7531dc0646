"""Certificates of clients, which a handshake has verified, in the forms in which the servers of HTTP and of gRPC give them.

Their subjects are read as Kubernetes does: the user in the common name, the groups in the organizations.
"""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

from api_types.clock import utc_now
from front.access.access_file import AUTHENTICATED, User

_NAME_MAX = 253
_GROUPS_MAX = 64


@dataclass(frozen=True)
class Certificate:
    """What is used of a certificate. `expires`: seconds since 1970."""

    names: Sequence[str]
    groups: Sequence[str]
    expires: float

    def user(self) -> User | None:
        """Give the user; None if there is not just one name of fair length, or the certificate has expired."""
        # The handshake of a connection may be long ago.
        if self.expires <= utc_now().timestamp():
            return None
        texts = (*self.names, *self.groups)
        if len(self.names) != 1 or len(self.groups) > _GROUPS_MAX or not all(0 < len(text) <= _NAME_MAX for text in texts):
            return None
        return User(self.names[0], (*self.groups, AUTHENTICATED))


def of_connection(certificate: Mapping[str, Any] | None) -> Certificate | None:
    """Read what `SSLSocket.getpeercert` gives; nothing, or None, of a client without a certificate. None if it cannot be read."""
    if not certificate:
        return None
    subject = [attribute for part in certificate["subject"] for attribute in part]
    names, groups = ([value for kind, value in subject if kind == wanted] for wanted in ("commonName", "organizationName"))
    try:
        expires = ssl.cert_time_to_seconds(certificate["notAfter"])
    except ValueError:
        return None
    return Certificate(names, groups, expires)


def of_pem(text: bytes) -> Certificate | None:
    """Read a certificate in PEM; None if there is none."""
    try:
        read = x509.load_pem_x509_certificate(text)
        subject = read.subject
    except (ValueError, UnsupportedAlgorithm):
        return None
    names, groups = (
        [str(each.value) for each in subject.get_attributes_for_oid(wanted)] for wanted in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
    )
    return Certificate(names, groups, read.not_valid_after_utc.timestamp())
