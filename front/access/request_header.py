"""Users that an aggregating API server passes on in request headers.

An API server with an APIService for this front authenticates its users itself and
passes their names on. The front trusts these headers only if the client certificate
comes from the authority that signs for such servers, and has one of the configured
common names.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

from api_types.clock import utc_now
from front.access.access_file import User

USER, UID, GROUP, EXTRA = (
    "X-Remote-User",
    "X-Remote-Uid",
    "X-Remote-Group",
    "X-Remote-Extra-",
)
_TEXT_MAX = 1024
TEXTS_MAX = 512
"""The maximum number of header values about one user.

The keys of extra fields count too.
"""


class InvalidUserHeader(Exception):
    """An API server names an invalid user. The message says why."""


class Headers(Protocol):
    """Case-insensitive request headers, which may occur several times."""

    def getall(self, key: str, default: list[str]) -> list[str]: ...

    def items(self) -> Iterable[tuple[str, str]]: ...


@dataclass(frozen=True)
class Proxies:
    """The trusted API servers.

    `names` are the allowed common names of their certificates.
    """

    authorities: Sequence[x509.Certificate]
    names: frozenset[str]

    def user(
        self, certificate: x509.Certificate | None, headers: Headers
    ) -> User | None:
        """Return the user named by an API server, or None.

        None means that the client is not a trusted API server, or names no user. The
        TLS handshake has verified `certificate`. Raises `InvalidUserHeader`.
        """
        names = headers.getall(USER, [])
        if not names or certificate is None or not self._is_proxy(certificate):
            return None
        name = next(filter(None, names), "")
        uid = next(filter(None, headers.getall(UID, [])), "")
        groups = tuple(dict.fromkeys(headers.getall(GROUP, [])))
        extra = tuple(
            (_extra_key(key), value)
            for key, value in headers.items()
            if key.lower().startswith(EXTRA.lower())
        )
        texts = (name, uid, *groups, *chain.from_iterable(extra))
        if (
            not name.strip()
            or not name.isprintable()
            or not all(_is_text(text) for text in texts)
        ):
            raise InvalidUserHeader(
                f"{USER} is empty or not printable, or a header about the user is not "
                "UTF-8"
            )
        if len(texts) > TEXTS_MAX or any(len(text) > _TEXT_MAX for text in texts):
            raise InvalidUserHeader(
                f"the headers about the user have more than {TEXTS_MAX} values, or a "
                f"value of more than {_TEXT_MAX} characters"
            )
        return User(name, groups, extra, uid, is_of_api_server=True)

    def _is_proxy(self, certificate: x509.Certificate) -> bool:
        # The certificate may have expired while the connection was open.
        if (
            not certificate.not_valid_before_utc
            <= utc_now()
            < certificate.not_valid_after_utc
        ):
            return False
        try:
            found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        except ValueError:
            return False
        return (
            len(found) == 1
            and str(found[0].value) in self.names
            and issued_by(certificate, self.authorities)
        )


def _is_text(text: str) -> bool:
    # Invalid UTF-8 arrives as surrogates. Different invalid names would look alike to
    # the server that decides.
    return not any("\ud800" <= each <= "\udfff" for each in text)


def _extra_key(header: str) -> str:
    """Return the key in a header name.

    The API server escapes characters that are invalid there.
    """
    return unquote(header[len(EXTRA) :].lower(), errors="surrogateescape")


def read_certificate(der: bytes) -> x509.Certificate | None:
    """Parse a DER certificate.

    Return None on failure: OpenSSL accepts more than this parser.
    """
    try:
        return x509.load_der_x509_certificate(der)
    except (ValueError, UnsupportedAlgorithm):
        return None


def issued_by(
    certificate: x509.Certificate, authorities: Iterable[x509.Certificate]
) -> bool:
    """Return whether one of these authorities has signed a certificate directly.

    The TLS handshake trusts all configured authorities, whatever their purpose.
    """
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            continue
        return True
    return False
