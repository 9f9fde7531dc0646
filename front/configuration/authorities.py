"""The authorities that the front trusts, from the files that the settings name."""

import ssl
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from fleet_client.errors import Refused

NEXT_STEP = "set it to a PEM file with the certificates of authorities"
"""The next step of each error about such a file."""


def client_tls(setting: str, file: Path | None) -> ssl.SSLContext | None:
    """Return a TLS context that trusts the authorities in a file; None without a file.

    `setting` is the key of the file. Raises `Refused`.
    """
    if file is None:
        return None
    try:
        return ssl.create_default_context(cafile=str(file.expanduser()))
    except (OSError, ssl.SSLError) as error:
        raise Refused(f"{setting}: {error}", next_step=NEXT_STEP) from error


def read_authorities(setting: str, file: Path) -> list[x509.Certificate]:
    """Read the authorities in a PEM file. Raises `Refused`."""
    try:
        found = x509.load_pem_x509_certificates(file.expanduser().read_bytes())
        for each in found:
            each.public_key()
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise Refused(f"{setting}: {error}", next_step=NEXT_STEP) from error
    return found
