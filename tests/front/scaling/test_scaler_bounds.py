"""The resources that one client can take from the external scaler, also after it
vanished.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from front.access.access import AccessControl
from front.access.limits import Allowance, Limits
from front.scaling import external_scaler
from front.scaling import scaler_messages as messages
from front.scaling.numbers import Numbers
from front.store.projection import ObjectKey
from tests.front.scaling.keda import ALLOWANCE, Keda, a_server
from tests.front.scaling.scaling_under_test import ScalingUnderTest
from tests.workflows.environment.harness import eventually

CHAT = ObjectKey("ModelDeployment", "a", "chat")
REFERENCE = messages.ScaledObjectRef(
    name="chat", namespace="a", scalerMetadata={"targetValue": "2"}
)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
PING = b"\0\0\x08\x06\0\0\0\0\0" + b"12345678"


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScalingUnderTest:
    """A front without an access file, with metrics of a deployment."""
    monkeypatch.setattr(external_scaler, "CHECK_SECONDS", 0.05)
    served = ScalingUnderTest(tmp_path, limits=Limits(ALLOWANCE))
    served.front.authorization.access = AccessControl()
    served.told.tell(CHAT, Numbers("chat", served.now, {"queueDepth": 1}))
    return served


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The options of the server, which a test may change."""
    changed = dict(external_scaler.OPTIONS)
    monkeypatch.setattr(external_scaler, "OPTIONS", changed)
    return changed


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Keda]:
    """A client with its own connection."""
    async with grpc.aio.insecure_channel(
        address, options=(("grpc.use_local_subchannel_pool", 1),)
    ) as channel:
        yield Keda(channel)


async def failure_of(call: Any) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code()


async def test_connections_above_the_limit_are_closed_until_another_ends(
    served: ScalingUnderTest, options: dict[str, int]
) -> None:
    options["grpc.max_allowed_incoming_connections"] = 2
    async with a_server(served) as address, AsyncExitStack() as clients:
        async with connected(address) as first:
            second, third = [
                await clients.enter_async_context(connected(address)) for _ in range(2)
            ]
            assert await first.is_active(REFERENCE)
            assert await second.is_active(REFERENCE)
            assert (
                await failure_of(third.is_active(REFERENCE))
                is grpc.StatusCode.UNAVAILABLE
            )

        async def has_room() -> bool:
            try:
                async with connected(address) as fourth:
                    return await fourth.is_active(REFERENCE)
            except grpc.aio.AioRpcError:
                return False

        await eventually(has_room, bool, what="room for another connection")


def test_bounds_of_connections() -> None:
    """The other tests use smaller ones."""
    assert {
        name.rpartition(".")[2]: value
        for name, value in external_scaler.OPTIONS.items()
    } == {
        "so_reuseport": 0,
        "max_receive_message_length": 65_536,
        "max_allowed_incoming_connections": 256,
        "server_handshake_timeout_ms": 10_000,
        "max_connection_idle_ms": 300_000,
        "keepalive_time_ms": 60_000,
        "ping_timeout_ms": 20_000,
    }


@pytest.mark.slow
async def test_streams_above_a_connections_limit_wait_while_others_are_answered(
    served: ScalingUnderTest,
) -> None:
    allowance = Allowance(per_second=50, burst=200, requests=1, watches=1)
    async with (
        a_server(served, allowance) as address,
        connected(address) as keda,
        connected(address) as other,
    ):
        streams = [keda.stream(REFERENCE) for _ in range(4)]
        for stream in streams:
            assert (await stream.read()).result
        waiting = keda.ask("IsActive", REFERENCE, messages.IsActiveResponse, seconds=1)
        assert await failure_of(waiting) is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await other.is_active(REFERENCE)
        streams[0].cancel()
        assert await keda.is_active(REFERENCE)


async def test_a_stream_above_its_users_limit_is_rejected_at_once(
    served: ScalingUnderTest,
) -> None:
    allowance = Allowance(per_second=50, burst=200, requests=1, watches=1)
    served.front.authorization.limits = Limits(allowance)
    async with a_server(served, allowance) as address, connected(address) as keda:
        stream = keda.stream(REFERENCE)
        assert (await stream.read()).result
        assert (
            await failure_of(keda.stream(REFERENCE).read())
            is grpc.StatusCode.RESOURCE_EXHAUSTED
        )


async def test_a_message_that_is_too_large_is_rejected(
    served: ScalingUnderTest,
) -> None:
    large = messages.ScaledObjectRef(
        name="chat", namespace="a", scalerMetadata={"x": "x" * 64 * 1024}
    )
    async with a_server(served) as address, connected(address) as keda:
        assert (await keda.refusal(large))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


@dataclass
class Relay:
    """A proxy between client and scaler.

    After it cuts the connection, neither side notices.
    """

    address: str
    cut: bool = False
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def handle(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host, _, port = self.address.rpartition(":")
        to_reader, to_writer = await asyncio.open_connection(host, int(port))
        self.writers += [writer, to_writer]
        await asyncio.gather(
            self._forward(reader, to_writer),
            self._forward(to_reader, writer),
            return_exceptions=True,
        )

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(4096):
            if not self.cut:
                writer.write(data)


@pytest.mark.slow
async def test_the_streams_of_a_vanished_client_end(
    served: ScalingUnderTest, options: dict[str, int]
) -> None:
    options |= {"grpc.keepalive_time_ms": 200, "grpc.http2.ping_timeout_ms": 200}
    async with a_server(served) as address:
        relay = Relay(address)
        between = await asyncio.start_server(relay.handle, "127.0.0.1", 0)
        port = between.sockets[0].getsockname()[1]
        async with connected(f"127.0.0.1:{port}") as keda:
            assert (await keda.stream(REFERENCE, seconds=600).read()).result
            assert served.front.authorization.limits._watches.total() == 1
            relay.cut = True

            async def watches() -> int:
                return served.front.authorization.limits._watches.total()

            await eventually(
                watches, lambda count: not count, what="the end of the stream"
            )
            for writer in relay.writers:
                writer.close()
        between.close()


@pytest.mark.slow
async def test_a_connection_without_calls_is_closed(
    served: ScalingUnderTest, options: dict[str, int]
) -> None:
    options["grpc.max_connection_idle_ms"] = 200
    async with a_server(served) as address, connected(address) as keda:
        assert await keda.is_active(REFERENCE)
        await asyncio.wait_for(keda.disconnected(), 20)
        assert await keda.is_active(REFERENCE)


@asynccontextmanager
async def raw(
    address: str,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


async def test_a_silent_connection_is_closed(
    served: ScalingUnderTest, options: dict[str, int]
) -> None:
    options["grpc.server_handshake_timeout_ms"] = 200
    async with a_server(served) as address, raw(address) as (reader, _):
        await asyncio.wait_for(reader.read(), 20)


async def test_a_connection_that_pings_all_the_time_is_closed(
    served: ScalingUnderTest,
) -> None:
    async with a_server(served) as address, raw(address) as (reader, writer):
        writer.write(PREFACE + 10 * PING)
        assert b"too_many_pings" in await asyncio.wait_for(reader.read(), 20)
