"""The connection to Temporal.

Every program of this project must read and write payloads in the same way and report
the same errors. So this module defines the data converter, the TLS files and the error
messages.
"""

import asyncio
import dataclasses
import ipaddress
import re
from pathlib import Path

from temporalio.client import Client, RPCError
from temporalio.runtime import Runtime
from temporalio.service import TLSConfig

from api_types.sections.temporal import TemporalSettings
from api_types.settings import Settings
from fleet_client.errors import Refused, Unreachable
from fleet_client.temporal.codec import codec_of
from fleet_client.temporal.converter import DATA_CONVERTER
from fleet_client.temporal.queries import RetriedQueries

# A server on this machine answers in milliseconds, one across an ocean within a second.
_CONNECT_SECONDS = 5.0

_REASON_MAX = 300


async def connect(
    settings: Settings,
    *,
    runtime: Runtime | None = None,
    within_seconds: float = _CONNECT_SECONDS,
) -> Client:
    """Connect to Temporal.

    A worker passes its own runtime, with metrics, and more time. Raise `Unreachable` if
    Temporal does not answer, `Refused` for unusable TLS or key files.
    """
    temporal = settings.temporal
    _check_key_is_sent_encrypted(temporal)
    api_key = (
        _read(temporal.api_key_file, "temporal.apiKeyFile").decode().strip()
        if temporal.api_key_file
        else None
    )
    try:
        async with asyncio.timeout(within_seconds):
            return await Client.connect(
                temporal.address,
                namespace=temporal.namespace,
                data_converter=dataclasses.replace(
                    DATA_CONVERTER, payload_codec=codec_of(settings.encryption)
                ),
                tls=_tls(temporal),
                api_key=api_key,
                runtime=runtime,
                interceptors=[RetriedQueries()],
            )
    except TimeoutError as error:
        raise unreachable(
            settings, TimeoutError(f"no answer within {within_seconds:g} s")
        ) from error
    except (RuntimeError, RPCError, ValueError) as error:
        raise unreachable(settings, error) from error


def unreachable(settings: Settings, error: Exception) -> Unreachable:
    """Return the error for a Temporal that does not answer."""
    text = " ".join(str(error).split())
    # The innermost message of the transport names the cause. The outer messages are
    # type names.
    messages = re.findall(r'(?:message|error): "([^"]+)"', text)
    return Unreachable(
        f"Temporal at {settings.temporal.address} does not answer",
        details=[messages[-1] if messages else text[:_REASON_MAX]] if text else [],
        next_step=(
            "start a fleet on this machine with `modelplane up`, or name your server "
            "with MODELPLANE_TEMPORAL__ADDRESS"
        ),
    )


def _check_key_is_sent_encrypted(temporal: TemporalSettings) -> None:
    """Raise `Refused` if an API key would cross a network unencrypted."""
    host = temporal.address.rpartition(":")[0].strip("[]")
    encrypted = temporal.tls or temporal.tls_server_ca or temporal.tls_client_cert
    if temporal.api_key_file and not encrypted and not _is_loopback(host):
        raise Refused(
            "temporal.apiKeyFile: without TLS the key would be sent to "
            f"{temporal.address} in the clear",
            next_step="set temporal.tls to true, or name the server's CA in temporal.tlsServerCa",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tls(temporal: TemporalSettings) -> TLSConfig | bool:
    if bool(temporal.tls_client_cert) != bool(temporal.tls_client_key):
        raise Refused(
            "a TLS client certificate needs its key, and the key its certificate",
            next_step="set both temporal.tlsClientCert and temporal.tlsClientKey",
        )
    if not (temporal.tls_server_ca or temporal.tls_client_cert):
        return temporal.tls
    return TLSConfig(
        server_root_ca_cert=_read_if_set(
            temporal.tls_server_ca, "temporal.tlsServerCa"
        ),
        client_cert=_read_if_set(temporal.tls_client_cert, "temporal.tlsClientCert"),
        client_private_key=_read_if_set(
            temporal.tls_client_key, "temporal.tlsClientKey"
        ),
    )


def _read_if_set(file: Path | None, key: str) -> bytes | None:
    return _read(file, key) if file else None


def _read(file: Path, key: str) -> bytes:
    try:
        return file.expanduser().read_bytes()
    except OSError as error:
        raise Refused(
            f"{key}: cannot read {file}: {error.strerror}",
            next_step=f"set {key} to a readable file",
        ) from error
