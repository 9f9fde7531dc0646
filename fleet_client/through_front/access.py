"""The address of the front, the token, and the TLS files of a user.

All of them come from environment variables, which the options before a command set. A
token comes only from a variable or a file, because every user of the machine can see
the arguments of a command.
"""

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from api_types.environment import (
    CA_FILE_VARIABLE,
    CLIENT_CERT_VARIABLE,
    CLIENT_KEY_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
)
from fleet_client.configuration import front_address
from fleet_client.errors import Refused

_TOKEN_BYTES_MAX = 16 * 1024


@dataclass(frozen=True)
class FrontAccess:
    """The connection data of a user.

    `url` has no trailing slash. `token` is empty if the user has a certificate or needs
    no token. `tls` trusts nobody for an http URL.
    """

    url: str
    token: str = field(default="", repr=False)
    tls: ssl.SSLContext = field(
        default_factory=lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )


def read_access() -> FrontAccess:
    """Read the connection data from the environment.

    Raise `Refused` if they cannot be used.
    """
    url = front_address()
    if url.startswith("https:"):
        return FrontAccess(url, _token(), _tls())
    return FrontAccess(url, _token())


def _token() -> str:
    """Read the token. A token file takes precedence over the variable."""
    source = f"the token in {TOKEN_VARIABLE}"
    text = os.environ.get(TOKEN_VARIABLE, "")
    if file := _file(TOKEN_FILE_VARIABLE):
        source = f"the token in {file}"
        text = _read(file, "--token-file")
        if not text.strip():
            raise Refused(
                f"{file} is empty, and should contain the token for the front",
                next_step="write the token into it",
            )
    token = text.strip()
    if (
        not (token.isascii() and token.isprintable())
        or " " in token
        or len(token) > _TOKEN_BYTES_MAX
    ):
        # Do not show the token itself.
        raise Refused(
            f"{source} is invalid: it has spaces, or characters that no token has",
            next_step="use a file or variable with only the token",
        )
    return token


def _tls() -> ssl.SSLContext:
    authorities = _file(CA_FILE_VARIABLE)
    certificate, key = _file(CLIENT_CERT_VARIABLE), _file(CLIENT_KEY_VARIABLE)
    if (certificate is None) is not (key is None):
        raise Refused(
            "a certificate needs its key, and a key its certificate",
            next_step="give both --client-cert and --client-key",
        )
    try:
        context = ssl.create_default_context(
            cafile=str(authorities) if authorities else None
        )
    except (OSError, ssl.SSLError) as error:
        raise _unusable(
            "--ca-file", authorities, error, "certificates of authorities in PEM"
        ) from error
    if certificate and key:
        try:
            # Reject an encrypted key: the command may run unattended, so nobody could
            # enter the password.
            context.load_cert_chain(certificate, key, password=lambda: "")
        except (OSError, ssl.SSLError) as error:
            raise _unusable(
                "--client-cert, --client-key",
                certificate,
                error,
                "a certificate and its key, both in PEM",
            ) from error
    return context


def _unusable(option: str, file: Path | None, error: OSError, what: str) -> Refused:
    return Refused(
        f"{option}: {file} cannot be used: {error.strerror or error}",
        next_step=f"name {what}",
    )


def _file(variable: str) -> Path | None:
    named = os.environ.get(variable, "").strip()
    return Path(named).expanduser() if named else None


def _read(file: Path, option: str) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(_TOKEN_BYTES_MAX + 1).decode("ascii")
    except OSError as error:
        raise Refused(
            f"{option}: cannot read {file}: {error.strerror}",
            next_step="name a file that you can read",
        ) from error
    except UnicodeDecodeError:
        raise Refused(
            f"{option}: {file} contains no token",
            next_step="name a file with only the token",
        ) from None
