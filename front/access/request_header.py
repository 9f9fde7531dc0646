"""Users whom an aggregating API server names in headers, once its certificate has shown that it is that server.

An API server that has this front behind an APIService has asked its own users who they are, and passes that on. Whoever else sends such
headers is not believed: the certificate has to be of an authority that signs for such servers alone, and its common name one of a few.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from front.access.access_file import User

USER, GROUP, EXTRA = "X-Remote-User", "X-Remote-Group", "X-Remote-Extra-"
_TEXT_MAX = 1024
_TEXTS_MAX = 512


class Headers(Protocol):
    """The headers of a request, in any case; each may be there several times."""

    def getall(self, key: str, default: list[str]) -> list[str]:
        """Give all values of a header."""
        ...

    def items(self) -> Iterable[tuple[str, str]]:
        """Give all headers with their values."""
        ...


@dataclass(frozen=True)
class Proxies:
    """The servers that are believed. `names`: the common names that their certificates may have."""

    authorities: Sequence[x509.Certificate]
    names: frozenset[str]

    def user(self, certificate: bytes | None, headers: Headers) -> User | None:
        """Give the user whom a server names; None if the client is no such server, or names nobody.

        `certificate`: of the connection, in DER, verified by the handshake.
        """
        name = next(filter(None, headers.getall(USER, [])), "")
        if not name or not certificate or not self._is_proxy(x509.load_der_x509_certificate(certificate)):
            return None
        groups = tuple(dict.fromkeys(headers.getall(GROUP, [])))
        extra = tuple((key[len(EXTRA) :].lower(), value) for key, value in headers.items() if key.lower().startswith(EXTRA.lower()))
        texts = (name, *groups, *(text for pair in extra for text in pair))
        if len(texts) > _TEXTS_MAX or any(len(text) > _TEXT_MAX for text in texts):
            return None
        return User(name, groups, extra, is_of_api_server=True)

    def _is_proxy(self, certificate: x509.Certificate) -> bool:
        found = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        return len(found) == 1 and found[0] in self.names and issued_by(certificate, self.authorities)


def issued_by(certificate: x509.Certificate, authorities: Iterable[x509.Certificate]) -> bool:
    """Tell whether one of these authorities has signed a certificate itself: a handshake trusts all authorities, whatever they are for."""
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False
