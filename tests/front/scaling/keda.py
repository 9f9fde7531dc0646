"""A gRPC client that calls the external scaler like KEDA."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import grpc
import pytest

from api_types.sections.front import FrontSettings
from front.access.limits import Allowance
from front.configuration.scaling import scaler_credentials
from front.scaling import scaler_messages as messages
from front.scaling.external_scaler import server_of
from front.scaling.numbers import Told
from front.serving.app import Front
from testbed.cluster.pki import Authority


class Scaled(Protocol):
    """The parts of a scaler. `folder` has a `pki` with client certificates."""

    @property
    def folder(self) -> Path: ...
    @property
    def front(self) -> Front: ...
    @property
    def told(self) -> Told: ...


class Keda:
    """Calls the scaler like KEDA."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    async def ask(
        self, method: str, request: Any, answer: Any, seconds: float = 30
    ) -> Any:
        call = self._channel.unary_unary(
            f"/externalscaler.ExternalScaler/{method}", _bytes, answer.FromString
        )
        return await call(request, timeout=seconds)

    async def is_active(self, request: Any) -> bool:
        return bool(
            (await self.ask("IsActive", request, messages.IsActiveResponse)).result
        )

    async def metric(self, request: Any, name: str = "queueDepth") -> Any:
        asked = messages.GetMetricsRequest(scaledObjectRef=request, metricName=name)
        (value,) = (
            await self.ask("GetMetrics", asked, messages.GetMetricsResponse)
        ).metricValues
        return value

    async def refusal(self, request: Any, method: str = "IsActive") -> tuple[Any, str]:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await self.ask(method, request, messages.IsActiveResponse)
        return refused.value.code(), refused.value.details() or ""

    async def disconnected(self) -> None:
        """Wait until the connection is closed."""
        while (state := self._channel.get_state()) is grpc.ChannelConnectivity.READY:
            await self._channel.wait_for_state_change(state)

    def stream(self, request: Any, seconds: float = 60) -> Any:
        call = self._channel.unary_stream(
            "/externalscaler.ExternalScaler/StreamIsActive",
            _bytes,
            messages.IsActiveResponse.FromString,
        )
        return call(request, timeout=seconds)


def _bytes(message: Any) -> bytes:
    return message if isinstance(message, bytes) else bytes(message.SerializeToString())


ALLOWANCE = Allowance(per_second=50, burst=200, requests=50, watches=100)


@asynccontextmanager
async def a_server(
    served: Scaled, allowance: Allowance = ALLOWANCE
) -> AsyncIterator[str]:
    """A running scaler without TLS; yields its address."""
    server = server_of(served.front, served.told, allowance)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@asynccontextmanager
async def a_scaler(
    served: Scaled, settings: FrontSettings | None = None, client: str = "keda"
) -> AsyncIterator[Keda]:
    """A running scaler with TLS settings, and a client.

    The client uses the certificate with this name, or none if the name is empty.
    """
    server = server_of(served.front, served.told, ALLOWANCE)
    credentials = scaler_credentials(settings) if settings else None
    port = (
        server.add_secure_port("127.0.0.1:0", credentials)
        if credentials
        else server.add_insecure_port("127.0.0.1:0")
    )
    await server.start()
    address = f"127.0.0.1:{port}"
    if credentials:
        pki = Authority(served.folder / "pki")
        pair = pki.pair(client) if client else None
        own = (
            (pair.key.read_bytes(), pair.certificate.read_bytes())
            if pair
            else (None, None)
        )
        channel = grpc.aio.secure_channel(
            address, grpc.ssl_channel_credentials(pki.ca.read_bytes(), *own)
        )
    else:
        channel = grpc.aio.insecure_channel(address)
    try:
        async with channel:
            yield Keda(channel)
    finally:
        await server.stop(None)
