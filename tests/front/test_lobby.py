"""Connections of unknown callers keep no user out."""

import asyncio
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import pytest

from front.serving.lobby import LOBBY_SECONDS, SURE, Guests, Lobby, Peer
from testbed.cluster.pki import Authority
from tests.environment.waiting import TIMEOUT_SECONDS
from tests.front.front_under_test import DEPLOYMENTS, TOKENS, FrontUnderTest

PATH = DEPLOYMENTS.format("team-a")
FLOOD = 5_000
DESCRIPTORS = 12_000
"""The descriptors of the flood and of the front, which share this process."""


class Clock:
    """A clock in seconds."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Waiting:
    """A lobby with connections whose other ends the test holds."""

    def __init__(self, size: int) -> None:
        self.clock = Clock()
        self.lobby = Lobby(size, self.clock)
        self.clients: dict[Peer, socket.socket] = {}
        self._servers: list[socket.socket] = []

    def enter(self, source: str, port: int) -> None:
        server, client = socket.socketpair()
        client.settimeout(0)
        self._servers.append(server)
        self.clients[source, port] = client
        self.lobby.enter((source, port), server)

    def ended(self) -> list[Peer]:
        """Return the connections that the lobby has closed."""
        return [peer for peer, client in self.clients.items() if is_ended(client)]

    def close(self) -> None:
        for each in (*self._servers, *self.clients.values()):
            each.close()


def is_ended(client: socket.socket) -> bool:
    """Return whether the other end has closed a non-blocking connection."""
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@contextmanager
def waiting(size: int) -> Iterator[Waiting]:
    found = Waiting(size)
    try:
        yield found
    finally:
        found.close()


def test_a_full_lobby_closes_the_oldest_connection_of_the_largest_source() -> None:
    with waiting(4) as room:
        room.enter("10.0.0.9", 1)
        for port in (1, 2, 3):
            room.enter("10.0.0.1", port)
        room.enter("10.0.0.2", 1)
        assert room.ended() == [("10.0.0.1", 1)]
        room.enter("10.0.0.3", 1)
        assert room.ended() == [("10.0.0.1", 1), ("10.0.0.1", 2)]
        assert len(room.lobby) == 4


def test_connections_that_left_the_lobby_are_not_closed() -> None:
    with waiting(2) as room:
        room.enter("10.0.0.1", 1)
        room.lobby.admit(("10.0.0.1", 1), "alice")
        room.lobby.admit(None, "alice")
        for port in (2, 3, 4):
            room.enter("10.0.0.1", port)
        room.clock.now += 2 * LOBBY_SECONDS
        room.lobby.end_late()
        assert room.ended() == [("10.0.0.1", port) for port in (2, 3, 4)]
        assert len(room.lobby) == 0


def test_a_connection_that_waits_too_long_is_closed() -> None:
    with waiting(9) as room:
        room.enter("10.0.0.1", 1)
        room.clock.now += LOBBY_SECONDS - 1
        room.enter("10.0.0.1", 2)
        room.lobby.end_late()
        assert room.ended() == []
        room.clock.now += 1
        room.lobby.end_late()
        assert room.ended() == [("10.0.0.1", 1)]


ALICE, BOB = [("10.0.0.1", port) for port in range(40)], [("10.0.0.2", 1)]


@pytest.mark.parametrize(
    ("size", "alice", "stay"),
    [
        (SURE + 2, SURE + 1, {"alice": True, "bob": True}),
        (SURE + 1, SURE + 1, {"alice": False, "bob": True}),
        (1, SURE, {"alice": True, "bob": True}),
    ],
    ids=["few guests", "many guests of one user", "few guests of each user"],
)
def test_a_user_with_many_guests_may_have_no_more(
    size: int, alice: int, stay: dict[str, bool]
) -> None:
    guests = Guests(size)
    for peer in ALICE[:alice]:
        guests.admit(peer, "alice")
    guests.admit(BOB[0], "bob")
    assert {
        "alice": guests.may_stay(ALICE[0]),
        "bob": guests.may_stay(BOB[0]),
    } == stay


def test_a_guest_belongs_to_the_user_of_its_last_request_until_it_is_closed() -> None:
    with waiting(99) as room:
        guests = room.lobby.guests
        guests.size = SURE
        for peer in ALICE[: SURE + 1]:
            room.enter(*peer)
            room.lobby.admit(peer, "alice")
        assert not guests.may_stay(ALICE[0])
        room.lobby.admit(ALICE[0], "bob")
        assert guests.may_stay(ALICE[0])
        assert guests.may_stay(ALICE[1])
        for peer in ALICE[: SURE + 1]:
            room.lobby.end(peer)
            # Its request may still be in progress.
            room.lobby.admit(peer, "alice")
        assert len(guests) == 0


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """Limit the descriptors of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, count)
    assert hard in (resource.RLIM_INFINITY, wanted) or hard > wanted, (
        f"ulimit -Hn is {hard}"
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Connection:
    """A TLS connection with which a test sends raw bytes."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader, self._writer = reader, writer

    def send(self, text: str) -> None:
        self._writer.write(text.encode())

    async def is_ended(self) -> bool:
        """Return whether the front closes the connection before it sends anything."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self._reader.read(1) == b""

    async def status(self) -> int:
        """Read a complete response; return its status."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().splitlines()
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            await self._reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1])


@asynccontextmanager
async def connected(front: FrontUnderTest) -> AsyncIterator[Connection]:
    host, _, port = front.settings.front.listen.rpartition(":")
    trusted = ssl.create_default_context(cafile=str(Authority(front.folder / "pki").ca))
    reader, writer = await asyncio.open_connection(host, int(port), ssl=trusted)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()


def a_request(token: str, path: str = PATH) -> str:
    """Return the head of a request for a team's deployments, as kubectl would send it."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"


@pytest.mark.slow
@pytest.mark.testbed("shared")
async def test_five_thousand_idle_connections_keep_no_user_out(
    front: FrontUnderTest,
) -> None:
    host, _, port = front.settings.front.listen.rpartition(":")
    loop = asyncio.get_running_loop()
    flood: list[socket.socket] = []
    with descriptors(DESCRIPTORS):
        try:
            async with connected(front) as known, connected(front) as half:
                known.send(a_request(TOKENS["alice"]))
                assert await known.status() == 200
                half.send(a_request(TOKENS["alice"])[:30])
                for number in range(FLOOD):
                    client = socket.socket()
                    client.settimeout(0)
                    flood.append(client)
                    await loop.sock_connect(client, (host, int(port)))
                    if number % 500 == 0:
                        assert (await front.ask("GET", PATH, user="bob"))[0] == 403
                        assert (await front.ask("GET", PATH, user="alice"))[0] == 200
                        # Later, time limits end them as well.
                        held = sum(not is_ended(client) for client in flood)
                        assert held <= Lobby().size, "a small lobby"
                known.send(a_request(TOKENS["alice"]))
                assert await known.status() == 200, (
                    "the connection of a known user stays"
                )
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await half.status()
        finally:
            for client in flood:
                client.close()


@pytest.mark.testbed("shared")
async def test_a_front_closes_connections_that_wait_too_long(
    front: FrontUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(front) as half:
        # Not earlier: the front may close a connection during its handshake.
        monkeypatch.setattr("front.serving.lobby.LOBBY_SECONDS", 0.0)
        half.send(a_request(TOKENS["alice"])[:30])
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await half.status()


@pytest.mark.testbed("shared")
async def test_a_front_with_many_guests_closes_further_connections_of_their_user(
    front: FrontUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guests, "__len__", lambda _: 1_000_000)
    async with AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(connected(front)) for _ in range(SURE + 1)
        ]
        for number, each in enumerate(opened):
            # A rejected request counts as well.
            path = DEPLOYMENTS.format("team-a" if number % 2 else "team-b")
            each.send(a_request(TOKENS["alice"], path))
            assert await each.status() == (200 if number % 2 else 403)
        assert await opened[-1].is_ended()
        for _ in range(2):
            for each in opened[:SURE]:
                each.send(a_request(TOKENS["alice"]))
                assert await each.status() == 200
        rest = await stack.enter_async_context(connected(front))
        rest.send(
            a_request(TOKENS["alice"])
            .replace("GET", "POST")
            .replace(
                "\r\n\r\n", "\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n"
            )
        )
        assert await rest.status() == 415
        # The server would wait ten seconds for the rest of the body.
        async with asyncio.timeout(8):
            assert await rest.is_ended()
        other = await stack.enter_async_context(connected(front))
        for _ in range(2):
            other.send(a_request(TOKENS["admin"]))
            assert await other.status() == 200
