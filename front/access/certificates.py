"""Client certificates that a TLS handshake has verified.

Subjects are read as Kubernetes reads them: the common name is the user, the
organizations are the groups.
"""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
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
    """The relevant fields of a certificate. `expires` is in seconds since 1970."""

    names: Sequence[str]
    groups: Sequence[str]
    expires: float

    def user(self) -> User | None:
        """Return the user, or None.

        None means that the certificate has expired, has more or fewer than one common
        name, or has names that are empty or too long.
        """
        # The certificate may have expired while the connection was open.
        if self.expires <= utc_now().timestamp():
            return None
        texts = (*self.names, *self.groups)
        if (
            len(self.names) != 1
            or len(self.groups) > _GROUPS_MAX
            or not all(0 < len(text) <= _NAME_MAX for text in texts)
        ):
            return None
        return User(self.names[0], (*self.groups, AUTHENTICATED))


def of_connection(certificate: Mapping[str, Any] | None) -> Certificate | None:
    """Read the result of `SSLSocket.getpeercert`.

    Returns None without a certificate, and if its expiry date cannot be read.
    """
    if not certificate:
        return None
    subject = list(chain.from_iterable(certificate["subject"]))
    names = [value for kind, value in subject if kind == "commonName"]
    groups = [value for kind, value in subject if kind == "organizationName"]
    try:
        expires = ssl.cert_time_to_seconds(certificate["notAfter"])
    except ValueError:
        return None
    return Certificate(names, groups, expires)


def of_pem(text: bytes) -> Certificate | None:
    """Read a PEM certificate; return None if it cannot be read."""
    try:
        read = x509.load_pem_x509_certificate(text)
        subject = read.subject
    except (ValueError, UnsupportedAlgorithm):
        return None
    names, groups = (
        [str(each.value) for each in subject.get_attributes_for_oid(wanted)]
        for wanted in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
    )
    return Certificate(names, groups, read.not_valid_after_utc.timestamp())
