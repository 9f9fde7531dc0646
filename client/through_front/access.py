"""Where the front is and who asks: its address, the token, and the files of TLS.

All of it comes from variables of the environment, which the options before a command set. A token comes from a variable or a file alone:
arguments of a command are seen by every user of the machine.
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
from client.configuration import front_address
from client.errors import Refused

_TOKEN_BYTES_MAX = 16 * 1024


@dataclass(frozen=True)
class FrontAccess:
    """`url`: without a slash at its end. `token`: empty for a user with a certificate, and where none is needed.

    `tls`: for http one that trusts nobody.
    """

    url: str
    token: str = field(default="", repr=False)
    tls: ssl.SSLContext = field(default_factory=lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


def read_access() -> FrontAccess:
    """Read it from the environment. Raises `Refused` for what cannot be used."""
    url = front_address()
    return FrontAccess(url, _token(), _tls()) if url.startswith("https:") else FrontAccess(url, _token())


def _token() -> str:
    """Read the token; a file that is named wins over the variable."""
    source = f"the token in {TOKEN_VARIABLE}"
    text = os.environ.get(TOKEN_VARIABLE, "")
    if file := _file(TOKEN_FILE_VARIABLE):
        source = f"the token in {file}"
        text = _read(file, "--token-file")
        if not text.strip():
            raise Refused(f"{file} is empty, and should have the token for the front", next_step="write the token into it")
    token = text.strip()
    if not (token.isascii() and token.isprintable()) or " " in token or len(token) > _TOKEN_BYTES_MAX:
        # The token itself is not shown.
        raise Refused(f"{source} is none: it has spaces, or characters that no token has", next_step="write the token, and nothing else")
    return token


def _tls() -> ssl.SSLContext:
    authorities, certificate, key = _file(CA_FILE_VARIABLE), _file(CLIENT_CERT_VARIABLE), _file(CLIENT_KEY_VARIABLE)
    if (certificate is None) is not (key is None):
        raise Refused("a certificate needs its key, and a key its certificate", next_step="give both --client-cert and --client-key")
    try:
        context = ssl.create_default_context(cafile=str(authorities) if authorities else None)
    except (OSError, ssl.SSLError) as error:
        raise _unusable("--ca-file", authorities, error, "certificates of authorities in PEM") from error
    if certificate and key:
        try:
            # A key that needs a password is refused: nobody may be there to type it.
            context.load_cert_chain(certificate, key, password=lambda: "")
        except (OSError, ssl.SSLError) as error:
            raise _unusable("--client-cert, --client-key", certificate, error, "a certificate and its key, both in PEM") from error
    return context


def _unusable(option: str, file: Path | None, error: OSError, what: str) -> Refused:
    return Refused(f"{option}: {file} cannot be used: {error.strerror or error}", next_step=f"name {what}")


def _file(variable: str) -> Path | None:
    named = os.environ.get(variable, "").strip()
    return Path(named).expanduser() if named else None


def _read(file: Path, option: str) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(_TOKEN_BYTES_MAX + 1).decode("ascii")
    except OSError as error:
        raise Refused(f"{option}: cannot read {file}: {error.strerror}", next_step="name a file that you can read") from error
    except UnicodeDecodeError:
        raise Refused(f"{option}: {file} holds no token", next_step="name a file with the token, and nothing else") from None
