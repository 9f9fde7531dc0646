"""The address that the front listens on and its TLS, from the settings."""

import ipaddress
import socket
import ssl

from api_types.sections.front import FrontSettings
from fleet_client.errors import Refused
from front.configuration.authorities import NEXT_STEP


def address_of(front: FrontSettings) -> tuple[str, int]:
    """Return the host and the port."""
    host, _, port = front.listen.rpartition(":")
    return host.strip("[]"), int(port)


def listener_of(front: FrontSettings, host: str, port: int) -> socket.socket:
    """Bind the address of the front. Raises `Refused`."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        raise Refused(
            f"cannot listen on {front.listen}: {error.strerror}",
            next_step="set front.listen to a free address",
        ) from error


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def server_tls(front: FrontSettings) -> ssl.SSLContext | None:
    """Return the TLS context of the server; None without a certificate.

    Raises `Refused`.
    """
    if (front.tls_cert is None) is not (front.tls_key is None):
        raise Refused(
            "only one of front.tlsCert and front.tlsKey is set, and TLS needs both",
            next_step="set both or none of them",
        )
    if front.client_ca is not None and (
        front.tls_cert is None or front.access_file is None
    ):
        raise Refused(
            "front.clientCa needs TLS and an access file; front.reviewKubeconfig does "
            "not apply to users with certificates",
            next_step="set front.tlsCert and front.tlsKey, and front.accessFile",
        )
    if front.tls_cert is None or front.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(front.tls_cert.expanduser(), front.tls_key.expanduser())
    except (OSError, ssl.SSLError) as error:
        raise Refused(
            f"front.tlsCert, front.tlsKey: {error}",
            next_step="set them to a certificate and its key, both in PEM",
        ) from error
    for setting, file in (
        ("front.clientCa", front.client_ca),
        ("front.requestHeaderCa", front.request_header_ca),
    ):
        if file is None:
            continue
        try:
            context.load_verify_locations(file.expanduser())
        except (OSError, ssl.SSLError) as error:
            raise Refused(f"{setting}: {error}", next_step=NEXT_STEP) from error
        # Clients without a certificate may authenticate with a token.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
