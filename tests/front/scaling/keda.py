"""A client of gRPC that asks the external scaler as KEDA does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import grpc
import pytest

from api_types.settings import FrontSettings
from front.main import scaler_credentials
from front.scaling import scaler_messages as messages
from front.scaling.external_scaler import server_of
from front.scaling.numbers import Told
from front.serving.app import Front
from testbed.cluster.pki import Authority


class Scaled(Protocol):
    """What a scaler is made of. `folder`: it has a `pki` with the certificates of clients."""

    @property
    def folder(self) -> Path: ...
    @property
    def front(self) -> Front: ...
    @property
    def told(self) -> Told: ...


class Keda:
    """Asks as KEDA does."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    async def ask(self, method: str, request: Any, answer: Any) -> Any:
        call = self._channel.unary_unary(f"/externalscaler.ExternalScaler/{method}", _bytes, answer.FromString)
        return await call(request, timeout=30)

    async def is_active(self, request: Any) -> bool:
        return bool((await self.ask("IsActive", request, messages.IsActiveResponse)).result)

    async def metric(self, request: Any, name: str = "queueDepth") -> Any:
        asked = messages.GetMetricsRequest(scaledObjectRef=request, metricName=name)
        (value,) = (await self.ask("GetMetrics", asked, messages.GetMetricsResponse)).metricValues
        return value

    async def refusal(self, request: Any, method: str = "IsActive") -> tuple[Any, str]:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await self.ask(method, request, messages.IsActiveResponse)
        return refused.value.code(), refused.value.details() or ""

    def stream(self, request: Any) -> Any:
        call = self._channel.unary_stream("/externalscaler.ExternalScaler/StreamIsActive", _bytes, messages.IsActiveResponse.FromString)
        return call(request, timeout=60)


def _bytes(message: Any) -> bytes:
    return message if isinstance(message, bytes) else bytes(message.SerializeToString())


@asynccontextmanager
async def a_scaler(served: Scaled, settings: FrontSettings | None = None, client: str = "keda") -> AsyncIterator[Keda]:
    """A scaler that runs; with settings behind TLS, for the client with that certificate (none, if the name is empty)."""
    server = server_of(served.front, served.told)
    credentials = scaler_credentials(settings) if settings else None
    port = server.add_secure_port("127.0.0.1:0", credentials) if credentials else server.add_insecure_port("127.0.0.1:0")
    await server.start()
    address = f"127.0.0.1:{port}"
    if credentials:
        pki = Authority(served.folder / "pki")
        pair = pki.pair(client) if client else None
        own = (pair.key.read_bytes(), pair.certificate.read_bytes()) if pair else (None, None)
        channel = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(pki.ca.read_bytes(), *own))
    else:
        channel = grpc.aio.insecure_channel(address)
    try:
        async with channel:
            yield Keda(channel)
    finally:
        await server.stop(None)
