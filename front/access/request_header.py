"""Users whom an aggregating API server names in headers, once its certificate has shown that it is that server.

An API server that has this front behind an APIService has asked its own users who they are, and passes that on. Whoever else sends such
headers is not trusted: the certificate has to be of an authority that signs for such servers alone, and its common name one of a few.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

from api_types.clock import utc_now
from front.access.access_file import User

USER, UID, GROUP, EXTRA = "X-Remote-User", "X-Remote-Uid", "X-Remote-Group", "X-Remote-Extra-"
_TEXT_MAX = 1024
TEXTS_MAX = 512
"""Name, groups, and keys and values of what else is said of one user."""


class Unusable(Exception):
    """An API server names a user who cannot be one; the text says why."""


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
    """The servers that are trusted. `names`: the common names that their certificates may have."""

    authorities: Sequence[x509.Certificate]
    names: frozenset[str]

    def user(self, certificate: x509.Certificate | None, headers: Headers) -> User | None:
        """Give the user whom a server names; None if the client is no such server, or names nobody. Raises `Unusable`.

        `certificate`: of the connection, verified by the handshake.
        """
        names = headers.getall(USER, [])
        if not names or certificate is None or not self._is_proxy(certificate):
            return None
        name, uid = (next(filter(None, values), "") for values in (names, headers.getall(UID, [])))
        groups = tuple(dict.fromkeys(headers.getall(GROUP, [])))
        extra = tuple((_extra_key(key), value) for key, value in headers.items() if key.lower().startswith(EXTRA.lower()))
        texts = (name, uid, *groups, *(text for pair in extra for text in pair))
        if not name.strip() or not name.isprintable() or not all(_is_text(text) for text in texts):
            raise Unusable(f"{USER} is empty or cannot be shown, or a header with the user is no text in UTF-8")
        if len(texts) > TEXTS_MAX or any(len(text) > _TEXT_MAX for text in texts):
            raise Unusable(f"the headers with the user have more than {TEXTS_MAX} texts, or one of more than {_TEXT_MAX} characters")
        return User(name, groups, extra, uid, is_of_api_server=True)

    def _is_proxy(self, certificate: x509.Certificate) -> bool:
        # The handshake of a connection may be long ago.
        if not certificate.not_valid_before_utc <= utc_now() < certificate.not_valid_after_utc:
            return False
        try:
            found = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        except ValueError:
            return False
        return len(found) == 1 and found[0] in self.names and issued_by(certificate, self.authorities)


def _is_text(text: str) -> bool:
    # What is not UTF-8 would all look the same to the server that decides.
    return not any("\ud800" <= each <= "\udfff" for each in text)


def _extra_key(header: str) -> str:
    """Read the key of a header: the server escapes what may not be in the name of one."""
    return unquote(header[len(EXTRA) :].lower(), errors="surrogateescape")


def read_certificate(der: bytes) -> x509.Certificate | None:
    """Read the certificate of a connection; None if it cannot be read, although OpenSSL has."""
    try:
        return x509.load_der_x509_certificate(der)
    except (ValueError, UnsupportedAlgorithm):
        return None


def issued_by(certificate: x509.Certificate, authorities: Iterable[x509.Certificate]) -> bool:
    """Tell whether one of these authorities has signed a certificate itself: a handshake trusts all authorities, whatever they are for."""
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            continue
        return True
    return False
