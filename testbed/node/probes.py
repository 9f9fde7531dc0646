"""The probes of a container: HTTP, gRPC, TCP, and their thresholds."""

import asyncio
from typing import Any

import grpc
import httpx

Document = dict[str, Any]

SECONDS_MIN = 10.0
_HEALTH = "/grpc.health.v1.Health/Check"
_SERVING = b"\x08\x01"
"""The response of a healthy server: field 1 has the value 1."""


async def succeeds(probe: Document, address: str, ports: dict[str, int]) -> bool:
    """Return whether a probe of a pod with this address succeeds once.

    Probes share a process with all engines of the testbed, so they get more time.
    """
    seconds = max(float(probe.get("timeoutSeconds", 1)), SECONDS_MIN)
    if request := probe.get("httpGet"):
        return await http_get(request, address, ports, seconds)
    if check := probe.get("grpc"):
        return await _grpc(f"{address}:{check['port']}", check.get("service"), seconds)
    if socket := probe.get("tcpSocket"):
        return await _tcp(address, _port(socket["port"], ports), seconds)
    raise ValueError(f"the testbed does not support the probe {probe}")


async def http_get(
    request: Document, address: str, ports: dict[str, int], seconds: float
) -> bool:
    """Return whether a GET request succeeds."""
    scheme = request.get("scheme", "HTTP").lower()
    port = _port(request["port"], ports)
    url = f"{scheme}://{address}:{port}{request.get('path', '/')}"
    try:
        # A kubelet does not verify certificates.
        async with httpx.AsyncClient(
            verify=False,  # noqa: S501 - as above
            trust_env=False,
            timeout=seconds,
        ) as http:
            return (await http.get(url)).status_code < httpx.codes.BAD_REQUEST
    except httpx.TransportError:
        return False


def _port(port: int | str, ports: dict[str, int]) -> int:
    return ports[port] if isinstance(port, str) else port


async def _grpc(target: str, service: str | None, seconds: float) -> bool:
    name = (service or "").encode()
    # The request has one field, the name of the service.
    request = b"\x0a" + bytes([len(name)]) + name if name else b""
    async with grpc.aio.insecure_channel(target) as channel:
        call = channel.unary_unary(_HEALTH)
        try:
            return bytes(await call(request, timeout=seconds)) == _SERVING
        except grpc.aio.AioRpcError:
            return False


async def _tcp(address: str, port: int, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(address, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
