"""Who asks: the bearer of a token that the access file knows, or of a certificate that an authority of ours has signed."""

import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from api_types.clock import utc_now
from front.access.access_file import AUTHENTICATED, AccessRules, User

_NAME_MAX = 253
_GROUPS_MAX = 64


def authenticate(headers: Sequence[str], certificate: Mapping[str, Any] | None, rules: AccessRules) -> User | None:
    """Give the user of a request by its Authorization headers, or without any by the certificate of its connection; None for nobody.

    `certificate`: of a connection whose handshake has verified it, as `SSLSocket.getpeercert` gives it.
    """
    if not headers and certificate:
        return _user_of(certificate)
    if len(headers) != 1:
        return None
    scheme, _, token = headers[0].partition(" ")
    return rules.user_of(token.strip()) if scheme.lower() == "bearer" else None


def _user_of(certificate: Mapping[str, Any]) -> User | None:
    """Read a subject as Kubernetes does: the user in the common name, the groups in the organizations."""
    # The handshake of a connection may be long ago.
    if ssl.cert_time_to_seconds(certificate["notAfter"]) <= utc_now().timestamp():
        return None
    subject = [attribute for part in certificate["subject"] for attribute in part]
    names = [value for kind, value in subject if kind == "commonName"]
    groups = tuple(value for kind, value in subject if kind == "organizationName")
    if len(names) != 1 or len(groups) > _GROUPS_MAX or not all(0 < len(text) <= _NAME_MAX for text in (*names, *groups)):
        return None
    return User(names[0], (*groups, AUTHENTICATED))
