"""A loopback server that sends whatever bytes a test chooses, with or without TLS."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

MIB = 1 << 20
# Two loopback addresses, so that a rule can allow only one of them.
HERE, INSIDE = "127.0.0.1", "127.0.0.2"


class Request(NamedTuple):
    """A received request. Header names are in lower case."""

    path: str
    headers: dict[str, str]


Chunks = AsyncIterator[bytes]
Respond = Callable[[Request], Chunks]


class Certificate(NamedTuple):
    """A self-signed certificate for names and addresses on loopback, and its key."""

    certificate: Path
    key: Path

    @property
    def authority(self) -> str:
        return self.certificate.read_text()


@dataclass
class Impostor:
    """The address of the server and its requests. `sent` counts bytes."""

    host: str = ""
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    sent: int = 0


def a_certificate(folder: Path, *names: str) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "impostor")])
    start = datetime(2026, 1, 1, tzinfo=UTC)
    addresses = [x509.IPAddress(ip_address(address)) for address in (HERE, INSIDE)]
    alternatives = x509.SubjectAlternativeName([*addresses, *map(x509.DNSName, names)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=36500))
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    found = Certificate(folder / "impostor.pem", folder / "impostor.key")
    found.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    found.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return found


def head(status: str = "200 OK", **headers: str) -> bytes:
    """Return the head of a response. Write header names with underscores."""
    lines = "".join(
        f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()
    )
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode()


async def whole(body: bytes, status: str = "200 OK", **headers: str) -> Chunks:
    yield head(status, Content_Length=str(len(body)), **headers) + body


async def endless(block: bytes, size: int, **headers: str) -> Chunks:
    """Yield blocks up to a total size, in a body without a declared length."""
    yield head(Connection="close", **headers)
    for _ in range(size // len(block)):
        yield block


async def dripping(seconds: float, **headers: str) -> Chunks:
    """Yield one byte at a time, for ever."""
    yield head(Content_Length="1000000", **headers)
    while True:
        yield b" "
        await asyncio.sleep(seconds)


@contextlib.asynccontextmanager
async def impostor(
    respond: Respond, certificate: Certificate | None = None, address: str = HERE
) -> AsyncIterator[Impostor]:
    """Serve until the end of the block."""
    server = Impostor()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
                headers = {
                    name.lower(): value
                    for name, _, value in (
                        line.partition(": ") for line in lines[1:] if line
                    )
                }
                request = Request(lines[0].split()[1], headers)
                await reader.readexactly(int(headers.get("content-length", "0")))
                server.requests.append(request)
                response = b""
                async for chunk in respond(request):
                    response = response or chunk
                    writer.write(chunk)
                    server.sent += len(chunk)
                    await writer.drain()
                    # `drain` returns at once while the buffer is small, so check for a
                    # lost connection explicitly.
                    await asyncio.sleep(0)
                if b"content-length" not in response.lower():
                    break
        writer.close()

    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate.certificate, certificate.key)
    listener = await asyncio.start_server(serve, address, 0, ssl=tls)
    server.host = f"{address}:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
